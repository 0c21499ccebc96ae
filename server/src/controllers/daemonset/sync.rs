//! One sync of one DaemonSet: look, ask the brain, act (spec/daemonset.md 9).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_daemonset::pod::owner_reference;
use muster_daemonset::revision::{self, Collision, NOTES_OF_A_TRY, Settlement};
use muster_daemonset::{DaemonFacts, Plan, PodUid, RevisionFacts, plan};
use muster_model::kind::{CONTROLLER_REVISION, DAEMON_SET, POD};
use muster_model::object::{NamespacedName, Object};
use muster_model::reason::annotation;
use muster_model::reason::label::CONTROLLER_REVISION_HASH;
use muster_model::time::to_seconds_text;
use muster_store::Revision;
use serde_json::{Value, json};

use super::Inner;
use crate::cache::Stored;
use crate::registry::{DeleteOptions, Precondition, Write};
use crate::status::{ApiError, Reason};

/// Each round sees the effects of the one before: claim, settle the history, plan. More are only needed when
/// others change the same objects meanwhile.
const MOST_ROUNDS: usize = 8;
/// Claiming is tried in so many rounds; what cannot be claimed then holds up nothing else.
const MOST_CLAIMS: usize = 3;
/// How long to wait for the cache to show a write whose outcome was not seen.
const VISIBLE_WITHIN: Duration = Duration::from_secs(1);

/// Why a sync ended early. Every one of them is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
    /// The registry refused a write.
    #[error("{what} was refused: {source}")]
    Write {
        /// What was tried.
        what: &'static str,
        /// The answer.
        source: Box<ApiError>,
    },
    /// Another DaemonSet has the name now.
    #[error("original DaemonSet {id} is gone: got uid {found}, wanted {wanted}")]
    OwnerReplaced {
        /// Which.
        id: NamespacedName,
        /// Whose uid it has; empty: there is none.
        found: String,
        /// Whose we know.
        wanted: String,
    },
    /// It is being deleted, so it adopts nothing any more.
    #[error("{id} has just been deleted at {at}")]
    OwnerTerminating {
        /// Which.
        id: NamespacedName,
        /// Its deletionTimestamp.
        at: String,
    },
    /// The name of the wanted revision is taken by other data; the collision count was raised.
    #[error("revision {name} exists with other data: trying another hash")]
    Collision {
        /// The taken name.
        name: String,
    },
    /// The collision count here is behind the stored one.
    #[error("found a stale collision count ({found:?}, ours is {ours:?})")]
    StaleCollisionCount {
        /// As stored.
        found: Option<i32>,
        /// As known.
        ours: Option<i32>,
    },
    /// The view is older than this controller's own last write.
    #[error("the view has not reached revision {revision} yet")]
    Behind {
        /// What it has to reach.
        revision: Revision,
    },
    /// Others change the same objects all the time.
    #[error("the objects kept changing")]
    Unsettled,
}

impl SyncError {
    pub(super) fn write(what: &'static str, source: ApiError) -> Self {
        Self::Write {
            what,
            source: Box::new(source),
        }
    }
}

/// What a look at a DaemonSet found to do.
enum Look {
    Nothing,
    Behind(Revision),
    Claim {
        facts: Box<DaemonFacts>,
        adopt: Vec<Arc<Stored>>,
        release: Vec<Arc<Stored>>,
    },
    Settle {
        facts: Box<DaemonFacts>,
        settlement: Arc<Settlement>,
        relabel: Vec<Arc<Stored>>,
    },
    Act(Box<Work>),
}

/// A plan to be carried out.
pub(super) struct Work {
    pub(super) stored: Arc<Stored>,
    pub(super) facts: DaemonFacts,
    pub(super) plan: Plan,
    pub(super) confident: bool,
    /// The versions of the pods to delete that the plan was made on.
    pub(super) judged: BTreeMap<PodUid, Revision>,
}

impl Inner {
    pub(super) async fn sync(&self, key: &NamespacedName) -> Result<(), SyncError> {
        let synced = self.sync_in_rounds(key).await;
        if synced.is_err() {
            self.note_gaps_of(key);
        }
        synced
    }

