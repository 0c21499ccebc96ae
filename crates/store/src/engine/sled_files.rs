//! A store's files: sled's log, our records in it, and the checks that make up for what sled does not promise.
//!
//! # Assumptions about sled, and what holds where they fail
//! - A batch in one tree is applied whole or not at all, and is in sled's file when the blocking `flush` returns. Only
//!   the writer's thread calls it: with several concurrent `flush_async` sled 0.34.7 hangs.
//! - On Linux `flush` ends in `sync_file_range`, which survives a killed process and not a power cut: the file is synced
//!   once more, by us.
//! - What is larger than a quarter of a segment goes into a file of its own that is never synced: records are cut into
//!   parts small enough that no page of sled's ever is.
//! - Where its files are damaged sled may drop the rest of its log without a word. So every record has a checksum; the
//!   summary, written with each batch, has the count and the sum of them all; and the watermark beside sled's files has
//!   the newest acknowledged revision. What is missing, stale or altered is noticed when the store is opened.
//! - It panics where it should answer with an error: every call into it is guarded.

use super::sled::Options;
use crate::directory::{Acknowledged, Directory, OpenError, State, Watermark, io_error};
use crate::index::Slot;
use crate::record::{
    OnDisk, PART_BYTES, Record, RecordError, SUMMARY_KEY, Summary, Totals, parse_part_key, part_key,
};
use crate::stage::{Batch, DiskChange};
use crate::writer::{Disk, guarded};
use crate::{Key, Revision};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

/// Revisions are reserved on disk so many at a time: soft writes take revisions without being written, and the counter
/// must not go back after a crash.
const BLOCK: u64 = 65_536;
/// The next block is reserved when less than this is left of the last one.
const BLOCK_LEFT: u64 = BLOCK / 4;
/// How old the watermark on the disk may be while the store is written to. It is a check, not what makes writes
/// durable, so it need not be flushed with each batch.
const WATERMARK_SYNC: Duration = Duration::from_secs(1);
/// The file sled keeps everything in.
const ENGINE_LOG: &str = "db";
/// Part of the format: sled opens its files only with the size they were made with.
const SEGMENT_BYTES: usize = 1024 * 1024;
/// sled lets go of its lock a little after it was dropped, on a busy machine later.
const ENGINE_LOCK_WAIT: Duration = Duration::from_secs(30);

/// A store's contents as they lie on disk, checked.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) store_id: String,
    pub(crate) slots: BTreeMap<Key, Slot>,
    pub(crate) summary: Summary,
    /// No revision up to this one may be given out again.
    pub(crate) reserved: Revision,
    pub(super) disk: SledDisk,
}

#[derive(Debug)]
pub(crate) struct SledDisk {
    // Dropped before the directory, whose lock says that the engine's files are free.
    db: sled::Db,
    /// sled's log, opened once more to be synced.
    log: File,
    watermark: Watermark,
    watermark_synced: Instant,
    pub(super) summary: Summary,
    directory: Directory,
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
        changes: &BTreeMap<Key, DiskChange>,
        summary: Summary,
    ) -> Result<(), String> {
        let mut batch = sled::Batch::default();
        for (key, DiskChange { record, old_parts }) in changes {
            let mut parts = 0;
            for part in record.iter().flat_map(|record| record.chunks(PART_BYTES)) {
                batch.insert(part_key(key, parts), part);
                parts += 1;
            }
            (parts..*old_parts).for_each(|part| batch.remove(part_key(key, part)));
        }
        batch.insert(SUMMARY_KEY, summary.encode());
        self.db
            .apply_batch(batch)
            .map_err(|error| error.to_string())?;
        self.db.flush().map_err(|error| error.to_string())?;
        self.log
            .sync_data()
            .map_err(|error| format!("could not sync the engine's log: {error}"))?;
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

pub(super) fn load_from(directory: Directory, options: &Options) -> Result<Loaded, OpenError> {
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
    if !directory.engine().join(ENGINE_LOG).is_file() {
        return Err(damaged("the engine's files are gone".to_owned()));
    }
    let (watermark, acknowledged) = directory.watermark()?;
    let acknowledged =
        acknowledged.ok_or_else(|| damaged("the watermark is not readable".to_owned()))?;
    let (db, log) = open_engine(&directory, options.cache_bytes)?;
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
        log,
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
pub(super) fn make(directory: Directory, options: &Options) -> Result<Loaded, OpenError> {
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
    let (db, log) = open_engine(&directory, cache_bytes)?;
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
            on_disk: Some(OnDisk::new(checksum, bytes.len())),
        };
        slots.insert(key.clone(), slot);
        changes.insert(
            key.clone(),
            DiskChange {
                record: Some(bytes),
                old_parts: 0,
            },
        );
    }
    let mut disk = SledDisk {
        db,
        log,
        watermark,
        watermark_synced: Instant::now(),
        summary,
        directory,
    };
    guarded("write", || disk.flush(&changes, summary))
        .and_then(|()| disk.note(summary).map_err(|error| error.to_string()))
        .map_err(|why| OpenError::Write {
            dir: dir.clone(),
            why,
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

fn open_engine(directory: &Directory, cache_bytes: u64) -> Result<(sled::Db, File), OpenError> {
    let dir = directory.path();
    let config = sled::Config::new()
        .path(directory.engine())
        .segment_size(SEGMENT_BYTES)
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
            Ok(db) => {
                let log =
                    sync_engine(directory).map_err(io_error(dir, "sync the engine's files"))?;
                return Ok((db, log));
            }
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

/// sled syncs neither its configuration nor its directory. Returns its log.
fn sync_engine(directory: &Directory) -> std::io::Result<File> {
    let engine = directory.engine();
    for entry in fs::read_dir(&engine)? {
        File::open(entry?.path())?.sync_all()?;
    }
    File::open(&engine)?.sync_all()?;
    File::open(engine.join(ENGINE_LOG))
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
    // Further parts come before first ones.
    let mut further: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
    for item in db.iter() {
        let (disk_key, part) = item.map_err(|error| Wrong::Damaged(error.to_string()))?;
        if &*disk_key == SUMMARY_KEY {
            summary = Some(Summary::decode(&part).map_err(|error| wrong("(summary)", error))?);
            continue;
        }
        let (key, number) = parse_part_key(&disk_key).ok_or_else(|| {
            Wrong::Damaged("there is a record under a key that is none of ours".to_owned())
        })?;
        if number > 0 {
            further.entry(key).or_default().extend(&*part);
            continue;
        }
        let bytes = match further.remove(&key) {
            Some(rest) => [&part, rest.as_slice()].concat(),
            None => part.to_vec(),
        };
        let (record, checksum) =
            Record::decode(&key, &bytes).map_err(|error| wrong(key.as_str(), error))?;
        totals.add(checksum);
        let Record {
            created,
            modified,
            value,
        } = record;
        let on_disk = Some(OnDisk::new(checksum, bytes.len()));
        slots.insert(
            key,
            Slot {
                value,
                created,
                modified,
                on_disk,
            },
        );
    }
    if let Some((key, _)) = further.first_key_value() {
        return Err(Wrong::Damaged(format!(
            "the record of {key} has lost its first part"
        )));
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
