//! A moment on both clocks, and durations as Go prints them.

use std::time::Duration;

use muster_model::time::{Clock, Timestamp};
use serde::{Deserialize, Serialize};

/// Milliseconds of the clock that no step moves; negative: before the agent's clock started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Mono(pub i64);

impl Mono {
    /// This moment and so much more.
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// How long ago `earlier` was; zero when it is ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Now: the wall clock is only ever shown, graces and back-offs go by the other one
/// (spec/node-agent.md 27, clock jumps).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// What people see.
    pub wall: Timestamp,
    /// What timers go by.
    pub mono: Mono,
}

impl Moment {
    /// Of a clock.
    pub fn of(clock: &dyn Clock) -> Self {
        Self {
            wall: clock.now(),
            mono: Mono(millis(clock.monotonic())),
        }
    }

    /// The steady moment at which something with this wall time happened, as seen now: never ahead, and at most
    /// `limit` ago, so that a wall clock that was stepped cannot stretch or skip a back-off.
    pub fn place(&self, happened: Timestamp, limit: Duration) -> Mono {
        let ago = self
            .wall
            .as_millisecond()
            .saturating_sub(happened.as_millisecond());
        Mono(self.mono.0.saturating_sub(ago.clamp(0, millis(limit))))
    }
}

/// Cut to whole seconds, as object times are.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// A duration as Go prints it: `10s`, `1m20s`, `5m0s`, `1h0m0s`, `500ms`, `1.5s`.
pub fn go_duration(duration: Duration) -> String {
    let total = duration.as_secs();
    let nanos = duration.subsec_nanos();
    if total == 0 {
        return match nanos {
            0 => "0s".to_owned(),
            1..1_000 => format!("{nanos}ns"),
            1_000..1_000_000 => format!("{}µs", fraction(u64::from(nanos), 1_000)),
            _ => format!("{}ms", fraction(u64::from(nanos), 1_000_000)),
        };
    }
    let (hours, minutes) = (total / 3600, total / 60 % 60);
    let seconds = fraction(
        (total % 60) * 1_000_000_000 + u64::from(nanos),
        1_000_000_000,
    );
    if hours > 0 {
        format!("{hours}h{minutes}m{seconds}s")
    } else if minutes > 0 {
        format!("{minutes}m{seconds}s")
    } else {
        format!("{seconds}s")
    }
}

fn fraction(value: u64, unit: u64) -> String {
    let rest = value % unit;
    if rest == 0 {
        return (value / unit).to_string();
    }
    let digits = unit.ilog10() as usize;
    let text = format!("{}.{rest:0digits$}", value / unit);
    text.trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_go_prints_them() {
        for (millis, text) in [
            (0, "0s"),
            (500, "500ms"),
            (1_500, "1.5s"),
            (10_000, "10s"),
            (80_000, "1m20s"),
            (300_000, "5m0s"),
            (3_600_000, "1h0m0s"),
            (185_200, "3m5.2s"),
        ] {
            assert_eq!(go_duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_wall_clock_step_cannot_move_a_past_moment_beyond_its_limit() {
        let now = Moment {
            wall: "2026-01-31T10:00:00Z".parse().unwrap(),
            mono: Mono(50_000),
        };
        let limit = Duration::from_secs(600);
        assert_eq!(
            now.place("2026-01-31T09:59:50Z".parse().unwrap(), limit),
            Mono(40_000)
        );
        assert_eq!(
            now.place("2026-01-31T11:00:00Z".parse().unwrap(), limit),
            Mono(50_000)
        );
        assert_eq!(
            now.place("2020-01-31T11:00:00Z".parse().unwrap(), limit),
            Mono(50_000 - 600_000)
        );
    }
}