    async fn sync_in_rounds(&self, key: &NamespacedName) -> Result<(), SyncError> {
        for round in 0..MOST_ROUNDS {
            match self.look(key, round < MOST_CLAIMS) {
                Look::Nothing => return Ok(()),
                Look::Behind(revision) => {
                    if !self
                        .registry
                        .cache()
                        .wait_for(revision, VISIBLE_WITHIN)
                        .await
                    {
                        return Err(SyncError::Behind { revision });
                    }
                }
                Look::Claim {
                    facts,
                    adopt,
                    release,
                } => self.claim(&facts, &adopt, &release).await?,
                Look::Settle {
                    facts,
                    settlement,
                    relabel,
                } => {
                    self.settle(&facts, &settlement, &relabel).await?;
                }
                Look::Act(work) => return self.carry_out(*work).await,
            }
        }
        Err(SyncError::Unsettled)
    }

    fn look(&self, key: &NamespacedName, claims: bool) -> Look {
        let moment = self.registry.clock().moment();
        let now = moment.wall;
        let mut guard = self.state.lock();
        self.catch_up(&mut guard);
        let state = &mut *guard;
        if let Some(set) = state.index.sets.get_mut(key) {
            set.follow_clock(moment);
        }
        let Some(set) = state.index.sets.get(key) else {
            return Look::Nothing;
        };
        if set.must_reach > self.registry.cache().revision() {
            return Look::Behind(set.must_reach);
        }
        if set.facts.terminating {
            return Look::Nothing;
        }
        let adopt = state.index.to_adopt(set);
        let release: Vec<_> = set
            .to_release()
            .chain(set.revisions_to_release())
            .cloned()
            .collect();
        if claims && !(adopt.is_empty() && release.is_empty()) {
            return Look::Claim {
                facts: Box::new(set.facts.clone()),
                adopt,
                release,
            };
        }
        let Some(set) = state.index.sets.get_mut(key) else {
            return Look::Nothing;
        };
        if !set.facts.selects_all() {
            let settlement = set.settle(now);
            if !settlement.is_settled() {
                let relabel = set.pods_with_hash(&settlement.relabel);
                return Look::Settle {
                    facts: Box::new(set.facts.clone()),
                    settlement,
                    relabel,
                };
            }
            let (uid, target) = (&set.facts.uid, &set.facts.rules.target);
            self.troubles.note_begun(uid, target);
        }
        self.refresh(set, &state.index.nodes, moment);
        let history = set.history();
        let plan = plan(&set.facts, &set.placements, &history, now);
        if plan.is_idle() {
            self.look_again(key, &plan);
            return Look::Nothing;
        }
        tracing::debug!(daemonset = %key, plan = %plan, "planned");
        let judged = plan
            .deletes
            .iter()
            .filter_map(|delete| Some((delete.pod.uid.clone(), set.version_of(&delete.pod.uid)?)));
        let judged = judged.collect();
        Look::Act(Box::new(Work {
            judged,
            stored: set.stored.clone(),
            facts: set.facts.clone(),
            plan,
            confident: set.confident,
        }))
    }

    /// Queues the key for what the plan foresees.
    pub(super) fn look_again(&self, key: &NamespacedName, plan: &Plan) {
        if plan.more {
            self.queue.add(key.clone());
        }
        if let Some(at) = plan.requeue_at {
            let wait = at.duration_since(self.registry.clock().now());
            self.queue
                .add_after(key.clone(), Duration::try_from(wait).unwrap_or_default());
        }
    }

