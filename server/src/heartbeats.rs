//! When each node was last heard, on the monotonic clock. Soft state: never written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_model::time::SharedClock;
use parking_lot::RwLock;

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
    nodes: RwLock<BTreeMap<String, Seen>>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    /// Silence is counted from here.
    since: Duration,
    /// Whether the node itself was heard.
    heard: bool,
}

impl Heartbeats {
    /// Nobody heard yet.
    pub fn new(clock: SharedClock) -> Self {
        let start = clock.monotonic();
        Self {
            inner: Arc::new(Inner {
                clock,
                start,
                nodes: RwLock::new(BTreeMap::new()),
            }),
        }
    }

    /// The node was heard just now.
    pub fn beat(&self, node: &str) {
        let seen = Seen {
            since: self.inner.clock.monotonic(),
            heard: true,
        };
        self.inner.nodes.write().insert(node.to_owned(), seen);
    }

    /// A Node object has come into being: its silence counts from now, however long this server has run.
    pub fn appeared(&self, node: &str) {
        let since = self.inner.clock.monotonic();
        self.inner
            .nodes
            .write()
            .entry(node.to_owned())
            .and_modify(|seen| seen.since = since)
            .or_insert(Seen {
                since,
                heard: false,
            });
    }

    /// The node was removed.
    pub fn forget(&self, node: &str) {
        self.inner.nodes.write().remove(node);
    }

    /// How long the node has been silent; since it appeared, or since this server's start, when it was not heard.
    pub fn silent_for(&self, node: &str) -> Duration {
        let since = self.inner.nodes.read().get(node).map(|seen| seen.since);
        self.inner
            .clock
            .monotonic()
            .saturating_sub(since.unwrap_or(self.inner.start))
    }

    /// Whether the node beat within this time (false for one that this server never heard).
    pub fn heard_within(&self, node: &str, limit: Duration) -> bool {
        let seen = self.inner.nodes.read().get(node).copied();
        seen.is_some_and(|seen| {
            seen.heard && self.inner.clock.monotonic().saturating_sub(seen.since) < limit
        })
    }
}
