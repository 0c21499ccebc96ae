//! The directory a store lives in: whose it is, who has it open, and how far its writes were acknowledged.
//!
//! ```text
//! muster-store.json   written first: format, id, whether the store was finished being made
//! LOCK                held while a process has the store open
//! watermark           the newest acknowledged revision, beside the engine: what the engine forgets is noticed
//! sled/               the engine's own files
//! ```

use crate::Revision;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The format this code writes, and the newest it opens.
pub(crate) const FORMAT: u32 = 1;

const MARKER: &str = "muster-store.json";
const MARKER_DRAFT: &str = "muster-store.json.new";
const LOCK: &str = "LOCK";
const WATERMARK: &str = "watermark";
const ENGINE: &str = "sled";
/// What may lie in a directory that is to become a store: what a crash while making one leaves, and what a fresh file
/// system has.
const HARMLESS: [&str; 3] = [LOCK, MARKER_DRAFT, "lost+found"];

/// Why a store directory could not be opened. Nothing was written into a directory that is locked, foreign or newer.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "the store in {dir} is open in another process: stop that one first, or choose another directory"
    )]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// There are files, and none of them says that it is a store.
    #[error("{dir} is not a muster store ({found} is in it): choose an empty or new directory")]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// One of the files there.
        found: String,
    },
    /// The path is no directory.
    #[error("{dir} is not a directory: choose another path for the store")]
    NotADirectory {
        /// The path.
        dir: PathBuf,
    },
    /// There is nothing to verify or export.
    #[error("there is no muster store in {dir}")]
    NoStore {
        /// The directory.
        dir: PathBuf,
    },
    /// Written by a later release.
    #[error(
        "the store in {dir} has format {found}, and this release knows only {FORMAT}: use the release that wrote it, or a later one"
    )]
    Newer {
        /// The directory.
        dir: PathBuf,
        /// Its format.
        found: u32,
    },
    /// An import did not run to its end.
    #[error("an import into {dir} did not finish: remove the directory and import again")]
    UnfinishedImport {
        /// The directory.
        dir: PathBuf,
    },
    /// Something that was written is not there, or is not what was written.
    #[error(
        "the store in {dir} is damaged: {what}. Put a copy of the directory back, or import an export into a new directory (muster store import)"
    )]
    Damaged {
        /// The directory.
        dir: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The engine could not write what every start writes.
    #[error("could not write to the store in {dir}: {why}")]
    Write {
        /// The directory.
        dir: PathBuf,
        /// The engine's answer.
        why: String,
    },
    /// The file system refused.
    #[error("could not {step} in {dir}")]
    Io {
        /// The directory.
        dir: PathBuf,
        /// What was tried.
        step: &'static str,
        /// Its answer.
        #[source]
        source: io::Error,
    },
}

/// How far the making of a store has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Begun; nothing was acknowledged yet, so it can be begun again.
    Creating,
    /// An import is writing it.
    Importing,
    /// In use.
    Ready,
}

/// The marker file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marker {
    format: u32,
    pub(crate) state: State,
    pub(crate) store_id: String,
    /// CRC-32C of the others, in hex.
    checksum: String,
}

/// A store directory that this process holds.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// The lock goes with the file.
    _lock: File,
    pub(crate) marker: Option<Marker>,
}

/// The newest acknowledged revision and the newest reserved one, in two places that are written in turn: one of them is
/// whole at any moment.
#[derive(Debug)]
pub(crate) struct Watermark {
    file: File,
    second: bool,
}

/// What a [`Watermark`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Acknowledged {
    pub(crate) revision: Revision,
    pub(crate) reserved: Revision,
}

impl Directory {
    /// Takes an existing store's directory.
    pub(crate) fn existing(path: &Path) -> Result<Self, OpenError> {
        let no_store = || OpenError::NoStore {
            dir: path.to_owned(),
        };
        if !path.exists() {
            return Err(no_store());
        }
        // Looked at before the lock is made, so that a directory that is not ours stays as it is.
        read_marker(path)?.ok_or_else(no_store)?;
        Self::lock(path)
    }

