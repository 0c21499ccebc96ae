//! Clocks that tests own.

use std::sync::Arc;
use std::time::Duration;

use muster_model::time::{Clock, SignedDuration, SystemClock, Timestamp};
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

/// A clock that follows tokio's, whose wall time a test may set: it steps, and monotonic time and timers go on as if
/// nothing had been.
#[derive(Debug)]
pub struct SteppingClock {
    tokio: TokioClock,
    off: Mutex<SignedDuration>,
}

impl SteppingClock {
    /// Starts at `start`, of which certificates are judged too.
    pub fn new(start: Timestamp) -> Arc<Self> {
        Arc::new(Self {
            tokio: TokioClock::new(start),
            off: Mutex::new(SignedDuration::ZERO),
        })
    }

    /// Sets the wall clock forward, or back.
    pub fn step(&self, by: SignedDuration) {
        let mut off = self.off.lock();
        *off = off.saturating_add(by);
    }

    /// How far the wall clock is ahead of the time that has really passed.
    pub fn off(&self) -> SignedDuration {
        *self.off.lock()
    }
}

impl Clock for SteppingClock {
    fn now(&self) -> Timestamp {
        let now = self.tokio.now();
        now.checked_add(self.off()).unwrap_or(now)
    }

    fn monotonic(&self) -> Duration {
        self.tokio.monotonic()
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
