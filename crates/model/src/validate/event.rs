//! Events.

use super::view::{Faults, View};

pub(super) fn check(root: &View, faults: &mut Faults) {
    let about = root.down(&["involvedObject", "namespace"]);
    if !about.is_empty() && about.text() != root.down(&["metadata", "namespace"]).text() {
        faults.push(about.invalid("does not match event.namespace"));
    }
    let kind = root.child("type");
    if !kind.is_empty() {
        kind.check_one_of(&["Normal", "Warning"], faults);
    }
}