    /// Adopts and releases pods and revisions (spec/daemonset.md 11).
    async fn claim(
        &self,
        facts: &DaemonFacts,
        adopt: &[Arc<Stored>],
        release: &[Arc<Stored>],
    ) -> Result<(), SyncError> {
        if !adopt.is_empty() {
            self.check_owner(facts)?;
        }
        let reference = json!(owner_reference(facts));
        let adoptions = adopt.iter().map(|stored| {
            let reference = reference.clone();
            edit(stored, move |object| add_owner(object, &reference))
        });
        let releases = release.iter().map(|stored| {
            let uid = facts.uid.clone();
            edit(stored, move |object| {
                remove_owner(object, &uid);
                Ok(())
            })
        });
        let writes = adoptions.chain(releases).collect();
        let answers = self.registry.commit(&self.caller, writes).await;
        for (index, answer) in answers.into_iter().enumerate() {
            let Err(error) = answer else { continue };
            let gone = error.is_not_found() || error.is_conflict();
            let adopting = index < adopt.len();
            if gone || (!adopting && error.reason() == Reason::Invalid) {
                continue;
            }
            self.note_timeout(facts, &error);
            return Err(SyncError::write(
                if adopting { "adopting" } else { "releasing" },
                error,
            ));
        }
        Ok(())
    }

    /// Before anything is adopted: it must still be this very DaemonSet, and not on its way out.
    pub(super) fn check_owner(&self, facts: &DaemonFacts) -> Result<(), SyncError> {
        let fresh = self.registry.cache().get(&DAEMON_SET, &facts.id);
        let found = fresh
            .as_ref()
            .map(|stored| stored.uid().to_owned())
            .unwrap_or_default();
        if found != facts.uid {
            let (id, wanted) = (facts.id.clone(), facts.uid.clone());
            return Err(SyncError::OwnerReplaced { id, found, wanted });
        }
        let deleted =
            fresh.and_then(|stored| stored.object().deletion_timestamp().map(str::to_owned));
        match deleted {
            Some(at) => Err(SyncError::OwnerTerminating {
                id: facts.id.clone(),
                at,
            }),
            None => Ok(()),
        }
    }

    /// Brings the history in order (spec/daemonset.md 13.3).
    async fn settle(
        &self,
        facts: &DaemonFacts,
        settlement: &Settlement,
        relabel: &[Arc<Stored>],
    ) -> Result<(), SyncError> {
        let id = |name: &str| NamespacedName::new(facts.id.namespace.clone(), name);
        let hash = settlement.target.hash.clone();
        let mut writes: Vec<Write> = relabel
            .iter()
            .map(|pod| {
                let hash = hash.clone();
                edit(pod, move |object| {
                    object.set_label(CONTROLLER_REVISION_HASH, &hash);
                    Ok(())
                })
            })
            .collect();
        for (name, hash) in &settlement.label {
            // A duplicate that goes anyway needs no label, and one write per object is enough.
            let renumbered = settlement
                .renumber
                .as_ref()
                .is_some_and(|(other, _)| other == name);
            if renumbered || settlement.delete.contains(name) {
                continue;
            }
            let hash = hash.clone();
            writes.push(edit_revision(id(name), move |object| {
                object.set_label(CONTROLLER_REVISION_HASH, &hash);
            }));
        }
        if let Some((name, number)) = settlement.renumber.clone() {
            let hash = settlement.target.hash.clone();
            let now = to_seconds_text(self.registry.now());
            writes.push(edit_revision(id(&name), move |object| {
                object.set_annotation(annotation::CURRENT_SINCE, &now);
                object
                    .tree_mut()
                    .insert("revision".to_owned(), number.into());
                object.set_label(CONTROLLER_REVISION_HASH, &hash);
                for note in NOTES_OF_A_TRY {
                    object.remove_annotation(note);
                }
            }));
        }
        for name in &settlement.delete {
            writes.push(Write::delete(
                &CONTROLLER_REVISION,
                id(name),
                DeleteOptions::default(),
            ));
        }
        for answer in self.registry.commit(&self.caller, writes).await {
            match answer {
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    self.note_timeout(facts, &error);
                    return Err(SyncError::write("settling the history", error));
                }
            }
        }
        let Some(new) = &settlement.create else {
            return Ok(());
        };
        let object = revision::object(facts, new);
        let write = Write::create(&CONTROLLER_REVISION, object);
        match self.registry.write(&self.caller, write).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_already_exists() => self.name_taken(facts, &new.name).await,
            Err(error) => {
                self.note_timeout(facts, &error);
                Err(SyncError::write("creating a revision", error))
            }
        }
    }

    /// The wanted revision's name is taken (spec/daemonset.md 13.4).
    async fn name_taken(&self, facts: &DaemonFacts, name: &str) -> Result<(), SyncError> {
        let taken = NamespacedName::new(facts.id.namespace.clone(), name);
        let cache = self.registry.cache();
        let Some(existing) = cache.get(&CONTROLLER_REVISION, &taken) else {
            // Gone again: the next round creates it.
            return Ok(());
        };
        let existing = RevisionFacts::from_object(existing.object());
        let fresh = cache.get(&DAEMON_SET, &facts.id);
        let count = fresh.and_then(|stored| stored.object().at("/status/collisionCount")?.as_i64());
        let count = count.and_then(|count| i32::try_from(count).ok());
        match revision::collision(facts, &existing, count) {
            Collision::Use => {
                let mut state = self.state.lock();
                // Read again under the lock: the index may have taken its removal meanwhile, and nobody would tell of it again.
                if let Some(existing) = cache.get(&CONTROLLER_REVISION, &taken)
                    && let Some(set) = state.index.sets.get_mut(&facts.id)
                {
                    set.borrow_revision(&existing);
                }
                Ok(())
            }
            Collision::Stale => Err(SyncError::StaleCollisionCount {
                found: count,
                ours: facts.collision_count,
            }),
            Collision::Bump(count) => {
                let same = Precondition::uid(facts.uid.clone());
                let write =
                    Write::edit_status(&DAEMON_SET, facts.id.clone(), same, move |object| {
                        set_collision_count(object, count);
                        Ok(())
                    });
                match self.registry.write(&self.caller, write).await {
                    Ok(_) => Err(SyncError::Collision {
                        name: name.to_owned(),
                    }),
                    Err(error) => Err(SyncError::write("raising the collision count", error)),
                }
            }
        }
    }

    /// A write may have been stored without our seeing it: nothing is decided before the view shows all that
    /// the store has now.
    pub(super) fn note_timeout(&self, facts: &DaemonFacts, error: &ApiError) {
        if error.reason() == Reason::Timeout
            && let Some(set) = self.state.lock().index.sets.get_mut(&facts.id)
        {
            set.must_reach = self.registry.store().revision();
        }
    }
}

