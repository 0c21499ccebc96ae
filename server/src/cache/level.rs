//! A revision that rises, and who waits for it. As tokio's `watch`, except that waiters are woken in the order in which they
//! came and not by chance: what a server does with the same input is the same each time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use muster_store::Revision;
use tokio::sync::Notify;

/// A revision that rises.
#[derive(Debug)]
pub(super) struct Level {
    revision: AtomicU64,
    /// How often it was raised.
    raised: AtomicU64,
    risen: Notify,
}

impl Level {
    pub(super) fn new(revision: Revision) -> Arc<Self> {
        Arc::new(Self {
            revision: AtomicU64::new(revision.0),
            raised: AtomicU64::new(0),
            risen: Notify::new(),
        })
    }

    pub(super) fn get(&self) -> Revision {
        Revision(self.revision.load(Ordering::Acquire))
    }

    /// Sets it and wakes whoever waits.
    pub(super) fn raise(&self, revision: Revision) {
        self.revision.store(revision.0, Ordering::Release);
        self.raised.fetch_add(1, Ordering::Release);
        self.risen.notify_waiters();
    }

    /// Returns once it has reached `revision`.
    pub(super) async fn reach(&self, revision: Revision) {
        self.until(|| self.get() >= revision).await;
    }

    async fn until(&self, holds: impl Fn() -> bool) {
        loop {
            let mut risen = std::pin::pin!(self.risen.notified());
            // In line before looking, so that a rise while looking is not missed.
            risen.as_mut().enable();
            if holds() {
                return;
            }
            risen.await;
        }
    }
}

/// One reader's place at a [`Level`].
#[derive(Debug)]
pub(super) struct Gauge {
    level: Arc<Level>,
    seen: u64,
}

impl Gauge {
    pub(super) fn new(level: &Arc<Level>) -> Self {
        let mut gauge = Self {
            level: Arc::clone(level),
            seen: 0,
        };
        gauge.mark_seen();
        gauge
    }

    /// What was raised until now wakes nobody any more.
    pub(super) fn mark_seen(&mut self) {
        self.seen = self.level.raised.load(Ordering::Acquire);
    }

    /// Waits for a rise that was not marked seen. Cancel-safe.
    pub(super) async fn rise(&self) {
        self.level
            .until(|| self.level.raised.load(Ordering::Acquire) != self.seen)
            .await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn waiters_are_woken_in_the_order_in_which_they_came() {
        let (level, woken) = (Level::new(Revision(1)), Arc::new(Mutex::new(Vec::new())));
        let mut waiters = tokio::task::JoinSet::new();
        for number in 0..20 {
            let (level, woken) = (Arc::clone(&level), Arc::clone(&woken));
            waiters.spawn(async move {
                level.reach(Revision(2)).await;
                woken.lock().unwrap().push(number);
            });
        }
        tokio::task::yield_now().await;
        level.raise(Revision(2));
        while waiters.join_next().await.is_some() {}
        assert_eq!(*woken.lock().unwrap(), (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_rise_is_told_once_and_never_missed() {
        let level = Level::new(Revision(1));
        let mut gauge = Gauge::new(&level);
        assert!(gauge.rise().now_or_never().is_none());
        level.raise(Revision(1));
        assert!(gauge.rise().now_or_never().is_some());
        gauge.mark_seen();
        assert!(gauge.rise().now_or_never().is_none());
        assert!(level.reach(Revision(1)).now_or_never().is_some());
        assert!(level.reach(Revision(2)).now_or_never().is_none());
    }
}
