//! When a failed pod may be replaced: a growing wait per DaemonSet, generation and node
//! (spec/daemonset.md 10.3). Pure state; the time comes in.

use std::collections::BTreeMap;

use muster_model::time::Timestamp;

use crate::facts::{DaemonFacts, NodeName};

/// The wait after the first failure, in seconds; each further one doubles it.
pub const FIRST_WAIT_SECONDS: i64 = 1;
/// The longest wait.
pub const LONGEST_WAIT_SECONDS: i64 = 900;
/// An entry that was not touched for longer than this starts over.
pub const FORGOTTEN_AFTER_SECONDS: i64 = 2 * LONGEST_WAIT_SECONDS;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    uid: String,
    observed_generation: i64,
    node: NodeName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    wait_seconds: i64,
    deleted_at: Timestamp,
    /// The rest of the wait is waived; the next failure waits longer all the same.
    waived: bool,
}

impl Entry {
    fn is_forgotten(self, now: Timestamp) -> bool {
        now > later(self.deleted_at, FORGOTTEN_AFTER_SECONDS)
    }
}

/// The waits of all DaemonSets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Backoff {
    entries: BTreeMap<Key, Entry>,
}

impl Backoff {
    /// No waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// From when on a failed pod of `daemon` on `node` may be deleted; `None`: now.
    pub fn retry_at(
        &self,
        daemon: &DaemonFacts,
        node: &NodeName,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let entry = self
            .entries
            .get(&key(daemon, node))
            .filter(|entry| !entry.is_forgotten(now))?;
        if entry.waived {
            return None;
        }
        Some(later(entry.deleted_at, entry.wait_seconds)).filter(|at| *at > now)
    }

    /// Something on `node` was given free that a refused pod may have lacked: whoever waits there may try at once.
    /// Answers the uids of the DaemonSets that do.
    pub fn waive(&mut self, node: &NodeName) -> Vec<String> {
        let waiting = self
            .entries
            .iter_mut()
            .filter(|(key, entry)| key.node == *node && !entry.waived);
        waiting
            .map(|(key, entry)| {
                entry.waived = true;
                key.uid.clone()
            })
            .collect()
    }

    /// Notes that a failed pod of `daemon` on `node` was deleted at `now`: the next one waits, twice as long as
    /// the last.
    pub fn note_deletion(&mut self, daemon: &DaemonFacts, node: &NodeName, now: Timestamp) {
        let key = key(daemon, node);
        let last = self
            .entries
            .get(&key)
            .filter(|entry| !entry.is_forgotten(now));
        let wait_seconds = match last {
            None => FIRST_WAIT_SECONDS,
            Some(entry) => (entry.wait_seconds * 2).min(LONGEST_WAIT_SECONDS),
        };
        self.entries.insert(
            key,
            Entry {
                wait_seconds,
                deleted_at: now,
                waived: false,
            },
        );
    }

    /// Drops entries that have started over; to be called now and then (the reference: every 60 s).
    pub fn sweep(&mut self, now: Timestamp) {
        self.entries.retain(|_, entry| !entry.is_forgotten(now));
    }

    /// Drops the entries of a DaemonSet that is gone.
    pub fn forget(&mut self, daemon_uid: &str) {
        self.entries.retain(|key, _| key.uid != daemon_uid);
    }
}

fn key(daemon: &DaemonFacts, node: &NodeName) -> Key {
    Key {
        uid: daemon.uid.clone(),
        observed_generation: daemon.status.observed_generation,
        node: node.clone(),
    }
}

fn later(time: Timestamp, seconds: i64) -> Timestamp {
    let moved = time.as_second().saturating_add(seconds);
    Timestamp::new(moved, time.subsec_nanosecond()).unwrap_or(Timestamp::MAX)
}