    /// Takes the directory of a store, or one that can become a store; makes it if it is not there.
    pub(crate) fn existing_or_new(path: &Path) -> Result<Self, OpenError> {
        if !path.exists() {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o700);
            builder
                .create(path)
                .map_err(io_error(path, "make the directory"))?;
        }
        if read_marker(path)?.is_none() {
            check_empty(path)?;
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700))
                .map_err(io_error(path, "close the directory to others"))?;
        }
        Self::lock(path)
    }

    fn lock(path: &Path) -> Result<Self, OpenError> {
        let step = "lock the store";
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path.join(LOCK))
            .map_err(io_error(path, step))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Locked {
                    dir: path.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(io_error(path, step)(source)),
        }
        // Read again: it may have changed while another process held the lock.
        let marker = read_marker(path)?;
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
            marker,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the engine keeps its files.
    pub(crate) fn engine(&self) -> PathBuf {
        self.path.join(ENGINE)
    }

    /// Clears what an unfinished attempt left.
    pub(crate) fn clear_engine(&self) -> Result<(), OpenError> {
        match fs::remove_dir_all(self.engine()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(
                &self.path,
                "clear what an unfinished start left",
            )(error)),
            _ => Ok(()),
        }
    }

    /// Writes the marker file, whole or not at all.
    pub(crate) fn mark(&mut self, state: State, store_id: &str) -> Result<(), OpenError> {
        let mut marker = Marker {
            format: FORMAT,
            state,
            store_id: store_id.to_owned(),
            checksum: String::new(),
        };
        marker.checksum = marker.expected_checksum();
        let write = || -> io::Result<()> {
            let draft = self.path.join(MARKER_DRAFT);
            let mut file = OpenOptions::new()
                .create(true)
                .truncate(true)
                .write(true)
                .mode(0o600)
                .open(&draft)?;
            serde_json::to_writer_pretty(&mut file, &marker)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&draft, self.path.join(MARKER))?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(io_error(&self.path, "write muster-store.json"))?;
        self.marker = Some(marker);
        Ok(())
    }

    /// Opens the watermark and says what it holds; `None` when neither place is whole.
    pub(crate) fn watermark(&self) -> Result<(Watermark, Option<Acknowledged>), OpenError> {
        let step = "open the watermark";
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(self.path.join(WATERMARK))
            .map_err(io_error(&self.path, step))?;
        let read = |place: u64| {
            let mut bytes = [0; Watermark::LENGTH];
            file.read_exact_at(&mut bytes, place).ok()?;
            Watermark::decode(&bytes)
        };
        let places = [read(0), read(Watermark::SECOND_PLACE)];
        let newest = places.iter().flatten().max().copied();
        // The older or broken place is the next to be written.
        let second = places[0].is_some() && places[1] <= places[0];
        Ok((Watermark { file, second }, newest))
    }
}

impl Marker {
    fn expected_checksum(&self) -> String {
        let text = format!("{} {:?} {}", self.format, self.state, self.store_id);
        format!("{:08x}", crc32c::crc32c(text.as_bytes()))
    }
}

impl Watermark {
    const LENGTH: usize = 20;
    /// A sector further: a torn write harms one place only.
    const SECOND_PLACE: u64 = 4096;

    /// Notes what is about to be acknowledged. Reaches the disk with [`Self::sync`]; a killed process loses nothing.
    pub(crate) fn write(&mut self, acknowledged: Acknowledged) -> io::Result<()> {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&acknowledged.revision.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&acknowledged.reserved.0.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..16]) ^ Self::SALT;
        bytes[16..].copy_from_slice(&checksum.to_le_bytes());
        self.file
            .write_all_at(&bytes, if self.second { Self::SECOND_PLACE } else { 0 })?;
        self.second = !self.second;
        Ok(())
    }

    /// So that zeroes are not taken for a watermark.
    const SALT: u32 = 0x6d75_7374;

    fn decode(bytes: &[u8; Self::LENGTH]) -> Option<Acknowledged> {
        let number = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            Revision(u64::from_le_bytes(eight))
        };
        let checksum = crc32c::crc32c(&bytes[..16]) ^ Self::SALT;
        let is_whole = bytes[16..] == checksum.to_le_bytes();
        is_whole.then(|| Acknowledged {
            revision: number(0),
            reserved: number(8),
        })
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

