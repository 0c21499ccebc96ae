//! Carrying a plan out: creations and deletions in few commits, events, then the status
//! (spec/daemonset.md 10.2).

use muster_daemonset::event::{self, Note};
use muster_daemonset::place::DeleteWhy;
use muster_daemonset::plan::{BURST, Delete, batches};
use muster_daemonset::pod::pod_for;
use muster_model::kind::{CONTROLLER_REVISION, DAEMON_SET, POD};
use muster_model::object::{NamespacedName, Object};
use muster_model::reason::daemonset_event::COMPONENT;

use super::Inner;
use super::sync::{SyncError, Work};
use crate::registry::{DeleteOptions, Precondition, Write};
use crate::status::ApiError;

/// How often the status is tried: once more after a failure.
const STATUS_TRIES: usize = 2;

/// What came of a plan.
#[derive(Default)]
struct Outcome {
    /// The first refusal: the sync's error.
    failed: Option<SyncError>,
    /// A creation was refused, for whatever reason: the rest is not tried in this pass.
    stop_creating: bool,
}

impl Inner {
    pub(super) async fn carry_out(&self, work: Work) -> Result<(), SyncError> {
        let daemon = work.stored.object();
        for note in &work.plan.events {
            self.tell(daemon, note);
        }
        let mut outcome = Outcome::default();
        // First of all: no deletion may rest on facts that are older than they have to be.
        self.create_and_delete(&work, &mut outcome).await;
        if let Err(error) = self.steer(&work).await {
            outcome.failed.get_or_insert(error);
        }
        if !work.plan.creates.is_empty()
            && let Some(set) = self.state.lock().index.sets.get_mut(&work.facts.id)
        {
            set.confident = !outcome.stop_creating;
        }
        let status = self.finish(&work, outcome.failed.is_none()).await;
        match outcome.failed {
            // The queue tries it again, after a pause.
            Some(error) => Err(error),
            None => {
                self.look_again(&work.facts.id, &work.plan);
                status
            }
        }
    }

    /// Creations in batches that grow as long as none fails; the deletions travel with the first one.
    async fn create_and_delete(&self, work: &Work, outcome: &mut Outcome) {
        let create = |create: &muster_daemonset::plan::Create| {
            Write::create(&POD, pod_for(&work.facts, &create.node, create.from))
        };
        let creates: Vec<Write> = work.plan.creates.iter().map(create).collect();
        let sizes: Vec<usize> = if work.confident && !creates.is_empty() {
            vec![BURST]
        } else {
            batches(creates.len()).collect()
        };
        let mut creates = creates.into_iter();
        let mut deletes: &[Delete] = &work.plan.deletes;
        for size in sizes {
            let batch: Vec<Write> = creates.by_ref().take(size).collect();
            self.one_commit(work, batch, std::mem::take(&mut deletes), outcome)
                .await;
            if outcome.stop_creating {
                return;
            }
        }
        if !deletes.is_empty() {
            self.one_commit(work, Vec::new(), deletes, outcome).await;
        }
    }

    async fn one_commit(
        &self,
        work: &Work,
        creates: Vec<Write>,
        deletes: &[Delete],
        outcome: &mut Outcome,
    ) {
        let daemon = work.stored.object();
        let created = creates.len();
        let mut writes = creates;
        writes.extend(deletes.iter().map(|delete| {
            let key = NamespacedName::new(work.facts.id.namespace.clone(), &*delete.pod.name);
            // Of this very version: one that turned Ready since may only go within the budget.
            let precondition = Precondition {
                uid: Some(delete.pod.uid.as_str().to_owned()),
                revision: work.judged.get(&delete.pod.uid).copied(),
            };
            Write::delete(
                &POD,
                key,
                DeleteOptions {
                    precondition,
                    ..DeleteOptions::default()
                },
            )
        }));
        let answers = self.registry.commit(&self.caller, writes).await;
        for (index, answer) in answers.into_iter().enumerate() {
            let Some(at) = index.checked_sub(created) else {
                match answer {
                    Ok(pod) => self.tell(daemon, &event::created(pod.name())),
                    Err(error) => self.create_refused(work, error, outcome),
                }
                continue;
            };
            let delete = &deletes[at];
            match answer {
                Ok(_) => self.deleted(work, delete),
                // Gone already.
                Err(error) if error.is_not_found() => {}
                // Another version by now, or another pod: it is judged again.
                Err(error) if error.is_conflict() => self.queue.add(work.facts.id.clone()),
                Err(error) => {
                    self.tell(daemon, &event::delete_failed(error.message()));
                    self.note_timeout(&work.facts, &error);
                    outcome
                        .failed
                        .get_or_insert(SyncError::write("deleting a pod", error));
                }
            }
        }
    }

