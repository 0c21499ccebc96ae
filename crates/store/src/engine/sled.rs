//! The durable store of one machine: sled 0.34 as a log under our own index.
//!
//! # Assumptions about sled, and what holds where they fail
//! - A batch in one tree is applied whole or not at all, and is durable when the blocking `flush` returns. Only the
//!   writer's thread calls it: with several concurrent `flush_async` sled 0.34.7 hangs.
//! - Where its files are damaged sled may drop the rest of its log without a word. So every record has a checksum; the
//!   summary, written with each batch, has the count and the sum of them all; and the watermark beside sled's files has
//!   the newest acknowledged revision. What is missing, stale or altered is noticed when the store is opened.
//! - It panics where it should answer with an error: every call into it is guarded.

use crate::core::Core;
use crate::directory::{Acknowledged, Directory, OpenError, State, Watermark, io_error};
use crate::index::Slot;
use crate::log::LogLimits;
use crate::record::{KEY_PREFIX, Record, RecordError, SUMMARY_KEY, Summary, Totals, disk_key};
use crate::stage::Batch;
use crate::writer::{self, Counters, Disk, Request, WriterStats, guarded};
use crate::{
    CommitError, Entry, EventStream, Key, Listing, Revision, Store, Txn, WatchError, watch,
};
use futures::future::{self, BoxFuture, FutureExt};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Revisions are reserved on disk so many at a time: soft writes take revisions without being written, and the counter
/// must not go back after a crash.
const BLOCK: u64 = 65_536;
/// The next block is reserved when less than this is left of the last one.
const BLOCK_LEFT: u64 = BLOCK / 4;
/// How old the watermark on the disk may be while the store is written to. It is a check, not what makes writes
/// durable, so it need not be flushed with each batch.
const WATERMARK_SYNC: Duration = Duration::from_secs(1);
/// sled lets go of its lock a little after it was dropped.
const ENGINE_LOCK_WAIT: Duration = Duration::from_secs(5);

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

/// A store's contents as they lie on disk, checked.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) store_id: String,
    pub(crate) slots: BTreeMap<Key, Slot>,
    pub(crate) summary: Summary,
    /// No revision up to this one may be given out again.
    pub(crate) reserved: Revision,
    disk: SledDisk,
}

