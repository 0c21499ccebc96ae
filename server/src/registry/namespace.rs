//! Namespaces: what comes with one, and how one goes (spec/kube-api.md 9).

use muster_model::kind::{Kind, SERVICE_ACCOUNT};
use muster_model::object::Object;
use muster_model::reason::{finalizer, label};
use serde_json::{Value, json};

use super::strategy::Strategy;
use crate::cache::Cache;
use crate::status::ApiError;

/// Made at the first start of a server.
pub const INITIAL: [&str; 4] = [
    "default",
    "kube-system",
    "kube-public",
    super::lease::NODE_LEASES,
];
/// May never be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) struct Namespaces;

impl Strategy for Namespaces {
    fn prepare_create(&self, new: &mut Object) -> Result<(), ApiError> {
        new.tree_mut()
            .insert("status".into(), json!({"phase": "Active"}));
        let spec = new.tree_mut().entry("spec").or_insert_with(|| json!({}));
        if let Some(spec) = spec.as_object_mut() {
            let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
            if let Some(list) = finalizers.as_array_mut()
                && !list.iter().any(|f| f == finalizer::KUBERNETES)
            {
                list.push(finalizer::KUBERNETES.into());
            }
        }
        Ok(())
    }

    fn finish_create(&self, new: &mut Object, _cache: &Cache) -> Result<(), ApiError> {
        let name = new.name().to_owned();
        new.set_label(label::NAMESPACE_NAME, &name);
        Ok(())
    }

    fn prepare_update(&self, new: &mut Object, old: &Object) -> Result<(), ApiError> {
        let name = old.name().to_owned();
        new.set_label(label::NAMESPACE_NAME, &name);
        // Only the namespace controller empties the list, and only while the namespace goes.
        if !old.is_terminating() {
            match old.at("/spec") {
                Some(spec) => new.tree_mut().insert("spec".into(), spec.clone()),
                None => new.tree_mut().remove("spec"),
            };
        }
        Ok(())
    }

    fn companions(&self, new: &Object) -> Vec<(&'static Kind, Object)> {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": new.name()},
        });
        Object::from_value(account)
            .map(|object| vec![(&SERVICE_ACCOUNT, object)])
            .unwrap_or_default()
    }

    fn refuses_deletion(&self, object: &Object) -> Option<String> {
        IMMORTAL
            .contains(&object.name())
            .then(|| "this namespace may not be deleted".to_owned())
    }

    fn begin_deletion(&self, object: &mut Object) {
        let status = object
            .tree_mut()
            .entry("status")
            .or_insert_with(|| json!({}));
        if let Some(status) = status.as_object_mut() {
            status.insert("phase".into(), "Terminating".into());
        }
    }

    fn is_held(&self, object: &Object) -> bool {
        object
            .at("/spec/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty())
    }
}
