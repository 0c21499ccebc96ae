//! Collects what owners leave behind: background, foreground and orphaning deletion (spec/daemonset.md 15).
//!
//! An object whose owners are all gone is deleted; one that lost some loses those references. An owner that
//! carries the `foregroundDeletion` finalizer waits until no dependent with `blockOwnerDeletion` is left; one
//! that carries `orphan` goes once its dependents have lost their reference to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::kind::{KINDS, Kind};
use muster_model::object::{NamespacedName, Object};
use muster_model::reason::finalizer;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::retry_delay;
use crate::auth::Caller;
use crate::cache::{Cache, Change, Stored};
use crate::registry::{DeleteOptions, Precondition, Propagation, Registry, Write};

/// Writes in one commit at most.
const BATCH: usize = 250;

/// What becomes of an object, given which of its owners still exist.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Stays,
    /// Every owner is gone.
    Goes,
    /// These owners' uids are gone, others are there.
    Loses(Vec<String>),
}

fn fate(object: &Object, owner_exists: impl Fn(&str) -> bool) -> Fate {
    let owners = object.owner_references();
    let gone: Vec<String> = owners
        .iter()
        .map(|o| o.uid.clone())
        .filter(|uid| !owner_exists(uid))
        .collect();
    if gone.is_empty() {
        Fate::Stays
    } else if gone.len() == owners.len() {
        Fate::Goes
    } else {
        Fate::Loses(gone)
    }
}

/// Runs until told to stop.
pub(super) async fn run(registry: Registry, stop: CancellationToken) {
    let collector = Collector {
        caller: Caller::internal("owner-gc"),
        registry,
    };
    let mut failures = 0;
    loop {
        let ended = tokio::select! {
            () = stop.cancelled() => return,
            ended = collector.follow() => ended,
        };
        // Too slow, or a write failed: look at everything again, after a pause that grows with failures.
        failures = if ended.is_err() { failures + 1 } else { 0 };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(retry_delay(&collector.registry, failures)) => {}
        }
    }
}

struct Collector {
    registry: Registry,
    caller: Caller,
}

/// A write failed; its text is logged where it happened.
struct Failed;

/// Writes wanted, one per object.
type Wanted = BTreeMap<(&'static Kind, NamespacedName), Write>;

impl Collector {
    /// Everything there is, then every change. Ends when it was too slow, or on a failure.
    async fn follow(&self) -> Result<(), Failed> {
        let (snapshot, mut changes) = self.cache().list_and_subscribe(KINDS);
        let mut wanted = Wanted::new();
        for stored in &snapshot.items {
            self.look_at(stored, &mut wanted);
        }
        self.carry_out(wanted).await?;
        while let Ok(batch) = changes.next().await {
            let mut wanted = Wanted::new();
            for change in &batch {
                self.look_at_change(change, &mut wanted);
            }
            self.carry_out(wanted).await?;
        }
        Ok(())
    }

    fn cache(&self) -> &Cache {
        self.registry.cache()
    }

    fn look_at_change(&self, change: &Change, wanted: &mut Wanted) {
        match &change.new {
            Some(new) => self.look_at(new, wanted),
            None => {
                for dependent in self.cache().owned_by(change.subject().uid()) {
                    self.look_at(&dependent, wanted);
                }
            }
        }
        // A dependent that went, or let go of its owner, may be what the owner waits for.
        if let Some(old) = &change.old {
            for owner in old.object().owner_references() {
                if let Some(owner) = self.cache().by_uid(&owner.uid)
                    && owner.object().is_terminating()
                {
                    self.look_at(&owner, wanted);
                }
            }
        }
    }

    fn look_at(&self, stored: &Arc<Stored>, wanted: &mut Wanted) {
        let object = stored.object();
        match fate(object, |uid| self.cache().by_uid(uid).is_some()) {
            Fate::Stays => {}
            // Already on its way: asking again would change nothing.
            Fate::Goes if object.is_terminating() => {}
            Fate::Goes => want(wanted, stored, delete(stored)),
            Fate::Loses(uids) => want(wanted, stored, without_owners(stored, uids)),
        }
        if object.is_terminating() {
            let finalizers = object.finalizers();
            if finalizers.contains(&finalizer::FOREGROUND) {
                self.delete_dependents_first(stored, wanted);
            }
            if finalizers.contains(&finalizer::ORPHAN) {
                self.let_dependents_go(stored, wanted);
            }
        }
    }

    fn delete_dependents_first(&self, owner: &Arc<Stored>, wanted: &mut Wanted) {
        let mut waits = false;
        for dependent in self.cache().owned_by(owner.uid()) {
            let blocks = dependent
                .object()
                .owner_references()
                .iter()
                .any(|reference| reference.uid == owner.uid() && reference.block_owner_deletion);
            waits |= blocks;
            if !dependent.object().is_terminating() {
                want(wanted, &dependent, delete(&dependent));
            }
        }
        if !waits {
            want(
                wanted,
                owner,
                without_finalizer(owner, finalizer::FOREGROUND),
            );
        }
    }

    fn let_dependents_go(&self, owner: &Arc<Stored>, wanted: &mut Wanted) {
        let dependents = self.cache().owned_by(owner.uid());
        if dependents.is_empty() {
            want(wanted, owner, without_finalizer(owner, finalizer::ORPHAN));
        }
        for dependent in dependents {
            want(
                wanted,
                &dependent,
                without_owners(&dependent, vec![owner.uid().to_owned()]),
            );
        }
    }

    async fn carry_out(&self, wanted: Wanted) -> Result<(), Failed> {
        let mut failed = false;
        let mut writes = wanted.into_values();
        loop {
            let batch: Vec<Write> = writes.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return if failed { Err(Failed) } else { Ok(()) };
            }
            for answer in self.registry.commit(&self.caller, batch).await {
                match answer {
                    Ok(_) => {}
                    // Somebody else was faster, or another object has the name now: the change will be seen.
                    Err(error) if error.is_not_found() || error.is_conflict() => {}
                    Err(error) => {
                        tracing::warn!(%error, "could not collect an object");
                        failed = true;
                    }
                }
            }
        }
    }
}

