//! Maintenance windows: the times of the week at which a node may be updated.

use std::fmt;

use jiff::civil::{Time, Weekday};
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, ToSpan};
use muster_model::time::Timestamp;

/// The days as they are written, in the week's order.
const DAYS: [(&str, Weekday); 7] = [
    ("Mon", Weekday::Monday),
    ("Tue", Weekday::Tuesday),
    ("Wed", Weekday::Wednesday),
    ("Thu", Weekday::Thursday),
    ("Fri", Weekday::Friday),
    ("Sat", Weekday::Saturday),
    ("Sun", Weekday::Sunday),
];

/// Days that are looked at for the next opening: yesterday, whose window may reach into today, and a week more.
const DAYS_AHEAD: i64 = 8;

/// A recurring stretch of time, such as `Mon-Fri 02:00-05:00 Europe/Berlin`.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// By position in [`DAYS`]: whether it opens on that day.
    days: [bool; 7],
    opens: Time,
    /// How long it stays open, by the clock on the wall.
    minutes: i64,
    zone: TimeZone,
    text: String,
}

/// Why a text is no window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{part:?} {problem}; a window reads like \"Mon-Fri 02:00-05:00 Europe/Berlin\" or \"daily 22:00-04:00 UTC\""
)]
pub struct WindowError {
    part: String,
    problem: &'static str,
}

fn fault(part: &str, problem: &'static str) -> WindowError {
    WindowError {
        part: part.to_owned(),
        problem,
    }
}

impl Window {
    /// Reads `DAYS HH:MM-HH:MM [ZONE]`. Days are `daily`, `Sat,Sun`, `Mon-Fri`; an end that is not after the start is
    /// on the next day, and `24:00` is midnight. The zone is a name of the IANA database (compiled in), `UTC` (the
    /// default) or an offset such as `+02:00`.
    pub fn parse(text: &str) -> Result<Self, WindowError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (days, times, zone) = match words.as_slice() {
            [days, times] => (days, times, "UTC"),
            [days, times, zone] => (days, times, *zone),
            _ => return Err(fault(text, "is not DAYS HH:MM-HH:MM [ZONE]")),
        };
        let (opens, closes) = times
            .split_once('-')
            .ok_or_else(|| fault(times, "is not HH:MM-HH:MM"))?;
        let (opens_at, closes_at) = (minute_of_day(opens)?, minute_of_day(closes)?);
        let opens =
            time(opens_at).ok_or_else(|| fault(opens, "is no time at which a day begins"))?;
        let minutes = if closes_at > opens_at {
            closes_at - opens_at
        } else {
            closes_at + 24 * 60 - opens_at
        };
        Ok(Self {
            days: parse_days(days)?,
            opens,
            minutes,
            zone: parse_zone(zone)?,
            text: words.join(" "),
        })
    }

    /// The stretch that is open at `now`, or the next one: from, until. `None` only at the end of all calendars.
    pub fn stretch(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let today = now.to_zoned(self.zone.clone()).date();
        (-1..=DAYS_AHEAD).find_map(|day| {
            let date = today.checked_add(day.days()).ok()?;
            let weekday = date.weekday();
            let position = DAYS.iter().position(|(_, day)| *day == weekday)?;
            if !self.days[position] {
                return None;
            }
            let opens = date.to_datetime(self.opens);
            let closes = opens
                .checked_add(SignedDuration::from_mins(self.minutes))
                .ok()?;
            let at = |civil: jiff::civil::DateTime| {
                Some(civil.to_zoned(self.zone.clone()).ok()?.timestamp())
            };
            let (opens, closes) = (at(opens)?, at(closes)?);
            (now < closes).then_some((opens, closes))
        })
    }

    /// Whether it is open at `now`.
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.stretch(now).is_some_and(|(opens, _)| opens <= now)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn minute_of_day(text: &str) -> Result<i64, WindowError> {
    let wrong = || fault(text, "is no time of day such as 02:00");
    let (hours, minutes) = text.split_once(':').ok_or_else(wrong)?;
    let number = |digits: &str| -> Option<i64> {
        (digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit()))
            .then(|| digits.parse().ok())?
    };
    let (hours, minutes) = (
        number(hours).ok_or_else(wrong)?,
        number(minutes).ok_or_else(wrong)?,
    );
    let of_day = hours * 60 + minutes;
    if minutes < 60 && of_day <= 24 * 60 {
        Ok(of_day)
    } else {
        Err(wrong())
    }
}

fn time(minute_of_day: i64) -> Option<Time> {
    let (hour, minute) = (minute_of_day / 60, minute_of_day % 60);
    Time::new(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0).ok()
}

fn parse_days(text: &str) -> Result<[bool; 7], WindowError> {
    let mut days = [false; 7];
    if text.eq_ignore_ascii_case("daily") {
        return Ok([true; 7]);
    }
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut day, last) = (day_number(first)?, day_number(last)?);
        // A range may go over the end of the week: Fri-Mon.
        loop {
            days[day] = true;
            if day == last {
                break;
            }
            day = (day + 1) % 7;
        }
    }
    Ok(days)
}

