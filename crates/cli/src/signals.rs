//! SIGTERM and SIGINT: the first asks for an orderly stop, the second for an end.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::failure::Outcome;

/// How a process that was interrupted twice ends: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// Cancels `stop` at the first signal, ends the process at the second. Runs until dropped.
pub(crate) async fn watch(stop: CancellationToken) -> Outcome {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    for attempt in 1.. {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if attempt > 1 {
            tracing::warn!("stopping at once");
            std::process::exit(INTERRUPTED);
        }
        tracing::info!("stopping; once more to stop at once");
        stop.cancel();
    }
    Ok(())
}
