//! Which events are new, which repeat or resemble an earlier one, and which are too many
//! (spec/daemonset.md 10.4, event bookkeeping). Pure: times come in.

use std::collections::BTreeMap;
use std::time::Duration;

/// What an event says, apart from when. Two equal notes are one event that happened twice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// The object it is about.
    pub regarding: Regarding,
    /// `Normal` or `Warning`.
    pub type_: &'static str,
    /// One word, such as `SuccessfulCreate`.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// `source.component`, such as `daemonset-controller`.
    pub component: String,
    /// `source.host`; empty inside the server.
    pub host: String,
}

/// Which object an event is about (`involvedObject`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Regarding {
    /// `apps/v1`.
    pub api_version: String,
    /// `DaemonSet`.
    pub kind: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The object's uid.
    pub uid: String,
    /// Part of it, such as `spec.containers{web}`; often empty.
    pub field_path: String,
}

/// What to do with a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A new event.
    Create,
    /// The event stored under this name happened again; `message` is its text from now on.
    Repeat {
        /// The stored event's name.
        name: String,
        /// How often it has happened now.
        count: u64,
        /// What it says now.
        message: String,
    },
    /// Too many of this source about this object.
    Drop,
}

/// Notes that differ only in message are folded into one event beyond this many...
const SIMILAR: usize = 10;
/// ...within this time.
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// So many events of one source about one object at once...
const BURST: f64 = 25.0;
/// ...then one in this many seconds.
const REFILL_SECONDS: f64 = 300.0;
/// Begins the message of a folded event.
pub(super) const COMBINED: &str = "(combined from similar events): ";
/// Memory of at most this many distinct notes; the oldest are forgotten (they then make a new event).
const REMEMBERED: usize = 4_096;

/// Remembers what was said lately.
#[derive(Debug, Default)]
pub struct Correlator {
    seen: BTreeMap<Note, Seen>,
    groups: BTreeMap<Note, Group>,
    buckets: BTreeMap<(String, String, Regarding), Bucket>,
}

#[derive(Debug)]
struct Seen {
    name: String,
    count: u64,
    last: Duration,
}

/// Messages that share everything else.
#[derive(Debug)]
struct Group {
    messages: Vec<String>,
    since: Duration,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Duration,
}

impl Correlator {
    /// Decides about a note at `now` (monotonic). `name` is what a new event will be called.
    pub fn judge(&mut self, note: &Note, name: &str, now: Duration) -> Outcome {
        if !self.allows(note, now) {
            return Outcome::Drop;
        }
        self.forget(now);
        let message = self.message_of(note, now);
        let key = if message.starts_with(COMBINED) {
            group_key(note)
        } else {
            note.clone()
        };
        if let Some(seen) = self.seen.get_mut(&key) {
            seen.count += 1;
            seen.last = now;
            return Outcome::Repeat {
                name: seen.name.clone(),
                count: seen.count,
                message,
            };
        }
        let folded = message.starts_with(COMBINED);
        self.seen.insert(
            key,
            Seen {
                name: name.to_owned(),
                count: 1,
                last: now,
            },
        );
        if folded {
            Outcome::Repeat {
                name: name.to_owned(),
                count: 1,
                message,
            }
        } else {
            Outcome::Create
        }
    }

    fn allows(&mut self, note: &Note, now: Duration) -> bool {
        let key = (
            note.component.clone(),
            note.host.clone(),
            note.regarding.clone(),
        );
        let bucket = self.buckets.entry(key).or_insert(Bucket {
            tokens: BURST,
            filled: now,
        });
        let gained = now.saturating_sub(bucket.filled).as_secs_f64() / REFILL_SECONDS;
        bucket.tokens = (bucket.tokens + gained).min(BURST);
        bucket.filled = now;
        let allowed = bucket.tokens >= 1.0;
        if allowed {
            bucket.tokens -= 1.0;
        }
        allowed
    }

    /// The note's message, or the folded form once too many resemble it.
    fn message_of(&mut self, note: &Note, now: Duration) -> String {
        let group = self.groups.entry(group_key(note)).or_insert(Group {
            messages: Vec::new(),
            since: now,
        });
        if now.saturating_sub(group.since) > SIMILAR_WITHIN {
            *group = Group {
                messages: Vec::new(),
                since: now,
            };
        }
        if !group.messages.contains(&note.message) {
            if group.messages.len() >= SIMILAR {
                return format!("{COMBINED}{}", note.message);
            }
            group.messages.push(note.message.clone());
        }
        note.message.clone()
    }

