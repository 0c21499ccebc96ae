//! Nodes: taints and resource amounts.

use std::collections::BTreeSet;

use serde_json::Value;

use super::selector::check_key;
use super::view::{Faults, View};
use crate::field_path::FieldError;
use crate::names;
use crate::quantity::Quantity;

/// Effects of taints and tolerations.
pub(super) const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn check(root: &View, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    for taint in root.down(&["spec", "taints"]).items() {
        let (key, value, effect) = (
            taint.child("key"),
            taint.child("value"),
            taint.child("effect"),
        );
        check_key(&key, faults);
        value.check_text(names::check_label_value, faults);
        if effect.is_empty() {
            faults.push(effect.required(""));
        } else {
            effect.check_one_of(&EFFECTS, faults);
        }
        if !seen.insert((key.text(), effect.text())) {
            let mut fault = taint.duplicate();
            fault
                .body
                .push_str(": taints must be unique by key and effect pair");
            faults.push(fault);
        }
    }
    check_status(root, faults);
}

pub(super) fn check_update(new: &View, old: &View, faults: &mut Faults) {
    for field in ["podCIDR", "providerID"] {
        let (now, before) = (new.down(&["spec", field]), old.down(&["spec", field]));
        if !before.is_empty() && now.text() != before.text() {
            faults.push(now.forbidden(&format!(
                "node updates may not change {field} except from \"\" to valid"
            )));
        }
    }
}

pub(super) fn check_status(root: &View, faults: &mut Faults) {
    for list in ["capacity", "allocatable"] {
        for (_, amount) in root.down(&["status", list]).entries() {
            check_quantity(&amount, faults);
        }
    }
}

/// A resource amount: readable and not negative. Answers it when it is fine.
pub(super) fn check_quantity(amount: &View, faults: &mut Faults) -> Option<Quantity> {
    match Quantity::from_json(amount.shown()) {
        Err(error) => {
            faults.push(amount.invalid(&error.to_string()));
            None
        }
        Ok(quantity) if quantity.is_negative() => {
            let shown = Value::from(quantity.to_string());
            faults.push(FieldError::invalid(
                amount.path(),
                &shown,
                "must be greater than or equal to 0",
            ));
            None
        }
        Ok(quantity) => Some(quantity),
    }
}
