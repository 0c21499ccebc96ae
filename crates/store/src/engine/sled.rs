//! The durable store of one machine: sled 0.34 as a log under our own index. How it lies on disk: `sled_files.rs`.

use super::sled_files::{load_from, make};
use crate::core::Core;
use crate::directory::{Directory, OpenError, State, io_error};
use crate::log::LogLimits;
use crate::stage::Batch;
use crate::writer::{self, Counters, Disk, Request, WriterStats, guarded};
use crate::{
    CommitError, Entry, EventStream, Key, Listing, Revision, Store, Txn, WatchError, watch,
};
use futures::future::{self, BoxFuture, FutureExt};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// How a [`SledStore`] is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// How much of the past watches can start from.
    pub log: LogLimits,
    /// sled's own cache. Small, since reads never reach sled.
    pub cache_bytes: u64,
    /// The id to give to a store that is made now; `None`: a random one.
    pub store_id: Option<String>,
}

/// A store in a directory. Opening and dropping it block for a moment; everything else may be called from async code.
#[derive(Debug)]
pub struct SledStore {
    core: Arc<Core>,
    store_id: String,
    /// `None`: closed.
    queue: Mutex<Option<mpsc::Sender<Request>>>,
    counters: Arc<Counters>,
    writer: Option<JoinHandle<()>>,
    /// Cancelled when the writer has let go of the directory.
    ended: CancellationToken,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            log: LogLimits::default(),
            cache_bytes: 4 * 1024 * 1024,
            store_id: None,
        }
    }
}

impl SledStore {
    /// Opens the store in this directory, or makes one where there is none. Blocks while it reads all of it.
    pub fn open(dir: &Path, options: Options) -> Result<Self, OpenError> {
        let directory = Directory::existing_or_new(dir)?;
        let mut loaded = match directory.marker.as_ref().map(|marker| marker.state) {
            // Nothing yet, or the making of a store that nobody has used.
            None | Some(State::Creating) => make(directory, &options)?,
            Some(State::Importing | State::Ready) => load_from(directory, &options)?,
        };
        // What was reserved may have been given out. One further, since a watch from the last reserved revision would
        // otherwise not be told that soft values are gone.
        let start = match loaded.reserved.0 {
            0 => Revision(0),
            reserved => Revision(reserved + 1),
        };
        loaded.disk.summary.reserved = start;
        let first = Batch {
            revision: start,
            totals: loaded.summary.totals,
            ..Batch::default()
        };
        guarded("write", || loaded.disk.write(&first)).map_err(|why| OpenError::Write {
            dir: dir.to_owned(),
            why,
        })?;

        let core = Core::new(start, loaded.slots, loaded.summary.totals, options.log);
        let (queue, waiting) = mpsc::channel(writer::QUEUE);
        let counters = Arc::new(Counters::default());
        let ended = CancellationToken::new();
        let writer = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn({
                let (core, counters, ended) =
                    (Arc::clone(&core), Arc::clone(&counters), ended.clone());
                let mut disk = loaded.disk;
                move || {
                    let _ended = ended.drop_guard();
                    writer::run(&core, &mut disk, waiting, &counters);
                    drop(disk);
                }
            })
            .map_err(io_error(dir, "start the writer's thread"))?;
        Ok(Self {
            core,
            store_id: loaded.store_id,
            queue: Mutex::new(Some(queue)),
            counters,
            writer: Some(writer),
            ended,
        })
    }

    /// The id the store got when it was made.
    pub fn store_id(&self) -> &str {
        &self.store_id
    }

    /// What the writer has done since the store was opened.
    pub fn stats(&self) -> WriterStats {
        self.counters.read()
    }

    async fn enqueue(&self, txn: Txn) -> Result<Revision, CommitError> {
        let closed = || CommitError::Closed("it was shut down".to_owned());
        let queue = self.queue.lock().clone().ok_or_else(closed)?;
        let (answer, wait) = oneshot::channel();
        queue
            .send(Request { txn, answer })
            .await
            .map_err(|_| closed())?;
        drop(queue);
        wait.await
            .map_err(|_| CommitError::Closed("its writer stopped".to_owned()))?
    }
}

impl Store for SledStore {
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
        self.enqueue(txn).boxed()
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<EventStream, WatchError> {
        watch::stream(&self.core, prefix, after)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async move {
            self.queue.lock().take();
            self.ended.cancelled().await;
        }
        .boxed()
    }
}

impl Drop for SledStore {
    /// Waits for the writer, so that the directory is free when the store is gone.
    fn drop(&mut self) {
        self.queue.lock().take();
        if let Some(writer) = self.writer.take() {
            // A panic of the writer was reported by its own thread; there is nothing left to tell.
            let _ = writer.join();
        }
    }
}
