//! Clocks that tests own.

use std::sync::Arc;
use std::time::Duration;

use muster_model::time::{Clock, SystemClock, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

/// A clock that follows tokio's: with tokio's time paused it stands still and jumps from timer to timer, so that wall
/// clock, monotonic clock and timers agree.
#[derive(Debug, Clone)]
pub struct TokioClock {
    origin: Instant,
    start: Timestamp,
}

impl TokioClock {
    /// Starts at `start`. Certificates are judged by the machine's clock on the client's side, so a start far from the
    /// present makes handshakes fail.
    pub fn new(start: Timestamp) -> Self {
        Self {
            origin: Instant::now(),
            start,
        }
    }

    /// Starts at the present.
    pub fn from_now() -> Self {
        Self::new(SystemClock::new().now())
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.start + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        Instant::now().duration_since(self.origin)
    }
}

/// The machine's clock, which a test may put forward. Timers do not notice: what looks at the clock next does.
#[derive(Debug, Default)]
pub struct SkippingClock {
    system: SystemClock,
    ahead: Mutex<Duration>,
}

impl SkippingClock {
    /// A clock that agrees with the machine's.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Puts wall and monotonic time forward.
    pub fn advance(&self, by: Duration) {
        *self.ahead.lock() += by;
    }
}

impl Clock for SkippingClock {
    fn now(&self) -> Timestamp {
        self.system.now() + *self.ahead.lock()
    }

    fn monotonic(&self) -> Duration {
        self.system.monotonic() + *self.ahead.lock()
    }
}