pub(super) fn edit<F>(stored: &Arc<Stored>, edit: F) -> Write
where
    F: Fn(&mut Object) -> Result<(), ApiError> + Send + Sync + 'static,
{
    debug_assert!(*stored.kind == POD || *stored.kind == CONTROLLER_REVISION);
    Write::edit(
        stored.kind,
        stored.key.clone(),
        Precondition::uid(stored.uid()),
        edit,
    )
}

pub(super) fn edit_revision<F>(key: NamespacedName, edit: F) -> Write
where
    F: Fn(&mut Object) + Send + Sync + 'static,
{
    Write::edit(
        &CONTROLLER_REVISION,
        key,
        Precondition::default(),
        move |object| {
            edit(object);
            Ok(())
        },
    )
}

fn add_owner(object: &mut Object, reference: &Value) -> Result<(), ApiError> {
    if object.controller().is_some() {
        let name = object.name().to_owned();
        return Err(ApiError::conflict(
            &POD,
            &name,
            "somebody else controls it meanwhile",
        ));
    }
    let owners = object
        .metadata_mut()
        .entry("ownerReferences")
        .or_insert_with(|| json!([]));
    match owners.as_array_mut() {
        Some(owners) => owners.push(reference.clone()),
        None => *owners = json!([reference]),
    }
    Ok(())
}

fn remove_owner(object: &mut Object, uid: &str) {
    let metadata = object.metadata_mut();
    let Some(owners) = metadata
        .get_mut("ownerReferences")
        .and_then(Value::as_array_mut)
    else {
        return;
    };
    owners.retain(|owner| owner.get("uid").and_then(Value::as_str) != Some(uid));
    if owners.is_empty() {
        metadata.remove("ownerReferences");
    }
}

fn set_collision_count(object: &mut Object, count: i32) {
    let status = object
        .tree_mut()
        .entry("status")
        .or_insert_with(|| json!({}));
    if let Some(status) = status.as_object_mut() {
        status.insert("collisionCount".to_owned(), count.into());
    }
}
