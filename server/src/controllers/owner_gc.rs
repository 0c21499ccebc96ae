//! Collects what owners leave behind: background, foreground and orphaning deletion (spec/daemonset.md 15).
//!
//! An object whose owners are all gone is deleted; one that lost some loses those references. An owner that
//! carries the `foregroundDeletion` finalizer waits until no dependent with `blockOwnerDeletion` is left; one
//! that carries `orphan` goes once its dependents have lost their reference to it.
//!
//! Two questions are asked, always of the newest versions, never of the one in a change: what becomes of this
//! *dependent* ([`fate`]), and may this *owner* go. A change of an owner asks the first of all its dependents;
//! a change of a dependent asks it of that one alone, and the second of its owners. So deleting an owner of
//! 5 000 costs one pass over them, not one for each that goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_model::kind::{self, EVENT, KINDS, Kind};
use muster_model::object::{NamespacedName, Object, OwnerReference};
use muster_model::reason::finalizer;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::retry_delay;
use crate::auth::Caller;
use crate::cache::{Cache, Change, Stored};
use crate::registry::{DeleteOptions, Precondition, Registry, Write};

/// Writes in one commit at most.
const BATCH: usize = 250;

/// How an owner is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// It is there, or nobody here can tell that it is not.
    Stands,
    /// It is not there, or waits for its dependents to go first.
    Falls,
    /// It lets its dependents go.
    Orphans,
}

/// What becomes of a dependent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Stays,
    /// No owner stands.
    Goes,
    /// Of these owners, by uid, it must not name any.
    Loses(Vec<String>),
}

fn fate(owners: &[OwnerReference], how: impl Fn(&OwnerReference) -> Owner) -> Fate {
    let judged: Vec<(&str, Owner)> = owners.iter().map(|o| (o.uid.as_str(), how(o))).collect();
    let which = |wanted: Owner| -> Vec<String> {
        let found = judged.iter().filter(|(_, owner)| *owner == wanted);
        found.map(|(uid, _)| (*uid).to_owned()).collect()
    };
    let (orphaning, falling) = (which(Owner::Orphans), which(Owner::Falls));
    if !orphaning.is_empty() {
        // What is left of its owners is asked when this is done.
        Fate::Loses(orphaning)
    } else if falling.is_empty() {
        Fate::Stays
    } else if falling.len() == owners.len() {
        Fate::Goes
    } else {
        Fate::Loses(falling)
    }
}

