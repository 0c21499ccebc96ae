//! `emptyDir`: a directory, or a tmpfs, that lives as long as its pod.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use muster_model::k8s::api::core::v1::EmptyDirVolumeSource;
use muster_model::quantity::Quantity;
use rustix::mount::MountFlags;

use crate::facts::PodFacts;
use muster_model::resources::{Amounts, MEMORY};

/// Makes the directory, mode 0777 whatever the umask; for `medium: Memory` a tmpfs is mounted there.
pub(super) fn set_up(
    pod: &PodFacts,
    source: &EmptyDirVolumeSource,
    place: &Path,
) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("cannot make {}: {error}", place.display());
    let open_to_all =
        || fs::set_permissions(place, fs::Permissions::from_mode(0o777)).map_err(fail);
    match source.medium.as_deref().unwrap_or_default() {
        "" if place.exists() => Ok(()),
        "" => {
            fs::create_dir_all(place).map_err(fail)?;
            open_to_all()
        }
        "Memory" => {
            if is_mounted(place).map_err(fail)? {
                return Ok(());
            }
            let limit = source
                .size_limit
                .as_ref()
                .and_then(|text| text.0.parse::<Quantity>().ok());
            mount_tmpfs(place, Some(size(pod, limit)))?;
            open_to_all()
        }
        other => Err(format!("unknown storage medium \"{other}\"")),
    }
}

/// The smallest of the limit, the containers' memory limits together (if all have one) and what the node can give.
fn size(pod: &PodFacts, limit: Option<Quantity>) -> i64 {
    let own = |c: &muster_model::k8s::api::core::v1::Container| {
        Amounts::of(c.resources.as_ref().and_then(|r| r.limits.as_ref()))
            .get(MEMORY)
            .as_units_ceil()
    };
    let limits: Vec<i64> = pod.containers().iter().map(own).collect();
    let together = limits
        .iter()
        .all(|limit| *limit > 0)
        .then(|| limits.iter().sum::<i64>());
    let node = Some(pod.host.allocatable.get(MEMORY).as_units_ceil());
    let all = [limit.map(|limit| limit.as_units_ceil()), together, node];
    all.into_iter()
        .flatten()
        .filter(|size| *size > 0)
        .min()
        .unwrap_or(0)
}

/// Mounts a tmpfs at the place, made if need be, unless there is one already. `size` 0 or `None`: the kernel's default.
pub(super) fn mount_tmpfs(place: &Path, size: Option<i64>) -> Result<(), String> {
    let fail = |error: &dyn std::fmt::Display| {
        format!("cannot mount a tmpfs at {}: {error}", place.display())
    };
    if is_mounted(place).map_err(|error| fail(&error))? {
        return Ok(());
    }
    fs::create_dir_all(place).map_err(|error| fail(&error))?;
    let options = size
        .filter(|size| *size > 0)
        .map(|size| format!("size={size}"))
        .unwrap_or_default();
    let options = CString::new(options).map_err(|error| fail(&error))?;
    rustix::mount::mount(
        "tmpfs",
        place,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        options.as_c_str(),
    )
    .map_err(|error| fail(&error))
}

fn is_mounted(place: &Path) -> std::io::Result<bool> {
    Ok(mounts_below(place)?.iter().any(|mount| mount == place))
}

/// Every mount at or below this path, the deepest first.
pub(super) fn mounts_below(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let points = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|point| PathBuf::from(unescape(point)));
    let mut mounts: Vec<PathBuf> = points.filter(|point| point.starts_with(path)).collect();
    mounts.sort_by_key(|mount| std::cmp::Reverse(mount.components().count()));
    Ok(mounts)
}

/// The kernel writes blanks and their kin as octal escapes.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let code = rest
            .get(at + 1..at + 4)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(code.map_or('\\', char::from));
        rest = &rest[at + if code.is_some() { 4 } else { 1 }..];
    }
    out.push_str(rest);
    out
}
