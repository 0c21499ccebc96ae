//! What must be there before the first request: namespaces with their service accounts, the system's priority
//! classes, and the cluster's identity.

use std::sync::Arc;

use bytes::Bytes;
use muster_model::kind::{NAMESPACE, PRIORITY_CLASS};
use muster_model::object::Object;
use muster_store::{CommitError, Compare, Key, Op, Store, Txn};
use serde_json::json;

use crate::auth::Caller;
use crate::registry::{Registry, Write, namespace, priority_class};
use crate::status::ApiError;

const CLUSTER_ID: &str = "/muster/cluster-id";

/// Makes the initial namespaces and the system's priority classes that are missing.
pub(crate) async fn objects(registry: &Registry) -> Result<(), ApiError> {
    let namespaces = namespace::INITIAL.into_iter().map(|name| {
        let tree = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let object = Object::from_value(tree).expect("the tree above is a mapping");
        (&NAMESPACE, object)
    });
    let classes = priority_class::system().map(|class| (&PRIORITY_CLASS, class));
    let writes = namespaces
        .chain(classes)
        .filter(|(kind, object)| {
            let known = registry.cache().get(kind, &object.namespaced_name());
            known.is_none()
        })
        .map(|(kind, object)| Write::create(kind, object))
        .collect();
    for answer in registry
        .commit(&Caller::internal("first-start"), writes)
        .await
    {
        match answer {
            Err(error) if !error.is_already_exists() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Identity of this store's data, made once.
pub(crate) async fn cluster_id(
    store: &Arc<dyn Store>,
    fresh: String,
) -> Result<String, CommitError> {
    let key = Key::new(CLUSTER_ID);
    loop {
        if let Some(entry) = store.get(&key).await {
            return Ok(String::from_utf8_lossy(&entry.value).into_owned());
        }
        let txn = Txn {
            compares: vec![Compare::Absent(key.clone())],
            ops: vec![Op::Put {
                key: key.clone(),
                value: Bytes::from(fresh.clone()),
                soft: false,
            }],
        };
        match store.commit(txn).await {
            // Read back: with several servers another one may have been faster.
            Ok(_) | Err(CommitError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}
