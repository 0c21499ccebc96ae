//! What survives a restart without the server (spec/node-agent.md 27).
//!
//! One file per pod, one per ConfigMap or Secret that a pod uses, and one for the Node. A file is its first line, `muster
//! FORMAT CRC`, and JSON. It is written beside its place, flushed, renamed over it, and the directory flushed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use muster_model::object::Object;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::objects::Needed;
use crate::worker::memory::Remembered;

/// Version of the files.
const FORMAT: u32 = 1;

/// A pod on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PodRecord {
    /// The object.
    pub object: Value,
    /// What the worker must not forget.
    pub remembered: Remembered,
    /// The machine's boot at the time of writing.
    #[serde(default)]
    pub boot_id: String,
}

/// The directory.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    directory: PathBuf,
}

/// What was found at start.
#[derive(Debug, Default)]
pub struct Found {
    /// Pods that could be read.
    pub pods: Vec<PodRecord>,
    /// Files that could not, with the reason; each lies in `bad/` now.
    pub bad: Vec<(String, String)>,
}

impl Checkpoint {
    /// Opens the directory below a state directory, made if need be.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(state_dir: &Path) -> io::Result<Self> {
        let directory = state_dir.join("checkpoint");
        for part in ["pods", "objects", "bad"] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory.join(part))?;
        }
        Ok(Self { directory })
    }

    /// Every pod. A file that fails its check is moved to `bad/`; the others are not affected.
    ///
    /// # Errors
    /// When the directory cannot be read at all.
    pub fn load(&self) -> io::Result<Found> {
        let mut found = Found::default();
        let mut names: Vec<_> = fs::read_dir(self.directory.join("pods"))?
            .filter_map(Result::ok)
            .map(|entry| entry.file_name())
            .collect();
        names.sort();
        for name in names {
            let name = name.to_string_lossy().into_owned();
            let path = self.directory.join("pods").join(&name);
            if name.ends_with(".tmp") {
                // A write that a crash cut short; the file it was to replace is whole.
                fs::remove_file(&path)?;
                continue;
            }
            match read::<PodRecord>(&path) {
                Ok(record) => found.pods.push(record),
                Err(reason) => {
                    fs::rename(&path, self.directory.join("bad").join(&name))?;
                    found.bad.push((name, reason));
                }
            }
        }
        Ok(found)
    }

    /// Writes a pod.
    ///
    /// # Errors
    /// When it is not safely on disk; a former version still is.
    pub fn put_pod(&self, uid: &str, record: &PodRecord) -> io::Result<()> {
        write(&self.directory.join("pods").join(file_name(uid)), record)
    }

    /// Forgets a pod.
    ///
    /// # Errors
    /// When the file is still there.
    pub fn remove_pod(&self, uid: &str) -> io::Result<()> {
        remove(&self.directory.join("pods").join(file_name(uid)))
    }

    /// Writes a ConfigMap or Secret.
    ///
    /// # Errors
    /// When it is not safely on disk.
    pub fn put_object(&self, namespace: &str, needed: &Needed, object: &Object) -> io::Result<()> {
        write(&self.object_path(namespace, needed), object.tree())
    }

    /// The copy of a ConfigMap or Secret.
    pub fn object(&self, namespace: &str, needed: &Needed) -> Option<Object> {
        read::<Value>(&self.object_path(namespace, needed))
            .ok()
            .and_then(|tree| Object::from_value(tree).ok())
    }

    /// Forgets a ConfigMap or Secret.
    ///
    /// # Errors
    /// When the file is still there.
    pub fn remove_object(&self, namespace: &str, needed: &Needed) -> io::Result<()> {
        remove(&self.object_path(namespace, needed))
    }

    /// Writes the Node.
    ///
    /// # Errors
    /// When it is not safely on disk.
    pub fn put_node(&self, node: &Object) -> io::Result<()> {
        write(&self.directory.join("node.json"), node.tree())
    }

    /// The last Node.
    pub fn node(&self) -> Option<Object> {
        read::<Value>(&self.directory.join("node.json"))
            .ok()
            .and_then(|tree| Object::from_value(tree).ok())
    }

    fn object_path(&self, namespace: &str, needed: &Needed) -> PathBuf {
        let name = format!("{}_{namespace}_{}", needed.kind().singular, needed.name);
        self.directory.join("objects").join(file_name(&name))
    }
}

