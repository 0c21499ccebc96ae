//! Agents that end and come back.

use std::time::Duration;

use muster_agent::runtime::memory::{Behaviour, Call};
use muster_agent::runtime::{ContainerState, RuntimeError};
use serde_json::json;

use crate::running;
use crate::support::server::State;
use crate::support::{container, pod, pod_with};

#[tokio::test(start_paused = true)]
async fn na_027_a_restart_rejects_nothing_that_runs() {
    let mut node = running();
    let mut c = container("c");
    c["resources"] = json!({"requests": {"cpu": "1"}});
    let uids: Vec<String> = ["a", "b"]
        .iter()
        .map(|name| {
            node.server
                .put_pod(pod_with(name, json!({"containers": [c]})))
        })
        .collect();
    for uid in &uids {
        node.server.until_running(uid).await;
    }
    let before = node.containers();
    node.stop().await;
    // Even where the machine has become smaller.
    node.config.capacity = muster_agent::Amounts::parse("cpu=500m").unwrap();
    node.start();
    node.server
        .until("registered again", |state| state.registrations == 2)
        .await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(node.containers(), before);
    assert_eq!(node.server.state().ready_lost, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn na_092_a_restarted_agent_changes_no_container() {
    let mut node = running();
    let uids: Vec<String> = ["a", "b", "c"]
        .iter()
        .map(|name| node.server.put_pod(pod(name)))
        .collect();
    for uid in &uids {
        node.server.until_running(uid).await;
    }
    let before = node.containers();
    for _ in 0..3 {
        node.stop().await;
        tokio::time::sleep(Duration::from_secs(7)).await;
        node.start();
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(node.containers(), before);
    assert_eq!(node.server.state().ready_lost, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_start_under_way_when_the_agent_stops_is_counted() {
    let mut node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    let slow = Behaviour {
        start_delay: Duration::from_secs(1),
        ..Behaviour::default()
    };
    node.engine.set_behaviour("t:1", slow);
    node.engine.end(&node.named("c")[0].id, 1);
    let made = |_: &State| {
        let mut states = node.named("c").into_iter().map(|c| c.state);
        states.next_back() == Some(ContainerState::Created)
    };
    node.server.until("its successor is made", made).await;
    node.stop().await;
    let successor = node.named("c").pop().unwrap();
    assert!(
        matches!(successor.state, ContainerState::Running { .. }),
        "{successor:?}"
    );
    node.server.go_down();
    for container in node.containers() {
        node.engine.remove_by_hand(&container.id);
    }
    node.start();
    let again = |_: &State| node.named("c").len() == 1;
    node.server.until("it is made anew", again).await;
    assert_eq!(node.named("c")[0].name, "k8s_c_p_default_uid-p_2");
}

#[tokio::test(start_paused = true)]
async fn na_093_a_death_while_the_agent_is_down_is_told_with_its_own_time() {
    let mut node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.stop().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let died = node.clock.now();
    node.engine.end(&node.named("c")[0].id, 7);
    tokio::time::sleep(Duration::from_secs(60)).await;
    node.start();
    let counted = |state: &State| {
        state.pods[&uid].at("/status/containerStatuses/0/restartCount") == Some(&json!(1))
    };
    node.server.until("it restarts", counted).await;
    let last = node.server.status(&uid)["containerStatuses"][0]["lastState"]["terminated"].clone();
    assert_eq!(last["exitCode"], 7);
    assert_eq!(
        last["finishedAt"],
        muster_model::time::to_seconds_text(died)
    );
}

#[tokio::test(start_paused = true)]
async fn na_094_a_pod_deleted_while_the_agent_is_down_is_stopped() {
    let mut node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.stop().await;
    node.server.force_delete(&uid);
    assert_eq!(node.containers().len(), 2);
    node.start();
    let gone = |_: &State| node.containers().is_empty();
    node.server.until("nothing is left", gone).await;
}

#[tokio::test(start_paused = true)]
async fn an_orphan_without_any_checkpoint_is_stopped_once_the_snapshot_is_there() {
    let mut node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.stop().await;
    std::fs::remove_dir_all(node.config.state_dir.as_ref().unwrap().join("checkpoint")).unwrap();
    node.server.force_delete(&uid);
    node.server.go_down();
    node.start();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(
        node.containers().len(),
        2,
        "nothing is stopped before the server was heard"
    );
    node.server.come_up();
    let gone = |_: &State| node.containers().is_empty();
    node.server.until("nothing is left", gone).await;
}

#[tokio::test(start_paused = true)]
async fn na_097_a_damaged_checkpoint_skips_its_pod_and_no_other() {
    let mut node = running();
    let uids: Vec<String> = ["a", "b"]
        .iter()
        .map(|name| node.server.put_pod(pod(name)))
        .collect();
    for uid in &uids {
        node.server.until_running(uid).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    node.stop().await;
    node.server.go_down();
    for container in node.containers() {
        node.engine.remove_by_hand(&container.id);
    }
    let checkpoint = node.config.state_dir.as_ref().unwrap().join("checkpoint");
    std::fs::write(checkpoint.join("pods/uid-a.json"), "muster 1 0\n{").unwrap();
    node.start();
    let other = |_: &State| node.containers().len() == 2;
    node.server.until("the other pod runs", other).await;
    assert!(checkpoint.join("bad/uid-a.json").exists());
    assert!(
        node.containers()
            .iter()
            .all(|c| c.labels["io.kubernetes.pod.uid"] == "uid-b")
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_started_is_not_started_again_while_the_engine_cannot_be_looked_at() {
    let node = running();
    for call in [Call::RunSandbox, Call::Start] {
        node.server
            .until("the node is there", |state| state.node.is_some())
            .await;
        let name = format!("p-{call:?}").to_lowercase();
        for _ in 0..6 {
            let error = RuntimeError::Refused {
                status: 500,
                message: "not now".into(),
            };
            node.engine.fail_next("n1", Call::ListPod, error);
        }
        let before = node.engine.count(call);
        let uid = node.server.put_pod(pod(&name));
        node.server.until_running(&uid).await;
        assert_eq!(node.engine.count(call), before + 1, "{call:?}");
    }
    assert_eq!(node.containers().len(), 4);
}
