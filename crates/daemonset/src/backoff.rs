//! When a failed pod may be replaced: a growing wait per DaemonSet, generation and node
//! (spec/daemonset.md 10.3). Pure state; the time comes in, by the clock that no step moves.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_model::time::{Moment, Timestamp};

use crate::facts::{DaemonFacts, NodeName};

/// The wait after the first failure; each further one doubles it.
pub const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait.
pub const LONGEST_WAIT: Duration = Duration::from_secs(900);
/// An entry that was not touched for longer than this starts over.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(2 * LONGEST_WAIT.as_secs());

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    uid: String,
    observed_generation: i64,
    node: NodeName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    wait: Duration,
    deleted_at: Duration,
    /// The rest of the wait is waived; the next failure waits longer all the same.
    waived: bool,
}

impl Entry {
    fn is_forgotten(self, now: Duration) -> bool {
        now > self.deleted_at + FORGOTTEN_AFTER
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
        now: Moment,
    ) -> Option<Timestamp> {
        let entry = self
            .entries
            .get(&key(daemon, node))
            .filter(|entry| !entry.is_forgotten(now.mono) && !entry.waived)?;
        let left = (entry.deleted_at + entry.wait).saturating_sub(now.mono);
        if left.is_zero() {
            return None;
        }
        now.wall.checked_add(left).ok()
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
    pub fn note_deletion(&mut self, daemon: &DaemonFacts, node: &NodeName, now: Duration) {
        let key = key(daemon, node);
        let last = self
            .entries
            .get(&key)
            .filter(|entry| !entry.is_forgotten(now));
        let wait = match last {
            None => FIRST_WAIT,
            Some(entry) => (entry.wait * 2).min(LONGEST_WAIT),
        };
        self.entries.insert(
            key,
            Entry {
                wait,
                deleted_at: now,
                waived: false,
            },
        );
    }

    /// Drops entries that have started over; to be called now and then (the reference: every 60 s).
    pub fn sweep(&mut self, now: Duration) {
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
