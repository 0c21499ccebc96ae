//! The watch cache: every object in memory, in its final bytes, with indexes and a log of what changed.
//!
//! ```text
//! store's events --> feed task --> maps, indexes, logs --> get/list (memory)
//!                                                     \--> Subscription (watchers, controllers)
//! ```
//!
//! Assumptions: the store delivers every event in revision order, or says that it cannot.
//! Invariants: a reader never sees a revision go back; a subscriber sees every change in order or is told
//! that it lagged; an object that cannot be read is named in [`Cache::broken`] and hides no other.

mod feed;
mod level;
mod log;
mod splice;
mod state;
mod stored;
mod subscription;
mod typed;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_model::kind::{KINDS, Kind, NODE};
use muster_model::object::{NamespacedName, Object};
use muster_store::{Revision, Store, WatchError};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

pub use feed::Feed;
pub use stored::{Change, Stored};
pub use subscription::{Lagged, Subscription};

use level::{Gauge, Level};
use state::State;

/// Every object in memory. Cheap to clone.
#[derive(Clone)]
pub struct Cache {
    inner: Arc<Inner>,
}

struct Inner {
    state: RwLock<State>,
    /// The newest revision whose changes are in `state`.
    revision: Arc<Level>,
    /// The newest revision that changed an object of each kind: wakes only who follows that kind.
    kinds: BTreeMap<&'static Kind, Arc<Level>>,
}

/// A stored value that is no object: kept out of the cache, and named, so that a person can mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The store's key.
    pub key: String,
    /// What is wrong.
    pub why: String,
}

/// A list of objects at one revision.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// In order of namespace and name.
    pub items: Vec<Arc<Stored>>,
    /// The state it shows: watch from here to miss nothing.
    pub revision: Revision,
}

/// What concerns one node, at one revision.
#[derive(Debug, Clone)]
pub struct NodeView {
    /// The pods bound to it, ordered by namespace and name.
    pub pods: Vec<Arc<Stored>>,
    /// The Node object; `None`: not registered.
    pub node: Option<Arc<Stored>>,
    /// The state this shows.
    pub revision: Revision,
}

/// Why a past state cannot be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("revision {asked} is no longer remembered: the log starts at {oldest}")]
pub struct TooOld {
    /// What was asked for.
    pub asked: Revision,
    /// The oldest revision that can be watched from.
    pub oldest: Revision,
}

impl Cache {
    /// Loads everything from the store. The returned [`Feed`] must be run to keep the cache current.
    pub async fn load(store: Arc<dyn Store>) -> Result<(Self, Feed), WatchError> {
        let listing = store.list("", None).await?;
        let mut state = State::starting_at(listing.revision);
        state.load(&listing.entries);
        let cache = Self {
            inner: Arc::new(Inner {
                state: RwLock::new(state),
                revision: Level::new(listing.revision),
                kinds: KINDS
                    .iter()
                    .map(|kind| (*kind, Level::new(listing.revision)))
                    .collect(),
            }),
        };
        Ok((cache.clone(), Feed::new(cache, store, listing.revision)))
    }

    /// The newest revision this cache shows.
    pub fn revision(&self) -> Revision {
        self.inner.revision.get()
    }

    /// Waits until the cache shows this revision (or a later one). `false`: not within the deadline.
    pub async fn wait_for(&self, revision: Revision, deadline: Duration) -> bool {
        tokio::time::timeout(deadline, self.inner.revision.reach(revision))
            .await
            .is_ok()
    }

    /// One object.
    pub fn get(&self, kind: &'static Kind, key: &NamespacedName) -> Option<Arc<Stored>> {
        self.inner.state.read().get(kind, key)
    }

    /// Every object of a kind, ordered by namespace and name.
    pub fn list(&self, kind: &'static Kind) -> Snapshot {
        let state = self.inner.state.read();
        Snapshot {
            items: state.list(kind, None),
            revision: state.revision(),
        }
    }

