//! Pods: how one begins, and how one goes (spec/kube-api.md 9, spec/node-agent.md 18.3).

use muster_model::object::Object;
use serde_json::json;

use super::pod_admission;
use super::strategy::{Grace, Strategy};
use crate::cache::Cache;
use crate::status::ApiError;

/// When the pod does not say (spec/node-agent.md 1).
const DEFAULT_GRACE_SECONDS: i64 = 30;

pub(super) struct Pods;

impl Strategy for Pods {
    fn prepare_create(&self, new: &mut Object) -> Result<(), ApiError> {
        new.tree_mut()
            .insert("status".into(), json!({"phase": "Pending"}));
        Ok(())
    }

    fn finish_create(&self, new: &mut Object, cache: &Cache) -> Result<(), ApiError> {
        pod_admission::admit(new, cache)
    }

    fn prepare_update(&self, new: &mut Object, old: &Object) -> Result<(), ApiError> {
        pod_admission::keep(new, old);
        Ok(())
    }

    fn grace(&self, object: &Object, asked_seconds: Option<i64>) -> Grace {
        let bound = !object.text_at("/spec/nodeName").is_empty();
        let finished = matches!(object.text_at("/status/phase"), "Succeeded" | "Failed");
        let own = object
            .at("/spec/terminationGracePeriodSeconds")
            .and_then(serde_json::Value::as_i64);
        let seconds = match asked_seconds.or(own).unwrap_or(DEFAULT_GRACE_SECONDS) {
            negative if negative < 0 => 1,
            seconds => seconds,
        };
        // Nobody would confirm the end of a pod that no agent was ever told of.
        if !bound || (finished && asked_seconds.is_none()) || seconds == 0 {
            Grace::AtOnce
        } else {
            Grace::Seconds(seconds)
        }
    }
}