pub(crate) fn io_error(path: &Path, step: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    let dir = path.to_owned();
    move |source| OpenError::Io { dir, step, source }
}

/// What the marker says; `None` when there is none. Refuses formats this code does not know.
fn read_marker(path: &Path) -> Result<Option<Marker>, OpenError> {
    #[derive(Deserialize)]
    struct FormatOnly {
        format: u32,
    }
    if !path.is_dir() {
        return Err(OpenError::NotADirectory {
            dir: path.to_owned(),
        });
    }
    let text = match fs::read(path.join(MARKER)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error(path, "read muster-store.json")(error)),
    };
    let damaged = || OpenError::Damaged {
        dir: path.to_owned(),
        what: "muster-store.json is not readable".to_owned(),
    };
    let FormatOnly { format } = serde_json::from_slice(&text).map_err(|_| damaged())?;
    if format > FORMAT {
        return Err(OpenError::Newer {
            dir: path.to_owned(),
            found: format,
        });
    }
    let marker: Marker = serde_json::from_slice(&text).map_err(|_| damaged())?;
    if marker.checksum != marker.expected_checksum() {
        return Err(damaged());
    }
    Ok(Some(marker))
}

fn check_empty(path: &Path) -> Result<(), OpenError> {
    let step = "list the directory";
    for entry in fs::read_dir(path).map_err(io_error(path, step))? {
        let name = entry.map_err(io_error(path, step))?.file_name();
        if !HARMLESS.iter().any(|harmless| name == **harmless) {
            return Err(OpenError::Foreign {
                dir: path.to_owned(),
                found: name.to_string_lossy().into_owned(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(revision: u64) -> Acknowledged {
        Acknowledged {
            revision: Revision(revision),
            reserved: Revision(revision + 100),
        }
    }

    #[test]
    fn the_watermark_is_the_newest_whole_place() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::existing_or_new(dir.path()).unwrap();
        let (mut watermark, none) = directory.watermark().unwrap();
        assert_eq!(none, None);
        for revision in 1..=5 {
            watermark.write(at(revision)).unwrap();
            assert_eq!(directory.watermark().unwrap().1, Some(at(revision)));
        }
        // The place of revision 5 is torn: 4 is what is known, and the torn place is written next.
        let mut bytes = fs::read(dir.path().join(WATERMARK)).unwrap();
        bytes[3] ^= 1;
        fs::write(dir.path().join(WATERMARK), &bytes).unwrap();
        let (mut watermark, found) = directory.watermark().unwrap();
        assert_eq!(found, Some(at(4)));
        watermark.write(at(6)).unwrap();
        assert_eq!(directory.watermark().unwrap().1, Some(at(6)));
    }

    #[test]
    fn a_marker_survives_and_a_changed_one_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mut directory = Directory::existing_or_new(dir.path()).unwrap();
        directory.mark(State::Ready, "abc").unwrap();
        assert_eq!(read_marker(dir.path()).unwrap(), directory.marker);
        let text = fs::read_to_string(dir.path().join(MARKER)).unwrap();
        fs::write(dir.path().join(MARKER), text.replace("abc", "abd")).unwrap();
        assert!(matches!(
            read_marker(dir.path()),
            Err(OpenError::Damaged { .. })
        ));
        fs::write(dir.path().join(MARKER), r#"{"format": 7, "anything": []}"#).unwrap();
        assert!(matches!(
            read_marker(dir.path()),
            Err(OpenError::Newer { found: 7, .. })
        ));
    }
}
