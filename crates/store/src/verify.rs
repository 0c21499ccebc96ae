//! A store that no server has open: check it, write it out as text, make one from that text. All of this blocks.
//!
//! An export is JSON lines: a header, one line per key in key order, and an end line with the count and a checksum over
//! everything before it. It holds every durable value; soft ones exist only in a running server.
//!
//! ```text
//! {"muster_store_export":1,"store_id":"...","revision":812,"reserved":65536}
//! {"key":"/nodes/pi-3","created":3,"modified":811,"value":"<base64>"}
//! {"end":{"count":1,"crc32c":"89abcdef"}}
//! ```

use crate::directory::{Directory, OpenError, State};
use crate::engine::sled::Options;
use crate::engine::sled_files::{create, load};
use crate::record::{Record, Summary};
use crate::{Key, Revision};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read as _, Write};
use std::path::{Path, PathBuf};

/// The version of the export's form.
const EXPORT_VERSION: u32 = 1;
/// A line longer than this is no export of ours.
const MAX_LINE_BYTES: u64 = 256 * 1024 * 1024;

/// What a check found. That it was returned at all means: everything acknowledged is there and whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The id the store got when it was made.
    pub store_id: String,
    /// How many keys it holds.
    pub keys: usize,
    /// How many bytes their values take.
    pub value_bytes: u64,
    /// The newest durable revision.
    pub revision: Revision,
}

/// Why an export did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store could not be opened, or is not whole.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The text could not be written.
    #[error("could not write the export")]
    Write(#[source] io::Error),
}

/// Why an import did not happen. The text is checked to its end before anything is written.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// There is something in the directory already.
    #[error("{dir} is not empty: an import goes into a new or empty directory")]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory could not be made into a store.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The text could not be read.
    #[error("could not read the export")]
    Read(#[source] io::Error),
    /// The text is no export, or is damaged.
    #[error("line {line} of the export: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong there.
        why: String,
    },
    /// The end line is missing.
    #[error("the export is cut short: it has no end line")]
    CutShort,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    muster_store_export: u32,
    store_id: String,
    revision: u64,
    reserved: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyLine {
    key: String,
    created: u64,
    modified: u64,
    value: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndLine {
    end: End,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    count: usize,
    crc32c: String,
}

/// Checks the store in this directory: every record, that none is missing, and that it reaches as far as was
/// acknowledged. No server may have it open.
pub fn verify(dir: &Path) -> Result<Report, OpenError> {
    let loaded = load(dir)?;
    Ok(Report {
        keys: loaded.slots.len(),
        value_bytes: loaded
            .slots
            .values()
            .map(|slot| slot.value.len() as u64)
            .sum(),
        revision: loaded.summary.revision,
        store_id: loaded.store_id,
    })
}

/// Checks the store and writes it out as text. Returns how many keys were written.
pub fn export(dir: &Path, out: impl Write) -> Result<usize, ExportError> {
    let loaded = load(dir)?;
    let mut out = Lines {
        out: io::BufWriter::new(out),
        checksum: 0,
    };
    out.line(&Header {
        muster_store_export: EXPORT_VERSION,
        store_id: loaded.store_id,
        revision: loaded.summary.revision.0,
        reserved: loaded.reserved.0,
    })?;
    for (key, slot) in &loaded.slots {
        out.line(&KeyLine {
            key: key.as_str().to_owned(),
            created: slot.created.0,
            modified: slot.modified.0,
            value: BASE64.encode(&slot.value),
        })?;
    }
    let count = loaded.slots.len();
    let crc32c = format!("{:08x}", out.checksum);
    out.line(&EndLine {
        end: End { count, crc32c },
    })?;
    out.out.flush().map_err(ExportError::Write)?;
    Ok(count)
}

/// Makes a store from an export, in a new or empty directory: same id, same keys, same revisions. Returns how many keys
/// were read.
pub fn import(text: impl BufRead, dir: &Path) -> Result<usize, ImportError> {
    let (header, records) = read(text)?;
    let not_empty = || ImportError::NotEmpty {
        dir: dir.to_owned(),
    };
    let directory = match Directory::existing_or_new(dir) {
        Ok(directory) => directory,
        Err(OpenError::Foreign { .. }) => return Err(not_empty()),
        Err(error) => return Err(error.into()),
    };
    if directory.marker.is_some() {
        return Err(not_empty());
    }
    let summary = Summary {
        revision: Revision(header.revision),
        reserved: Revision(header.reserved.max(header.revision)),
        ..Summary::default()
    };
    let cache_bytes = Options::default().cache_bytes;
    create(
        directory,
        &header.store_id,
        State::Importing,
        &records,
        summary,
        cache_bytes,
    )?;
    Ok(records.len())
}

struct Lines<W> {
    out: W,
    checksum: u32,
}

impl<W: Write> Lines<W> {
    fn line(&mut self, line: &impl Serialize) -> Result<(), ExportError> {
        let mut text =
            serde_json::to_vec(line).map_err(|error| ExportError::Write(error.into()))?;
        text.push(b'\n');
        self.checksum = crc32c::crc32c_append(self.checksum, &text);
        self.out.write_all(&text).map_err(ExportError::Write)
    }
}

fn read(mut text: impl BufRead) -> Result<(Header, BTreeMap<Key, Record>), ImportError> {
    let mut header: Option<Header> = None;
    let mut records = BTreeMap::new();
    let mut checksum = 0;
    for number in 1.. {
        let wrong = |why: String| ImportError::Line { line: number, why };
        let mut line = Vec::new();
        (&mut text)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)
            .map_err(ImportError::Read)?;
        if line.is_empty() {
            break;
        }
        let Some(found) = &header else {
            let found: Header = serde_json::from_slice(&line)
                .map_err(|_| wrong("this is no export of a muster store".to_owned()))?;
            if found.muster_store_export > EXPORT_VERSION {
                return Err(wrong(format!(
                    "it is of version {}, and this release knows only {EXPORT_VERSION}",
                    found.muster_store_export
                )));
            }
            checksum = crc32c::crc32c_append(checksum, &line);
            header = Some(found);
            continue;
        };
        if let Ok(EndLine { end }) = serde_json::from_slice(&line) {
            if end.count != records.len() {
                return Err(wrong(format!(
                    "there should be {} keys before it, and there are {}",
                    end.count,
                    records.len()
                )));
            }
            if end.crc32c != format!("{checksum:08x}") {
                return Err(wrong(
                    "the checksum is wrong: the export was altered".to_owned(),
                ));
            }
            return header
                .map(|header| (header, records))
                .ok_or(ImportError::CutShort);
        }
        let entry: KeyLine = serde_json::from_slice(&line)
            .map_err(|error| wrong(format!("not a line of an export: {error}")))?;
        let value = BASE64
            .decode(&entry.value)
            .map_err(|_| wrong("the value is not base64".to_owned()))?;
        if entry.created > entry.modified || entry.modified > found.revision {
            return Err(wrong("the revisions are not in order".to_owned()));
        }
        let record = Record {
            created: Revision(entry.created),
            modified: Revision(entry.modified),
            value: value.into(),
        };
        if records.insert(Key::new(entry.key), record).is_some() {
            return Err(wrong("the key was there before".to_owned()));
        }
        checksum = crc32c::crc32c_append(checksum, &line);
    }
    Err(ImportError::CutShort)
}