fn day_number(text: &str) -> Result<usize, WindowError> {
    DAYS.iter()
        .position(|(name, _)| name.eq_ignore_ascii_case(text))
        .ok_or_else(|| fault(text, "is no day (Mon, Tue, Wed, Thu, Fri, Sat, Sun, daily)"))
}

fn parse_zone(text: &str) -> Result<TimeZone, WindowError> {
    if text.eq_ignore_ascii_case("UTC") || text == "Z" {
        return Ok(TimeZone::UTC);
    }
    if let Some((sign, rest)) = [(1, '+'), (-1, '-')]
        .iter()
        .find_map(|(sign, c)| Some((*sign, text.strip_prefix(*c)?)))
    {
        let minutes = minute_of_day(rest)? * sign;
        let seconds = i32::try_from(minutes * 60).unwrap_or_default();
        return Offset::from_seconds(seconds)
            .map(TimeZone::fixed)
            .map_err(|_| fault(text, "is no offset from UTC"));
    }
    // The database is compiled in: the answer is the same on every machine, and a small host needs no other.
    TimeZoneDatabase::bundled()
        .get(text)
        .map_err(|_| fault(text, "is no time zone"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn open(window: &str, now: &str) -> bool {
        Window::parse(window).unwrap().is_open(at(now))
    }

    fn next(window: &str, now: &str) -> (String, String) {
        let (from, until) = Window::parse(window).unwrap().stretch(at(now)).unwrap();
        (from.to_string(), until.to_string())
    }

    #[test]
    fn a_window_is_open_from_its_start_to_just_before_its_end() {
        // 2026-01-05 is a Monday.
        for (now, expected) in [
            ("2026-01-05T01:59:59Z", false),
            ("2026-01-05T02:00:00Z", true),
            ("2026-01-05T04:59:59Z", true),
            ("2026-01-05T05:00:00Z", false),
            ("2026-01-10T03:00:00Z", false),
        ] {
            assert_eq!(open("Mon-Fri 02:00-05:00", now), expected, "{now}");
        }
    }

    #[test]
    fn a_window_may_go_past_midnight_and_over_the_end_of_the_week() {
        assert!(open("Sun 22:00-04:00 UTC", "2026-01-05T03:59:00Z"));
        assert!(!open("Sun 22:00-04:00 UTC", "2026-01-06T03:59:00Z"));
        assert!(open("Fri-Mon 00:00-24:00", "2026-01-05T23:59:59Z"));
        assert!(!open("Fri-Mon 00:00-24:00", "2026-01-06T00:00:00Z"));
        assert!(open("daily 00:00-00:00", "2026-01-06T12:00:00Z"));
    }

    #[test]
    fn the_next_opening_is_told_in_the_windows_own_zone() {
        assert_eq!(
            next("Sat,Sun 02:00-05:00 Europe/Berlin", "2026-01-05T00:00:00Z"),
            (
                "2026-01-10T01:00:00Z".to_owned(),
                "2026-01-10T04:00:00Z".to_owned()
            )
        );
        assert_eq!(
            next("daily 01:00-02:00 +05:30", "2026-01-05T00:00:00Z").0,
            "2026-01-05T19:30:00Z"
        );
        // The night on which Berlin's clocks go from 02:00 to 03:00: the window is an hour shorter.
        assert_eq!(
            next("daily 01:30-03:30 Europe/Berlin", "2026-03-29T00:00:00Z"),
            (
                "2026-03-29T00:30:00Z".to_owned(),
                "2026-03-29T01:30:00Z".to_owned()
            )
        );
    }

    #[test]
    fn what_is_no_window_says_which_part_is_wrong() {
        for (text, part) in [
            ("", ""),
            ("Mon", "Mon"),
            ("Mon 2:00-05:00", "2:00"),
            ("Mon 02:00", "02:00"),
            ("Mon 02:60-03:00", "02:60"),
            ("Mon 24:00-03:00", "24:00"),
            ("Mon 02:00-24:01", "24:01"),
            ("Monday 02:00-03:00", "Monday"),
            ("Mon 02:00-03:00 Mars/Olympus", "Mars/Olympus"),
            ("Mon 02:00-03:00 UTC extra", "Mon 02:00-03:00 UTC extra"),
        ] {
            assert_eq!(Window::parse(text).unwrap_err().part, part, "{text}");
        }
        let said = Window::parse("Mon 02:00-03:00 Mars/Olympus").unwrap_err();
        assert_eq!(
            said.to_string(),
            "\"Mars/Olympus\" is no time zone; a window reads like \"Mon-Fri 02:00-05:00 Europe/Berlin\" or \
             \"daily 22:00-04:00 UTC\""
        );
    }
}
