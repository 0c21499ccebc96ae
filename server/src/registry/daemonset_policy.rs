//! DaemonSetPolicies: what is done about the findings of the admission checks. The rules are in the model.

use std::sync::Arc;

use muster_model::kind::{DAEMON_SET_POLICY, NAMESPACE};
use muster_model::object::NamespacedName;
use muster_model::policy::{DaemonSetPolicy, Ruling};

use super::strategy::Strategy;
use crate::cache::Cache;

pub(super) struct DaemonSetPolicies;

impl Strategy for DaemonSetPolicies {}

/// What the policies that there are now come to for the DaemonSets of a namespace.
pub(crate) fn ruling(cache: &Cache, namespace: &str) -> Ruling {
    let labels = cache
        .get(&NAMESPACE, &NamespacedName::new("", namespace))
        .map(|stored| stored.object().labels())
        .unwrap_or_default();
    let policies: Vec<(String, Arc<DaemonSetPolicy>)> = cache
        .list(&DAEMON_SET_POLICY)
        .items
        .iter()
        .filter_map(|stored| Some((stored.name().to_owned(), stored.typed().ok()?)))
        .collect();
    let specs = policies
        .iter()
        .filter_map(|(name, policy)| Some((name.as_str(), policy.spec.as_ref()?)));
    Ruling::of(specs, namespace, &labels)
}
