//! Leases.

use super::view::{Faults, View};

pub(super) fn check(root: &View, faults: &mut Faults) {
    let spec = root.child("spec");
    let duration = spec.child("leaseDurationSeconds");
    if duration.number().is_some_and(|seconds| seconds <= 0) {
        faults.push(duration.invalid("must be greater than 0"));
    }
    spec.child("leaseTransitions").check_not_negative(faults);
}
