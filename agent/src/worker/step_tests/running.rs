//! A pod that comes up, and what is said of it.

use std::time::Duration;

use serde_json::json;

use super::{running, world};
use crate::testing::pod_with;
use crate::worker::actions::{Done, Work};
use crate::worker::step::*;
use crate::worker::world::{World, image};

#[test]
fn na_086_a_fresh_pod_runs_and_says_so() {
    let world = running();
    let status = world.status();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let types: Vec<_> = status
        .conditions
        .iter()
        .flatten()
        .map(|c| (c.type_.as_str(), c.status.as_str()))
        .collect();
    assert_eq!(
        types,
        [
            ("PodReadyToStartContainers", "True"),
            ("Initialized", "True"),
            ("Ready", "True"),
            ("ContainersReady", "True"),
            ("PodScheduled", "True"),
        ]
    );
    let c = world.of("c");
    assert_eq!(c.image_id, "docker://sha256:t:1");
    assert_eq!(c.image, "t:1");
    assert_eq!(c.container_id.unwrap().len(), "docker://".len() + 64);
    assert_eq!((c.ready, c.started, c.restart_count), (true, Some(true), 0));
    assert_eq!(status.pod_ip.as_deref(), Some("172.17.0.2"));
    assert_eq!(status.host_ip.as_deref(), Some("10.0.0.1"));
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
    assert!(status.start_time.is_some());
    assert!(world.events.is_empty());
}

#[test]
fn what_waits_on_nothing_is_asked_for_together() {
    let mut world = world();
    let first: Vec<Work> = world
        .step()
        .actions
        .iter()
        .filter_map(Action::work)
        .collect();
    assert_eq!(
        first,
        [Work::Keep, Work::Prepare, Work::Image("t:1".into())]
    );
    assert_eq!(world.status().phase.as_deref(), Some("Pending"));
    assert_eq!(world.waiting("c").0, "ContainerCreating");
    let (status, reason, message) = world.condition("Ready");
    assert_eq!(status, "False");
    assert_eq!(reason, "ContainersNotReady");
    assert_eq!(message, "containers with unready status: [c]");
}

#[test]
fn the_checkpoint_comes_before_the_first_container() {
    let mut world = running();
    let keep = world.asked.iter().position(|a| *a == Action::Keep).unwrap();
    let sandbox = world
        .asked
        .iter()
        .position(|a| matches!(a, Action::RunSandbox { .. }))
        .unwrap();
    let start = world
        .asked
        .iter()
        .position(|a| matches!(a, Action::Start(_)))
        .unwrap();
    assert!(keep < sandbox && sandbox < start);
    world.asked.clear();
    world.pass(2);
    assert_eq!(world.asked, [Action::Keep]);
}

#[test]
fn na_045_no_sandbox_where_nothing_is_shared() {
    let mut world = World::new(pod_with(
        "p",
        json!({"hostNetwork": true, "containers": [{"name": "c", "image": "t:1"}]}),
    ));
    world.settle();
    assert_eq!(world.containers.len(), 1);
    assert_eq!(world.status().phase.as_deref(), Some("Running"));
    assert_eq!(world.status().pod_ip, world.status().host_ip);
    assert_eq!(world.condition("PodReadyToStartContainers").0, "True");
    world.delete(5);
    world.pass(1);
    assert!(world.over);
}

#[test]
fn na_035_a_configuration_error_waits_without_counting() {
    let mut world = world();
    let failure = Done::Failed {
        reason: "CreateContainerConfigError".into(),
        message: "configmap \"m\" not found".into(),
    };
    world.fail.insert(Work::Start("c".into()), failure.clone());
    world.settle();
    assert_eq!(
        world.waiting("c"),
        (
            "CreateContainerConfigError".into(),
            "configmap \"m\" not found".into()
        )
    );
    assert_eq!(world.of("c").restart_count, 0);
    world.fail.insert(Work::Start("c".into()), failure);
    world.pass(10);
    assert!(!world.is_up("c"));
    let now = world.now();
    world.memory.hurry(now);
    world.settle();
    assert!(world.is_up("c"));
    assert_eq!(world.of("c").restart_count, 0);
}

