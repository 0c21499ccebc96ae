//! What must be there before the first request: namespaces with their service accounts, priority
//! classes, and the cluster's identity.

use std::sync::Arc;

use bytes::Bytes;
use muster_model::kind::{Kind, NAMESPACE, PRIORITY_CLASS};
use muster_model::object::{NamespacedName, Object};
use muster_store::{CommitError, Compare, Key, Op, Store, Txn};
use serde_json::json;

use crate::auth::Caller;
use crate::registry::{Registry, Write, namespace};
use crate::status::ApiError;

const CLUSTER_ID: &str = "/muster/cluster-id";

/// The two priority classes that Kubernetes always has, and their values.
const PRIORITY_CLASSES: [(&str, i64); 2] = [
    ("system-node-critical", 2_000_001_000),
    ("system-cluster-critical", 2_000_000_000),
];

/// Makes the initial namespaces and priority classes that are missing.
pub(crate) async fn objects(registry: &Registry) -> Result<(), ApiError> {
    let missing = |kind: &'static Kind, name: &str| {
        registry
            .cache()
            .get(kind, &NamespacedName::new("", name))
            .is_none()
    };
    let object = |tree| Object::from_value(tree).expect("the trees below are mappings");
    let mut writes = Vec::new();
    for name in namespace::INITIAL {
        if missing(&NAMESPACE, name) {
            writes.push(Write::create(
                &NAMESPACE,
                object(json!({"metadata": {"name": name}})),
            ));
        }
    }
    for (name, value) in PRIORITY_CLASSES {
        if missing(&PRIORITY_CLASS, name) {
            let tree = json!({
                "metadata": {"name": name},
                "value": value,
                "description": "Used for pods that must not be evicted.",
            });
            writes.push(Write::create(&PRIORITY_CLASS, object(tree)));
        }
    }
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
