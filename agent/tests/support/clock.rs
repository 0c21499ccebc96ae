//! The paused clock of the tests.

use std::sync::Arc;
use std::time::Duration;

use muster_model::time::{Clock, SharedClock, Timestamp};
use tokio::time::Instant;

/// Wall clock and monotonic clock that go as tokio's (paused) clock goes.
pub(crate) struct TestClock {
    start: Instant,
    base: Timestamp,
}

impl TestClock {
    pub(crate) fn shared() -> SharedClock {
        let base = "2026-01-31T10:00:00Z".parse().unwrap();
        Arc::new(Self {
            start: Instant::now(),
            base,
        })
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.base + self.start.elapsed()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}