/// Kinds whose objects may have owners. Events have none: they end by their age, as in Kubernetes.
fn owned_kinds() -> Vec<&'static Kind> {
    KINDS
        .iter()
        .copied()
        .filter(|kind| **kind != EVENT)
        .collect()
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
            biased;
            () = stop.cancelled() => return,
            ended = collector.follow() => ended,
        };
        // Too slow, or a write failed: look at everything again, after a pause that grows with failures.
        failures = if ended.is_err() { failures + 1 } else { 0 };
        tokio::select! {
            biased;
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

type Id = (&'static Kind, NamespacedName);

/// Writes wanted, one per object.
type Wanted = BTreeMap<Id, Write>;

/// What a batch of changes asks.
#[derive(Default)]
struct Questions {
    dependents: BTreeSet<Id>,
    /// Owners by uid that may be waiting for something.
    owners: BTreeSet<String>,
    /// Owners by uid whose dependents are all to be asked.
    fallen: BTreeSet<String>,
}

impl Questions {
    fn ask(&mut self, change: &Change) {
        self.dependents
            .insert((change.kind(), change.key().clone()));
        let subject = change.subject();
        if change.new.is_none() || subject.object().is_terminating() {
            self.fallen.insert(subject.uid().to_owned());
        }
        // A dependent that went, or let go of its owner, may be what the owner waits for. Most changes are of a status.
        if let Some(old) = &change.old
            && change.new.as_ref().is_none_or(|new| {
                let owners = |stored| Object::at(stored, "/metadata/ownerReferences");
                owners(new.object()) != owners(old.object())
            })
        {
            let owners = old.object().owner_references();
            self.owners
                .extend(owners.into_iter().map(|owner| owner.uid));
        }
    }
}

impl Collector {
    /// Everything there is, then every change. Ends when it was too slow, or on a failure.
    async fn follow(&self) -> Result<(), Failed> {
        let (snapshot, mut changes) = self.cache().list_and_subscribe(&owned_kinds());
        let mut wanted = Wanted::new();
        for stored in &snapshot.items {
            self.judge_dependent(stored, &mut wanted);
            self.judge_owner(stored, &mut wanted);
        }
        drop(snapshot);
        self.carry_out(wanted).await?;
        while let Ok(batch) = changes.next().await {
            let mut questions = Questions::default();
            batch.iter().for_each(|change| questions.ask(change));
            let wanted = self.answer(questions);
            self.carry_out(wanted).await?;
        }
        Ok(())
    }

    fn cache(&self) -> &Cache {
        self.registry.cache()
    }

    fn answer(&self, questions: Questions) -> Wanted {
        let mut wanted = Wanted::new();
        for (kind, key) in &questions.dependents {
            if let Some(stored) = self.cache().get(kind, key) {
                self.judge_dependent(&stored, &mut wanted);
            }
        }
        for uid in &questions.fallen {
            for dependent in self.cache().owned_by(uid) {
                self.judge_dependent(&dependent, &mut wanted);
            }
        }
        for uid in questions.owners.union(&questions.fallen) {
            if let Some(owner) = self.cache().by_uid(uid) {
                self.judge_owner(&owner, &mut wanted);
            }
        }
        wanted
    }

    fn judge_dependent(&self, stored: &Arc<Stored>, wanted: &mut Wanted) {
        let owners = stored.object().owner_references();
        match fate(&owners, |owner| self.how_is(owner, &stored.key.namespace)) {
            Fate::Stays => {}
            // Already on its way: asking again would change nothing.
            Fate::Goes if stored.object().is_terminating() => {}
            Fate::Goes => want(wanted, stored, delete(stored)),
            Fate::Loses(uids) => want(wanted, stored, without_owners(stored, uids)),
        }
    }

    fn how_is(&self, owner: &OwnerReference, namespace: &str) -> Owner {
        if let Some(found) = self.cache().by_uid(&owner.uid) {
            let object = found.object();
            return match object.is_terminating() {
                true if object.finalizers().contains(&finalizer::ORPHAN) => Owner::Orphans,
                true if object.finalizers().contains(&finalizer::FOREGROUND) => Owner::Falls,
                _ => Owner::Stands,
            };
        }
        // Of a kind that is not served here, or one that cannot be read: it may well be there.
        let Some(kind) = kind::by_api_version(&owner.api_version, &owner.kind) else {
            return Owner::Stands;
        };
        let namespace = if kind.namespaced { namespace } else { "" };
        let key = NamespacedName::new(namespace, owner.name.as_str());
        if self.cache().is_broken(kind, &key) {
            Owner::Stands
        } else {
            Owner::Falls
        }
    }

    /// Takes the finalizer off an owner that has nothing left to wait for.
    fn judge_owner(&self, owner: &Arc<Stored>, wanted: &mut Wanted) {
        if !owner.object().is_terminating() {
            return;
        }
        let uid = owner.uid();
        let blocks = |dependent: &Object| {
            let owners = dependent.owner_references();
            owners
                .iter()
                .any(|o| o.uid == uid && o.block_owner_deletion)
        };
        let finalizers = owner.object().finalizers();
        if finalizers.contains(&finalizer::FOREGROUND) && !self.cache().any_owned_by(uid, blocks) {
            want(
                wanted,
                owner,
                without_finalizer(owner, finalizer::FOREGROUND),
            );
        }
        if finalizers.contains(&finalizer::ORPHAN) && !self.cache().any_owned_by(uid, |_| true) {
            want(wanted, owner, without_finalizer(owner, finalizer::ORPHAN));
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

/// As this very version was judged: one that was adopted meanwhile stays. Its own finalizers say what becomes of
/// its dependents.
fn delete(stored: &Stored) -> Write {
    let options = DeleteOptions {
        precondition: Precondition::version(stored),
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

    fn owners(uids: &[&str]) -> Vec<OwnerReference> {
        uids.iter()
            .map(|uid| OwnerReference {
                api_version: "apps/v1".into(),
                kind: "DaemonSet".into(),
                name: "web".into(),
                uid: (*uid).into(),
                controller: false,
                block_owner_deletion: true,
            })
            .collect()
    }

    fn judged(uids: &[&str]) -> Fate {
        fate(&owners(uids), |owner| match owner.uid.split('-').next() {
            Some("stands") => Owner::Stands,
            Some("orphans") => Owner::Orphans,
            _ => Owner::Falls,
        })
    }

    #[test]
    fn a_dependent_goes_with_its_last_owner() {
        let loses = |uid: &str| Fate::Loses(vec![uid.to_owned()]);
        assert_eq!(judged(&[]), Fate::Stays);
        assert_eq!(judged(&["stands-1"]), Fate::Stays);
        assert_eq!(judged(&["falls-1", "falls-2"]), Fate::Goes);
        assert_eq!(judged(&["stands-1", "falls-1"]), loses("falls-1"));
        assert_eq!(judged(&["orphans-1"]), loses("orphans-1"));
        assert_eq!(judged(&["orphans-1", "falls-1"]), loses("orphans-1"));
    }
}
