//! Many writes in as few transactions as can be.
//!
//! Assumptions: [`super::prepare`] says for each write which keys it compares and changes.
//! Invariants: a write happens at most once; a write that fails fails alone; nothing is answered before the
//! cache shows it, so that everybody reads his own writes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use muster_store::{CommitError, Compare, Key, Op, Revision, Txn};

use super::Registry;
use super::prepare::{Answer, Prepared};
use super::write::{Write, Written};
use crate::auth::Caller;
use crate::cache::Stored;
use crate::status::ApiError;

/// Changes in one transaction at most: larger ones hold up the others behind them.
const MOST_OPS: usize = 1_000;
/// How often a write is prepared again because somebody else was faster, before its author is told.
const MOST_ATTEMPTS: u32 = 8;
/// How long the cache may take to show a commit.
const VISIBLE_WITHIN: Duration = Duration::from_secs(10);

/// One write on its way.
struct Pending {
    index: usize,
    attempts: u32,
}

impl Registry {
    /// Carries writes out, those that touch different keys in one transaction, and answers each, in order.
    /// Every write goes through the same admission as a caller's from outside.
    pub async fn commit(
        &self,
        caller: &Caller,
        writes: Vec<Write>,
    ) -> Vec<Result<Arc<Stored>, ApiError>> {
        self.carry_out(caller, &writes)
            .await
            .into_iter()
            .map(|answer| answer.map(|written| written.stored))
            .collect()
    }

    /// Carries one write out.
    pub async fn write(&self, caller: &Caller, write: Write) -> Result<Written, ApiError> {
        let mut answers = self.carry_out(caller, std::slice::from_ref(&write)).await;
        answers.pop().expect("one write has one answer")
    }

    /// The same as [`Registry::commit`], with everything that is known about each write.
    pub async fn carry_out(
        &self,
        caller: &Caller,
        writes: &[Write],
    ) -> Vec<Result<Written, ApiError>> {
        let mut answers: Vec<Option<Result<Written, ApiError>>> =
            writes.iter().map(|_| None).collect();
        let mut pending: Vec<Pending> = (0..writes.len())
            .map(|index| Pending { index, attempts: 0 })
            .collect();
        while !pending.is_empty() {
            let mut batch = Batch::default();
            let mut later = Vec::new();
            // Writes to one object happen in the order given: one that follows another waits for it, and is
            // not even judged before.
            let mut waited_for: HashSet<Key> = HashSet::new();
            for item in pending {
                let write = &writes[item.index];
                let key = write.store_key();
                if key.as_ref().is_some_and(|key| waited_for.contains(key)) {
                    later.push(item);
                    continue;
                }
                match self.prepare(caller, write) {
                    Err(error) => answers[item.index] = Some(Err(error)),
                    Ok(prepared) if write.dry_run || prepared.ops.is_empty() => {
                        answers[item.index] = Some(Ok(unwritten(prepared)));
                    }
                    Ok(prepared) => {
                        waited_for.extend(key);
                        if let Err(item) = batch.board(item, prepared) {
                            later.push(item);
                        }
                    }
                }
            }
            pending = later;
            if batch.riders.is_empty() {
                continue;
            }
            match self.store().commit(std::mem::take(&mut batch.txn)).await {
                Ok(revision) => {
                    let visible = self.cache().wait_for(revision, VISIBLE_WITHIN).await;
                    for (item, prepared) in batch.riders {
                        note(caller, &writes[item.index], &prepared, revision);
                        answers[item.index] = Some(if visible {
                            Ok(self.written(prepared, revision))
                        } else {
                            Err(ApiError::timeout(
                                "the write was stored but did not become visible in time",
                            ))
                        });
                    }
                }
                Err(CommitError::Conflict { key, found, .. }) => {
                    self.catch_up(found).await;
                    for (mut item, prepared) in batch.riders {
                        let caused = prepared.touches(&key);
                        if caused {
                            item.attempts += 1;
                        }
                        if item.attempts > MOST_ATTEMPTS {
                            answers[item.index] =
                                Some(Err(gave_up(&writes[item.index], &prepared)));
                        } else if caused {
                            pending.push(item);
                        } else {
                            pending.insert(0, item);
                        }
                    }
                    pending.sort_by_key(|item| item.index);
                }
                Err(error @ CommitError::Closed(_)) => {
                    let error = ApiError::unavailable("the server is shutting down")
                        .with_private(error.to_string());
                    batch.fail(&mut answers, &error);
                }
                Err(error @ CommitError::Write(_)) => {
                    batch.fail(&mut answers, &ApiError::internal(error.to_string()));
                }
            }
        }
        answers
            .into_iter()
            .map(|answer| answer.expect("every write leaves the loop with an answer"))
            .collect()
    }

