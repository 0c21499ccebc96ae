//! Defaults of Nodes.

use super::{canonical_quantities, default_value, mapping, mapping_or_new};
use crate::object::Object;

pub(super) fn apply(object: &mut Object) {
    let tree = object.tree_mut();
    mapping_or_new(tree, "spec");
    let Some(status) = mapping(tree, "status") else {
        return;
    };
    if let Some(capacity) = status.get("capacity").cloned() {
        default_value(status, "allocatable", capacity);
    }
    canonical_quantities(status, "capacity");
    canonical_quantities(status, "allocatable");
}
