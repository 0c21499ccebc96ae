//! Empties a namespace that is being deleted, then lets it go (spec/kube-api.md 9, Delete).

use std::collections::BTreeSet;
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
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            ended = follow(&registry, &caller) => ended,
        };
        // Too slow, or a write failed: look at every namespace again, after a pause that grows with failures.
        failures = if ended.is_err() { failures + 1 } else { 0 };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(retry_delay(&registry, failures)) => {}
        }
    }
}

/// A write failed; its text is logged where it happened.
struct Failed;

/// Every terminating namespace there is, then those that changes concern. Ends when it was too slow, or on a
/// failure.
async fn follow(registry: &Registry, caller: &Caller) -> Result<(), Failed> {
    let mut changes = registry.cache().subscribe(KINDS);
    let all = registry.cache().list(&NAMESPACE).items;
    let mut names: BTreeSet<String> = all.iter().map(|ns| ns.name().to_owned()).collect();
    loop {
        for name in &names {
            let key = NamespacedName::new("", name.as_str());
            let namespace = registry.cache().get(&NAMESPACE, &key);
            if let Some(namespace) = namespace.filter(|ns| ns.object().is_terminating()) {
                sync(registry, caller, &namespace).await?;
            }
        }
        let Ok(batch) = changes.next().await else {
            return Ok(());
        };
        // What matters is a namespace that begins to go, and content that leaves one that is going: nothing is
        // created in it any more.
        names = batch
            .iter()
            .filter(|change| change.kind() == &NAMESPACE || change.new.is_none())
            .map(|change| match change.kind() {
                kind if kind == &NAMESPACE => change.key().name.clone(),
                _ => change.key().namespace.clone(),
            })
            .filter(|name| !name.is_empty())
            .collect();
    }
}

async fn sync(registry: &Registry, caller: &Caller, namespace: &Stored) -> Result<(), Failed> {
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
    let mut ended = Ok(());
    for batch in writes.chunks(BATCH) {
        for answer in registry.commit(caller, batch.to_vec()).await {
            match answer {
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    tracing::warn!(namespace = namespace.name(), %error, "could not empty a namespace");
                    ended = Err(Failed);
                }
            }
        }
    }
    ended
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
            let spec = object.tree_mut().get_mut("spec");
            let list = spec.and_then(|spec| spec.get_mut("finalizers"));
            if let Some(list) = list.and_then(Value::as_array_mut) {
                list.retain(|f| f.as_str() != Some(finalizer::KUBERNETES));
            }
            Ok(())
        },
    )
}
