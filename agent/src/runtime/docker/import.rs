//! Small images made of bytes at hand, without a registry and without a build (spec/node-agent.md 29.6).

use std::borrow::Cow;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

use bollard::query_parameters::CreateImageOptions;
use bytes::Bytes;
use futures::StreamExt;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::client::DockerEngine;
use super::images;
use crate::runtime::{ImageView, RuntimeError};

/// Label that tells which content an image was made of.
pub const CONTENT_LABEL: &str = "muster.dev/content";

/// Imports go one at a time: agents of one process that start together would each make the same image, and all but the
/// last would be left without a name.
static IMPORTS: Semaphore = Semaphore::const_new(1);

/// Agents of several processes take turns as well, for the same reason. One that takes longer is not waited for: what
/// comes of it is an image without a name.
const TURN_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A lock on the directory of the engine's socket, which all agents of the engine have in common; let go with the file.
async fn turn_of_this_process(socket: &Path) -> Option<File> {
    let directory = File::open(socket.parent()?).ok()?;
    let locked = async {
        while let Err(TryLockError::WouldBlock) = directory.try_lock() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let _ = tokio::time::timeout(TURN_WITHIN, locked).await;
    Some(directory)
}

/// One entry of an image's file system.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    File {
        path: String,
        mode: u32,
        content: Cow<'static, [u8]>,
    },
    Link {
        path: String,
        target: String,
    },
    Directory {
        path: String,
        mode: u32,
    },
}

/// An image to be: files and settings. The same description always gives the same content.
///
/// ```
/// use muster_agent::runtime::docker::LocalImage;
///
/// let image = LocalImage::new("local/hello:v1")
///     .file("bin/hello", 0o755, b"#!/bin/sh\necho hello\n".as_slice())
///     .change(r#"ENTRYPOINT ["/bin/hello"]"#);
/// assert_eq!(image.reference(), "local/hello:v1");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalImage {
    reference: String,
    label: &'static str,
    entries: Vec<Entry>,
    changes: Vec<String>,
}

impl LocalImage {
    /// An empty image of this name, which has a tag.
    pub fn new(reference: impl Into<String>) -> Self {
        Self {
            reference: reference.into(),
            label: CONTENT_LABEL,
            entries: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Keeps the digest in another label than [`CONTENT_LABEL`].
    pub(super) fn labelled(mut self, label: &'static str) -> Self {
        self.label = label;
        self
    }

    /// Adds a file, with a path relative to the root. Missing parents are made by the engine.
    pub fn file(mut self, path: &str, mode: u32, content: impl Into<Cow<'static, [u8]>>) -> Self {
        self.entries.push(Entry::File {
            path: path.to_owned(),
            mode,
            content: content.into(),
        });
        self
    }

    /// Adds a symbolic link.
    pub fn link(mut self, path: &str, target: &str) -> Self {
        self.entries.push(Entry::Link {
            path: path.to_owned(),
            target: target.to_owned(),
        });
        self
    }

    /// Adds an empty directory.
    pub fn directory(mut self, path: &str, mode: u32) -> Self {
        self.entries.push(Entry::Directory {
            path: path.to_owned(),
            mode,
        });
        self
    }

    /// Adds a setting in Dockerfile words: `ENTRYPOINT`, `CMD`, `ENV`, `USER`, `STOPSIGNAL`, `LABEL`, ...
    pub fn change(mut self, instruction: impl Into<String>) -> Self {
        self.changes.push(instruction.into());
        self
    }

    /// Its name.
    pub fn reference(&self) -> &str {
        &self.reference
    }

    /// SHA-256 over files and settings, lower-case hex.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        for entry in &self.entries {
            match entry {
                Entry::File {
                    path,
                    mode,
                    content,
                } => [b"f", path.as_bytes(), &mode.to_le_bytes(), content].map(&mut part),
                Entry::Link { path, target } => {
                    [b"l", path.as_bytes(), target.as_bytes(), b""].map(&mut part)
                }
                Entry::Directory { path, mode } => {
                    [b"d", path.as_bytes(), &mode.to_le_bytes(), b""].map(&mut part)
                }
            };
        }
        self.changes
            .iter()
            .for_each(|change| part(change.as_bytes()));
        hash.finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// The file system as a tar: owned by root, all times zero, so that it is the same on every machine.
    fn tar(&self) -> std::io::Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        for entry in &self.entries {
            let mut header = tar::Header::new_gnu();
            header.set_mtime(0);
            header.set_uid(0);
            header.set_gid(0);
            header.set_size(0);
            match entry {
                Entry::File {
                    path,
                    mode,
                    content,
                } => {
                    header.set_mode(*mode);
                    header.set_size(content.len() as u64);
                    archive.append_data(&mut header, path, content.as_ref())?;
                }
                Entry::Link { path, target } => {
                    header.set_mode(0o777);
                    header.set_entry_type(tar::EntryType::Symlink);
                    archive.append_link(&mut header, path, target)?;
                }
                Entry::Directory { path, mode } => {
                    header.set_mode(*mode);
                    header.set_entry_type(tar::EntryType::Directory);
                    archive.append_data(
                        &mut header,
                        format!("{}/", path.trim_end_matches('/')),
                        std::io::empty(),
                    )?;
                }
            }
        }
        archive.into_inner()
    }

