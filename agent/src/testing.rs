//! Builders for the tests of this crate.

use std::sync::Arc;

use muster_model::object::Object;
use serde_json::{Value, json};

use crate::facts::{HostFacts, PodFacts};
use muster_model::resources::Amounts;

/// The host of scenario tests: `n1`, 2 CPU, 4 GiB.
pub(crate) fn host() -> Arc<HostFacts> {
    Arc::new(HostFacts {
        node_name: "n1".into(),
        host_name: "n1".into(),
        ips: vec!["10.0.0.1".into()],
        capacity: Amounts::parse("cpu=2,memory=4Gi,pods=110,ephemeral-storage=10Gi").unwrap(),
        allocatable: Amounts::parse("cpu=2,memory=3996Mi,pods=110,ephemeral-storage=9Gi").unwrap(),
        seccomp_default: true,
        ..HostFacts::default()
    })
}

/// A pod of this name, with one container `c` of image `t:1`.
pub(crate) fn pod(name: &str) -> PodFacts {
    pod_with(name, json!({"containers": [{"name": "c", "image": "t:1"}]}))
}

/// A pod of this name and spec. Its uid is `UID-NAME`.
pub(crate) fn pod_with(name: &str, spec: Value) -> PodFacts {
    pod_from(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": format!("UID-{name}")},
        "spec": spec,
    }))
}

/// A pod of this tree.
pub(crate) fn pod_from(tree: Value) -> PodFacts {
    PodFacts::new(Object::from_value(tree).unwrap(), host()).unwrap()
}
