//! Affinity and tolerations.

use super::super::node::EFFECTS;
use super::super::selector;
use super::super::view::{Faults, View};
use crate::names;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn check_affinity(affinity: &View, faults: &mut Faults) {
    let node = affinity.child("nodeAffinity");
    let required = node.child(REQUIRED);
    if required.is_present() {
        let terms = required.child("nodeSelectorTerms");
        if terms.is_empty() {
            faults.push(terms.required("must have at least one node selector term"));
        }
        for term in terms.items() {
            check_node_term(&term, faults);
        }
    }
    for preference in node.child(PREFERRED).items() {
        check_weight(&preference, faults);
        check_node_term(&preference.child("preference"), faults);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        for term in affinity.child(kind).child(REQUIRED).items() {
            check_pod_term(&term, faults);
        }
        for preference in affinity.child(kind).child(PREFERRED).items() {
            check_weight(&preference, faults);
            check_pod_term(&preference.child("podAffinityTerm"), faults);
        }
    }
}

fn check_weight(preference: &View, faults: &mut Faults) {
    let weight = preference.child("weight");
    if !(1..=100).contains(&weight.number().unwrap_or(0)) {
        faults.push(weight.invalid("must be in the range 1-100"));
    }
}

fn check_node_term(term: &View, faults: &mut Faults) {
    for requirement in term.child("matchExpressions").items() {
        selector::check_node_requirement(&requirement, faults);
    }
    for requirement in term.child("matchFields").items() {
        selector::check_node_field_requirement(&requirement, faults);
    }
}

fn check_pod_term(term: &View, faults: &mut Faults) {
    selector::check(&term.child("labelSelector"), faults);
    selector::check(&term.child("namespaceSelector"), faults);
    for namespace in term.child("namespaces").items() {
        namespace.check_text(names::check_label, faults);
    }
    let key = term.child("topologyKey");
    if key.is_empty() {
        faults.push(key.required("can not be empty"));
    } else {
        selector::check_key(&key, faults);
    }
}

pub(super) fn check_tolerations(tolerations: &View, faults: &mut Faults) {
    for toleration in tolerations.items() {
        check_toleration(&toleration, faults);
    }
}

fn check_toleration(toleration: &View, faults: &mut Faults) {
    let (key, operator) = (toleration.child("key"), toleration.child("operator"));
    let (value, effect) = (toleration.child("value"), toleration.child("effect"));
    key.check_text(names::check_qualified_name, faults);
    if key.is_empty() && operator.text() != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        faults.push(operator.invalid_text(detail));
    }
    if toleration.child("tolerationSeconds").is_present() && effect.text() != "NoExecute" {
        faults.push(
            effect.invalid_text("effect must be 'NoExecute' when `tolerationSeconds` is set"),
        );
    }
    match operator.text() {
        "" | "Equal" => value.check_text(names::check_label_value, faults),
        "Exists" if !value.is_empty() => {
            faults.push(value.invalid("value must be empty when `operator` is 'Exists'"));
        }
        "Exists" => {}
        "Gt" | "Lt" => {
            if !is_decimal(value.text()) {
                let detail = "must be a 64-bit decimal integer when `operator` is 'Gt' or 'Lt'";
                faults.push(value.invalid_text(detail));
            }
        }
        _ => faults.push(operator.not_supported(&["Equal", "Exists", "Lt", "Gt"])),
    }
    if !effect.is_empty() {
        effect.check_one_of(&EFFECTS, faults);
    }
}

/// Canonical decimal: no plus sign, no leading zeros.
fn is_decimal(text: &str) -> bool {
    text.parse::<i64>()
        .is_ok_and(|number| number.to_string() == text)
}