    fn forget(&mut self, now: Duration) {
        if self.seen.len() < REMEMBERED {
            return;
        }
        self.seen
            .retain(|_, seen| now.saturating_sub(seen.last) < SIMILAR_WITHIN);
        self.groups
            .retain(|_, group| now.saturating_sub(group.since) < SIMILAR_WITHIN);
        let full = Duration::from_secs_f64(BURST * REFILL_SECONDS);
        self.buckets
            .retain(|_, bucket| now.saturating_sub(bucket.filled) < full);
        // A storm of distinct notes within the window: the older half goes, at once, so that this stays rare.
        if self.seen.len() >= REMEMBERED {
            let mut times: Vec<Duration> = self.seen.values().map(|seen| seen.last).collect();
            times.sort_unstable();
            let middle = times[times.len() / 2];
            self.seen.retain(|_, seen| seen.last > middle);
            self.groups.retain(|_, group| group.since > middle);
            self.buckets.retain(|_, bucket| bucket.filled > middle);
        }
    }
}

fn group_key(note: &Note) -> Note {
    Note {
        message: String::new(),
        ..note.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(message: &str) -> Note {
        Note {
            regarding: Regarding {
                kind: "DaemonSet".into(),
                name: "web".into(),
                ..Regarding::default()
            },
            type_: "Normal",
            reason: "SuccessfulCreate".into(),
            message: message.into(),
            component: "daemonset-controller".into(),
            host: String::new(),
        }
    }

    #[test]
    fn an_equal_event_raises_the_count_of_the_first() {
        let mut correlator = Correlator::default();
        assert_eq!(
            correlator.judge(&note("a"), "e1", Duration::ZERO),
            Outcome::Create
        );
        let again = correlator.judge(&note("a"), "e2", Duration::from_secs(5));
        assert_eq!(
            again,
            Outcome::Repeat {
                name: "e1".into(),
                count: 2,
                message: "a".into()
            }
        );
        assert_eq!(
            correlator.judge(&note("b"), "e3", Duration::from_secs(6)),
            Outcome::Create
        );
    }

    #[test]
    fn more_than_ten_that_differ_only_in_message_are_folded() {
        let mut correlator = Correlator::default();
        for index in 0..10 {
            assert_eq!(
                correlator.judge(
                    &note(&format!("m{index}")),
                    &format!("e{index}"),
                    Duration::ZERO
                ),
                Outcome::Create
            );
        }
        let folded = correlator.judge(&note("m10"), "e10", Duration::ZERO);
        let wanted = format!("{COMBINED}m10");
        assert_eq!(
            folded,
            Outcome::Repeat {
                name: "e10".into(),
                count: 1,
                message: wanted
            }
        );
        let folded = correlator.judge(&note("m11"), "e11", Duration::ZERO);
        assert_eq!(
            folded,
            Outcome::Repeat {
                name: "e10".into(),
                count: 2,
                message: format!("{COMBINED}m11")
            }
        );
        let later = correlator.judge(&note("m12"), "e12", Duration::from_secs(601));
        assert_eq!(later, Outcome::Create);
    }

    #[test]
    fn a_source_says_at_most_25_things_of_an_object_at_once_then_one_in_300_seconds() {
        let mut correlator = Correlator::default();
        let mut said = 0;
        for _ in 0..40 {
            said += usize::from(correlator.judge(&note("a"), "e", Duration::ZERO) != Outcome::Drop);
        }
        assert_eq!(said, 25);
        assert_eq!(
            correlator.judge(&note("a"), "e", Duration::from_secs(299)),
            Outcome::Drop
        );
        assert_ne!(
            correlator.judge(&note("a"), "e", Duration::from_secs(600)),
            Outcome::Drop
        );
    }

    #[test]
    fn memory_stays_bounded_in_a_storm() {
        let mut correlator = Correlator::default();
        for index in 0..10_000_u64 {
            let mut note = note("a");
            note.regarding.name = format!("web-{index}");
            correlator.judge(&note, "e", Duration::from_millis(index));
        }
        assert!(correlator.seen.len() <= REMEMBERED);
    }
}
