//! ControllerRevisions (spec/daemonset.md 4.3).

use super::view::{Faults, View};

pub(super) fn check(root: &View, faults: &mut Faults) {
    let data = root.child("data");
    if !data.is_present() {
        faults.push(data.required("data is mandatory"));
    }
    root.child("revision").check_not_negative(faults);
}

pub(super) fn check_update(new: &View, old: &View, faults: &mut Faults) {
    new.child("data")
        .check_unchanged(&old.child("data"), faults);
}
