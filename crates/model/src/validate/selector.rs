//! Label selectors: their form, and whether they match a set of labels.

use serde::Deserialize;

use super::metadata;
use super::view::{Faults, View};
use crate::k8s::apimachinery::pkg::apis::meta::v1::LabelSelector;
use crate::names;
use crate::selector::Selector;

const NEEDS_VALUES: &str = "must be specified when `operator` is 'In' or 'NotIn'";
const HAS_VALUES: &str = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
const BAD_OPERATOR: &str = "not a valid selector operator";

/// The form of a `LabelSelector`.
pub(super) fn check(selector: &View, faults: &mut Faults) {
    metadata::check_labels(&selector.child("matchLabels"), faults);
    for requirement in selector.child("matchExpressions").items() {
        let values = requirement.child("values");
        match requirement.child("operator").text() {
            "In" | "NotIn" if values.is_empty() => faults.push(values.required(NEEDS_VALUES)),
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                faults.push(values.forbidden(HAS_VALUES))
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => faults.push(requirement.child("operator").invalid_text(BAD_OPERATOR)),
        }
        check_key(&requirement.child("key"), faults);
        for value in values.items() {
            value.check_text(names::check_label_value, faults);
        }
    }
}

/// One requirement of a node selector term's `matchExpressions`.
pub(super) fn check_node_requirement(requirement: &View, faults: &mut Faults) {
    let values = requirement.child("values");
    match requirement.child("operator").text() {
        "In" | "NotIn" if values.is_empty() => faults.push(values.required(NEEDS_VALUES)),
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            faults.push(values.forbidden(HAS_VALUES))
        }
        "Gt" | "Lt" if values.items().len() != 1 => {
            faults.push(
                values.required("must be specified single value when `operator` is 'Lt' or 'Gt'"),
            );
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        _ => faults.push(requirement.child("operator").invalid_text(BAD_OPERATOR)),
    }
    check_key(&requirement.child("key"), faults);
}

/// One requirement of a node selector term's `matchFields`.
pub(super) fn check_node_field_requirement(requirement: &View, faults: &mut Faults) {
    let values = requirement.child("values");
    match requirement.child("operator").text() {
        "In" | "NotIn" if values.items().len() != 1 => faults.push(values.required(
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        )),
        "In" | "NotIn" => {}
        _ => faults.push(requirement.child("operator").invalid_text(BAD_OPERATOR)),
    }
    if requirement.child("key").text() != "metadata.name" {
        faults.push(
            requirement
                .child("key")
                .invalid_text("not a valid field selector key"),
        );
        return;
    }
    for value in values.items() {
        value.check_text(names::check_subdomain, faults);
    }
}

/// A label key that must be there.
pub(super) fn check_key(key: &View, faults: &mut Faults) {
    let details = names::check_qualified_name(key.text());
    faults.extend(details.iter().map(|detail| key.invalid_text(detail)));
}

/// Whether a well-formed selector matches; an absent one matches nothing, an empty one everything.
pub(super) fn matches(selector: &View, labels: &View) -> bool {
    let labels = (labels.entries().into_iter())
        .map(|(key, value)| (key.to_owned(), value.text().to_owned()))
        .collect();
    LabelSelector::deserialize(selector.shown())
        .ok()
        .and_then(|spec| Selector::from_spec(&spec).ok())
        .is_some_and(|selector| selector.matches(&labels))
}
