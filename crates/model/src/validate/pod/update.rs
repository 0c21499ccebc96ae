//! What of a pod may change.

use serde_json::{Map, Value};

use super::super::view::{Faults, View};
use crate::defaults::semantically_equal;

const MUTABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(in super::super) fn check_update(new: &View, old: &View, faults: &mut Faults) {
    let (new, old) = (new.child("spec"), old.child("spec"));
    for list in ["containers", "initContainers"] {
        let list = (new.child(list), old.child(list));
        if list.0.items().len() != list.1.items().len() {
            faults.push(
                list.0
                    .forbidden("pod updates may not add or remove containers"),
            );
            return;
        }
    }
    check_deadline(
        &new.child("activeDeadlineSeconds"),
        &old.child("activeDeadlineSeconds"),
        faults,
    );
    check_tolerations(&new.child("tolerations"), &old.child("tolerations"), faults);
    let (Some(Value::Object(now)), Some(Value::Object(before))) = (new.value(), old.value()) else {
        return;
    };
    let (now, before) = (without_mutable(now), without_mutable(before));
    let mut changed = Vec::new();
    for key in now
        .keys()
        .chain(before.keys().filter(|key| !now.contains_key(*key)))
    {
        let wrap = |spec: &Map<String, Value>| {
            spec.get(key)
                .map(|value| Value::Object(Map::from_iter([(key.clone(), value.clone())])))
        };
        let nothing = Value::Object(Map::new());
        let (now, before) = (
            wrap(&now).unwrap_or(nothing.clone()),
            wrap(&before).unwrap_or(nothing),
        );
        if !semantically_equal(Some(&now), Some(&before)) {
            changed.push(format!("spec.{key}"));
        }
    }
    if !changed.is_empty() {
        let detail = format!(
            "pod updates may not change fields other than {MUTABLE}\nchanged: {}",
            changed.join(", ")
        );
        faults.push(new.forbidden(&detail));
    }
}

/// Pod status: restart counts only count.
pub(in super::super) fn check_status(root: &View, faults: &mut Faults) {
    let status = root.child("status");
    for list in [
        "initContainerStatuses",
        "containerStatuses",
        "ephemeralContainerStatuses",
    ] {
        for container in status.child(list).items() {
            container.child("restartCount").check_not_negative(faults);
        }
    }
    status.child("phase").check_one_of(
        &["", "Pending", "Running", "Succeeded", "Failed", "Unknown"],
        faults,
    );
}

fn check_deadline(new: &View, old: &View, faults: &mut Faults) {
    let Some(before) = old.number() else { return };
    match new.number() {
        None => faults.push(new.invalid("must not update from a positive integer to nil value")),
        Some(now) if now > before => {
            faults.push(new.invalid("must be less than or equal to previous value"))
        }
        Some(_) => {}
    }
}

fn check_tolerations(new: &View, old: &View, faults: &mut Faults) {
    let kept = new.items();
    let same = |a: &View, b: &View| {
        ["key", "operator", "value", "effect"]
            .iter()
            .all(|field| a.child(field).text() == b.child(field).text())
    };
    if !old
        .items()
        .iter()
        .all(|toleration| kept.iter().any(|other| same(toleration, other)))
    {
        faults.push(
            new.forbidden("existing toleration can not be modified except its tolerationSeconds"),
        );
    }
}

/// The spec without what may change. Ephemeral containers change through their own subresource, which this
/// rule does not know: they are compared there.
fn without_mutable(spec: &Map<String, Value>) -> Map<String, Value> {
    let mut spec = spec.clone();
    for field in [
        "activeDeadlineSeconds",
        "tolerations",
        "ephemeralContainers",
    ] {
        spec.remove(field);
    }
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            container.remove("image");
        }
    }
    spec
}
