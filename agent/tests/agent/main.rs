//! The agent as a whole: with the in-memory engine, a server in memory, and the paused clock.

#![allow(missing_docs, reason = "a test binary")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests may spawn what they drop")]

mod images;
mod node;
mod outages;
mod pods;
mod restarts;
mod stopping;
#[path = "../support/mod.rs"]
mod support;

use serde_json::Value;
use support::node::Node;
use support::server::State;

fn running() -> Node {
    let mut node = Node::new();
    node.start();
    node
}

fn reasons(node: &Node, uid: &str) -> Vec<String> {
    let state = node.server.state();
    let of_pod = state
        .events
        .iter()
        .filter(|e| e["involvedObject"]["uid"] == uid);
    of_pod
        .map(|e| e["reason"].as_str().unwrap().to_owned())
        .collect()
}

fn waiting(node: &Node, uid: &str) -> Value {
    node.server.status(uid)["containerStatuses"][0]["state"]["waiting"].clone()
}

async fn until_waiting(node: &Node, uid: &str, reason: &str) {
    let holds = |state: &State| {
        let pod = state.pods.get(uid);
        let found =
            pod.map(|p| p.text_at("/status/containerStatuses/0/state/waiting/reason") == reason);
        found == Some(true)
    };
    node.server.until(reason, holds).await;
}
