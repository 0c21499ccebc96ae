//! `fsGroup`: the group that a pod's volumes belong to.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Gives everything below `place` to the group: files get read and write for it, directories everything and setgid.
/// `only_on_mismatch`: not when the root fits already.
pub(super) fn give(place: &Path, group: u32, only_on_mismatch: bool) -> Result<(), String> {
    let fail = |error: std::io::Error| {
        format!("cannot give {} to group {group}: {error}", place.display())
    };
    if only_on_mismatch {
        let root = fs::metadata(place).map_err(fail)?;
        if root.gid() == group && root.mode() & 0o2770 == 0o2770 {
            return Ok(());
        }
    }
    give_all(place, group).map_err(fail)
}

fn give_all(path: &Path, group: u32) -> std::io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    std::os::unix::fs::lchown(path, None, Some(group))?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let more = if metadata.is_dir() { 0o2770 } else { 0o660 };
    let mode = metadata.permissions().mode() | more;
    fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777))?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            give_all(&entry?.path(), group)?;
        }
    }
    Ok(())
}
