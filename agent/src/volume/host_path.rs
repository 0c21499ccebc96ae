//! `hostPath`: a path of the host, checked or made first.

use std::fs::{self, DirBuilder, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use muster_model::k8s::api::core::v1::HostPathVolumeSource;

/// Checks the path by its type, and makes it where the type says so.
///
/// # Errors
/// `hostPath type check failed: PATH is not a directory`, and its kin.
pub(super) fn set_up(source: &HostPathVolumeSource) -> Result<PathBuf, String> {
    let path = PathBuf::from(&source.path);
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("path {} must not contain '..'", path.display()));
    }
    let found = fs::metadata(&path).ok();
    let missing = found.is_none();
    let check = |what: &str, test: fn(&Metadata) -> bool| match found.as_ref().is_some_and(test) {
        true => Ok(()),
        false => Err(format!(
            "hostPath type check failed: {} is not a {what}",
            path.display()
        )),
    };
    match source.type_.as_deref().unwrap_or_default() {
        // A dangling link is left for the engine to judge.
        "" if missing && fs::symlink_metadata(&path).is_err() => make_directory(&path),
        "" => Ok(()),
        "DirectoryOrCreate" if missing => make_directory(&path),
        "FileOrCreate" if missing => make_file(&path),
        "Directory" | "DirectoryOrCreate" => check("directory", Metadata::is_dir),
        "File" | "FileOrCreate" => check("file", Metadata::is_file),
        "Socket" => check("socket file", |m| m.file_type().is_socket()),
        "CharDevice" => check("character device", |m| m.file_type().is_char_device()),
        "BlockDevice" => check("block device", |m| m.file_type().is_block_device()),
        other => Err(format!("{other} is not a valid host path type")),
    }?;
    Ok(path)
}

fn make_directory(path: &Path) -> Result<(), String> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
    made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
        .map_err(|error| format!("cannot create directory {}: {error}", path.display()))
}

fn make_file(path: &Path) -> Result<(), String> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path);
    let made = match made {
        Ok(_) => fs::set_permissions(path, fs::Permissions::from_mode(0o644)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    };
    made.map_err(|error| format!("cannot create file {}: {error}", path.display()))
}
