//! Registration, heartbeats, reboots.

use std::time::Duration;

use muster_agent::runtime::memory::Call;
use muster_agent::{AgentError, ConfigError};
use serde_json::json;

use crate::running;
use crate::support::node::Node;
use crate::support::server::{State, is_ready};
use crate::support::{container, pod, pod_with};

#[tokio::test(start_paused = true)]
async fn na_001_the_node_is_registered_and_ready() {
    let node = running();
    node.server
        .until("the node is there", |state| state.node.is_some())
        .await;
    let object = node.server.state().node.clone().unwrap();
    assert_eq!(object.label("kubernetes.io/os"), Some("linux"));
    let ready = &object.at("/status/conditions/3").unwrap();
    assert_eq!(
        (ready["type"].as_str(), ready["status"].as_str()),
        (Some("Ready"), Some("True"))
    );
    assert_eq!(object.text_at("/status/allocatable/cpu"), "2");
    assert_eq!(object.text_at("/status/nodeInfo/machineID"), "machine-1");
    let said = |state: &State| {
        state
            .events
            .iter()
            .any(|e| e["message"] == "Starting agent.")
    };
    node.server.until("it says that it starts", said).await;
}

#[tokio::test(start_paused = true)]
async fn na_004_a_forbidden_label_ends_the_agent() {
    let mut node = Node::new();
    node.config
        .labels
        .insert("kubernetes.io/foo".into(), "1".into());
    node.start();
    let ended = node.ended().await;
    assert!(
        matches!(ended, Err(AgentError::Config(ConfigError::ForbiddenLabel(label))) if label == "kubernetes.io/foo")
    );
}

#[tokio::test(start_paused = true)]
async fn na_007_heartbeats_come_every_ten_seconds_and_change_nothing() {
    let node = running();
    node.server
        .until("the first one", |state| state.heartbeats == 1)
        .await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    let beats = node.server.state().heartbeats;
    assert!((3..=5).contains(&beats), "{beats}");
}

#[tokio::test(start_paused = true)]
async fn na_008_a_deleted_node_is_registered_again_and_no_container_changes() {
    let node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    let before = node.containers();
    node.server.state().node = None;
    node.server
        .until("it is back", |state| state.node.is_some())
        .await;
    assert_eq!(node.server.state().registrations, 2);
    assert_eq!(node.containers(), before);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_taken_down_after_its_node_was_back_is_told_of_again() {
    let node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    node.server.take_down(&uid);
    assert!(!is_ready(&node.server.state(), &uid));
    node.server
        .until("it is Ready again", |state| is_ready(state, &uid))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_given_up_over_a_link_that_stood_still_is_told_of_again_at_once() {
    let node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    node.server.lose_sight();
    let begun = tokio::time::Instant::now();
    node.server
        .until("the node is ready again, and its pod", |state| {
            let status = state
                .node
                .as_ref()
                .unwrap()
                .at("/status/conditions/3/status");
            status.is_some_and(|status| status == "True") && is_ready(state, &uid)
        })
        .await;
    let waited = begun.elapsed();
    assert!(
        waited < Duration::from_secs(5),
        "{waited:?} on the paused clock"
    );
    assert_eq!(node.server.state().registrations, 1);
}

#[tokio::test(start_paused = true)]
async fn two_agents_never_share_a_state_directory() {
    let mut node = running();
    node.server
        .until("the node is there", |state| state.node.is_some())
        .await;
    let first = std::mem::replace(&mut node, Node::new());
    node.config.state_dir.clone_from(&first.config.state_dir);
    node.start();
    assert!(matches!(node.ended().await, Err(AgentError::Locked(_))));
}

#[tokio::test(start_paused = true)]
async fn na_010_a_reboot_is_told_once() {
    let mut node = running();
    node.server
        .until("the node is there", |state| state.node.is_some())
        .await;
    node.stop().await;
    node.config.machine.boot_id = "boot-2".into();
    for _ in 0..2 {
        node.start();
        tokio::time::sleep(Duration::from_secs(5)).await;
        node.stop().await;
    }
    let state = node.server.state();
    let told: Vec<_> = state
        .events
        .iter()
        .filter(|e| e["reason"] == "Rebooted")
        .collect();
    assert_eq!(told.len(), 1);
    assert_eq!(
        told[0]["message"],
        "Node n1 has been rebooted, boot id: boot-2"
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_agent_is_idle() {
    let node = running();
    node.server
        .until("the node is there", |state| state.node.is_some())
        .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let lists = node.engine.count(Call::List);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(
        node.engine.count(Call::List),
        lists,
        "with no pods there is nothing to look at"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hollow_node_runs_pods_without_a_disk() {
    let mut node = Node::new();
    node.config.state_dir = None;
    node.start();
    let mut c = container("c");
    c["volumeMounts"] = json!([{"name": "v", "mountPath": "/m"}]);
    let volumes = json!([{"name": "v", "configMap": {"name": "m"}}]);
    let spec = json!({"containers": [c], "volumes": volumes});
    let uid = node.server.put_pod(pod_with("p", spec));
    node.server.until_running(&uid).await;
    node.server.delete_pod(&uid, 1);
    let gone = |_: &State| node.containers().is_empty();
    node.server.until("nothing is left", gone).await;
}
