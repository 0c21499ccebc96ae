//! A revisioned key-value store with watch. Knows no Kubernetes.
//!
//! One revision counter for the whole store, as in etcd. What every engine promises:
//!
//! 1. A commit is all or nothing, and gets one revision, larger than every earlier one.
//! 2. When [`Store::commit`] has answered, a durable write survives `kill -9` and power loss.
//! 3. A watch delivers every event after its start in revision order, none twice, or ends with
//!    [`WatchError::TooOld`]. A slow watcher holds up nobody.
//! 4. The counter never goes back, across restarts too.
//! 5. Soft writes (heartbeats, leases) have revisions and events like others, are never written to disk,
//!    and are gone after a restart.
//!
//! ```text
//! commit(txn) -> waiting line (bounded)           get, list -> index (in memory, ordered)
//!                     |
//!                  writer: takes all that wait, checks them one after the other against the index and each
//!                     |    other, gives revisions
//!                     |--> disk: one batch, one flush           (SledStore; MemoryStore has none)
//!                     |--> index, event log                     (one step for readers)
//!                     |--> signal -> watch streams              (each reads the log by its own cursor)
//!                     '--> answers
//! ```
//!
//! Two engines share everything but the disk: [`MemoryStore`] for tests and simulation (no thread, no timer: a
//! simulation stays repeatable) and [`SledStore`] for servers. `docs/safety.md` says what may be lost, and when.
//!
//! ```
//! use muster_store::{Key, MemoryStore, Op, Revision, Store, Txn};
//! # futures::executor::block_on(async {
//! let store = MemoryStore::new();
//! let key = Key::new("/nodes/pi-3");
//! let put = Op::Put { key: key.clone(), value: "{}".into(), soft: false };
//! let revision = store.commit(Txn { compares: vec![], ops: vec![put] }).await?;
//! assert_eq!(revision, Revision(1));
//! assert_eq!(store.get(&key).await.map(|entry| entry.modified), Some(revision));
//! # Ok::<(), muster_store::CommitError>(())
//! # }).unwrap();
//! ```

mod core;
mod directory;
mod engine;
mod index;
mod log;
mod record;
mod stage;
mod verify;
mod watch;
mod writer;

pub use directory::OpenError;
pub use engine::memory::MemoryStore;
pub use engine::sled::{Options, SledStore};
pub use log::LogLimits;
pub use verify::{ExportError, ImportError, Report, export, import, verify};
pub use writer::WriterStats;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::fmt;
use std::sync::Arc;

/// A key: path-like text such as `/apps/daemonsets/default/web`. Ordered by bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// A point in the store's history. 0 is before the first commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

/// A stored value with its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: Key,
    /// Its bytes.
    pub value: Bytes,
    /// The revision that made the key.
    pub created: Revision,
    /// The revision of this value.
    pub modified: Revision,
}

/// What must hold for a transaction to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key does not exist.
    Absent(Key),
    /// The key exists and its value is of this revision.
    At(Key, Revision),
    /// The key exists.
    Present(Key),
}

/// One change of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Sets the value.
    Put {
        /// The key.
        key: Key,
        /// The bytes.
        value: Bytes,
        /// True for soft state: watchable, with a revision, never on disk.
        soft: bool,
    },
    /// Removes the key; nothing happens when it is not there.
    Delete {
        /// The key.
        key: Key,
    },
}

/// A transaction: every comparison must hold, then every change happens, at one revision. One that changes nothing
/// (no ops, or only deletes of what is not there) takes no revision: it is answered with the newest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Txn {
    /// All of these, or nothing.
    pub compares: Vec<Compare>,
    /// A key should appear once; of several ops on one key only the last happens.
    pub ops: Vec<Op>,
}

/// A change as watchers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The commit's revision. Several events of one commit share it.
    pub revision: Revision,
    /// What changed.
    pub key: Key,
    /// The new value; `None`: the key was removed.
    pub value: Option<Bytes>,
    /// The value before; `None`: the key is new.
    pub previous: Option<Entry>,
}

/// The events of a watch, one batch a commit, never empty. After an error the stream ends.
pub type EventStream = BoxStream<'static, Result<Vec<Event>, WatchError>>;

/// A list at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// In key order.
    pub entries: Vec<Entry>,
    /// The revision the list shows: watch from here to miss nothing.
    pub revision: Revision,
}

/// Why a commit did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// A comparison did not hold.
    #[error("conflict on {key}: expected {expected:?}, found revision {found:?}")]
    Conflict {
        /// The first comparison that failed.
        expected: Compare,
        /// Its key.
        key: Key,
        /// The revision the key has; `None`: it does not exist.
        found: Option<Revision>,
    },
    /// The store is shutting down, or its writer has failed: nothing was acknowledged.
    #[error("the store is closed: {0}")]
    Closed(String),
    /// The disk refused. The write may or may not be there after a restart; it was not acknowledged.
    #[error("could not write to the store: {0}")]
    Write(String),
}

/// Why a watch or a list at a revision cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The revision is older than the event log reaches back.
    #[error("revision {asked} is too old: the log starts at {oldest}")]
    TooOld {
        /// What was asked for.
        asked: Revision,
        /// The oldest revision that can still be watched from.
        oldest: Revision,
    },
    /// The revision has not happened yet.
    #[error("revision {asked} has not happened yet: the store is at {current}")]
    Future {
        /// What was asked for.
        asked: Revision,
        /// Where the store is.
        current: Revision,
    },
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
}

/// A revisioned key-value store. Kept behind `Arc<dyn Store>`.
pub trait Store: Send + Sync + 'static {
    /// The newest revision whose events have been published.
    fn revision(&self) -> Revision;
    /// One entry, as of now.
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Option<Entry>>;
    /// Every entry whose key starts with `prefix`, now or at an earlier revision.
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        at: Option<Revision>,
    ) -> BoxFuture<'a, Result<Listing, WatchError>>;
    /// Carries a transaction out. When it answers, watchers can already see the events. A caller that stops waiting
    /// does not take the transaction back: it may still happen.
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>>;
    /// The events after a revision, of keys that start with `prefix`.
    fn watch(&self, prefix: &str, after: Revision) -> Result<EventStream, WatchError>;
    /// Stops the writer after what is waiting is written. Later commits are refused.
    fn close(&self) -> BoxFuture<'_, ()>;
}

impl Key {
    /// A key of this text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