fn want(wanted: &mut Wanted, stored: &Stored, write: Write) {
    wanted.insert((stored.kind, stored.key.clone()), write);
}

fn delete(stored: &Stored) -> Write {
    let options = DeleteOptions {
        propagation: Some(Propagation::Background),
        precondition: Precondition::uid(stored.uid()),
        ..DeleteOptions::default()
    };
    Write::delete(stored.kind, stored.key.clone(), options)
}

fn without_owners(stored: &Stored, uids: Vec<String>) -> Write {
    Write::edit(
        stored.kind,
        stored.key.clone(),
        Precondition::uid(stored.uid()),
        move |object| {
            retain(object, "ownerReferences", |reference| {
                let uid = reference
                    .get("uid")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                !uids.iter().any(|gone| gone == uid)
            });
            Ok(())
        },
    )
}

fn without_finalizer(stored: &Stored, name: &'static str) -> Write {
    Write::edit(
        stored.kind,
        stored.key.clone(),
        Precondition::uid(stored.uid()),
        move |object| {
            retain(object, "finalizers", |finalizer| {
                finalizer.as_str() != Some(name)
            });
            Ok(())
        },
    )
}

fn retain(object: &mut Object, field: &str, keep: impl Fn(&Value) -> bool) {
    let metadata = object.metadata_mut();
    if let Some(list) = metadata.get_mut(field).and_then(Value::as_array_mut) {
        list.retain(keep);
        if list.is_empty() {
            metadata.remove(field);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn owned_by(uids: &[&str]) -> Object {
        let references: Vec<Value> = uids
            .iter()
            .map(|uid| json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web", "uid": uid}))
            .collect();
        Object::from_value(json!({"metadata": {"name": "p", "ownerReferences": references}}))
            .unwrap()
    }

    #[test]
    fn an_object_goes_with_its_last_owner() {
        let exists = |uid: &str| uid.starts_with("alive");
        assert_eq!(fate(&owned_by(&[]), exists), Fate::Stays);
        assert_eq!(fate(&owned_by(&["alive-1"]), exists), Fate::Stays);
        assert_eq!(fate(&owned_by(&["dead-1", "dead-2"]), exists), Fate::Goes);
        assert_eq!(
            fate(&owned_by(&["alive-1", "dead-1"]), exists),
            Fate::Loses(vec!["dead-1".to_owned()])
        );
    }
}
