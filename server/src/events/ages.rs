//! How long ago each event last happened, on the monotonic clock: neither a step of the server's clock nor an agent
//! whose clock is wrong makes events vanish early or stay for ever. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_model::object::{NamespacedName, Object};
use muster_model::time::{self, Timestamp};
use muster_store::Revision;

use crate::cache::Stored;

/// Events are removed when they did not repeat for this long, as Kubernetes does.
const KEPT: Duration = Duration::from_secs(3_600);

/// When each event was last written, as far as this server has seen.
#[derive(Debug, Default)]
pub(super) struct Ages {
    seen: BTreeMap<NamespacedName, Sight>,
    /// The first look is over: what is not known yet is new.
    started: bool,
}

/// The first sight of one version of an event.
#[derive(Debug, Clone, Copy)]
struct Sight {
    revision: Revision,
    /// When, on the monotonic clock.
    at: Duration,
    /// How old it was then.
    age: Duration,
}

impl Ages {
    /// Which of all events there are did not happen again for [`KEPT`]. `wall` serves only for those that a former
    /// run of the server wrote.
    pub(super) fn old<'a>(
        &mut self,
        events: &'a [Arc<Stored>],
        now: Duration,
        wall: Timestamp,
    ) -> Vec<&'a Stored> {
        let mut seen = BTreeMap::new();
        let mut old = Vec::new();
        for event in events {
            let known = self.seen.get(&event.key).copied();
            let sight = match known.filter(|sight| sight.revision == event.revision) {
                Some(sight) => sight,
                None => Sight {
                    revision: event.revision,
                    at: now,
                    age: if self.started {
                        Duration::ZERO
                    } else {
                        age_by_its_words(event, wall)
                    },
                },
            };
            if now.saturating_sub(sight.at) + sight.age > KEPT {
                old.push(event.as_ref());
            } else {
                seen.insert(event.key.clone(), sight);
            }
        }
        self.seen = seen;
        self.started = true;
        old
    }
}

/// By the newer of when the server made it and when it last happened; one from the future is new.
fn age_by_its_words(event: &Stored, wall: Timestamp) -> Duration {
    let words = ["/metadata/creationTimestamp", "/lastTimestamp"];
    // Read without being kept: there may be many.
    let Ok(object) = Object::from_bytes(&event.bytes) else {
        return Duration::ZERO;
    };
    let times = words.map(|pointer| time::parse(object.text_at(pointer)));
    let newest = times.into_iter().flatten().max();
    newest.map_or(Duration::ZERO, |newest| {
        Duration::try_from(wall.duration_since(newest)).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::kind::EVENT;
    use serde_json::json;

    fn event(revision: u64, last: &str) -> Vec<Arc<Stored>> {
        let tree =
            json!({"metadata": {"namespace": "default", "name": "e"}, "lastTimestamp": last});
        let object = Object::from_value(tree).unwrap();
        vec![Arc::new(Stored::new(&EVENT, object, Revision(revision)))]
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_event_goes_an_hour_after_it_last_happened_whatever_the_clocks_say() {
        let wall: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let mut ages = Ages::default();
        assert!(ages.old(&[], at(10), wall).is_empty());
        let (skewed, stepped) = (event(7, "2025-01-01T00:00:00Z"), wall + at(86_400));
        assert!(ages.old(&skewed, at(60), wall).is_empty());
        assert!(ages.old(&skewed, at(3_660), stepped).is_empty());
        let again = event(8, "2025-01-01T00:00:00Z");
        assert!(ages.old(&again, at(3_661), stepped).is_empty());
        assert!(ages.old(&again, at(7_261), stepped).is_empty());
        assert_eq!(ages.old(&again, at(7_262), stepped).len(), 1);
    }

    #[test]
    fn what_a_former_run_wrote_is_as_old_as_it_says() {
        let wall: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let cases = [
            ("2026-01-01T23:10:00Z", 0),
            ("2026-01-01T22:59:59Z", 1),
            ("2030-01-01T00:00:00Z", 0),
        ];
        for (last, gone) in cases {
            let found = event(7, last);
            let old = Ages::default().old(&found, at(10_000), wall).len();
            assert_eq!(old, gone, "{last}");
        }
    }
}
