//! Leases. Those of nodes are heartbeats: soft state, never written to disk (design.md, the store).

use muster_model::object::NamespacedName;

use super::strategy::Strategy;

/// The namespace of the nodes' leases.
pub const NODE_LEASES: &str = "kube-node-lease";

pub(super) struct Leases;

impl Strategy for Leases {
    fn soft(&self, key: &NamespacedName) -> bool {
        key.namespace == NODE_LEASES
    }
}
