//! The contract as functions over a store that the caller opens. Here: what they share.

mod commits;
mod watches;

pub(crate) use commits::*;
pub(crate) use watches::*;

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use muster_store::{
    CommitError, Compare, Entry, Event, EventStream, Key, LogLimits, MemoryStore, Op, Options,
    Revision, SledStore, Store, Txn, WatchError,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A store and whatever must live as long as it does.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) _directory: Option<tempfile::TempDir>,
}

/// Opens stores of one engine.
pub(crate) struct Bench {
    open: Box<dyn Fn(LogLimits) -> Opened>,
}

pub(crate) fn memory(limits: LogLimits) -> Opened {
    Opened {
        store: Arc::new(MemoryStore::with_limits(limits)),
        _directory: None,
    }
}

pub(crate) fn sled(limits: LogLimits) -> Opened {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        log: limits,
        ..Options::default()
    };
    let store = SledStore::open(&directory.path().join("store"), options).unwrap();
    Opened {
        store: Arc::new(store),
        _directory: Some(directory),
    }
}

impl Bench {
    pub(crate) fn new(open: impl Fn(LogLimits) -> Opened + 'static) -> Self {
        Self {
            open: Box::new(open),
        }
    }

    fn store(&self) -> Opened {
        (self.open)(LogLimits::default())
    }

    fn short_log(&self, commits: usize) -> Opened {
        (self.open)(LogLimits {
            commits,
            bytes: usize::MAX,
        })
    }
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text)
}

pub(crate) fn put(text: &str, value: &str) -> Op {
    Op::Put {
        key: key(text),
        value: Bytes::copy_from_slice(value.as_bytes()),
        soft: false,
    }
}

pub(crate) fn soft(text: &str, value: &str) -> Op {
    Op::Put {
        key: key(text),
        value: Bytes::copy_from_slice(value.as_bytes()),
        soft: true,
    }
}

pub(crate) fn delete(text: &str) -> Op {
    Op::Delete { key: key(text) }
}

pub(crate) fn ops(ops: impl Into<Vec<Op>>) -> Txn {
    Txn {
        compares: vec![],
        ops: ops.into(),
    }
}

pub(crate) fn only_if(compare: Compare, op: Op) -> Txn {
    Txn {
        compares: vec![compare],
        ops: vec![op],
    }
}

impl Opened {
    async fn commit(&self, txn: Txn) -> Revision {
        self.store.commit(txn).await.unwrap()
    }

    async fn get(&self, text: &str) -> Option<Entry> {
        self.store.get(&key(text)).await
    }

    async fn value(&self, text: &str) -> Option<Bytes> {
        self.get(text).await.map(|entry| entry.value)
    }

    async fn list(
        &self,
        prefix: &str,
        at: Option<Revision>,
    ) -> Result<Vec<(String, String, u64)>, WatchError> {
        let listing = self.store.list(prefix, at).await?;
        if let Some(at) = at {
            assert_eq!(listing.revision, at);
        }
        let line = |entry: Entry| {
            let value = String::from_utf8(entry.value.to_vec()).unwrap();
            (entry.key.to_string(), value, entry.modified.0)
        };
        Ok(listing.entries.into_iter().map(line).collect())
    }

    fn watch(&self, prefix: &str, after: Revision) -> EventStream {
        self.store.watch(prefix, after).unwrap()
    }
}

/// The next item, within a time that only a broken watch needs.
pub(crate) async fn next(stream: &mut EventStream) -> Option<Result<Vec<Event>, WatchError>> {
    tokio::time::timeout(Duration::from_secs(30), stream.next())
        .await
        .expect("the watch says nothing")
}

async fn next_events(stream: &mut EventStream) -> Vec<Event> {
    next(stream)
        .await
        .expect("the watch ended")
        .expect("the watch failed")
}

fn shown(events: &[Event]) -> Vec<(u64, String, Option<String>)> {
    let text = |value: &Bytes| String::from_utf8(value.to_vec()).unwrap();
    events
        .iter()
        .map(|e| (e.revision.0, e.key.to_string(), e.value.as_ref().map(text)))
        .collect()
}
