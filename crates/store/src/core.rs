//! What every engine shares: the index, the event log, the revision, and the signal that wakes watchers.

use crate::index::{Index, Slot};
use crate::log::{Commit, EventLog, LogLimits};
use crate::record::Totals;
use crate::stage::{Batch, Stage};
use crate::{CommitError, Entry, Key, Listing, Revision, Txn, WatchError};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// The store in memory. Exactly one writer stages and publishes; anybody reads.
#[derive(Debug)]
pub(crate) struct Core {
    state: RwLock<State>,
    /// Wakes watchers; they read the log themselves, so one that sleeps costs nothing.
    signal: watch::Sender<Signal>,
}

#[derive(Debug)]
struct State {
    index: Index,
    log: EventLog,
    revision: Revision,
    totals: Totals,
}

/// The last thing that watchers must know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signal {
    pub(crate) revision: Revision,
    pub(crate) closed: bool,
}

impl Core {
    /// A store at this revision whose past is unknown.
    pub(crate) fn new(
        revision: Revision,
        slots: BTreeMap<Key, Slot>,
        totals: Totals,
        limits: LogLimits,
    ) -> Arc<Self> {
        let mut index = Index::default();
        slots
            .into_iter()
            .for_each(|(key, slot)| index.set(key, Some(slot)));
        let state = State {
            index,
            log: EventLog::new(revision, limits),
            revision,
            totals,
        };
        let signal = watch::Sender::new(Signal {
            revision,
            closed: false,
        });
        Arc::new(Self {
            state: RwLock::new(state),
            signal,
        })
    }

    pub(crate) fn revision(&self) -> Revision {
        self.state.read().revision
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Entry> {
        self.state.read().index.get(key).map(|slot| slot.entry(key))
    }

    /// The entries now, or as they were: later commits are undone from the log.
    pub(crate) fn list(&self, prefix: &str, at: Option<Revision>) -> Result<Listing, WatchError> {
        let state = self.state.read();
        let at = at.unwrap_or(state.revision);
        state.check(at)?;
        if at == state.revision {
            return Ok(Listing {
                entries: state.index.list(prefix).collect(),
                revision: at,
            });
        }
        let mut entries: BTreeMap<Key, Entry> = state
            .index
            .list(prefix)
            .map(|entry| (entry.key.clone(), entry))
            .collect();
        for event in state.log.back_to(at).flat_map(|commit| &commit.events) {
            if !event.key.as_str().starts_with(prefix) {
                continue;
            }
            match &event.previous {
                Some(entry) => entries.insert(event.key.clone(), entry.clone()),
                None => entries.remove(&event.key),
            };
        }
        Ok(Listing {
            entries: entries.into_values().collect(),
            revision: at,
        })
    }

    /// Checks that a watch can start here, and gives the signal to wait for.
    pub(crate) fn subscribe(&self, after: Revision) -> Result<watch::Receiver<Signal>, WatchError> {
        let receiver = self.signal.subscribe();
        if receiver.borrow().closed {
            return Err(WatchError::Closed);
        }
        self.state.read().check(after)?;
        Ok(receiver)
    }

    /// The next commits after a revision.
    pub(crate) fn after(
        &self,
        revision: Revision,
        limit: usize,
    ) -> Result<Vec<Arc<Commit>>, WatchError> {
        let state = self.state.read();
        state.log.after(revision, limit).ok_or(WatchError::TooOld {
            asked: revision,
            oldest: state.log.floor(),
        })
    }

    /// Only for the writer: turns transactions into a batch. Each gets its answer, to be given after the batch is
    /// published.
    pub(crate) fn stage(
        &self,
        txns: impl IntoIterator<Item = Txn>,
    ) -> (Batch, Vec<Result<Revision, CommitError>>) {
        let state = self.state.read();
        let mut stage = Stage::new(&state.index, state.revision, state.totals);
        let answers = txns.into_iter().map(|txn| stage.add(txn)).collect();
        (stage.finish(), answers)
    }

    /// Only for the writer: makes a batch visible, all of it in one step.
    pub(crate) fn publish(&self, batch: Batch) {
        if batch.commits.is_empty() {
            return;
        }
        let mut state = self.state.write();
        for (key, slot) in batch.slots {
            state.index.set(key, slot);
        }
        for commit in batch.commits {
            state.log.push(commit);
        }
        state.revision = batch.revision;
        state.totals = batch.totals;
        drop(state);
        self.signal
            .send_modify(|signal| signal.revision = batch.revision);
    }

    /// Ends every watch, once it has delivered what there is.
    pub(crate) fn close(&self) {
        self.signal.send_modify(|signal| signal.closed = true);
    }
}

impl State {
    fn check(&self, asked: Revision) -> Result<(), WatchError> {
        if asked > self.revision {
            return Err(WatchError::Future {
                asked,
                current: self.revision,
            });
        }
        let oldest = self.log.floor();
        if asked < oldest {
            return Err(WatchError::TooOld { asked, oldest });
        }
        Ok(())
    }
}
