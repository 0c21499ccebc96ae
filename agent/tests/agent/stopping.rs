//! Pods that are deleted.

use std::time::Duration;

use muster_agent::runtime::memory::Behaviour;
use serde_json::json;

use crate::running;
use crate::support::node::Node;
use crate::support::pod;
use crate::support::server::State;

#[tokio::test(start_paused = true)]
async fn na_073_a_deleted_pod_is_stopped_confirmed_and_leaves_nothing() {
    let node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.server.delete_pod(&uid, 30);
    let state_dir = node.config.state_dir.clone().unwrap();
    let kept = state_dir.join("checkpoint/pods/uid-p.json");
    assert!(kept.exists());
    node.server
        .until("it is confirmed", |state| state.gone == [uid.clone()])
        .await;
    assert!(!kept.exists(), "it would start again without a server");
    let gone = |_: &State| node.containers().is_empty();
    node.server.until("nothing is left", gone).await;
    let forgotten = |_: &State| !state_dir.join("pods/uid-p").exists();
    node.server.until("its files are gone", forgotten).await;
}

#[tokio::test(start_paused = true)]
async fn na_074_a_container_that_ignores_the_signal_is_killed_after_the_grace() {
    let node = running();
    node.engine.set_behaviour(
        "t:1",
        Behaviour {
            ignore_term: true,
            ..Behaviour::default()
        },
    );
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    let began = node.clock.monotonic();
    node.server.delete_pod(&uid, 3);
    node.server
        .until("it is confirmed", |state| !state.gone.is_empty())
        .await;
    let took = node.clock.monotonic() - began;
    assert!((3..=5).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn na_016_a_pod_that_was_force_deleted_is_stopped_without_a_confirmation() {
    let node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.server.force_delete(&uid);
    let gone = |_: &State| node.containers().is_empty();
    node.server.until("nothing is left", gone).await;
    assert_eq!(node.server.state().gone, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_the_same_name_waits_for_the_former_one() {
    let node = running();
    node.engine.set_behaviour(
        "t:1",
        Behaviour {
            term_delay: Duration::from_secs(5),
            ..Behaviour::default()
        },
    );
    let former = node.server.put_pod(pod("p"));
    node.server.until_running(&former).await;
    node.server.force_delete(&former);
    let mut next = pod("p");
    next["metadata"]["uid"] = json!("uid-next");
    let next = node.server.put_pod(next);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let uids = |node: &Node| -> Vec<String> {
        node.containers()
            .iter()
            .map(|c| c.labels["io.kubernetes.pod.uid"].clone())
            .collect()
    };
    assert!(!uids(&node).contains(&next));
    node.server.until_running(&next).await;
    assert!(!uids(&node).contains(&former));
}
