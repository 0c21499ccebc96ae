//! The Leases of nodes: what `kubectl` sees of heartbeats. Written once a second for all nodes that beat, in one
//! commit, in memory only (spec/node-agent.md 3).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use muster_model::kind::{LEASE, NODE};
use muster_model::object::{NamespacedName, Object};
use muster_model::time;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::auth::Caller;
use crate::registry::lease::NODE_LEASES;
use crate::registry::{Precondition, Registry, Write};

/// How long a Lease is good for without a renewal.
pub(crate) const DURATION: Duration = Duration::from_secs(40);
/// Between two writes.
const EVERY: Duration = Duration::from_secs(1);

/// Takes beats. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Leases {
    beaten: Arc<Mutex<BTreeSet<String>>>,
}

impl Leases {
    /// The node's Lease is to be renewed.
    pub(crate) fn renew(&self, node: &str) {
        self.beaten.lock().insert(node.to_owned());
    }

    /// Writes renewals until told to stop.
    pub(crate) async fn run(self, registry: Registry, stop: CancellationToken) {
        let caller = Caller::internal("node-leases");
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
            let nodes = std::mem::take(&mut *self.beaten.lock());
            let writes: Vec<Write> = nodes
                .iter()
                .filter_map(|node| renewal(&registry, node))
                .collect();
            if writes.is_empty() {
                continue;
            }
            for error in registry
                .commit(&caller, writes)
                .await
                .into_iter()
                .filter_map(Result::err)
            {
                tracing::debug!(%error, "a node's lease was not renewed");
            }
        }
    }
}

/// `None`: there is no such node.
fn renewal(registry: &Registry, node: &str) -> Option<Write> {
    let owner = registry
        .cache()
        .get(&NODE, &NamespacedName::new("", node))?;
    let key = NamespacedName::new(NODE_LEASES, node);
    let now = time::to_micros_text(registry.now());
    let owners = json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner.uid()}]);
    if registry.cache().get(&LEASE, &key).is_none() {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": node, "namespace": NODE_LEASES, "ownerReferences": owners},
            "spec": {
                "holderIdentity": node,
                "leaseDurationSeconds": DURATION.as_secs(),
                "acquireTime": now,
                "renewTime": now,
            },
        });
        return Object::from_value(lease)
            .ok()
            .map(|lease| Write::create(&LEASE, lease));
    }
    let edit = move |lease: &mut Object| {
        lease
            .metadata_mut()
            .insert("ownerReferences".into(), owners.clone());
        let spec = lease.tree_mut().entry("spec").or_insert_with(|| json!({}));
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("renewTime".into(), now.clone().into());
        }
        Ok(())
    };
    Some(Write::edit(&LEASE, key, Precondition::default(), edit))
}
