//! The atomic writer: readers see all old or all new files (spec/node-agent.md 14).
//!
//! Real files lie in `..TIMESTAMP/`, the link `..data` leads there, and the links that users see lead through it. A new
//! version is another directory, and one rename of `..data`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use muster_model::time::Timestamp;

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    /// Its content.
    pub(super) bytes: Vec<u8>,
    /// Its mode.
    pub(super) mode: u32,
}

/// Files by relative path.
pub(super) type Files = BTreeMap<String, File>;

const DATA: &str = "..data";
const DATA_TMP: &str = "..data_tmp";

/// Brings the directory to this content; what is equal is not touched. `group`: `fsGroup`, which may then read.
pub(super) fn write(
    place: &Path,
    files: &Files,
    group: Option<u32>,
    now: Timestamp,
) -> io::Result<()> {
    fs::create_dir_all(place)?;
    if let Some(group) = group {
        std::os::unix::fs::chown(place, None, Some(group))?;
    }
    fs::set_permissions(
        place,
        fs::Permissions::from_mode(if group.is_some() { 0o2775 } else { 0o755 }),
    )?;
    let current = fs::read_link(place.join(DATA)).ok();
    let is_current = current.is_some_and(|version| equals(&place.join(version), files, group));
    if !is_current {
        let version = new_version(place, now)?;
        fill(&place.join(&version), files, group)?;
        let tmp = place.join(DATA_TMP);
        if fs::symlink_metadata(&tmp).is_ok() {
            fs::remove_file(&tmp)?;
        }
        symlink(&version, &tmp)?;
        fs::rename(&tmp, place.join(DATA))?;
    }
    link_top(place, files)?;
    let keep = fs::read_link(place.join(DATA))?;
    for entry in fs::read_dir(place)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_old = name.to_string_lossy().starts_with("..") && Path::new(&name) != keep;
        if is_old && entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// A fresh version directory: time stamp and, where that is taken, another number.
fn new_version(place: &Path, now: Timestamp) -> io::Result<String> {
    let stamp = now.strftime("%Y_%m_%d_%H_%M_%S").to_string();
    let mut number = u64::from(now.subsec_nanosecond().unsigned_abs());
    loop {
        let name = format!("..{stamp}.{number:09}");
        match fs::create_dir(place.join(&name)) {
            Ok(()) => {
                fs::set_permissions(place.join(&name), fs::Permissions::from_mode(0o755))?;
                return Ok(name);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

fn wanted_mode(file: &File, group: Option<u32>) -> u32 {
    if group.is_some() {
        file.mode | 0o040
    } else {
        file.mode
    }
}

fn fill(version: &Path, files: &Files, group: Option<u32>) -> io::Result<()> {
    for (path, file) in files {
        let target = version.join(path);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&target, &file.bytes)?;
        if let Some(group) = group {
            std::os::unix::fs::chown(&target, None, Some(group))?;
        }
        fs::set_permissions(
            &target,
            fs::Permissions::from_mode(wanted_mode(file, group)),
        )?;
    }
    Ok(())
}

fn equals(version: &Path, files: &Files, group: Option<u32>) -> bool {
    let mut found = BTreeSet::new();
    if list(version, version, &mut found).is_err() || !found.iter().eq(files.keys()) {
        return false;
    }
    files.iter().all(|(path, file)| {
        let target = version.join(path);
        let fits = fs::metadata(&target).is_ok_and(|m| {
            m.mode() & 0o7777 == wanted_mode(file, group)
                && group.is_none_or(|group| m.gid() == group)
        });
        fits && fs::read(&target).is_ok_and(|bytes| bytes == file.bytes)
    })
}

fn list(root: &Path, directory: &Path, found: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list(root, &entry.path(), found)?;
        } else if let Ok(path) = entry.path().strip_prefix(root) {
            found.insert(path.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

/// The links users see, of the top element of each path; vanished ones go.
fn link_top(place: &Path, files: &Files) -> io::Result<()> {
    let tops: BTreeSet<&str> = files
        .keys()
        .filter_map(|path| path.split('/').next())
        .collect();
    for top in &tops {
        let link = place.join(top);
        let target = Path::new(DATA).join(top);
        match fs::read_link(&link) {
            Ok(found) if found == target => {}
            Ok(_) => {
                fs::remove_file(&link)?;
                symlink(&target, &link)?;
            }
            Err(_) => symlink(&target, &link)?,
        }
    }
    for entry in fs::read_dir(place)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_symlink()
            && !name.starts_with("..")
            && !tops.contains(name.as_str())
        {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
