//! What the controller knows of its own difficulties: how long failed pods wait, why a DaemonSet's last sync
//! failed, and since when nodes are without an available pod. The controller writes it, and reads the waits; whoever
//! explains a DaemonSet reads all. Only in memory: a new controller tries everything at once, and takes the age of gaps
//! from what the objects say.
//!
//! It is bounded by what there is: a setback per DaemonSet, a wait and a gap per DaemonSet and node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_daemonset::backoff::Backoff;
use muster_daemonset::facts::Target;
use muster_daemonset::gap::{self, Memory};
use muster_daemonset::{DaemonFacts, NodeFacts, NodeName, PodFacts, Setback};
use muster_model::time::Timestamp;
use tokio::sync::watch;

/// Most characters of an error that are kept.
const LONGEST_WHY: usize = 1_024;

/// The difficulties of every DaemonSet. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Troubles {
    known: Arc<watch::Sender<Known>>,
}

/// What is known at a moment.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// When failed pods may be replaced.
    pub(crate) backoff: Backoff,
    /// By the DaemonSet's uid.
    setbacks: BTreeMap<String, Setback>,
    /// By the DaemonSet's uid: the hash of its current revision, and since when it is the current one.
    begun: BTreeMap<String, (String, Option<Timestamp>)>,
    /// By the DaemonSet's uid, from the first look on: the nodes without an available pod that should have one, and
    /// since when.
    gaps: BTreeMap<String, BTreeMap<NodeName, Timestamp>>,
}

impl Known {
    /// What the last sync of the DaemonSet with this uid failed of; `None`: it did not.
    pub(crate) fn setback(&self, uid: &str) -> Option<&Setback> {
        self.setbacks.get(uid)
    }

    /// Since when the revision with this hash is the current one of the DaemonSet with this uid; `None`: it is not, or that is
    /// not known.
    pub(crate) fn begun(&self, uid: &str, hash: &str) -> Option<Timestamp> {
        let (current, since) = self.begun.get(uid)?;
        since.filter(|_| current == hash)
    }

    /// Since when a node, with these pods of the DaemonSet, is without an available one.
    pub(crate) fn gap_since(
        &self,
        daemon: &DaemonFacts,
        node: &NodeFacts,
        pods: &[PodFacts],
        now: Timestamp,
    ) -> Timestamp {
        let memory = match self.gaps.get(&daemon.uid) {
            None => Memory::None,
            Some(open) => open
                .get(&node.name)
                .map_or(Memory::Closed, |since| Memory::Open(*since)),
        };
        gap::since(daemon, node, pods, memory, now)
    }
}

impl Troubles {
    /// What is known now. Writers wait while this is held.
    pub(crate) fn known(&self) -> watch::Ref<'_, Known> {
        self.known.borrow()
    }

    /// Tells when a setback comes, changes or passes. Waits are not told: the failed pod that makes one is a
    /// change by itself.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Known> {
        self.known.subscribe()
    }

    /// A sync failed, and is tried again at `again_at`.
    pub(super) fn failed(&self, uid: &str, why: &str, now: Timestamp, again_at: Timestamp) {
        let why: String = why.chars().take(LONGEST_WHY).collect();
        self.known.send_modify(|known| {
            let last = known.setbacks.get(uid).filter(|last| last.why == why);
            let since = last.map_or(now, |last| last.since);
            let setback = Setback {
                why,
                since,
                again_at,
            };
            known.setbacks.insert(uid.to_owned(), setback);
        });
    }

    /// A sync went well.
    pub(super) fn passed(&self, uid: &str) {
        // Nearly every sync goes well: that it did is no news, and needs no writer's lock.
        if self.known().setbacks.contains_key(uid) {
            self.known
                .send_if_modified(|known| known.setbacks.remove(uid).is_some());
        }
    }

    /// A failed pod was deleted: the next one there waits longer.
    pub(super) fn deleted_failed(&self, daemon: &DaemonFacts, node: &NodeName, now: Duration) {
        self.quietly(|known| known.backoff.note_deletion(daemon, node, now));
    }

    /// A node has room that a refused pod may have lacked: waits there end. Answers whose.
    pub(super) fn waive(&self, node: &NodeName) -> Vec<String> {
        let mut waited = Vec::new();
        self.quietly(|known| waited = known.backoff.waive(node));
        waited
    }

    /// The current revision of a DaemonSet, and since when it is that.
    pub(super) fn note_begun(&self, uid: &str, target: &Target) {
        let is_known = {
            let known = self.known();
            let begun = known.begun.get(uid);
            begun.is_some_and(|(hash, since)| *hash == target.hash && *since == target.since)
        };
        // As with setbacks: mostly there is nothing to note.
        if !is_known {
            let begun = (target.hash.clone(), target.since);
            self.quietly(|known| _ = known.begun.insert(uid.to_owned(), begun));
        }
    }

    /// The nodes of a DaemonSet that were looked at: since when they are gaps; `None`: they are none.
    pub(super) fn note_gaps(&self, uid: &str, looked_at: Vec<(NodeName, Option<Timestamp>)>) {
        let is_news = {
            let known = self.known();
            let open = known.gaps.get(uid);
            let seen = |node| open.and_then(|open| open.get(node));
            open.is_none()
                || looked_at
                    .iter()
                    .any(|(node, since)| seen(node) != since.as_ref())
        };
        // As with setbacks: mostly there is nothing to note.
        if !is_news {
            return;
        }
        self.quietly(|known| {
            let open = known.gaps.entry(uid.to_owned()).or_default();
            for (node, since) in looked_at {
                match since {
                    Some(since) => open.insert(node, since),
                    None => open.remove(&node),
                };
            }
        });
    }

    /// The DaemonSet is gone.
    pub(super) fn forget(&self, uid: &str) {
        self.quietly(|known| {
            known.backoff.forget(uid);
            known.setbacks.remove(uid);
            known.gaps.remove(uid);
            known.begun.remove(uid);
        });
    }

    /// Drops waits that have started over.
    pub(super) fn sweep(&self, now: Duration) {
        self.quietly(|known| known.backoff.sweep(now));
    }

    fn quietly(&self, change: impl FnOnce(&mut Known)) {
        self.known.send_if_modified(|known| {
            change(known);
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_setback_lasts_since_it_first_came_until_it_passes() {
        let troubles = Troubles::default();
        let mut news = troubles.subscribe();
        let since = |uid: &str| troubles.known().setback(uid).map(|s| (s.since, s.again_at));
        troubles.failed("d1", "no", at(10), at(11));
        troubles.failed("d1", "no", at(11), at(13));
        assert_eq!(since("d1"), Some((at(10), at(13))));
        troubles.failed("d1", "another", at(13), at(17));
        assert_eq!(since("d1"), Some((at(13), at(17))));
        assert!(news.has_changed().unwrap());
        news.mark_unchanged();
        troubles.passed("d2");
        troubles.sweep(Duration::from_secs(20));
        assert!(!news.has_changed().unwrap());
        troubles.passed("d1");
        assert_eq!(since("d1"), None);
        assert!(news.has_changed().unwrap());
    }

    #[test]
    fn an_endless_error_is_cut() {
        let troubles = Troubles::default();
        troubles.failed("d1", &"ü".repeat(5_000), at(0), at(1));
        let kept = troubles
            .known()
            .setback("d1")
            .map(|s| s.why.chars().count());
        assert_eq!(kept, Some(LONGEST_WHY));
        troubles.forget("d1");
        assert!(troubles.known().setback("d1").is_none());
    }
}
