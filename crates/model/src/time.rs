//! Timestamps, clocks and Kubernetes' duration text.

use std::sync::Arc;
use std::time::Duration;

pub use jiff::{SignedDuration, Timestamp};

/// Where the time comes from. Decisions take a [`Timestamp`]; drivers take a clock, so that tests and the
/// simulation own the time.
pub trait Clock: Send + Sync + 'static {
    /// Wall clock time: for what people see and what objects carry, never for measuring.
    fn now(&self) -> Timestamp;
    /// Time since some fixed start, which no clock step moves: for graces and time-outs.
    fn monotonic(&self) -> Duration;
    /// Both.
    fn moment(&self) -> Moment {
        Moment {
            wall: self.now(),
            mono: self.monotonic(),
        }
    }
}

/// A moment by both clocks: what was told in wall clock time can be measured by the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// By the clock on the wall, which may be set.
    pub wall: Timestamp,
    /// By the clock that no step moves.
    pub mono: Duration,
}

/// Wall clocks are slewed all the time; less than this is no step.
const STEP: SignedDuration = SignedDuration::from_secs(1);

impl Moment {
    /// By how much the wall clock was set forward since `earlier` (negative: back); `None`: it was not set.
    pub fn step_since(self, earlier: Self) -> Option<SignedDuration> {
        let passed = SignedDuration::try_from(self.mono).unwrap_or(SignedDuration::MAX)
            - SignedDuration::try_from(earlier.mono).unwrap_or(SignedDuration::MAX);
        let step = self.wall.duration_since(earlier.wall) - passed;
        (step.abs() >= STEP).then_some(step)
    }

    /// A time of which was heard at `heard`, by the clock as it is set now: as long ago as it was then, and what has
    /// passed since. A time that lay in the future then counts from when it was heard of.
    pub fn carry(self, told: Timestamp, heard: Self) -> Timestamp {
        let told = told.min(heard.wall);
        match self.step_since(heard) {
            None => told,
            Some(step) => shifted(told, step),
        }
    }
}

/// A time by a clock that was set forward by `step` since (negative: back).
pub fn shifted(time: Timestamp, step: SignedDuration) -> Timestamp {
    time.saturating_add(step).unwrap_or(time)
}

/// A shared clock.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's own clocks.
#[derive(Debug, Clone)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    pub fn new() -> Self {
        Self {
            start: std::time::Instant::now(),
        }
    }

    /// The same behind an `Arc`.
    pub fn shared() -> SharedClock {
        Arc::new(Self::new())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place that reads the machine's wall clock"
    )]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// RFC 3339 in UTC with whole seconds, as object timestamps are written: `2026-01-31T10:00:00Z`.
pub fn to_seconds_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// RFC 3339 in UTC with microseconds, as Lease and Event micro times are written.
pub fn to_micros_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Reads an object's timestamp; `None` when it is no RFC 3339 time.
pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// How long ago, as `get` shows ages (spec/daemonset.md 16): two units below certain sizes, one above.
pub fn age_text(elapsed_seconds: i64) -> String {
    if elapsed_seconds < -1 {
        return "<invalid>".to_owned();
    }
    let total = elapsed_seconds.max(0);
    let (minutes, hours, days) = (total / 60, total / 3600, total / 86_400);
    let with_rest = |whole: i64, unit: &str, rest: i64, rest_unit: &str| {
        if rest == 0 {
            format!("{whole}{unit}")
        } else {
            format!("{whole}{unit}{rest}{rest_unit}")
        }
    };
    if total < 120 {
        format!("{total}s")
    } else if minutes < 10 {
        with_rest(minutes, "m", total % 60, "s")
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        with_rest(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        with_rest(days, "d", hours % 24, "h")
    } else if days < 365 * 2 {
        format!("{days}d")
    } else if days < 365 * 8 {
        with_rest(days / 365, "y", days % 365, "d")
    } else {
        format!("{}y", days / 365)
    }
}

/// The age of a timestamp at `now`; `<unknown>` when it is not set.
pub fn age_of(time: Option<Timestamp>, now: Timestamp) -> String {
    match time {
        None => "<unknown>".to_owned(),
        Some(time) => age_text(now.as_second() - time.as_second()),
    }
}

/// The shortest cap that may be set on the pause between restarts: without a pause a container that ends at once would be
/// started again as fast as the machine can.
pub const SHORTEST_RESTART_DELAY: Duration = Duration::from_secs(1);

/// The text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration: write 30s, 5m, 1h30m or 0")]
pub struct DurationError {
    text: String,
}

/// A span of time as people write it: `30s`, `1m30s`, `2h`, `1d`, `500ms`, or a bare number of seconds.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let fault = || DurationError {
        text: text.to_owned(),
    };
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(fault)?;
        let (number, after) = rest.split_at(digits);
        let number: f64 = number.parse().map_err(|_| fault())?;
        let end = after
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(fault()),
        };
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| fault())?;
        total = total.checked_add(part).ok_or_else(fault)?;
        rest = next;
    }
    if text.is_empty() {
        Err(fault())
    } else {
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_was_told_is_as_long_ago_by_a_clock_that_was_set() {
        let at = |seconds: i64| Timestamp::from_second(1_767_225_600 + seconds).unwrap();
        let moment = |wall: i64, mono: u64| Moment {
            wall: at(wall),
            mono: Duration::from_secs(mono),
        };
        let heard = moment(100, 7);
        for (now, told, carried) in [
            (moment(130, 37), 90, 90),
            (moment(3_730, 37), 90, 3_690),
            (moment(-3_470, 37), 90, -3_510),
            (moment(130, 37), 500, 100),
            (moment(-3_470, 37), 500, -3_500),
        ] {
            assert_eq!(now.carry(at(told), heard), at(carried), "{now:?} {told}");
        }
        let slewed = Moment {
            mono: Duration::from_millis(37_900),
            ..moment(130, 0)
        };
        assert_eq!(slewed.step_since(heard), None);
    }

    #[test]
    fn ages_read_as_kubectl_writes_them() {
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (45, "45s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (45 * 60, "45m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 20 * 60, "3h20m"),
            (30 * 3600, "30h"),
            (3 * 86_400, "3d"),
            (3 * 86_400 + 4 * 3600, "3d4h"),
            (90 * 86_400, "90d"),
            (2 * 365 * 86_400, "2y"),
            ((2 * 365 + 40) * 86_400, "2y40d"),
            (9 * 365 * 86_400, "9y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(age_text(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn timestamps_are_written_in_whole_seconds() {
        let time: Timestamp = "2026-01-31T10:00:00.123456789Z".parse().unwrap();
        assert_eq!(to_seconds_text(time), "2026-01-31T10:00:00Z");
        assert_eq!(to_micros_text(time), "2026-01-31T10:00:00.123456Z");
    }
}
