//! Without a server, or without the engine.

use std::time::Duration;

use muster_agent::runtime::memory::{Call, PullScript};
use muster_agent::runtime::{ContainerState, RuntimeError};
use muster_agent::waiting as reason;
use serde_json::{Value, json};

use crate::support::node::Node;
use crate::support::server::{State, is_ready};
use crate::support::{container, pod, pod_with};
use crate::{reasons, running, until_waiting, waiting};

#[tokio::test(start_paused = true)]
async fn na_095_without_a_server_containers_are_restarted_and_told_of_later() {
    let node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.server.go_down();
    tokio::time::sleep(Duration::from_secs(30)).await;
    node.engine.end(&node.named("c")[0].id, 137);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        node.named("c")
            .iter()
            .filter(|c| matches!(c.state, ContainerState::Running { .. }))
            .count(),
        1
    );
    node.server.come_up();
    let counted = |state: &State| {
        state.pods[&uid].at("/status/containerStatuses/0/restartCount") == Some(&json!(1))
    };
    node.server.until("it is told", counted).await;
}

#[tokio::test(start_paused = true)]
async fn na_096_pods_come_back_from_the_checkpoint_after_a_reboot_without_a_server() {
    let mut node = running();
    node.server.put_object(
        "configmaps",
        json!({"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}}),
    );
    let mut c = container("c");
    c["env"] = json!([{"name": "V", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]);
    let uid = node
        .server
        .put_pod(pod_with("p", json!({"containers": [c]})));
    node.server.until_running(&uid).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    node.stop().await;
    node.server.go_down();
    for container in node.containers() {
        node.engine.remove_by_hand(&container.id);
    }
    node.config.machine.boot_id = "boot-2".into();
    node.start();
    let up = |_: &State| node.named("c").len() == 1;
    node.server.until("it runs again", up).await;
    assert_eq!(node.named("POD")[0].name, "k8s_POD_p_default_uid-p_1");
    assert_eq!(node.named("c")[0].name, "k8s_c_p_default_uid-p_1");
    node.server.come_up();
    let counted = |state: &State| {
        state.pods[&uid].at("/status/containerStatuses/0/restartCount") == Some(&json!(1))
    };
    node.server.until("it is told", counted).await;
}

/// A node that runs a pod and has just registered with another cluster, which has none.
async fn beside_a_server_that_knows_nothing() -> Node {
    let mut node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.stop().await;
    {
        let mut state = node.server.state();
        state.cluster_id = "cluster-2".into();
        state.pods.clear();
    }
    node.start();
    node.server
        .until("it registers", |state| state.registrations == 2)
        .await;
    node
}

#[tokio::test(start_paused = true)]
async fn na_098_a_server_that_knows_nothing_is_asked_twice() {
    let node = beside_a_server_that_knows_nothing().await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(node.containers().len(), 2);
    let gone = |_: &State| node.containers().is_empty();
    node.server.until("nothing is left", gone).await;
}

#[tokio::test(start_paused = true)]
async fn na_099_an_engine_that_stops_makes_the_node_not_ready_and_no_crash_loop() {
    let node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.engine.go_down();
    let ready = |state: &State| {
        state
            .node
            .as_ref()
            .unwrap()
            .text_at("/status/conditions/3/status")
            .to_owned()
    };
    node.server
        .until("not ready", |state| ready(state) == "False")
        .await;
    node.engine.come_up();
    node.server
        .until("ready", |state| ready(state) == "True")
        .await;
    let counted = |state: &State| {
        state.pods[&uid].at("/status/containerStatuses/0/restartCount") == Some(&json!(1))
            && is_ready(state, &uid)
    };
    node.server.until("it runs again", counted).await;
    assert!(!reasons(&node, &uid).contains(&"BackOff".to_owned()));
}

/// A node on which nothing is tried again but for a reason, and a pod whose image takes a minute to come.
fn beside_a_slow_registry(node: &mut Node, spec: Value) -> String {
    node.config.timing.failed_sync = Duration::from_secs(3600);
    node.config.timing.pull_first = Duration::from_secs(3600);
    node.config.timing.pull_max = Duration::from_secs(3600);
    let failures = match spec["imagePullSecrets"].is_array() {
        true => vec![RuntimeError::Refused {
            status: 404,
            message: "pull access denied".into(),
        }],
        false => Vec::new(),
    };
    let delay = Duration::from_secs(60);
    node.engine
        .add_pullable("t:2", PullScript { delay, failures });
    node.start();
    node.server.put_pod(pod_with("p", spec))
}

#[tokio::test(start_paused = true)]
async fn a_map_that_nobody_can_read_just_then_is_no_fault_of_the_pod_and_is_read_once_the_server_is_back()
 {
    let mut node = Node::new();
    node.server.put_object(
        "configmaps",
        json!({"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}}),
    );
    let mut c = container("c");
    c["image"] = json!("t:2");
    c["envFrom"] = json!([{"configMapRef": {"name": "m"}}]);
    let uid = beside_a_slow_registry(&mut node, json!({"containers": [c]}));
    let pulls = |_: &State| node.engine.count(Call::Pull) == 1;
    node.server.until("it is pulled", pulls).await;
    node.server.go_down();
    tokio::time::sleep(Duration::from_secs(65)).await;
    assert_eq!(node.named("c").len(), 0);
    node.server.come_up();
    node.server.until_running(&uid).await;
    let waits = node.server.state().waits.clone();
    assert!(waits.contains(reason::CONFIG_UNAVAILABLE), "{waits:?}");
    assert!(
        !waits.contains(reason::CREATE_CONTAINER_CONFIG_ERROR),
        "{waits:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pull_without_its_secret_while_the_server_is_away_is_no_fault_of_the_image() {
    let mut node = Node::new();
    node.server.put_object(
        "secrets",
        json!({"kind": "Secret", "metadata": {"name": "s"}, "data": {}}),
    );
    let mut c = container("c");
    c["image"] = json!("t:2");
    node.server.state().objects_away = true;
    let uid = beside_a_slow_registry(
        &mut node,
        json!({"containers": [c], "imagePullSecrets": [{"name": "s"}]}),
    );
    until_waiting(&node, &uid, reason::CONFIG_UNAVAILABLE).await;
    let message = waiting(&node, &uid)["message"].clone();
    assert_eq!(
        message,
        "secret \"s\" cannot be read: the server cannot be reached, and no copy is kept; without it: pull access denied"
    );
    node.server.state().objects_away = false;
    node.server.until_running(&uid).await;
    assert_eq!(node.engine.count(Call::Pull), 2);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_goes_away_in_the_middle_is_no_fault_of_the_pod() {
    for call in [Call::Pull, Call::Create, Call::Start] {
        let node = running();
        let mut c = container("c");
        c["imagePullPolicy"] = json!("Always");
        node.engine.add_pullable("t:1", PullScript::default());
        let down = RuntimeError::Unreachable("connection reset".into());
        node.engine.fail_next("n1", call, down);
        let uid = node
            .server
            .put_pod(pod_with("p", json!({"containers": [c]})));
        node.server.until_running(&uid).await;
        let mut waits = node.server.state().waits.clone();
        waits.remove("ContainerCreating");
        let expected = match call {
            Call::Start => reason::RUN_CONTAINER_ERROR,
            _ => reason::CONTAINER_RUNTIME_UNAVAILABLE,
        };
        assert_eq!(
            waits.into_iter().collect::<Vec<_>>(),
            [expected],
            "{call:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn na_098_a_doubt_outlives_the_connection() {
    let node = beside_a_server_that_knows_nothing().await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    node.server.go_down();
    tokio::time::sleep(Duration::from_secs(10)).await;
    node.server.come_up();
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(node.containers().len(), 2);
    let gone = |_: &State| node.containers().is_empty();
    node.server.until("nothing is left", gone).await;
}
