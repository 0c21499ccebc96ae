//! The memory store of a cluster: it outlives the server, has faults to order, and tells of each commit as it happens.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use muster_store::{
    CommitError, Entry, EventStream, Key, Listing, MemoryStore, Revision, Store, Txn, WatchError,
};
use parking_lot::Mutex;

/// How a store takes commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoreMood {
    /// At once.
    #[default]
    Fine,
    /// After so long, as a disk does that is busy.
    Slow(Duration),
    /// Not at all: the disk is full.
    Refusing,
    /// It writes, and answers that it could not: the outcome of a commit is not known to who asked for it.
    Lying,
}

/// Called for every commit that happened, before anybody else can know of it, in the order of revisions.
pub type Observer = Arc<dyn Fn(Revision, &Txn) + Send + Sync>;

/// The hand on a cluster's memory store.
#[derive(Default)]
pub struct StoreControl {
    mood: Mutex<StoreMood>,
    observer: Mutex<Option<Observer>>,
}

impl StoreControl {
    /// How commits are taken from now on.
    pub fn set_mood(&self, mood: StoreMood) {
        *self.mood.lock() = mood;
    }

    /// How commits are taken now.
    pub fn mood(&self) -> StoreMood {
        *self.mood.lock()
    }

    /// Tells of every commit from now on.
    pub fn observe(&self, observer: Observer) {
        *self.observer.lock() = Some(observer);
    }
}

/// A memory store that a stopping server does not close: the next one goes on with it.
pub(crate) struct Lasting {
    store: MemoryStore,
    control: Arc<StoreControl>,
}

impl Lasting {
    pub(crate) fn new(control: Arc<StoreControl>) -> Self {
        Self {
            store: MemoryStore::new(),
            control,
        }
    }

    async fn take(&self, txn: Txn) -> Result<Revision, CommitError> {
        let failed = || CommitError::Write("no space left on device".to_owned());
        let mood = self.control.mood();
        match mood {
            StoreMood::Refusing => return Err(failed()),
            StoreMood::Slow(delay) => tokio::time::sleep(delay).await,
            StoreMood::Fine | StoreMood::Lying => {}
        }
        let before = self.store.revision();
        let told = self
            .control
            .observer
            .lock()
            .clone()
            .map(|observer| (observer, txn.clone()));
        let revision = self.store.commit(txn).await?;
        if let Some((observer, txn)) = told
            && revision > before
        {
            observer(revision, &txn);
        }
        match mood {
            StoreMood::Lying => Err(failed()),
            _ => Ok(revision),
        }
    }
}

impl Store for Lasting {
    fn revision(&self) -> Revision {
        self.store.revision()
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Option<Entry>> {
        self.store.get(key)
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        at: Option<Revision>,
    ) -> BoxFuture<'a, Result<Listing, WatchError>> {
        self.store.list(prefix, at)
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>> {
        Box::pin(self.take(txn))
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<EventStream, WatchError> {
        self.store.watch(prefix, after)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
