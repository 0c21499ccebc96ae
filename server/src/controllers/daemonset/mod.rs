//! The DaemonSet controller: the thin outside of [`muster_daemonset`]. It looks, asks the brain, acts, and notes
//! the result; it never decides.
//!
//! ```text
//! cache's changes --> Index (facts per node, per set) --> Queue of keys --> sync: claim, settle, plan
//!        ^                                                                     |
//!        +------------------------- registry's commits <--- carry out ---------+
//! ```
//!
//! Assumption: the registry answers a commit only when the cache shows it. A sync first takes every change the
//! cache has into the index, so that it never decides on less than its own last write: that is all the
//! 'expectations' there are. Invariant: one key is never synced twice at once.

mod carry;
mod gaps;
mod index;
mod set;
mod steer;
mod sync;
#[cfg(test)]
mod tests;
mod troubles;

use std::time::Duration;

use futures::FutureExt;
use muster_model::object::NamespacedName;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::queue::Queue;
use crate::auth::Caller;
use crate::cache::Subscription;
use crate::events::Recorder;
use crate::metrics::Metrics;
use crate::registry::Registry;
use index::{Index, KINDS, Wake};
pub(crate) use troubles::Known;
pub use troubles::Troubles;

/// The controller's name in metrics.
const NAME: &str = "daemonset";
/// DaemonSets synced at once, of different keys (spec/daemonset.md 1).
const WORKERS: usize = 2;
/// Between two sweeps of forgotten back-off entries.
const SWEEP: Duration = Duration::from_secs(60);

/// The controller.
pub(super) struct DaemonSets {
    inner: Inner,
}

struct Inner {
    registry: Registry,
    events: Recorder,
    metrics: Metrics,
    caller: Caller,
    queue: Queue<NamespacedName>,
    state: Mutex<State>,
    /// Taken after `state` where both are.
    troubles: Troubles,
}

/// What is known, and from where on it is fed.
struct State {
    index: Index,
    changes: Subscription,
    swept: Duration,
}

impl DaemonSets {
    /// Over everything the registry's cache shows now; every DaemonSet is looked at once.
    pub(super) fn new(registry: Registry, events: Recorder, metrics: Metrics) -> Self {
        let (all, changes) = registry.cache().list_and_subscribe(&KINDS);
        let mut index = Index::default();
        let wake = index.rebuild(&all.items, registry.cache());
        let swept = registry.clock().monotonic();
        let state = State {
            index,
            changes,
            swept,
        };
        let controller = Self {
            inner: Inner {
                registry,
                events,
                metrics,
                caller: Caller::internal("daemonset-controller"),
                queue: Queue::new(),
                state: Mutex::new(state),
                troubles: Troubles::default(),
            },
        };
        controller.inner.wake(wake);
        controller
    }

    /// What it knows of its own difficulties.
    pub(super) fn troubles(&self) -> &Troubles {
        &self.inner.troubles
    }

    /// Runs until told to stop.
    pub(super) async fn run(self, stop: CancellationToken) {
        let workers = futures::future::join_all((0..WORKERS).map(|_| self.inner.work()));
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            // Neither ever ends by itself.
            () = self.inner.follow() => {}
            _ = workers => {}
        }
    }
}

impl Inner {
    /// Takes changes into the index as they come, so that they queue what they concern.
    async fn follow(&self) {
        let mut wake = self.registry.cache().subscribe(&KINDS);
        loop {
            self.catch_up(&mut self.state.lock());
            // What this reads is only a sign that there is something: the index has its own place in the log.
            if wake.next().await.is_err() {
                wake = self.registry.cache().subscribe(&KINDS);
            }
        }
    }

    /// Takes everything that the cache shows into the index.
    fn catch_up(&self, state: &mut State) {
        let cache = self.registry.cache();
        state.index.follow_clock(self.registry.moment());
        loop {
            match state.changes.ready() {
                Ok(changes) if changes.is_empty() => break,
                Ok(changes) => {
                    for change in &changes {
                        let wake = state.index.apply(change, cache);
                        self.wake(wake);
                    }
                }
                Err(lagged) => {
                    tracing::warn!(%lagged, "the DaemonSet controller reads everything again");
                    let (all, changes) = cache.list_and_subscribe(&KINDS);
                    state.changes = changes;
                    let wake = state.index.rebuild(&all.items, cache);
                    self.wake(wake);
                }
            }
        }
        for uid in std::mem::take(&mut state.index.gone) {
            self.troubles.forget(&uid);
        }
        for node in std::mem::take(&mut state.index.freed) {
            for uid in self.troubles.waive(&node) {
                self.wake(state.index.touch(&uid, &node).into_iter().collect());
            }
        }
        let now = self.registry.clock().monotonic();
        if now.saturating_sub(state.swept) >= SWEEP {
            self.troubles.sweep(now);
            state.swept = now;
        }
    }

    fn wake(&self, keys: Wake) {
        for key in keys {
            self.queue.add(key);
        }
    }

    async fn work(&self) {
        loop {
            let key = self.queue.next().await;
            self.attend(&key).await;
            self.queue.done(&key);
            self.metrics.queue_depth(NAME, self.queue.depth());
        }
    }

    /// One sync, and what its outcome means for the next.
    async fn attend(&self, key: &NamespacedName) {
        let synced = std::panic::AssertUnwindSafe(self.sync(key))
            .catch_unwind()
            .await;
        let failure = match synced {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                tracing::warn!(daemonset = %key, %error, "a DaemonSet could not be synced; it is tried again");
                Some(error.to_string())
            }
            Err(_) => {
                tracing::error!(daemonset = %key, "a sync panicked; it is tried again");
                self.metrics.panic(NAME);
                Some("a sync panicked".to_owned())
            }
        };
        let failure = failure.map(|why| {
            let chance = self.registry.ids().below(u64::MAX);
            (why, self.queue.failed(key.clone(), chance))
        });
        if failure.is_none() {
            self.queue.succeeded(key);
        }
        // Under the lock, so that a DaemonSet that goes meanwhile leaves nothing behind.
        let state = self.state.lock();
        let Some(set) = state.index.sets.get(key) else {
            return;
        };
        match failure {
            None => self.troubles.passed(&set.facts.uid),
            Some((why, pause)) => {
                let now = self.registry.clock().now();
                let again_at = now
                    .checked_add(pause)
                    .unwrap_or(muster_model::time::Timestamp::MAX);
                self.troubles.failed(&set.facts.uid, &why, now, again_at);
            }
        }
    }
}
