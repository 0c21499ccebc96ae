//! Where work that waits for the disk is done.

use tokio::task::JoinError;

/// Where work that waits for the disk is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiskWork {
    /// On threads of its own, so that a slow disk holds up nothing else.
    #[default]
    Threads,
    /// At once, by whoever asks for it: in a simulation things then happen in the same order each time.
    Inline,
}

impl DiskWork {
    /// Does a piece of work.
    ///
    /// # Errors
    /// When it panicked or was cut short by the end of the program; never with [`DiskWork::Inline`].
    pub(crate) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        match self {
            Self::Threads => tokio::task::spawn_blocking(work).await,
            Self::Inline => Ok(work()),
        }
    }
}
