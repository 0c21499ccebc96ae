//! `subPath`: one place inside a volume, which no link may leave.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Why a subPath cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SubPathError {
    /// It has `..`, or begins with `/`.
    #[error("subPath \"{0}\" must be a relative path without '..'")]
    NotBelow(String),
    /// An element is a symbolic link.
    #[error("subPath \"{0}\" leads through a symbolic link")]
    Link(String),
    /// An element could not be opened or made.
    #[error("subPath \"{path}\": {source}")]
    Io {
        /// The whole subPath.
        path: String,
        /// Why.
        source: Errno,
    },
}

/// The place of `path` inside `base`: each element is opened without following links; a missing one becomes a directory.
/// The only links followed are the agent's own at the top of mounted objects.
pub(super) fn resolve(base: &Path, path: &str) -> Result<PathBuf, SubPathError> {
    let io = |source| SubPathError::Io {
        path: path.to_owned(),
        source,
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let mut here: OwnedFd =
        rustix::fs::open(base, flags | OFlags::DIRECTORY, Mode::empty()).map_err(io)?;
    let mode = rustix::fs::fstat(&here).map_err(io)?.st_mode & 0o7777;
    let mut place = base.to_path_buf();
    for part in Path::new(path).components() {
        let name: &OsStr = match part {
            Component::Normal(name) => name,
            Component::CurDir => continue,
            _ => return Err(SubPathError::NotBelow(path.to_owned())),
        };
        let opened = match open_inside(&here, name) {
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(&here, name, Mode::from_raw_mode(0o755)).map_err(io)?;
                rustix::fs::chmodat(&here, name, Mode::from_raw_mode(mode), AtFlags::empty())
                    .map_err(io)?;
                open_inside(&here, name).map_err(io)?
            }
            other => other.map_err(io)?,
        };
        let raw_mode = rustix::fs::fstat(&opened).map_err(io)?.st_mode;
        if FileType::from_raw_mode(raw_mode) != FileType::Symlink {
            here = opened;
            place.push(name);
            continue;
        }
        let Some(real) = own_link(base, &place, name) else {
            return Err(SubPathError::Link(path.to_owned()));
        };
        here = rustix::fs::open(&real, flags | OFlags::NOFOLLOW, Mode::empty()).map_err(io)?;
        place = real;
    }
    Ok(place)
}

/// Where a link of the atomic writer leads: `key -> ..data/key`, at the top of the volume and staying in it.
fn own_link(base: &Path, place: &Path, name: &OsStr) -> Option<PathBuf> {
    let through_data = Path::new("..data").join(name);
    let is_own =
        place == base && std::fs::read_link(place.join(name)).is_ok_and(|to| to == through_data);
    let real = is_own
        .then(|| std::fs::canonicalize(base.join(&through_data)).ok())
        .flatten()?;
    let inside = std::fs::canonicalize(base).is_ok_and(|base| real.starts_with(base));
    inside.then_some(real)
}

fn open_inside(directory: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(
        directory,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Replaces `$(VAR)`; unlike in commands an unknown variable is an error.
pub(super) fn expand(expression: &str, env: &[(String, String)]) -> Result<String, String> {
    let mut rest = expression;
    while let Some(at) = rest.find("$(") {
        let name = rest[at + 2..].split(')').next().unwrap_or_default();
        if !env.iter().any(|(known, _)| known == name) {
            return Err(format!(
                "missing value for \"{name}\" in subPathExpr \"{expression}\""
            ));
        }
        rest = &rest[at + 2..];
    }
    Ok(crate::env::expand(expression, env))
}
