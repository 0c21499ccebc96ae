//! Delays between attempts: growing, capped, jittered, and repeatable from a seed.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// How a delay is spread, so that a fleet cut off at one moment does not return at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jitter {
    /// Anywhere from nothing to the whole delay.
    Full,
    /// From half the delay to the whole: never at once.
    Half,
}

/// Doubling delays. Each `next_delay` is one failed attempt; `reset` after a success.
#[derive(Debug, Clone)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    jitter: Jitter,
    attempt: u32,
    rng: StdRng,
}

impl Backoff {
    /// Delays of `base`, twice that, and so on up to `cap`, each spread between its half and itself.
    pub fn new(base: Duration, cap: Duration, seed: u64) -> Self {
        Self {
            base,
            cap,
            jitter: Jitter::Half,
            attempt: 0,
            rng: StdRng::seed_from_u64(seed),
        }
    }

    /// A node's or a client's return to its server: 200 ms doubling to 30 s.
    pub fn reconnect(seed: u64) -> Self {
        Self::new(Duration::from_millis(200), Duration::from_secs(30), seed)
    }

    /// With another spread.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// How many delays were given since the start or the last reset.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let grown = self
            .base
            .saturating_mul(2u32.saturating_pow(self.attempt.min(31)));
        let whole = grown.min(self.cap);
        self.attempt = self.attempt.saturating_add(1);
        let share = match self.jitter {
            Jitter::Full => self.rng.random_range(0.0..=1.0),
            Jitter::Half => self.rng.random_range(0.5..=1.0),
        };
        whole.mul_f64(share)
    }

    /// After a success: the next delay is small again.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(100);
    const CAP: Duration = Duration::from_secs(5);

    #[test]
    fn delays_double_up_to_the_cap_and_keep_their_spread() {
        for seed in 0..200 {
            let mut backoff = Backoff::new(BASE, CAP, seed);
            let mut whole = BASE;
            for attempt in 0..80 {
                let delay = backoff.next_delay();
                assert!(
                    delay >= whole / 2 && delay <= whole,
                    "seed {seed} attempt {attempt}: {delay:?} of {whole:?}"
                );
                whole = (whole * 2).min(CAP);
            }
            backoff.reset();
            assert!(backoff.next_delay() <= BASE);
        }
    }

    #[test]
    fn full_jitter_reaches_down_to_nothing() {
        let mut backoff = Backoff::new(CAP, CAP, 7).with_jitter(Jitter::Full);
        let delays: Vec<_> = (0..200).map(|_| backoff.next_delay()).collect();
        assert!(delays.iter().any(|d| *d < CAP / 10) && delays.iter().any(|d| *d > CAP / 10 * 9));
        assert!(delays.iter().all(|d| *d <= CAP));
    }

    #[test]
    fn the_same_seed_gives_the_same_delays() {
        let run = |seed| {
            let mut backoff = Backoff::reconnect(seed);
            (0..20).map(|_| backoff.next_delay()).collect::<Vec<_>>()
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }
}