    fn create_refused(&self, work: &Work, error: ApiError, outcome: &mut Outcome) {
        outcome.stop_creating = true;
        // The namespace goes, and the DaemonSet with it: no news.
        if error.is_namespace_terminating() {
            return;
        }
        self.tell(work.stored.object(), &event::create_failed(error.message()));
        self.note_timeout(&work.facts, &error);
        outcome
            .failed
            .get_or_insert(SyncError::write("creating a pod", error));
    }

    fn deleted(&self, work: &Work, delete: &Delete) {
        self.tell(work.stored.object(), &event::deleted(&delete.pod.name));
        if delete.why == DeleteWhy::Failed {
            let now = self.registry.clock().monotonic();
            self.troubles.deleted_failed(&work.facts, &delete.node, now);
            if let Some(set) = self.state.lock().index.sets.get_mut(&work.facts.id) {
                set.touch(delete.node.clone());
            }
        }
    }

    /// The status, and with it, when all went well, the revisions that are no longer needed.
    async fn finish(&self, work: &Work, all_went_well: bool) -> Result<(), SyncError> {
        let id = &work.facts.id;
        let (numbers, condition) = (work.plan.status, work.plan.condition.clone());
        let status = (numbers.is_some() || condition.is_some()).then(|| {
            let same = Precondition::uid(work.facts.uid.clone());
            let now = self.registry.now();
            Write::edit_status(&DAEMON_SET, id.clone(), same, move |daemon| {
                if let Some(numbers) = &numbers {
                    numbers.write_into(daemon);
                }
                if let Some(condition) = &condition {
                    condition.write_into(daemon, now);
                }
                Ok(())
            })
        });
        let dropped: &[String] = if all_went_well {
            &work.plan.drop_revisions
        } else {
            &[]
        };
        let drops = dropped.iter().map(|name| {
            let key = NamespacedName::new(id.namespace.clone(), name);
            Write::delete(&CONTROLLER_REVISION, key, DeleteOptions::default())
        });
        let mut writes: Vec<Write> = status.clone().into_iter().chain(drops).collect();
        let mut refused = None;
        for _ in 0..STATUS_TRIES {
            if writes.is_empty() {
                return Ok(());
            }
            let answers = self
                .registry
                .commit(&self.caller, std::mem::take(&mut writes))
                .await;
            refused = None;
            for (index, answer) in answers.into_iter().enumerate() {
                let Err(error) = answer else { continue };
                // The DaemonSet or the revision is gone, or replaced: nothing to write any more.
                if error.is_not_found() || error.is_conflict() {
                    continue;
                }
                self.note_timeout(&work.facts, &error);
                if let (0, Some(status)) = (index, &status) {
                    writes.push(status.clone());
                }
                refused = Some(SyncError::write("writing status and history", error));
            }
        }
        refused.map_or(Ok(()), Err)
    }

    pub(super) fn tell(&self, daemon: &Object, note: &Note) {
        if note.warning {
            self.events
                .warning(COMPONENT, daemon, note.reason, note.message.clone());
        } else {
            self.events
                .normal(COMPONENT, daemon, note.reason, note.message.clone());
        }
    }
}