    /// Makes the image unless the engine has it with this very content. Answers what the engine shows of it.
    ///
    /// # Errors
    /// What the engine says; `Refused` too when the name has no tag or a path does not fit a tar.
    pub async fn ensure(&self, engine: &DockerEngine) -> Result<ImageView, RuntimeError> {
        let digest = self.digest();
        // The semaphore is never closed; were it, a second import is harmless.
        let _turn = IMPORTS.acquire().await.ok();
        let _turn_of_this_process = turn_of_this_process(engine.socket()).await;
        if let Some((found, labels)) = images::inspect(engine, &self.reference).await?
            && labels.get(self.label) == Some(&digest)
        {
            return Ok(found);
        }
        self.import(engine, &digest).await?;
        let made = images::inspect(engine, &self.reference).await?;
        made.map(|(image, _)| image)
            .ok_or_else(|| RuntimeError::NotFound(format!("No such image: {}", self.reference)))
    }

    async fn import(&self, engine: &DockerEngine, digest: &str) -> Result<(), RuntimeError> {
        let refused = |message: String| RuntimeError::Refused { status: 0, message };
        let (repository, tag) = self
            .reference
            .rsplit_once(':')
            .filter(|(_, tag)| !tag.contains('/'))
            .ok_or_else(|| refused(format!("image name {:?} has no tag", self.reference)))?;
        let tar = self
            .tar()
            .map_err(|error| refused(format!("cannot pack image {}: {error}", self.reference)))?;
        let mut changes = self.changes.clone();
        changes.push(format!("LABEL {}={digest}", self.label));
        let options = CreateImageOptions {
            from_src: Some("-".to_owned()),
            repo: Some(repository.to_owned()),
            tag: Some(tag.to_owned()),
            changes,
            ..CreateImageOptions::default()
        };
        let body = bollard::body_full(Bytes::from(tar));
        engine
            .call("import image", async move |connection| {
                let mut answers = connection
                    .docker
                    .create_image(Some(options), Some(body), None)
                    .boxed();
                while let Some(answer) = answers.next().await {
                    answer?;
                }
                Ok(())
            })
            .await
    }
}

/// An image of one static executable, which is all it contains: for a demonstration on a machine that has nothing.
///
/// `arguments` follow the executable on its command line.
pub fn demo_image(
    reference: impl Into<String>,
    executable: impl Into<Cow<'static, [u8]>>,
    arguments: &[&str],
) -> LocalImage {
    let mut words = vec!["/app"];
    words.extend(arguments);
    let words: Vec<String> = words
        .iter()
        .map(|word| serde_json::Value::from(*word).to_string())
        .collect();
    LocalImage::new(reference)
        .file("app", 0o755, executable)
        .change(format!("ENTRYPOINT [{}]", words.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_tells_content_settings_and_modes_apart() {
        let base = || LocalImage::new("local/x:v1").file("a", 0o755, b"1".as_slice());
        assert_eq!(base().digest(), base().digest());
        let others = [
            base().change("CMD [\"x\"]"),
            base().link("b", "a"),
            base().directory("b", 0o755),
            LocalImage::new("local/x:v1").file("a", 0o644, b"1".as_slice()),
            LocalImage::new("local/x:v1").file("a", 0o755, b"2".as_slice()),
        ];
        for other in others {
            assert_ne!(base().digest(), other.digest(), "{other:?}");
        }
    }

    #[test]
    fn the_tar_is_the_same_every_time_and_holds_what_was_asked_for() {
        let image = LocalImage::new("local/x:v1")
            .directory("var/log", 0o755)
            .file("bin/x", 0o755, b"hello".as_slice())
            .link("bin/y", "x");
        let bytes = image.tar().unwrap();
        assert_eq!(bytes, image.tar().unwrap());
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entries: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                let path = entry.path().unwrap().display().to_string();
                (
                    path,
                    header.mode().unwrap(),
                    header.size().unwrap(),
                    header.mtime().unwrap(),
                )
            })
            .collect();
        let entry = |path: &str, mode, size| (path.to_owned(), mode, size, 0);
        assert_eq!(
            entries,
            [
                entry("var/log/", 0o755, 0),
                entry("bin/x", 0o755, 5),
                entry("bin/y", 0o777, 0)
            ]
        );
    }

    #[test]
    fn a_demo_image_quotes_its_arguments() {
        let image = demo_image(
            "local/demo:v1",
            b"\x7fELF".as_slice(),
            &["demo-daemon", "say \"hi\""],
        );
        assert_eq!(
            image.changes,
            [r#"ENTRYPOINT ["/app","demo-daemon","say \"hi\""]"#]
        );
    }
}
