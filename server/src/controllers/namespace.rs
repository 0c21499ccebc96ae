//! Empties a namespace that is being deleted, then lets it go (spec/kube-api.md 9, Delete).

use std::sync::Arc;

use muster_model::kind::{KINDS, Kind, NAMESPACE};
use muster_model::object::NamespacedName;
use muster_model::reason::finalizer;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::retry_delay;
use crate::auth::Caller;
use crate::cache::Stored;
use crate::registry::{DeleteOptions, Precondition, Registry, Write};

/// Deletions in one commit at most.
const BATCH: usize = 250;

/// Runs until told to stop.
pub(super) async fn run(registry: Registry, stop: CancellationToken) {
    let caller = Caller::internal("namespace-controller");
    let mut failures = 0;
    loop {
        let (snapshot, mut changes) = registry.cache().list_and_subscribe(KINDS);
        drop(snapshot);
        let mut ended_well = sync_all(&registry, &caller).await;
        while ended_well {
            let batch = tokio::select! {
                () = stop.cancelled() => return,
                batch = changes.next() => batch,
            };
            let Ok(batch) = batch else { break };
            // What matters is a namespace that begins to go, and content that leaves one that is going.
            let matters = batch
                .iter()
                .any(|change| change.kind() == &NAMESPACE || change.new.is_none());
            if matters {
                ended_well = sync_all(&registry, &caller).await;
            }
        }
        failures = if ended_well { 0 } else { failures + 1 };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(retry_delay(&registry, failures)) => {}
        }
    }
}

/// Looks at every terminating namespace; `false`: a write failed.
async fn sync_all(registry: &Registry, caller: &Caller) -> bool {
    let mut fine = true;
    for namespace in registry.cache().list(&NAMESPACE).items {
        if namespace.object().is_terminating() {
            fine &= sync(registry, caller, &namespace).await;
        }
    }
    fine
}

async fn sync(registry: &Registry, caller: &Caller, namespace: &Stored) -> bool {
    let content = content(registry, namespace.name());
    let writes: Vec<Write> = if content.is_empty() {
        vec![release(namespace)]
    } else {
        // Terminating ones are on their way: asking again would change nothing.
        content
            .iter()
            .filter(|stored| !stored.object().is_terminating())
            .map(|stored| delete(stored))
            .collect()
    };
    let mut fine = true;
    for batch in writes.chunks(BATCH) {
        for answer in registry.commit(caller, batch.to_vec()).await {
            match answer {
                Ok(_) => {}
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => {
                    tracing::warn!(namespace = namespace.name(), %error, "could not empty a namespace");
                    fine = false;
                }
            }
        }
    }
    fine
}

fn content(registry: &Registry, namespace: &str) -> Vec<Arc<Stored>> {
    let namespaced = KINDS.iter().filter(|kind| kind.namespaced);
    namespaced
        .flat_map(|kind: &&'static Kind| registry.cache().list_ns(kind, namespace).items)
        .collect()
}

fn delete(stored: &Stored) -> Write {
    let options = DeleteOptions {
        precondition: Precondition::uid(stored.uid()),
        ..DeleteOptions::default()
    };
    Write::delete(stored.kind, stored.key.clone(), options)
}

/// Takes the finalizer off that kept the empty namespace.
fn release(namespace: &Stored) -> Write {
    let key = NamespacedName::new("", namespace.name());
    Write::edit(
        &NAMESPACE,
        key,
        Precondition::uid(namespace.uid()),
        |object| {
            if let Some(list) = object
                .tree_mut()
                .get_mut("spec")
                .and_then(|spec| spec.get_mut("finalizers"))
                && let Some(list) = list.as_array_mut()
            {
                list.retain(|f| f.as_str() != Some(finalizer::KUBERNETES));
            } else {
                object
                    .tree_mut()
                    .insert("spec".into(), Value::Object(serde_json::Map::new()));
            }
            Ok(())
        },
    )
}
