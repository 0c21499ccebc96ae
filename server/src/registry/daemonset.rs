//! DaemonSets: the two generations (spec/daemonset.md 5), the annotations that control rollouts, and the admission
//! checks. The rules themselves are in the model and in the brain.

use std::collections::BTreeMap;

use muster_daemonset::control::Control;
use muster_model::defaults::daemonset;
use muster_model::field_path::FieldError;
use muster_model::kind::DAEMON_SET;
use muster_model::object::Object;
use muster_model::reason::annotation::TEMPLATE_GENERATION;

use super::strategy::Strategy;
use crate::cache::Cache;
use crate::checks::{self, Advice};
use crate::status::ApiError;

pub(super) struct DaemonSets;

impl Strategy for DaemonSets {
    fn finish_create(&self, new: &mut Object, _cache: &Cache) -> Result<(), ApiError> {
        daemonset::annotated_generation(new).map_err(ApiError::bad_request)?;
        daemonset::prepare_create(new);
        let mut faults = faults_of_rollouts(new);
        faults.extend(faults_of_pods(new));
        refuse(new, &faults)
    }

    fn prepare_update(&self, new: &mut Object, old: &Object) -> Result<(), ApiError> {
        daemonset::annotated_generation(new).map_err(ApiError::bad_request)?;
        daemonset::prepare_update(new, old);
        // What is stored already may be wrong: whoever changes something else is not kept from it.
        let mut faults = Vec::new();
        if asked_of_rollouts(new) != asked_of_rollouts(old) {
            faults.extend(faults_of_rollouts(new));
        }
        if asked_of_pods(new) != asked_of_pods(old) {
            faults.extend(faults_of_pods(new));
        }
        refuse(new, &faults)
    }

    fn is_judged_anew(&self, new: &Object, old: &Object) -> bool {
        checks::is_judged_anew(new, old)
    }

    fn judge(&self, new: &Object, old: Option<&Object>, cache: &Cache) -> Advice {
        checks::judge(new, old, cache)
    }

    fn prepare_status(&self, new: &mut Object, old: &Object) -> Result<(), ApiError> {
        daemonset::prepare_status_update(new, old);
        if let Some(stored) = old.annotation(TEMPLATE_GENERATION) {
            let stored = stored.to_owned();
            new.set_annotation(TEMPLATE_GENERATION, &stored);
        }
        Ok(())
    }
}

/// Where the annotations that control rollouts live. Others change with every template or `apply`.
const OURS: &str = "muster.dev/";

/// All that is checked of rollouts.
fn asked_of_rollouts(daemon: &Object) -> (BTreeMap<String, String>, i64) {
    (ours(daemon.annotations()), min_ready_seconds(daemon))
}

/// All that is checked of the template's annotations.
fn asked_of_pods(daemon: &Object) -> BTreeMap<String, String> {
    ours(template_annotations(daemon))
}

fn ours(mut annotations: BTreeMap<String, String>) -> BTreeMap<String, String> {
    annotations.retain(|name, _| name.starts_with(OURS));
    annotations
}

fn template_annotations(daemon: &Object) -> BTreeMap<String, String> {
    let found = daemon.at("/spec/template/metadata/annotations");
    let pairs = found
        .and_then(serde_json::Value::as_object)
        .into_iter()
        .flatten();
    pairs
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn min_ready_seconds(daemon: &Object) -> i64 {
    daemon
        .at("/spec/minReadySeconds")
        .and_then(serde_json::Value::as_i64)
        .unwrap_or(0)
}

fn faults_of_rollouts(daemon: &Object) -> Vec<FieldError> {
    let (control, mut faults) = Control::read(&daemon.annotations());
    faults.extend(control.check_beside(min_ready_seconds(daemon)));
    faults
}

fn faults_of_pods(daemon: &Object) -> Option<FieldError> {
    Control::check_template(&template_annotations(daemon))
}

fn refuse(daemon: &Object, faults: &[FieldError]) -> Result<(), ApiError> {
    match faults {
        [] => Ok(()),
        faults => Err(ApiError::invalid(&DAEMON_SET, daemon.name(), faults)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A DaemonSet with a progress deadline of a minute.
    fn daemon(min_ready: i64, image: &str) -> Value {
        json!({
            "metadata": {"name": "web", "namespace": "default", "generation": 1,
                "annotations": {"muster.dev/on-failure": "halt", "muster.dev/progress-deadline": "1m"}},
            "spec": {"minReadySeconds": min_ready,
                "template": {"spec": {"containers": [{"name": "c", "image": image}]}}},
        })
    }

    fn update(new: Value, old: Value) -> Result<(), ApiError> {
        let mut new = Object::from_value(new).unwrap();
        DaemonSets.prepare_update(&mut new, &Object::from_value(old).unwrap())
    }

    #[test]
    fn min_ready_seconds_are_not_raised_past_the_progress_deadline() {
        update(daemon(59, "img:1"), daemon(0, "img:1")).unwrap();
        let refused = update(daemon(60, "img:1"), daemon(0, "img:1")).unwrap_err();
        assert!(
            refused.to_string().contains("longer than minReadySeconds"),
            "{refused}"
        );
        let mut wrong_value = daemon(0, "img:1");
        wrong_value["metadata"]["annotations"]["muster.dev/paused"] = "perhaps".into();
        assert!(update(wrong_value, daemon(0, "img:1")).is_err());
    }

    #[test]
    fn a_template_whose_cap_of_the_restarts_cannot_be_read_is_refused() {
        let capped = |text: &str, image: &str| {
            let mut daemon = daemon(0, image);
            daemon["spec"]["template"]["metadata"] =
                json!({"annotations": {"muster.dev/max-restart-delay": text}});
            daemon
        };
        update(capped("1m30s", "img:1"), daemon(0, "img:1")).unwrap();
        let refused = update(capped("soon", "img:1"), daemon(0, "img:1")).unwrap_err();
        let named = "spec.template.metadata.annotations[muster.dev/max-restart-delay]";
        assert!(refused.to_string().contains(named), "{refused}");
        update(capped("soon", "img:2"), capped("soon", "img:1")).unwrap();
        // A way back to another template is not kept by what is wrong elsewhere.
        let mut overdue = capped("15s", "img:1");
        overdue["spec"]["minReadySeconds"] = 90.into();
        update(overdue, daemon(90, "img:2")).unwrap();
    }

    #[test]
    fn what_is_stored_and_wrong_keeps_nobody_from_changing_something_else() {
        // A new template comes with a new number of it, in an annotation.
        update(daemon(90, "img:2"), daemon(90, "img:1")).unwrap();
        let mut applied = daemon(90, "img:1");
        applied["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] =
            "{}".into();
        update(applied, daemon(90, "img:1")).unwrap();
        assert!(update(daemon(80, "img:1"), daemon(90, "img:1")).is_err());
        update(daemon(30, "img:1"), daemon(90, "img:1")).unwrap();
    }
}
