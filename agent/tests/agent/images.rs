//! Pull policies, and images that do not come.

use std::time::Duration;

use muster_agent::runtime::RuntimeError;
use muster_agent::runtime::memory::{Call, PullScript};
use serde_json::json;

use crate::support::node::Node;
use crate::support::{container, pod_with};
use crate::{running, until_waiting, waiting};

#[tokio::test(start_paused = true)]
async fn na_069_policies_never_and_present() {
    let node = running();
    let mut c = container("c");
    c["image"] = json!("no:1");
    c["imagePullPolicy"] = json!("Never");
    let uid = node
        .server
        .put_pod(pod_with("p", json!({"containers": [c]})));
    until_waiting(&node, &uid, "ErrImageNeverPull").await;
    assert_eq!(
        waiting(&node, &uid)["message"],
        "Container image \"no:1\" is not present with pull policy of Never"
    );
    node.engine.add_image("no:1");
    node.server.until_running(&uid).await;
}

#[tokio::test(start_paused = true)]
async fn na_070_an_image_loaded_by_hand_ends_the_back_off_without_a_pull() {
    let node = running();
    let mut c = container("c");
    c["image"] = json!("127.0.0.1:5999/x:1");
    let uid = node
        .server
        .put_pod(pod_with("p", json!({"containers": [c]})));
    until_waiting(&node, &uid, "ErrImagePull").await;
    until_waiting(&node, &uid, "ImagePullBackOff").await;
    let message = waiting(&node, &uid)["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with("Back-off pulling image \"127.0.0.1:5999/x:1\": ErrImagePull: "),
        "{message}"
    );
    node.engine.add_image("127.0.0.1:5999/x:1");
    let pulls = node.engine.count(Call::Pull);
    node.server.until_running(&uid).await;
    assert_eq!(node.engine.count(Call::Pull), pulls);
}

#[tokio::test(start_paused = true)]
async fn na_071_without_a_registry_a_local_image_serves_always() {
    for (fallback, runs) in [(true, true), (false, false)] {
        let mut node = Node::new();
        node.config.offline_image_fallback = fallback;
        let unreachable = RuntimeError::RegistryUnreachable("dial tcp: connection refused".into());
        node.engine.add_pullable(
            "t:1",
            PullScript {
                delay: Duration::ZERO,
                failures: vec![unreachable; 50],
            },
        );
        node.start();
        let mut c = container("c");
        c["imagePullPolicy"] = json!("Always");
        let uid = node
            .server
            .put_pod(pod_with("p", json!({"containers": [c]})));
        if runs {
            node.server.until_running(&uid).await;
        } else {
            until_waiting(&node, &uid, "ErrImagePull").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn na_072_an_image_name_that_is_none() {
    let node = running();
    let mut c = container("c");
    c["image"] = json!("UPPER:1");
    let uid = node
        .server
        .put_pod(pod_with("p", json!({"containers": [c]})));
    until_waiting(&node, &uid, "InvalidImageName").await;
}
