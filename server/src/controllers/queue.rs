//! A queue of keys to look at: each key once, never twice at the same time, sooner or later, and with a growing
//! pause after failures (spec/daemonset.md 1).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The pause after a key's first failure; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause of one key.
const LONGEST_PAUSE: Duration = Duration::from_secs(1_000);
/// All keys together: one retry in this time ...
const RETRY_EVERY: Duration = Duration::from_millis(100);
/// ... after this many at once.
const RETRY_BURST: u32 = 100;
/// Nobody waits longer than this: a later time is looked at again then.
const FARTHEST: Duration = Duration::from_secs(86_400);

/// The queue. Workers take with [`Queue::next`] and give back with [`Queue::done`].
pub(crate) struct Queue<K> {
    inner: Mutex<Inner<K>>,
    wake: Notify,
}

struct Inner<K> {
    ready: VecDeque<K>,
    /// Keys in `ready`.
    queued: BTreeSet<K>,
    /// Keys that become ready at a time; one entry per key in both maps.
    later: BTreeSet<(Instant, K)>,
    due: BTreeMap<K, Instant>,
    /// Keys a worker has.
    busy: BTreeSet<K>,
    /// Busy keys that were asked for meanwhile.
    again: BTreeSet<K>,
    failures: BTreeMap<K, u32>,
    /// When the retry budget of all keys is next free.
    next_retry: Option<Instant>,
}

impl<K: Clone + Ord> Queue<K> {
    /// An empty queue.
    pub(crate) fn new() -> Self {
        Self {
            inner: Mutex::new(Inner {
                ready: VecDeque::new(),
                queued: BTreeSet::new(),
                later: BTreeSet::new(),
                due: BTreeMap::new(),
                busy: BTreeSet::new(),
                again: BTreeSet::new(),
                failures: BTreeMap::new(),
                next_retry: None,
            }),
            wake: Notify::new(),
        }
    }

    /// Look at this key now (or as soon as the worker that has it gives it back).
    pub(crate) fn add(&self, key: K) {
        self.inner.lock().add(key);
        self.wake.notify_one();
    }

    /// Look at this key after a while, unless something asks for it earlier.
    pub(crate) fn add_after(&self, key: K, delay: Duration) {
        self.inner
            .lock()
            .add_at(key, Instant::now() + delay.min(FARTHEST));
        self.wake.notify_one();
    }

    /// The worker failed on this key: again after a pause that grows with each failure in a row. `jitter` is a
    /// random number; it spreads keys that failed together over half the pause. Answers with the pause.
    pub(crate) fn failed(&self, key: K, jitter: u64) -> Duration {
        let mut inner = self.inner.lock();
        let failures = inner.failures.entry(key.clone()).or_default();
        let pause = FIRST_PAUSE
            .saturating_mul(1 << (*failures).min(20))
            .min(LONGEST_PAUSE);
        *failures += 1;
        let half = pause / 2;
        let spread = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
        let pause = half + Duration::from_nanos(jitter % spread);
        let now = Instant::now();
        let at = (now + pause).max(inner.retry_slot());
        inner.add_at(key, at);
        drop(inner);
        self.wake.notify_one();
        at.duration_since(now)
    }

    /// The worker succeeded: the next failure starts with the short pause again.
    pub(crate) fn succeeded(&self, key: &K) {
        self.inner.lock().failures.remove(key);
    }

    /// The next key. Every key taken must be given back.
    pub(crate) async fn next(&self) -> K {
        loop {
            // Registered before looking, so that what comes while looking is not missed.
            let woken = self.wake.notified();
            let (taken, more, due) = self.inner.lock().take(Instant::now());
            if let Some(key) = taken {
                if more {
                    self.wake.notify_one();
                }
                return key;
            }
            match due {
                None => woken.await,
                // Both arms are cancel-safe: nothing is taken while waiting.
                Some(due) => tokio::select! {
                    biased;
                    () = woken => {}
                    () = tokio::time::sleep_until(due) => {}
                },
            }
        }
    }

    /// Takes every key that is ready, and gives it back at once.
    #[cfg(test)]
    pub(crate) fn drain(&self) -> Vec<K> {
        let mut inner = self.inner.lock();
        let mut keys = Vec::new();
        while let (Some(key), _, _) = inner.take(Instant::now()) {
            inner.busy.remove(&key);
            keys.push(key);
        }
        keys
    }

    /// How many keys are ready and wait for a worker.
    pub(crate) fn depth(&self) -> usize {
        self.inner.lock().ready.len()
    }

