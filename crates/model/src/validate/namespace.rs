//! Namespaces.

use super::metadata;
use super::view::{Faults, View};

pub(super) fn check(root: &View, faults: &mut Faults) {
    metadata::check_finalizers(&root.down(&["spec", "finalizers"]), faults);
}

pub(super) fn check_status(root: &View, faults: &mut Faults) {
    let phase = root.down(&["status", "phase"]);
    let terminating = root.down(&["metadata", "deletionTimestamp"]).is_present();
    if terminating && phase.text() != "Terminating" {
        faults.push(
            phase.invalid_text("may only be 'Terminating' if `deletionTimestamp` is not empty"),
        );
    } else if !terminating && phase.text() != "Active" {
        faults.push(phase.invalid_text("may only be 'Active' if `deletionTimestamp` is empty"));
    }
}
