//! Whether a stored tree can be read as its kind's type.

use std::any::Any;
use std::sync::Arc;

use muster_model::k8s::api::apps::v1::{ControllerRevision, DaemonSet};
use muster_model::k8s::api::coordination::v1::Lease;
use muster_model::k8s::api::core::v1::{
    ConfigMap, Event, Namespace, Node, Pod, Secret, ServiceAccount,
};
use muster_model::k8s::api::scheduling::v1::PriorityClass;
use muster_model::kind::{
    CONFIG_MAP, CONTROLLER_REVISION, DAEMON_SET, DAEMON_SET_POLICY, EVENT, Kind, LEASE, NAMESPACE,
    NODE, POD, PRIORITY_CLASS, SECRET, SERVICE_ACCOUNT,
};
use muster_model::object::Object;
use muster_model::policy::DaemonSetPolicy;
use serde::de::DeserializeOwned;

type View = Arc<dyn Any + Send + Sync>;

/// Reads the object as its kind's type. The view is returned for the kinds that controllers read all the
/// time; for the others it is dropped again.
pub(super) fn read(kind: &Kind, object: &Object) -> Result<Option<View>, String> {
    fn kept<T: DeserializeOwned + Send + Sync + 'static>(
        object: &Object,
    ) -> Result<Option<View>, String> {
        object
            .typed::<T>()
            .map(|view| Some(Arc::new(view) as View))
            .map_err(|error| error.to_string())
    }
    fn checked<T: DeserializeOwned>(object: &Object) -> Result<Option<View>, String> {
        object
            .typed::<T>()
            .map(|_| None)
            .map_err(|error| error.to_string())
    }
    match kind {
        k if *k == POD => kept::<Pod>(object),
        k if *k == NODE => kept::<Node>(object),
        k if *k == DAEMON_SET => kept::<DaemonSet>(object),
        k if *k == CONTROLLER_REVISION => kept::<ControllerRevision>(object),
        k if *k == NAMESPACE => checked::<Namespace>(object),
        k if *k == EVENT => checked::<Event>(object),
        k if *k == CONFIG_MAP => checked::<ConfigMap>(object),
        k if *k == SECRET => checked::<Secret>(object),
        k if *k == SERVICE_ACCOUNT => checked::<ServiceAccount>(object),
        k if *k == LEASE => checked::<Lease>(object),
        k if *k == PRIORITY_CLASS => checked::<PriorityClass>(object),
        k if *k == DAEMON_SET_POLICY => checked::<DaemonSetPolicy>(object),
        _ => Ok(None),
    }
}