    /// Gives a key back.
    pub(crate) fn done(&self, key: &K) {
        let mut inner = self.inner.lock();
        inner.busy.remove(key);
        if inner.again.remove(key) {
            inner.add(key.clone());
        }
        drop(inner);
        self.wake.notify_one();
    }
}

impl<K: Clone + Ord> Inner<K> {
    fn add(&mut self, key: K) {
        if let Some(at) = self.due.remove(&key) {
            self.later.remove(&(at, key.clone()));
        }
        if self.busy.contains(&key) {
            self.again.insert(key);
        } else if self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    fn add_at(&mut self, key: K, at: Instant) {
        if self.queued.contains(&key) || self.again.contains(&key) {
            return;
        }
        match self.due.get(&key) {
            Some(earlier) if *earlier <= at => return,
            Some(later) => {
                self.later.remove(&(*later, key.clone()));
            }
            None => {}
        }
        self.due.insert(key.clone(), at);
        self.later.insert((at, key));
    }

    /// A key that is ready, whether there are more, and otherwise when the next one is.
    fn take(&mut self, now: Instant) -> (Option<K>, bool, Option<Instant>) {
        while let Some((at, key)) = self.later.first().cloned()
            && at <= now
        {
            self.add(key);
        }
        let taken = self.ready.pop_front();
        if let Some(key) = &taken {
            self.queued.remove(key);
            self.busy.insert(key.clone());
        }
        let due = self.later.first().map(|(at, _)| *at);
        (taken, !self.ready.is_empty(), due)
    }

    /// When the next retry may run, so that all keys together keep the rate.
    fn retry_slot(&mut self) -> Instant {
        let now = Instant::now();
        let credit = RETRY_EVERY * RETRY_BURST;
        let earliest = now.checked_sub(credit).unwrap_or(now);
        let slot = self.next_retry.map_or(earliest, |next| next.max(earliest));
        let slot = slot + RETRY_EVERY;
        self.next_retry = Some(slot);
        slot.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_empty(queue: &Queue<&'static str>) -> bool {
        let (taken, _, _) = queue.inner.lock().take(Instant::now());
        taken.is_none()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_queued_once_and_never_worked_on_twice_at_once() {
        let queue = Queue::new();
        queue.add("a");
        queue.add("a");
        assert_eq!(queue.next().await, "a");
        queue.add("a");
        assert!(is_empty(&queue), "a worker has it");
        queue.done(&"a");
        assert_eq!(queue.next().await, "a");
        queue.done(&"a");
        assert!(is_empty(&queue));
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_time_wins_and_asking_now_wins_over_all() {
        let queue = Queue::new();
        let start = Instant::now();
        queue.add_after("a", Duration::from_secs(10));
        queue.add_after("a", Duration::from_secs(5));
        queue.add_after("a", Duration::from_secs(20));
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed().as_secs(), 5);
        queue.done(&"a");
        assert!(is_empty(&queue), "one entry per key");
        queue.add_after("a", Duration::MAX);
        queue.add("a");
        assert_eq!(queue.next().await, "a");
        queue.done(&"a");
        assert!(is_empty(&queue));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_double_the_pause_up_to_the_cap() {
        let queue = Queue::new();
        let mut pauses = Vec::new();
        for _ in 0..20 {
            queue.add("a");
            assert_eq!(queue.next().await, "a");
            let failed = Instant::now();
            queue.failed("a", u64::MAX);
            queue.done(&"a");
            assert_eq!(queue.next().await, "a");
            pauses.push(failed.elapsed());
            queue.done(&"a");
        }
        for (n, pause) in pauses.iter().enumerate() {
            let full = FIRST_PAUSE.saturating_mul(1 << n).min(LONGEST_PAUSE);
            assert!(
                *pause >= full / 2 && *pause <= full + Duration::from_millis(2),
                "{n}: {pause:?} of {full:?}"
            );
        }
        queue.succeeded(&"a");
        queue.add("a");
        queue.next().await;
        let failed = Instant::now();
        queue.failed("a", 0);
        queue.done(&"a");
        queue.next().await;
        assert!(failed.elapsed() <= FIRST_PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn all_keys_together_keep_the_retry_rate() {
        let queue = Queue::new();
        let start = Instant::now();
        for key in 0..150_u32 {
            queue.failed(key, 0);
        }
        for _ in 0..150 {
            let key = queue.next().await;
            queue.done(&key);
        }
        assert_eq!(
            start.elapsed().as_secs(),
            5,
            "100 at once, then 10 a second"
        );
    }
}
