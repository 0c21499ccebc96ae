//! What differs from kind to kind: one strategy each. A new kind is one file and one row here.

use muster_model::defaults::semantically_equal;
use muster_model::kind::{
    CONFIG_MAP, CONTROLLER_REVISION, DAEMON_SET, DAEMON_SET_POLICY, EVENT, Kind, LEASE, NAMESPACE,
    NODE, POD, PRIORITY_CLASS, SECRET, SERVICE_ACCOUNT,
};
use muster_model::object::{NamespacedName, Object};

use super::{daemonset, daemonset_policy, lease, namespace, node, plain, pod, priority_class};
use crate::cache::Cache;
use crate::checks::Advice;
use crate::status::ApiError;

/// How long a deletion takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grace {
    /// The object goes as soon as its finalizers are done.
    AtOnce,
    /// The object stays, for this many seconds, until somebody confirms with a grace of 0.
    Seconds(i64),
}

/// The rules of one kind. The defaults are those of a kind that is only stored.
pub(super) trait Strategy: Sync {
    /// Sets what the server owns on a new object, before defaults.
    fn prepare_create(&self, _new: &mut Object) -> Result<(), ApiError> {
        Ok(())
    }

    /// The same after defaults, with what the rest of the cluster says.
    fn finish_create(&self, _new: &mut Object, _cache: &Cache) -> Result<(), ApiError> {
        Ok(())
    }

    /// Sets what the server owns on a changed object, after defaults and before `generation` is counted.
    fn prepare_update(&self, _new: &mut Object, _old: &Object) -> Result<(), ApiError> {
        Ok(())
    }

    /// Corrects a changed status.
    fn prepare_status(&self, _new: &mut Object, _old: &Object) -> Result<(), ApiError> {
        Ok(())
    }

    /// Whether a change of `spec` (of everything but metadata and status, for kinds without one) counts as
    /// a new generation: yes for every kind that has generations.
    fn changes_generation(&self, new: &Object, old: &Object) -> bool {
        let body = |object: &Object| {
            let mut tree = object.tree().as_object().cloned().unwrap_or_default();
            for field in ["metadata", "status", "apiVersion", "kind"] {
                tree.remove(field);
            }
            tree
        };
        match (new.at("/spec"), old.at("/spec")) {
            (None, None) => body(new) != body(old),
            (new, old) => !semantically_equal(new, old),
        }
    }

    /// Whether a person's change of `old` is judged anew, and its author told what there is to tell. What is as it
    /// was has been told.
    fn is_judged_anew(&self, new: &Object, old: &Object) -> bool {
        !semantically_equal(new.at("/spec"), old.at("/spec"))
    }

    /// Judges what a person wrote beyond its form: what will come of it in this cluster, and what policies say.
    fn judge(&self, _new: &Object, _old: Option<&Object>, _cache: &Cache) -> Advice {
        Advice::default()
    }

    /// Whether the value is kept in memory only.
    fn soft(&self, _key: &NamespacedName) -> bool {
        false
    }

    /// Objects that come into being together with a new one.
    fn companions(&self, _new: &Object) -> Vec<(&'static Kind, Object)> {
        Vec::new()
    }

    /// Why this object may never be deleted.
    fn refuses_deletion(&self, _object: &Object) -> Option<String> {
        None
    }

    /// How long a deletion takes, given what was asked for.
    fn grace(&self, _object: &Object, _asked_seconds: Option<i64>) -> Grace {
        Grace::AtOnce
    }

    /// Marks the object when its deletion begins.
    fn begin_deletion(&self, _object: &mut Object) {}

    /// Whether something other than `metadata.finalizers` keeps a terminating object.
    fn is_held(&self, _object: &Object) -> bool {
        false
    }
}

/// The strategy of a kind.
pub(super) fn of(kind: &'static Kind) -> &'static dyn Strategy {
    match kind {
        k if *k == DAEMON_SET => &daemonset::DaemonSets,
        k if *k == POD => &pod::Pods,
        k if *k == NODE => &node::Nodes,
        k if *k == NAMESPACE => &namespace::Namespaces,
        k if *k == LEASE => &lease::Leases,
        k if *k == PRIORITY_CLASS => &priority_class::PriorityClasses,
        k if *k == DAEMON_SET_POLICY => &daemonset_policy::DaemonSetPolicies,
        k if [
            &EVENT,
            &CONFIG_MAP,
            &SECRET,
            &SERVICE_ACCOUNT,
            &CONTROLLER_REVISION,
        ]
        .contains(&k) =>
        {
            &plain::Plain
        }
        // A row in the table of kinds without a row here is stored as it is.
        _ => &plain::Plain,
    }
}
