//! Nodes that an administrator removed: their certificates are good for years, so the server must remember not
//! to heed them (spec/node-agent.md 5, 'node deleted').
//!
//! The list is a ConfigMap, so that removing a node needs no API of its own: a key for each node, its value says
//! when. Joining again with a token takes the node off the list.

use muster_model::kind::CONFIG_MAP;
use muster_model::object::{NamespacedName, Object};
use serde_json::Value;

use super::Caller;
use crate::cache::Cache;
use crate::registry::{Precondition, Registry, Write};
use crate::status::{ApiError, Reason};

/// Where the list lies.
pub const NAMESPACE: &str = "kube-system";
/// What it is called.
pub const NAME: &str = "muster-removed-nodes";

fn key() -> NamespacedName {
    NamespacedName::new(NAMESPACE, NAME)
}

/// Whether this node was removed and has not joined again.
pub(crate) fn is_removed(cache: &Cache, node: &str) -> bool {
    cache.get(&CONFIG_MAP, &key()).is_some_and(|list| {
        list.object()
            .at("/data")
            .is_some_and(|data| data.get(node).is_some())
    })
}

/// What a removed node's agent is told.
pub(crate) fn refusal(node: &str) -> ApiError {
    let message = format!(
        "node \"{node}\" was removed from this cluster: to come back, join again with a token"
    );
    ApiError::new(Reason::Unauthorized, message)
}

/// A token lets the node in again.
pub(crate) async fn readmit(registry: &Registry, node: &str) -> Result<(), ApiError> {
    if !is_removed(registry.cache(), node) {
        return Ok(());
    }
    let name = node.to_owned();
    let edit = move |list: &mut Object| {
        if let Some(data) = list
            .tree_mut()
            .get_mut("data")
            .and_then(Value::as_object_mut)
        {
            data.remove(&name);
        }
        Ok(())
    };
    let write = Write::edit(&CONFIG_MAP, key(), Precondition::default(), edit);
    match registry.write(&Caller::internal("join"), write).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
