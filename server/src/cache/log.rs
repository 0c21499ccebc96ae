//! What happened lately to the objects of one kind, bounded in number and bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use muster_store::Revision;

use super::stored::Change;

/// Changes kept of a kind at most.
const MOST_CHANGES: usize = 16_384;
/// Bytes kept of a kind at most, once [`LEAST_CHANGES`] are there. Small hosts have 512 MB for everything.
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// Changes kept of a kind at least (spec/kube-api.md 8: 1000 events).
const LEAST_CHANGES: usize = 1_000;
/// Changes that keep their parsed forms: live watchers are never further behind for long.
const PARSED_CHANGES: usize = 512;

/// The log of one kind.
#[derive(Debug, Default)]
pub(super) struct Log {
    changes: VecDeque<(u64, Arc<Change>)>,
    bytes: usize,
    /// Position and revision of the newest change that is no longer kept.
    forgotten: (u64, Revision),
}

impl Log {
    /// A log that knows nothing before this revision.
    pub(super) fn starting_at(revision: Revision) -> Self {
        Self {
            forgotten: (0, revision),
            ..Self::default()
        }
    }

    pub(super) fn push(&mut self, position: u64, change: Arc<Change>) {
        self.bytes += change.weight();
        self.changes.push_back((position, change));
        if self.changes.len() > PARSED_CHANGES {
            let index = self.changes.len() - PARSED_CHANGES - 1;
            let slim = Arc::new(self.changes[index].1.slim());
            self.changes[index].1 = slim;
        }
        while self.changes.len() > MOST_CHANGES
            || (self.bytes > MOST_BYTES && self.changes.len() > LEAST_CHANGES)
        {
            if let Some((position, change)) = self.changes.pop_front() {
                self.bytes -= change.weight();
                self.forgotten = (position, change.revision);
            }
        }
    }

    /// Forgets everything up to here: after a gap nobody may believe that nothing happened.
    pub(super) fn forget(&mut self, position: u64, revision: Revision) {
        self.changes.clear();
        self.bytes = 0;
        self.forgotten = (position, revision);
    }

    /// Position of the newest forgotten change.
    pub(super) fn forgotten_position(&self) -> u64 {
        self.forgotten.0
    }

    /// Revision of the newest forgotten change: a watch may start here or later.
    pub(super) fn forgotten_revision(&self) -> Revision {
        self.forgotten.1
    }

    /// The position after which everything is newer than this revision; `None`: that is forgotten.
    pub(super) fn position_of(&self, after: Revision) -> Option<u64> {
        if after < self.forgotten.1 {
            return None;
        }
        let index = self
            .changes
            .partition_point(|(_, change)| change.revision <= after);
        Some(if index == 0 {
            self.forgotten.0
        } else {
            self.changes[index - 1].0
        })
    }

    /// Everything after a position, oldest first.
    pub(super) fn after(&self, position: u64) -> impl Iterator<Item = &(u64, Arc<Change>)> {
        let index = self.changes.partition_point(|(at, _)| *at <= position);
        self.changes.range(index..)
    }

    /// Everything newer than a revision, newest first.
    pub(super) fn newest_first_until(
        &self,
        revision: Revision,
    ) -> impl Iterator<Item = &Arc<Change>> {
        self.changes
            .iter()
            .rev()
            .map(|(_, change)| change)
            .take_while(move |change| change.revision > revision)
    }
}
