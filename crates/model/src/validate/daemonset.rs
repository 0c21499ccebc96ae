//! DaemonSets: the rows of spec/daemonset.md 4.2, in their order.

use serde_json::Value;

use super::view::{Faults, View};
use super::{pod, selector};
use crate::defaults::semantically_equal;
use crate::field_path::{FaultKind, FieldError};

const BAD_PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

pub(super) fn check(root: &View, faults: &mut Faults) {
    let spec = root.child("spec");
    check_selector(&spec, faults);
    let template = spec.child("template");
    pod::check_template(&template, faults);
    let pod_spec = template.child("spec");
    pod_spec
        .child("restartPolicy")
        .check_one_of(&["Always"], faults);
    let deadline = pod_spec.child("activeDeadlineSeconds");
    if deadline.is_present() {
        faults.push(deadline.forbidden("activeDeadlineSeconds in DaemonSet is not Supported"));
    }
    spec.child("minReadySeconds").check_not_negative(faults);
    check_strategy(&spec.child("updateStrategy"), faults);
    spec.child("revisionHistoryLimit")
        .check_not_negative(faults);
}

pub(super) fn check_update(new: &View, old: &View, faults: &mut Faults) {
    let (new, old) = (
        new.down(&["spec", "selector"]),
        old.down(&["spec", "selector"]),
    );
    if !semantically_equal(new.value(), old.value()) {
        faults.push(new.invalid("field is immutable"));
    }
}

pub(super) fn check_status_update(new: &View, old: &View, faults: &mut Faults) {
    let status = new.child("status");
    for field in [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ] {
        status.child(field).check_not_negative(faults);
    }
    let count = status.child("collisionCount");
    let (now, before) = (
        count.number().unwrap_or(0),
        old.down(&["status", "collisionCount"])
            .number()
            .unwrap_or(0),
    );
    if now < before {
        faults.push(FieldError::invalid(
            count.path(),
            &now.into(),
            "cannot be decremented",
        ));
    }
}

fn check_selector(spec: &View, faults: &mut Faults) {
    let (selector, labels) = (
        spec.child("selector"),
        spec.down(&["template", "metadata", "labels"]),
    );
    let before = faults.len();
    selector::check(&selector, faults);
    if !selector.is_present() {
        // The labels fault alone would read like that of a selector that does not match.
        faults.push(selector.required(""));
    }
    let well_formed = faults.len() == before || !selector.is_present();
    if well_formed && !selector::matches(&selector, &labels) {
        faults.push(labels.invalid("`selector` does not match template `labels`"));
    }
    if selector.is_present()
        && selector.child("matchLabels").is_empty()
        && selector.child("matchExpressions").is_empty()
    {
        // Whatever else the author wrote into it says nothing, so it is shown as what it is: empty.
        let empty = Value::Object(serde_json::Map::new());
        faults.push(FieldError::invalid(
            selector.path(),
            &empty,
            "empty selector is invalid for daemonset",
        ));
    }
}

fn check_strategy(strategy: &View, faults: &mut Faults) {
    let rolling = strategy.child("rollingUpdate");
    match strategy.child("type").text() {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.is_mapping() => faults.push(rolling.required("")),
        "RollingUpdate" => check_rolling_update(&rolling, faults),
        unknown => faults.push(unknown_strategy(strategy, unknown, &rolling)),
    }
}

/// Kubernetes shows the whole strategy here, with the names of its internal fields.
fn unknown_strategy(strategy: &View, kind: &str, rolling: &View) -> FieldError {
    let shown_rolling = if rolling.is_mapping() {
        let number = |field| {
            rolling
                .child(field)
                .value()
                .cloned()
                .unwrap_or_else(|| Value::from(0))
        };
        format!(
            "{{\"MaxUnavailable\":{},\"MaxSurge\":{}}}",
            number("maxUnavailable"),
            number("maxSurge")
        )
    } else {
        "null".to_owned()
    };
    FieldError {
        field: strategy.path(),
        kind: FaultKind::NotSupported,
        body: format!(
            "Unsupported value: {{\"Type\":{},\"RollingUpdate\":{shown_rolling}}}: supported values: \"RollingUpdate\", \"OnDelete\"",
            Value::from(kind)
        ),
    }
}

fn check_rolling_update(rolling: &View, faults: &mut Faults) {
    let (unavailable, surge) = (rolling.child("maxUnavailable"), rolling.child("maxSurge"));
    for field in [&unavailable, &surge] {
        match field.value() {
            Some(Value::String(text)) if percent(text).is_none() => {
                faults.push(field.invalid(BAD_PERCENT))
            }
            _ => field.check_not_negative(faults),
        }
    }
    for field in [&unavailable, &surge] {
        if percent(field.text()).is_some_and(|percent| percent > 100) {
            faults.push(field.invalid("must not be greater than 100%"));
        }
    }
    match (amount(&unavailable) != 0, amount(&surge) != 0) {
        (true, true) => {
            faults.push(surge.invalid("may not be set when maxUnavailable is non-zero"))
        }
        (false, false) => faults.push(unavailable.required("cannot be 0 when maxSurge is 0")),
        _ => {}
    }
}

/// The number before the sign; saturating.
fn percent(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('%')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// How much is asked for, as far as 'none' and 'some' go; a text that is no percentage counts as its number.
fn amount(field: &View) -> i64 {
    match percent(field.text()) {
        Some(percent) => i64::try_from(percent).unwrap_or(i64::MAX),
        None => field
            .number()
            .or_else(|| field.text().parse().ok())
            .unwrap_or(0),
    }
}

#[cfg(test)]
mod tests;
