//! PriorityClasses: two belong to the system.

use muster_model::object::Object;
use serde_json::json;

use super::strategy::Strategy;

/// Made at the first start of a server: name, value, what it is for.
pub const SYSTEM: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

pub(super) struct PriorityClasses;

impl Strategy for PriorityClasses {
    fn refuses_deletion(&self, object: &Object) -> Option<String> {
        SYSTEM
            .iter()
            .any(|(name, _, _)| *name == object.name())
            .then(|| "this is a system priority class and cannot be deleted".to_owned())
    }
}

/// The system's classes as objects.
pub(crate) fn system() -> impl Iterator<Item = Object> {
    SYSTEM.iter().map(|(name, value, description)| {
        let tree = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value, "description": description,
        });
        Object::from_value(tree).expect("the tree above is a mapping")
    })
}