    /// Waits until the cache shows what made a commit fail.
    async fn catch_up(&self, found: Option<Revision>) {
        let newest = self.store().revision().max(found.unwrap_or_default());
        self.cache().wait_for(newest, VISIBLE_WITHIN).await;
    }

    fn written(&self, prepared: Prepared, revision: Revision) -> Written {
        let (stored, gone) = match prepared.answer {
            Answer::Unchanged(stored) => (stored, false),
            Answer::Removed(stored) => (stored, true),
            Answer::Written(kind, object) => {
                let known = self
                    .cache()
                    .get(kind, &object.namespaced_name())
                    .filter(|s| s.revision == revision);
                (
                    known.unwrap_or_else(|| Arc::new(Stored::new(kind, object, revision))),
                    false,
                )
            }
        };
        Written {
            stored,
            gone,
            changed: true,
            warnings: prepared.warnings,
        }
    }
}

/// One line in the log for each thing a person caused; agents and controllers write all the time.
fn note(caller: &Caller, write: &Write, prepared: &Prepared, revision: Revision) {
    if caller.is_internal() || caller.node_name().is_some() {
        return;
    }
    let key = match &prepared.answer {
        Answer::Written(_, object) => object.namespaced_name(),
        Answer::Unchanged(stored) | Answer::Removed(stored) => stored.key.clone(),
    };
    tracing::info!(
        user = caller.user,
        peer = caller.peer,
        verb = write.verb(),
        kind = %write.kind,
        object = %key,
        revision = revision.0,
        "an object was written"
    );
}

/// The answer of a write of which nothing is stored.
fn unwritten(prepared: Prepared) -> Written {
    // The first comparison is that of the object itself.
    let base = match prepared.compares.first() {
        Some(Compare::At(_, revision)) => Some(*revision),
        _ => None,
    };
    let (stored, gone) = match prepared.answer {
        Answer::Unchanged(stored) => (stored, false),
        Answer::Removed(stored) => (stored, true),
        Answer::Written(kind, object) => (
            Arc::new(Stored::new(kind, object, base.unwrap_or_default())),
            false,
        ),
    };
    Written {
        stored,
        gone,
        changed: false,
        warnings: prepared.warnings,
    }
}

fn gave_up(write: &Write, prepared: &Prepared) -> ApiError {
    let creates = prepared
        .compares
        .iter()
        .any(|compare| matches!(compare, Compare::Absent(_)));
    let name = match &prepared.answer {
        Answer::Written(_, object) => object.name(),
        Answer::Unchanged(stored) | Answer::Removed(stored) => stored.name(),
    };
    if creates {
        ApiError::already_exists(write.kind, name)
    } else {
        ApiError::modified(write.kind, name)
    }
}

impl Prepared {
    fn touches(&self, key: &Key) -> bool {
        self.ops.iter().any(|op| op_key(op) == key)
            || self
                .compares
                .iter()
                .any(|compare| compared_key(compare) == key)
    }
}

fn compared_key(compare: &Compare) -> &Key {
    match compare {
        Compare::Absent(key) | Compare::At(key, _) | Compare::Present(key) => key,
    }
}

fn op_key(op: &Op) -> &Key {
    match op {
        Op::Put { key, .. } | Op::Delete { key } => key,
    }
}

/// Writes that travel together.
#[derive(Default)]
struct Batch {
    txn: Txn,
    changed: HashSet<Key>,
    compared: HashSet<Key>,
    riders: Vec<(Pending, Prepared)>,
}

impl Batch {
    /// Takes a write along, unless it touches what another one of this batch changes.
    fn board(&mut self, item: Pending, prepared: Prepared) -> Result<(), Pending> {
        let full = !self.riders.is_empty() && self.txn.ops.len() + prepared.ops.len() > MOST_OPS;
        let compared = prepared.compares.iter().map(compared_key);
        let changes_met = compared.clone().any(|key| self.changed.contains(key));
        let changed = prepared.ops.iter().map(op_key);
        let meets = changed
            .clone()
            .any(|key| self.changed.contains(key) || self.compared.contains(key));
        if full || changes_met || meets {
            return Err(item);
        }
        self.changed.extend(changed.cloned());
        for compare in &prepared.compares {
            // Many writes of one batch need the same namespace to be there.
            if self.compared.insert(compared_key(compare).clone()) {
                self.txn.compares.push(compare.clone());
            }
        }
        self.txn.ops.extend(prepared.ops.iter().cloned());
        self.riders.push((item, prepared));
        Ok(())
    }

    fn fail(self, answers: &mut [Option<Result<Written, ApiError>>], error: &ApiError) {
        for (item, _) in self.riders {
            answers[item.index] = Some(Err(error.clone()));
        }
    }
}