#[test]
fn na_070_a_failed_pull_backs_off_and_is_told_as_such() {
    let mut world = world();
    let failure = || Done::Failed {
        reason: "ErrImagePull".into(),
        message: "connection refused".into(),
    };
    let work = Work::Image("t:1".into());
    let mut tries = Vec::new();
    for _ in 0..7 {
        world.fail.insert(work.clone(), failure());
        while world.fail.contains_key(&work) {
            let wake = world.settle().wake_at.0;
            if world.fail.contains_key(&work) {
                world.now_ms = wake.max(world.now_ms + 1);
            }
        }
        tries.push(world.now_ms / 1000);
    }
    let gaps: Vec<i64> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [10, 20, 40, 80, 160, 300]);
    assert_eq!(
        world.waiting("c"),
        ("ErrImagePull".into(), "connection refused".into())
    );
    world.wait(Duration::from_secs(3));
    world.settle();
    let message = "Back-off pulling image \"t:1\": ErrImagePull: connection refused";
    assert_eq!(
        world.waiting("c"),
        ("ImagePullBackOff".into(), message.into())
    );
    assert!(
        world
            .said("BackOff")
            .contains(&"Back-off pulling image \"t:1\"".to_owned())
    );
    assert_eq!(world.status().phase.as_deref(), Some("Pending"));
    world.pass(300);
    assert!(world.is_up("c"));
}

#[test]
fn na_069_an_image_that_must_not_be_pulled_is_looked_for_again_and_again() {
    let mut world = world();
    for _ in 0..10 {
        let missing = Done::Failed {
            reason: "ErrImageNeverPull".into(),
            message: "not present".into(),
        };
        world.fail.insert(Work::Image("t:1".into()), missing);
        world.settle();
        assert!(world.fail.is_empty(), "it was looked for");
        assert_eq!(world.waiting("c").0, "ErrImageNeverPull");
        world.wait(Duration::from_secs(10));
    }
    world.settle();
    assert!(world.is_up("c"));
}

#[test]
fn na_078_a_changed_image_restarts_its_container_alone() {
    let mut world = running();
    let sandbox = world.current("POD").id;
    world.pod = pod_with("p", json!({"containers": [{"name": "c", "image": "t:2"}]}));
    world.settle();
    assert_eq!(
        world.said("Killing"),
        ["Container c definition changed, will be restarted"]
    );
    assert_eq!(world.current("c").image_id, "sha256:t:2");
    assert_eq!(world.of("c").restart_count, 1);
    assert_eq!(world.current("POD").id, sandbox);
    assert_eq!(world.now_ms, 0);
}

#[test]
fn na_051_a_volume_that_does_not_come_is_tried_again_and_called_timed_out() {
    let spec = json!({
        "containers": [{"name": "c", "image": "t:1"}],
        "volumes": [{"name": "v", "hostPath": {"path": "/nope", "type": "Directory"}}]});
    let mut world = World::new(pod_with("p", spec));
    let mut tries = Vec::new();
    while world.now_ms < 130_000 {
        world.fail.insert(Work::Prepare, Done::failed("no"));
        let asked = world.asked.len();
        let wake = world.settle().wake_at.0;
        if world.asked[asked..].contains(&Action::Prepare) {
            tries.push(world.now_ms);
        }
        world.now_ms = wake.max(world.now_ms + 1);
    }
    assert_eq!(tries[..5], [0, 500, 1500, 3500, 7500]);
    assert_eq!(world.waiting("c").0, "ContainerCreating");
    let said = world.said("FailedMount");
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with("Unable to attach or mount volumes: unmounted volumes=[v]"));
    world.fail.clear();
    world.pass(130);
    assert!(world.is_up("c"));
}

#[test]
fn two_containers_start_one_after_the_other_in_order() {
    let two = json!([{"name": "b", "image": "t:1"}, {"name": "a", "image": "t:2"}]);
    let mut world = World::new(pod_with("p", json!({"containers": two})));
    world.settle();
    let order: Vec<_> = world.starts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(order, ["b", "a"]);
    let names: Vec<_> = world
        .status()
        .container_statuses
        .iter()
        .flatten()
        .map(|s| s.name.clone())
        .collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn a_foreign_condition_is_kept_and_transition_times_move_only_with_the_status() {
    let mut world = running();
    let before = world.status().conditions.clone().unwrap();
    let mut object = world.pod.object.tree().clone();
    object["status"] = json!({"conditions": [{"type": "example.com/x", "status": "True"}]});
    world.pod = crate::testing::pod_from(object);
    world.pass(30);
    let after = world.status().conditions.clone().unwrap();
    assert_eq!(after[..5], before[..]);
    assert_eq!(after[5].type_, "example.com/x");
}

#[test]
fn images_are_named_by_tag_and_digest() {
    let mut world = world();
    world.settle();
    let mut view = image("t:1");
    view.digests = vec!["repo@sha256:feed".into()];
    let (timing, now) = (world.pod.host.timing.clone(), world.now());
    let outcome = crate::worker::actions::Outcome {
        work: Work::Image("t:1".into()),
        done: Done::Image(view),
    };
    world.memory.note(outcome, &timing, now);
    world.settle();
    assert_eq!(world.of("c").image_id, "docker-pullable://repo@sha256:feed");
}
