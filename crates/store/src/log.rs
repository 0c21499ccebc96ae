//! The newest commits, so that a watch can start in the past and a list can show it. Bounded: what does not fit any
//! more is forgotten, oldest first, and asking for it is answered with 'too old'.

use crate::{Event, Revision};
use std::collections::VecDeque;
use std::sync::Arc;

/// How much of the past is kept. Whichever limit is reached first counts; the newest commit is always kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// At most this many commits.
    pub commits: usize,
    /// At most about this many bytes: keys, values and previous values.
    pub bytes: usize,
}

impl Default for LogLimits {
    /// Seconds of the past even when 1 000 nodes move at once. Whoever watches for long keeps its own past (the
    /// server's cache does, per kind), and small hosts have 512 MB for everything.
    fn default() -> Self {
        Self {
            commits: 20_000,
            bytes: 8 * 1024 * 1024,
        }
    }
}

/// One commit's events.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) revision: Revision,
    pub(crate) events: Vec<Event>,
}

/// Commits in revision order, none missing after `floor`.
#[derive(Debug)]
pub(crate) struct EventLog {
    commits: VecDeque<Arc<Commit>>,
    bytes: usize,
    floor: Revision,
    limits: LogLimits,
}

impl Commit {
    fn bytes(&self) -> usize {
        // About what an event takes beside its texts.
        const OVERHEAD: usize = 160;
        let event = |event: &Event| {
            let previous = event.previous.as_ref().map_or(0, |entry| entry.value.len());
            OVERHEAD
                + event.key.as_str().len()
                + event.value.as_ref().map_or(0, bytes::Bytes::len)
                + previous
        };
        self.events.iter().map(event).sum()
    }
}

impl EventLog {
    /// An empty log of a store at this revision.
    pub(crate) fn new(floor: Revision, limits: LogLimits) -> Self {
        Self {
            commits: VecDeque::new(),
            bytes: 0,
            floor,
            limits,
        }
    }

    /// The oldest revision that can be watched from.
    pub(crate) fn floor(&self) -> Revision {
        self.floor
    }

    pub(crate) fn push(&mut self, commit: Arc<Commit>) {
        self.bytes += commit.bytes();
        self.commits.push_back(commit);
        while self.commits.len() > 1
            && (self.commits.len() > self.limits.commits || self.bytes > self.limits.bytes)
        {
            let Some(oldest) = self.commits.pop_front() else {
                break;
            };
            self.bytes -= oldest.bytes();
            self.floor = oldest.revision;
        }
    }

    /// The next commits after a revision, at most `limit`; `None`: some of them are forgotten.
    pub(crate) fn after(&self, revision: Revision, limit: usize) -> Option<Vec<Arc<Commit>>> {
        if revision < self.floor {
            return None;
        }
        let start = self
            .commits
            .partition_point(|commit| commit.revision <= revision);
        Some(self.commits.range(start..).take(limit).cloned().collect())
    }

    /// The commits after a revision, newest first: for undoing them.
    pub(crate) fn back_to(&self, revision: Revision) -> impl Iterator<Item = &Commit> {
        self.commits
            .iter()
            .rev()
            .map(Arc::as_ref)
            .take_while(move |commit| commit.revision > revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    fn commit(revision: u64, bytes: usize) -> Arc<Commit> {
        let event = Event {
            revision: Revision(revision),
            key: Key::new("k"),
            value: Some(vec![0; bytes].into()),
            previous: None,
        };
        Arc::new(Commit {
            revision: Revision(revision),
            events: vec![event],
        })
    }

    fn revisions(commits: &[Arc<Commit>]) -> Vec<u64> {
        commits.iter().map(|commit| commit.revision.0).collect()
    }

    #[test]
    fn the_oldest_go_first_by_count() {
        let mut log = EventLog::new(
            Revision(10),
            LogLimits {
                commits: 3,
                bytes: usize::MAX,
            },
        );
        (11..=15).for_each(|revision| log.push(commit(revision, 1)));
        assert_eq!(log.floor(), Revision(12));
        assert_eq!(log.after(Revision(11), 9), None);
        assert_eq!(
            revisions(&log.after(Revision(12), 9).unwrap()),
            [13, 14, 15]
        );
        assert_eq!(revisions(&log.after(Revision(13), 1).unwrap()), [14]);
        assert_eq!(revisions(&log.after(Revision(15), 9).unwrap()), [0_u64; 0]);
    }

    #[test]
    fn the_oldest_go_first_by_bytes_and_the_newest_stays() {
        let mut log = EventLog::new(
            Revision(0),
            LogLimits {
                commits: 100,
                bytes: 1000,
            },
        );
        log.push(commit(1, 300));
        log.push(commit(2, 300));
        assert_eq!(log.floor(), Revision(0));
        log.push(commit(3, 300));
        assert_eq!(log.floor(), Revision(1));
        log.push(commit(4, 5000));
        assert_eq!(revisions(&log.after(Revision(3), 9).unwrap()), [4]);
        log.push(commit(5, 10));
        assert_eq!((log.floor(), log.bytes < 1000), (Revision(4), true));
    }

    #[test]
    fn going_back_meets_the_newest_first() {
        let mut log = EventLog::new(Revision(0), LogLimits::default());
        (1..=4).for_each(|revision| log.push(commit(revision, 1)));
        let back: Vec<u64> = log
            .back_to(Revision(2))
            .map(|commit| commit.revision.0)
            .collect();
        assert_eq!(back, [4, 3]);
    }
}
