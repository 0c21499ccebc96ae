//! The sandbox's image: one program of about a kilobyte, carried inside the agent (spec/node-agent.md 29.6).

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::client::DockerEngine;
use super::import::LocalImage;
use crate::runtime::RuntimeError;

/// The program, built by `agent/build.rs` from `agent/pause/pause.rs`.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pause"));
/// Label that tells which program an image holds, so that another agent's build is told from ours.
const LABEL: &str = "muster.dev/sandbox";

/// The image's usual name; its tag is the version of the labelling.
pub const SANDBOX_IMAGE: &str = "muster.dev/pause:1";

/// The image of the sandbox, made when it is first needed.
pub(super) struct PauseImage {
    image: LocalImage,
    id: Mutex<Arc<OnceCell<String>>>,
}

impl PauseImage {
    /// The image under this name.
    pub(super) fn new(reference: &str) -> Self {
        let image = LocalImage::new(reference)
            .labelled(LABEL)
            .file("pause", 0o755, PROGRAM)
            .change(r#"ENTRYPOINT ["/pause"]"#);
        Self {
            image,
            id: Mutex::default(),
        }
    }

    /// Its id; imports the image when it is missing or another build's. Several callers import it once.
    pub(super) async fn id(&self, engine: &DockerEngine) -> Result<String, RuntimeError> {
        let cell = self.id.lock().clone();
        let id = cell
            .get_or_try_init(|| async { self.image.ensure(engine).await.map(|image| image.id) });
        id.await.cloned()
    }

    /// Somebody removed it: the next [`PauseImage::id`] looks again.
    pub(super) fn forget(&self, lost: &str) {
        let mut cell = self.id.lock();
        if cell.get().is_some_and(|id| id == lost) {
            *cell = Arc::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_a_small_static_executable() {
        assert_eq!(&PROGRAM[..4], b"\x7fELF");
        assert!(PROGRAM.len() < 4096, "{} bytes", PROGRAM.len());
        assert!(
            !PROGRAM.windows(8).any(|bytes| bytes == b"ld-linux"),
            "it asks for a dynamic loader"
        );
    }
}
