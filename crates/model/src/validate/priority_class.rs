//! PriorityClasses.

use super::view::{Faults, View};

/// The most a user may ask for; what lies above is the system's.
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;
const SYSTEM_CLASSES: [(&str, i64); 2] = [
    ("system-node-critical", 2_000_001_000),
    ("system-cluster-critical", 2_000_000_000),
];

pub(super) fn check(root: &View, faults: &mut Faults) {
    let (name, value) = (root.down(&["metadata", "name"]), root.child("value"));
    let number = value.number().unwrap_or(0);
    if name.text().starts_with("system-") {
        if !SYSTEM_CLASSES.contains(&(name.text(), number)) {
            faults.push(name.forbidden(
                "priority class names with 'system-' prefix are reserved for system use only",
            ));
        }
    } else if number > HIGHEST_USER_PRIORITY {
        faults.push(value.forbidden(&format!(
            "maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        )));
    }
    root.child("preemptionPolicy")
        .check_one_of(&["PreemptLowerPriority", "Never"], faults);
}

pub(super) fn check_update(new: &View, old: &View, faults: &mut Faults) {
    let (now, before) = (new.child("value"), old.child("value"));
    if now.number().unwrap_or(0) != before.number().unwrap_or(0) {
        faults.push(now.forbidden("may not be changed in an update."));
    }
    new.child("preemptionPolicy")
        .check_unchanged(&old.child("preemptionPolicy"), faults);
}