#[derive(Debug)]
struct SledDisk {
    // Dropped before the directory, whose lock says that the engine's files are free.
    db: sled::Db,
    watermark: Watermark,
    watermark_synced: Instant,
    summary: Summary,
    directory: Directory,
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
        guarded("write", || loaded.disk.write(&first)).map_err(|what| OpenError::Damaged {
            dir: dir.to_owned(),
            what,
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

impl Disk for SledDisk {
    fn write(&mut self, batch: &Batch) -> Result<bool, String> {
        let reserve = batch.revision.0 + BLOCK_LEFT > self.summary.reserved.0;
        if batch.disk.is_empty() && !reserve {
            return Ok(false);
        }
        let reserved = if reserve {
            Revision(batch.revision.0 + BLOCK)
        } else {
            self.summary.reserved
        };
        let revision = if batch.disk.is_empty() {
            self.summary.revision
        } else {
            batch.revision
        };
        self.flush(
            &batch.disk,
            Summary {
                revision,
                reserved,
                totals: batch.totals,
            },
        )?;
        Ok(true)
    }

    fn close(&mut self, revision: Revision) -> Result<(), String> {
        // Nothing beyond this was given out, and nothing more will be.
        let summary = Summary {
            reserved: revision,
            ..self.summary
        };
        self.flush(&BTreeMap::new(), summary)?;
        self.watermark.sync().map_err(|error| error.to_string())
    }
}

impl SledDisk {
    fn flush(
        &mut self,
        changes: &BTreeMap<Key, Option<Vec<u8>>>,
        summary: Summary,
    ) -> Result<(), String> {
        let mut batch = sled::Batch::default();
        for (key, record) in changes {
            match record {
                Some(record) => batch.insert(disk_key(key), record.as_slice()),
                None => batch.remove(disk_key(key)),
            }
        }
        batch.insert(SUMMARY_KEY, summary.encode());
        self.db
            .apply_batch(batch)
            .map_err(|error| error.to_string())?;
        self.db.flush().map_err(|error| error.to_string())?;
        self.summary = summary;
        self.note(summary)
            .map_err(|error| format!("could not write the watermark: {error}"))
    }

    fn note(&mut self, summary: Summary) -> std::io::Result<()> {
        self.watermark.write(Acknowledged {
            revision: summary.revision,
            reserved: summary.reserved,
        })?;
        if self.watermark_synced.elapsed() >= WATERMARK_SYNC {
            self.watermark.sync()?;
            self.watermark_synced = Instant::now();
        }
        Ok(())
    }
}

/// The store in this directory, checked. Writes nothing of ours; sled may tidy its own files.
pub(crate) fn load(dir: &Path) -> Result<Loaded, OpenError> {
    load_from(Directory::existing(dir)?, &Options::default())
}

fn load_from(directory: Directory, options: &Options) -> Result<Loaded, OpenError> {
    let dir = directory.path().to_owned();
    let damaged = |what: String| OpenError::Damaged {
        dir: dir.clone(),
        what,
    };
    let store_id = match &directory.marker {
        Some(marker) if marker.state == State::Ready => marker.store_id.clone(),
        Some(marker) if marker.state == State::Importing => {
            return Err(OpenError::UnfinishedImport { dir });
        }
        _ => return Err(OpenError::NoStore { dir }),
    };
    if !directory.engine().join("db").is_file() {
        return Err(damaged("the engine's files are gone".to_owned()));
    }
    let (watermark, acknowledged) = directory.watermark()?;
    let acknowledged =
        acknowledged.ok_or_else(|| damaged("the watermark is not readable".to_owned()))?;
    let db = open_engine(&directory, options.cache_bytes)?;
    let (slots, summary) = guarded("read", || Ok(read_all(&db)))
        .map_err(damaged)?
        .map_err(|wrong| match wrong {
            Wrong::Newer(format) => OpenError::Newer {
                dir: dir.clone(),
                found: u32::from(format),
            },
            Wrong::Damaged(what) => damaged(what),
        })?;
    if summary.revision < acknowledged.revision {
        return Err(damaged(format!(
            "revision {} was acknowledged, and the newest there is {}",
            acknowledged.revision, summary.revision
        )));
    }
    let reserved = summary.reserved.max(acknowledged.reserved);
    let disk = SledDisk {
        db,
        watermark,
        watermark_synced: Instant::now(),
        summary,
        directory,
    };
    Ok(Loaded {
        store_id,
        slots,
        summary,
        reserved,
        disk,
    })
}

/// A new, empty store.
fn make(directory: Directory, options: &Options) -> Result<Loaded, OpenError> {
    let store_id = options
        .store_id
        .clone()
        .unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    create(
        directory,
        &store_id,
        State::Creating,
        &BTreeMap::new(),
        Summary::default(),
        options.cache_bytes,
    )
}

/// Makes a store with these contents, in a directory that holds none in use. Until it is done the marker says `state`.
pub(crate) fn create(
    mut directory: Directory,
    store_id: &str,
    state: State,
    records: &BTreeMap<Key, Record>,
    mut summary: Summary,
    cache_bytes: u64,
) -> Result<Loaded, OpenError> {
    let dir = directory.path().to_owned();
    directory.mark(state, store_id)?;
    directory.clear_engine()?;
    let db = open_engine(&directory, cache_bytes)?;
    let (watermark, _) = directory.watermark()?;
    let mut slots = BTreeMap::new();
    let mut changes = BTreeMap::new();
    summary.totals = Totals::default();
    for (key, record) in records {
        let (bytes, checksum) = record.encode(key);
        summary.totals.add(checksum);
        let slot = Slot {
            value: record.value.clone(),
            created: record.created,
            modified: record.modified,
            on_disk: Some(checksum),
        };
        slots.insert(key.clone(), slot);
        changes.insert(key.clone(), Some(bytes));
    }
    let mut disk = SledDisk {
        db,
        watermark,
        watermark_synced: Instant::now(),
        summary,
        directory,
    };
    guarded("write", || disk.flush(&changes, summary))
        .and_then(|()| disk.note(summary).map_err(|error| error.to_string()))
        .map_err(|what| OpenError::Damaged {
            dir: dir.clone(),
            what,
        })?;
    disk.watermark
        .sync()
        .map_err(io_error(&dir, "write the watermark"))?;
    disk.directory.mark(State::Ready, store_id)?;
    Ok(Loaded {
        store_id: store_id.to_owned(),
        slots,
        summary,
        reserved: summary.reserved,
        disk,
    })
}

fn open_engine(directory: &Directory, cache_bytes: u64) -> Result<sled::Db, OpenError> {
    let dir = directory.path();
    let config = sled::Config::new()
        .path(directory.engine())
        .cache_capacity(cache_bytes)
        .mode(sled::Mode::HighThroughput)
        // The writer flushes; a timer of sled's own would only flush what is flushed already.
        .flush_every_ms(None);
    let started = Instant::now();
    loop {
        let result = guarded("open", || Ok(config.open())).map_err(|what| OpenError::Damaged {
            dir: dir.to_owned(),
            what,
        })?;
        match result {
            Ok(db) => return Ok(db),
            Err(sled::Error::Io(error)) if error.to_string().contains("could not acquire lock") => {
                if started.elapsed() > ENGINE_LOCK_WAIT {
                    return Err(OpenError::Locked {
                        dir: dir.to_owned(),
                    });
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(sled::Error::Io(error)) => {
                return Err(io_error(dir, "open the engine's files")(error));
            }
            Err(error) => {
                return Err(OpenError::Damaged {
                    dir: dir.to_owned(),
                    what: error.to_string(),
                });
            }
        }
    }
}

enum Wrong {
    Newer(u8),
    Damaged(String),
}

fn read_all(db: &sled::Db) -> Result<(BTreeMap<Key, Slot>, Summary), Wrong> {
    let wrong = |key: &str, error: RecordError| match error {
        RecordError::Newer(format) => Wrong::Newer(format),
        error => Wrong::Damaged(format!("the record of {key:?} is not readable: {error}")),
    };
    let mut summary = None;
    let mut slots = BTreeMap::new();
    let mut totals = Totals::default();
    for item in db.iter() {
        let (disk_key, bytes) = item.map_err(|error| Wrong::Damaged(error.to_string()))?;
        if &*disk_key == SUMMARY_KEY {
            summary = Some(Summary::decode(&bytes).map_err(|error| wrong("(summary)", error))?);
            continue;
        }
        let key = match disk_key.split_first() {
            Some((&KEY_PREFIX, key)) => std::str::from_utf8(key).ok().map(Key::new),
            _ => None,
        };
        let key = key.ok_or_else(|| {
            Wrong::Damaged("there is a record under a key that is none of ours".to_owned())
        })?;
        let (record, checksum) =
            Record::decode(&key, &bytes).map_err(|error| wrong(key.as_str(), error))?;
        totals.add(checksum);
        let Record {
            created,
            modified,
            value,
        } = record;
        slots.insert(
            key,
            Slot {
                value,
                created,
                modified,
                on_disk: Some(checksum),
            },
        );
    }
    let summary =
        summary.ok_or_else(|| Wrong::Damaged("the engine's files hold nothing".to_owned()))?;
    if totals != summary.totals {
        return Err(Wrong::Damaged(format!(
            "there should be {} records and there are {}, or some are older ones",
            summary.totals.count, totals.count
        )));
    }
    Ok((slots, summary))
}
