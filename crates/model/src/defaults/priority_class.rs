//! Defaults of PriorityClasses.

use super::default_text;
use crate::object::Object;

pub(super) fn apply(object: &mut Object) {
    default_text(
        object.tree_mut(),
        "preemptionPolicy",
        "PreemptLowerPriority",
    );
}
