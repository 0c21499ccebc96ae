//! The store without a disk: for tests, simulation and benchmarks. It has no thread and no timer: a commit happens
//! while it is polled, so a simulation with a fixed seed stays repeatable.

use crate::core::Core;
use crate::log::LogLimits;
use crate::record::Totals;
use crate::{
    CommitError, Entry, EventStream, Key, Listing, Revision, Store, Txn, WatchError, watch,
};
use futures::future::{self, BoxFuture, FutureExt};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A store that keeps nothing beyond its own life.
#[derive(Debug)]
pub struct MemoryStore {
    core: Arc<Core>,
    /// Held by whoever commits: one writer at a time. True: closed.
    writer: Mutex<bool>,
}

impl MemoryStore {
    /// An empty store at revision 0.
    pub fn new() -> Self {
        Self::with_limits(LogLimits::default())
    }

    /// The same with another length of its event log.
    pub fn with_limits(limits: LogLimits) -> Self {
        let core = Core::new(Revision(0), BTreeMap::new(), Totals::default(), limits);
        Self {
            core,
            writer: Mutex::new(false),
        }
    }

    fn commit_now(&self, txn: Txn) -> Result<Revision, CommitError> {
        let closed = self.writer.lock();
        if *closed {
            return Err(CommitError::Closed("it was shut down".to_owned()));
        }
        let (batch, mut answers) = self.core.stage([txn]);
        self.core.publish(batch);
        answers
            .pop()
            .unwrap_or_else(|| Err(CommitError::Closed("no answer".to_owned())))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    fn revision(&self) -> Revision {
        self.core.revision()
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Option<Entry>> {
        future::ready(self.core.get(key)).boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        at: Option<Revision>,
    ) -> BoxFuture<'a, Result<Listing, WatchError>> {
        future::ready(self.core.list(prefix, at)).boxed()
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>> {
        async move { self.commit_now(txn) }.boxed()
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<EventStream, WatchError> {
        watch::stream(&self.core, prefix, after)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async move {
            *self.writer.lock() = true;
            self.core.close();
        }
        .boxed()
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.core.close();
    }
}