    /// The objects of a kind in one namespace, ordered by name.
    pub fn list_ns(&self, kind: &'static Kind, namespace: &str) -> Snapshot {
        let state = self.inner.state.read();
        Snapshot {
            items: state.list(kind, Some(namespace)),
            revision: state.revision(),
        }
    }

    /// The objects of a kind as they were at an earlier revision.
    pub fn list_at(
        &self,
        kind: &'static Kind,
        namespace: Option<&str>,
        revision: Revision,
    ) -> Result<Snapshot, TooOld> {
        let items = self.inner.state.read().list_at(kind, namespace, revision)?;
        Ok(Snapshot { items, revision })
    }

    /// How many objects of a kind there are.
    pub fn count(&self, kind: &'static Kind) -> usize {
        self.inner.state.read().count(kind)
    }

    /// The pods whose `spec.nodeName` is this node, ordered by namespace and name.
    pub fn pods_on_node(&self, node: &str) -> Vec<Arc<Stored>> {
        self.inner.state.read().pods_on_node(node)
    }

    /// A node's pods and its Node object, all at the same revision.
    pub fn node_view(&self, node: &str) -> NodeView {
        let state = self.inner.state.read();
        NodeView {
            pods: state.pods_on_node(node),
            node: state.get(&NODE, &NamespacedName::new("", node)),
            revision: state.revision(),
        }
    }

    /// Objects of any kind that name this uid in `metadata.ownerReferences`.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<Stored>> {
        self.inner.state.read().owned_by(uid)
    }

    /// Whether any object that names this uid in `metadata.ownerReferences` passes. Stops at the first that does.
    pub fn any_owned_by(&self, uid: &str, passes: impl Fn(&Object) -> bool) -> bool {
        self.inner.state.read().any_owned_by(uid, passes)
    }

    /// Whether this object is in the store but could not be read: it is there, whatever [`Cache::get`] says.
    pub fn is_broken(&self, kind: &Kind, key: &NamespacedName) -> bool {
        self.inner.state.read().is_broken(kind, key)
    }

    /// The object of any kind with this uid.
    pub fn by_uid(&self, uid: &str) -> Option<Arc<Stored>> {
        self.inner.state.read().by_uid(uid)
    }

    /// What could not be read from the store.
    pub fn broken(&self) -> Vec<Broken> {
        self.inner.state.read().broken()
    }

    /// Follows the changes of these kinds (none named: of every kind) from now on. See [`Cache::list_and_subscribe`] to start from a list.
    pub fn subscribe(&self, kinds: &[&'static Kind]) -> Subscription {
        let position = self.inner.state.read().position();
        Subscription::new(self.clone(), kinds, position)
    }

    /// Every object of these kinds (kind by kind), and a subscription that starts exactly there.
    pub fn list_and_subscribe(&self, kinds: &[&'static Kind]) -> (Snapshot, Subscription) {
        let state = self.inner.state.read();
        let items = kinds
            .iter()
            .flat_map(|kind| state.list(kind, None))
            .collect();
        let snapshot = Snapshot {
            items,
            revision: state.revision(),
        };
        let subscription = Subscription::new(self.clone(), kinds, state.position());
        (snapshot, subscription)
    }

    /// Follows the changes of a kind after a revision; too old when the log does not reach back that far.
    pub fn subscribe_after(
        &self,
        kind: &'static Kind,
        after: Revision,
    ) -> Result<Subscription, TooOld> {
        let state = self.inner.state.read();
        let position = state.position_of(kind, after)?;
        Ok(Subscription::new(self.clone(), &[kind], position))
    }

    /// Drops the parsed forms of a kind's objects, to save memory.
    pub(crate) fn cool(&self, kind: &'static Kind) {
        self.inner.state.write().cool(kind);
    }

    fn changed(&self, kind: &'static Kind) -> Gauge {
        let level = self.inner.kinds.get(kind);
        Gauge::new(level.expect("every served kind has its level from the start"))
    }
}

/// Runs the feed of a cache until it is told to stop: for tests that need no whole server.
pub async fn run_feed(feed: Feed, stop: CancellationToken) {
    feed.run(stop).await;
}
