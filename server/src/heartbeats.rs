//! When each node was last heard, on the monotonic clock. Soft state: never written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_model::time::SharedClock;
use parking_lot::RwLock;
use tokio::sync::watch;

/// The last beat of every node. Cheap to clone.
#[derive(Clone)]
pub struct Heartbeats {
    inner: Arc<Inner>,
}

struct Inner {
    clock: SharedClock,
    /// Silence is counted from here for nodes that this server has not heard yet: a restart of the server
    /// is no fault of theirs.
    start: Duration,
    last: RwLock<BTreeMap<String, Duration>>,
    /// A node that was silent beats again: somebody may want to look at once.
    returned: watch::Sender<u64>,
}

/// A beat after this much silence wakes whoever waits for returning nodes.
const LONG_SILENCE: Duration = Duration::from_secs(20);

impl Heartbeats {
    /// Nobody heard yet.
    pub fn new(clock: SharedClock) -> Self {
        let start = clock.monotonic();
        let (returned, _) = watch::channel(0);
        Self {
            inner: Arc::new(Inner {
                clock,
                start,
                last: RwLock::new(BTreeMap::new()),
                returned,
            }),
        }
    }

    /// The node was heard just now.
    pub fn beat(&self, node: &str) {
        let now = self.inner.clock.monotonic();
        let previous = self
            .inner
            .last
            .write()
            .insert(node.to_owned(), now)
            .unwrap_or(self.inner.start);
        if now.saturating_sub(previous) >= LONG_SILENCE {
            self.inner.returned.send_modify(|count| *count += 1);
        }
    }

    /// The node was removed.
    pub fn forget(&self, node: &str) {
        self.inner.last.write().remove(node);
    }

    /// How long the node has been silent; since this server's start when it was not heard at all.
    pub fn silent_for(&self, node: &str) -> Duration {
        let last = self.inner.last.read().get(node).copied();
        self.inner
            .clock
            .monotonic()
            .saturating_sub(last.unwrap_or(self.inner.start))
    }

    /// Whether the node beat within this time (false for one that this server never heard).
    pub fn heard_within(&self, node: &str, limit: Duration) -> bool {
        let last = self.inner.last.read().get(node).copied();
        last.is_some_and(|last| self.inner.clock.monotonic().saturating_sub(last) < limit)
    }

    /// Changes whenever a node beats after a long silence.
    pub fn returned(&self) -> watch::Receiver<u64> {
        self.inner.returned.subscribe()
    }
}
