use muster_model::k8s::api::core::v1::{
    ContainerState as State, ContainerStateWaiting, ContainerStatus,
};

use super::*;
use crate::runtime::{ContainerView, Labels, labels};

fn container(attempt: u32, state: ContainerState) -> ContainerView {
    let labels: Labels = [
        (labels::POD_UID, "u"),
        (labels::TYPE, labels::TYPE_CONTAINER),
        (labels::CONTAINER_NAME, "c"),
        (labels::RESTART_COUNT, &attempt.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect();
    ContainerView {
        id: ContainerId(attempt.to_string()),
        name: String::new(),
        labels,
        image_id: String::new(),
        created_at: at(),
        state,
        ip: None,
        log_path: None,
    }
}

fn at() -> Timestamp {
    "2026-01-31T10:00:00Z".parse().unwrap()
}

fn dead() -> ContainerState {
    ContainerState::Exited {
        started_at: at(),
        finished_at: at(),
        exit_code: 1,
        oom_killed: false,
        message: String::new(),
    }
}

fn up() -> ContainerState {
    ContainerState::Running {
        started_at: at(),
        pid: 1,
    }
}

fn chosen(
    containers: Vec<ContainerView>,
    names: &[&str],
    query: LogsQuery,
) -> Result<String, String> {
    let query = LogsQuery {
        pod: "p".into(),
        ..query
    };
    let waiting = ContainerStateWaiting {
        reason: Some("ImagePullBackOff".into()),
        message: None,
    };
    let state = State {
        waiting: Some(waiting),
        ..State::default()
    };
    let waits = ContainerStatus {
        name: "w".into(),
        state: Some(state),
        ..ContainerStatus::default()
    };
    let status = PodStatus {
        container_statuses: Some(vec![waits]),
        ..PodStatus::default()
    };
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let view = PodView::of("u", containers);
    select(&view, &status, &names, &query)
        .map(|id| id.0)
        .map_err(|error| {
            assert_eq!(error.code, 400);
            error.message
        })
}

fn named(name: &str) -> LogsQuery {
    LogsQuery {
        container: name.into(),
        ..LogsQuery::default()
    }
}

#[test]
fn na_087_the_former_run_is_the_newest_dead_one_before_the_current() {
    let previous = LogsQuery {
        previous: true,
        ..named("c")
    };
    let both = vec![container(0, dead()), container(1, up())];
    assert_eq!(chosen(both.clone(), &["c"], named("c")), Ok("1".into()));
    assert_eq!(chosen(both, &["c"], previous.clone()), Ok("0".into()));
    assert_eq!(
        chosen(vec![container(0, up())], &["c"], previous),
        Err("previous terminated container \"c\" in pod \"p\" not found".into())
    );
}

#[test]
fn na_089_which_container_must_be_clear() {
    let one = vec![container(0, up())];
    assert_eq!(chosen(one.clone(), &["c"], named("")), Ok("0".into()));
    assert_eq!(
        chosen(one.clone(), &["a", "b"], named("")),
        Err("a container name must be specified for pod p, choose one of: [a b]".into())
    );
    assert_eq!(
        chosen(one, &["c"], named("x")),
        Err("container x is not valid for pod p".into())
    );
}

#[test]
fn a_container_that_waits_shows_its_predecessor_or_why() {
    assert_eq!(
        chosen(vec![container(0, dead())], &["c"], named("c")),
        Ok("0".into())
    );
    assert_eq!(
        chosen(
            vec![container(1, ContainerState::Created), container(0, dead())],
            &["c"],
            named("c")
        ),
        Ok("0".into())
    );
    assert_eq!(
        chosen(Vec::new(), &["c"], named("c")),
        Err("container \"c\" in pod \"p\" is waiting to start: ContainerCreating".into())
    );
    assert_eq!(
        chosen(Vec::new(), &["c", "w"], named("w")),
        Err(
            "container \"w\" in pod \"p\" is waiting to start: trying and failing to pull image"
                .into()
        )
    );
}

#[test]
fn one_beginning_is_enough() {
    let both = LogsQuery {
        since_seconds: Some(1),
        since_time: "2026-01-31T10:00:00Z".into(),
        ..named("c")
    };
    assert_eq!(options(&both, at()).unwrap_err().code, 400);
    let seconds = LogsQuery {
        since_seconds: Some(60),
        ..named("c")
    };
    assert_eq!(
        options(&seconds, at()).unwrap().since,
        Some("2026-01-31T09:59:00Z".parse().unwrap())
    );
}
