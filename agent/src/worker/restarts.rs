//! When a container restarts, and after how long (spec/node-agent.md 17).
//!
//! Crash 1 restarts at once, crash 2 waits 10 s after its end, then 20, 40, 80, 160, and 300 from there on. A run of
//! more than ten minutes is forgiven: the next end restarts at once. All of it goes by the steady clock.

use std::time::Duration;

use crate::facts::Timing;
use crate::moment::{Mono, go_duration};

/// The back-off of one container, made when it was last started after an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    /// How long after its next end it rests.
    pub delay: Duration,
    /// When the entry last changed: at a start.
    pub changed: Mono,
    /// Hash of the container it belongs to: a changed image starts afresh.
    pub hash: String,
}

/// What to do with a container that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restart {
    /// Start it, and keep this entry.
    Now(Backoff),
    /// Rest until then; `delay` is what people are told.
    Later {
        /// When.
        at: Mono,
        /// The whole delay.
        delay: Duration,
    },
}

/// Whether a container that ended with this code is started again.
pub fn wanted(restart_policy: &str, exit_code: i32) -> bool {
    match restart_policy {
        "Never" => false,
        "OnFailure" => exit_code != 0,
        _ => true,
    }
}

/// Decides about a container that died at `died`. `longest` is the cap of this pod.
pub fn decide(
    entry: Option<&Backoff>,
    hash: &str,
    died: Mono,
    longest: Duration,
    timing: &Timing,
    now: Mono,
) -> Restart {
    let valid = entry.filter(|e| e.hash == hash && died.since(e.changed) <= timing.restart_forget);
    let Some(entry) = valid else {
        let delay = timing.restart_first.min(longest);
        return Restart::Now(Backoff {
            delay,
            changed: now,
            hash: hash.to_owned(),
        });
    };
    let at = died.plus(entry.delay);
    if now < at {
        return Restart::Later {
            at,
            delay: entry.delay,
        };
    }
    let delay = entry.delay.saturating_mul(2).min(longest);
    Restart::Now(Backoff {
        delay,
        changed: now,
        hash: hash.to_owned(),
    })
}

/// The entry that must have been there when the dead container of this restart count was started: for an agent that has
/// lost its memory.
pub fn rebuild(
    attempt: u32,
    hash: &str,
    started: Mono,
    longest: Duration,
    timing: &Timing,
) -> Option<Backoff> {
    let doublings = attempt.checked_sub(1)?;
    let delay = timing
        .restart_first
        .saturating_mul(2_u32.saturating_pow(doublings))
        .min(longest);
    Some(Backoff {
        delay,
        changed: started,
        hash: hash.to_owned(),
    })
}

/// The message of `CrashLoopBackOff`.
pub fn waiting_message(delay: Duration, container: &str, pod: &str) -> String {
    format!(
        "back-off {} restarting failed container={container} pod={pod}",
        go_duration(delay)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delays from each end to the next start, for runs of this length.
    fn delays(run: Duration, longest: Duration, crashes: usize) -> Vec<u64> {
        let timing = Timing::default();
        let (mut now, mut entry, mut seen) = (Mono(0), None, Vec::new());
        for _ in 0..crashes {
            now = now.plus(run);
            let died = now;
            loop {
                match decide(entry.as_ref(), "h", died, longest, &timing, now) {
                    Restart::Now(next) => {
                        entry = Some(next);
                        seen.push(now.since(died).as_secs());
                        break;
                    }
                    Restart::Later { at, .. } => now = at,
                }
            }
        }
        seen
    }

    #[test]
    fn na_066_delays_double_from_ten_seconds_to_five_minutes() {
        let longest = Timing::default().restart_max;
        assert_eq!(
            delays(Duration::from_millis(20), longest, 9),
            [0, 10, 20, 40, 80, 160, 300, 300, 300]
        );
    }

    #[test]
    fn case_b63_a_pod_may_cap_its_own_delay() {
        assert_eq!(
            delays(Duration::ZERO, Duration::from_secs(15), 4),
            [0, 10, 15, 15]
        );
    }

    #[test]
    fn case_b65_a_run_of_more_than_ten_minutes_is_forgiven() {
        let longest = Timing::default().restart_max;
        assert_eq!(delays(Duration::from_secs(660), longest, 4), [0, 0, 0, 0]);
        assert_eq!(
            delays(Duration::from_secs(599), longest, 4),
            [0, 10, 20, 40]
        );
    }

    #[test]
    fn a_changed_image_starts_at_once() {
        let timing = Timing::default();
        let entry = Backoff {
            delay: Duration::from_secs(300),
            changed: Mono(0),
            hash: "old".into(),
        };
        let decided = decide(
            Some(&entry),
            "new",
            Mono(10),
            timing.restart_max,
            &timing,
            Mono(10),
        );
        assert_eq!(
            decided,
            Restart::Now(Backoff {
                delay: Duration::from_secs(10),
                changed: Mono(10),
                hash: "new".into()
            })
        );
    }

    #[test]
    fn a_lost_entry_is_rebuilt_from_the_restart_count() {
        let timing = Timing::default();
        let delay = |attempt| {
            rebuild(attempt, "h", Mono(0), timing.restart_max, &timing).map(|e| e.delay.as_secs())
        };
        let all: Vec<_> = (0..9).map(delay).collect();
        assert_eq!(
            all,
            [
                None,
                Some(10),
                Some(20),
                Some(40),
                Some(80),
                Some(160),
                Some(300),
                Some(300),
                Some(300)
            ]
        );
    }

    #[test]
    fn the_message_names_delay_container_and_pod() {
        assert_eq!(
            waiting_message(Duration::from_secs(40), "c", "p_default(u)"),
            "back-off 40s restarting failed container=c pod=p_default(u)"
        );
        assert!(waiting_message(Duration::from_secs(300), "c", "p").starts_with("back-off 5m0s "));
    }

    #[test]
    fn policies_say_what_restarts() {
        let table = [
            ("Always", true, true),
            ("OnFailure", false, true),
            ("Never", false, false),
        ];
        for (policy, after_success, after_failure) in table {
            assert_eq!(wanted(policy, 0), after_success, "{policy}");
            assert_eq!(wanted(policy, 1), after_failure, "{policy}");
        }
    }
}