/// A file name of an id: what is not plain is written as hex.
fn file_name(id: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let name: String = id
        .bytes()
        .map(|b| {
            if plain(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02x}")
            }
        })
        .collect();
    format!("{name}.json")
}

/// Writes a value so that either the former or the new version is whole on disk, whatever happens.
pub(crate) fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let content = serde_json::to_vec(value).map_err(io::Error::other)?;
    let tmp = path.with_extension("json.tmp");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&tmp)?;
    let written = writeln!(file, "muster {FORMAT} {:08x}", crc32c::crc32c(&content))
        .and_then(|()| file.write_all(&content))
        .and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(&tmp, path)) {
        // The half-written file only takes room; the error that matters is the first one.
        let _ = fs::remove_file(&tmp);
        return Err(error);
    }
    sync_directory_of(path)
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Reads a value, or says why it cannot be trusted.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    let at = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or("no header")?;
    let (header, content) = (&bytes[..at], &bytes[at + 1..]);
    let header = std::str::from_utf8(header).map_err(|_| "unreadable header")?;
    let mut words = header.split(' ');
    let (magic, format, crc) = (words.next(), words.next(), words.next());
    if magic != Some("muster") {
        return Err("not a checkpoint file".into());
    }
    let format: u32 = format
        .and_then(|text| text.parse().ok())
        .ok_or("unreadable format")?;
    if format > FORMAT {
        return Err(format!("format {format} is newer than this agent's"));
    }
    let wanted = crc
        .and_then(|text| u32::from_str_radix(text, 16).ok())
        .ok_or("unreadable checksum")?;
    let found = crc32c::crc32c(content);
    if wanted != found {
        return Err(format!("checksum {found:08x} is not {wanted:08x}"));
    }
    serde_json::from_slice(content).map_err(|error| error.to_string())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => sync_directory_of(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(name: &str) -> PodRecord {
        PodRecord {
            object: json!({"metadata": {"name": name}}),
            remembered: Remembered::default(),
            boot_id: "b".into(),
        }
    }

    #[test]
    fn na_097_a_damaged_file_is_set_aside_and_the_others_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = Checkpoint::open(dir.path()).unwrap();
        for uid in ["u1", "u2", "u3"] {
            checkpoint.put_pod(uid, &record(uid)).unwrap();
        }
        let path = dir.path().join("checkpoint/pods/u2.json");
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
        let found = checkpoint.load().unwrap();
        assert_eq!(found.pods, [record("u1"), record("u3")]);
        assert_eq!(found.bad.len(), 1);
        assert!(dir.path().join("checkpoint/bad/u2.json").exists());
        assert!(!path.exists());
    }

    #[test]
    fn a_half_written_file_leaves_the_former_one() {
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = Checkpoint::open(dir.path()).unwrap();
        checkpoint.put_pod("u1", &record("old")).unwrap();
        fs::write(
            dir.path().join("checkpoint/pods/u1.json.tmp"),
            "muster 1 00",
        )
        .unwrap();
        assert_eq!(checkpoint.load().unwrap().pods, [record("old")]);
        assert!(!dir.path().join("checkpoint/pods/u1.json.tmp").exists());
    }

    #[test]
    fn na_096_objects_are_kept_for_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = Checkpoint::open(dir.path()).unwrap();
        let secret = Object::from_value(json!({"kind": "Secret", "data": {"k": "dg=="}})).unwrap();
        let needed = Needed::secret("s");
        checkpoint.put_object("default", &needed, &secret).unwrap();
        assert_eq!(checkpoint.object("default", &needed), Some(secret));
        let mode = |path: &str| {
            fs::metadata(dir.path().join(path))
                .unwrap()
                .permissions()
                .mode()
                & 0o777
        };
        assert_eq!(mode("checkpoint/objects"), 0o700);
        assert_eq!(mode("checkpoint/objects/secret_default_s.json"), 0o600);
        checkpoint.remove_object("default", &needed).unwrap();
        assert_eq!(checkpoint.object("default", &needed), None);
    }

    #[test]
    fn a_file_of_a_newer_format_is_not_guessed_at() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        fs::write(
            &path,
            format!("muster 2 {:08x}\n{{}}", crc32c::crc32c(b"{}")),
        )
        .unwrap();
        assert_eq!(
            read::<Value>(&path),
            Err("format 2 is newer than this agent's".into())
        );
    }
}
