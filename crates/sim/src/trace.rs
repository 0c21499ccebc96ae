//! What happened, in words, with the simulated time of each line.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The lines of a run. Clones write into the same.
#[derive(Clone)]
pub(crate) struct Trace {
    begun: Instant,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Trace {
    /// An empty trace that begins now.
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            lines: Arc::default(),
        }
    }

    /// Adds a line.
    pub(crate) fn say(&self, line: impl fmt::Display) {
        let at = self.begun.elapsed().as_secs_f64();
        self.lines.lock().push(format!("{at:>9.3} {line}"));
    }

    /// All lines so far, taken out.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock())
    }
}
