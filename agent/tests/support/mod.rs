//! One node's agent against a server in memory, on a paused clock.

mod clock;
pub(crate) mod node;
pub(crate) mod server;

use serde_json::{Value, json};

/// A pod of this name with one container `c` of `t:1`.
pub(crate) fn pod(name: &str) -> Value {
    pod_with(name, json!({"containers": [container("c")]}))
}

pub(crate) fn container(name: &str) -> Value {
    json!({"name": name, "image": "t:1", "imagePullPolicy": "IfNotPresent"})
}

pub(crate) fn pod_with(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["nodeName"] = json!("n1");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-01-31T09:00:00Z",
        },
        "spec": spec,
    })
}
