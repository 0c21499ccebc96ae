//! Events: the same one again is counted, a flood is merged, and offline they wait (spec/node-agent.md 25).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use muster_model::k8s::api::core::v1::{Event, EventSource, ObjectReference};
use muster_model::k8s::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use muster_model::time::Timestamp;

use crate::facts::PodFacts;
use crate::moment::{Moment, Mono, whole_seconds};
use crate::worker::actions::EventNote;

/// Most events that wait for a server; the oldest go first.
const MAX_WAITING: usize = 1000;
/// Within this time the same event is counted instead of made anew.
const SAME_WITHIN: Duration = Duration::from_secs(600);
/// More similar events than this in [`SAME_WITHIN`] are merged.
const MAX_SIMILAR: u32 = 10;
/// One object's burst, and the time after which it may have one more.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);
/// Remembered keys; past this the oldest are forgotten.
const MAX_KEYS: usize = 4096;

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) field_path: String,
}

impl Subject {
    /// A pod, or one of its containers.
    pub(crate) fn pod(pod: &PodFacts, container: Option<&str>) -> Self {
        Self {
            kind: "Pod",
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            field_path: container
                .map(|name| format!("spec.containers{{{name}}}"))
                .unwrap_or_default(),
        }
    }

    /// The node; its uid is its name, as agents have always done.
    pub(crate) fn node(name: &str) -> Self {
        Self {
            kind: "Node",
            namespace: String::new(),
            name: name.to_owned(),
            uid: name.to_owned(),
            field_path: String::new(),
        }
    }
}

#[derive(Debug)]
struct Same {
    event: Event,
    at: Mono,
}

#[derive(Debug)]
struct Similar {
    count: u32,
    since: Mono,
}

#[derive(Debug)]
struct Bucket {
    left: u32,
    refilled: Mono,
}

/// Turns notes into Event objects. Pure: it keeps no clock and sends nothing.
#[derive(Debug)]
pub(crate) struct Recorder {
    host: String,
    same: BTreeMap<(Subject, String, String), Same>,
    similar: BTreeMap<(Subject, String), Similar>,
    buckets: BTreeMap<Subject, Bucket>,
    waiting: VecDeque<Event>,
}

impl Recorder {
    /// For the agent of this node.
    pub(crate) fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            same: BTreeMap::new(),
            similar: BTreeMap::new(),
            buckets: BTreeMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Records a note. `suffix` makes the name of a new event unique.
    pub(crate) fn record(&mut self, subject: Subject, note: &EventNote, suffix: u64, now: Moment) {
        if !self.may_speak(&subject, now.mono) {
            return;
        }
        let message = self.merged(&subject, note, now.mono);
        let key = (subject, note.reason.to_string(), message);
        let seen = Time(whole_seconds(now.wall));
        let event = match self.same.get_mut(&key) {
            Some(same) if now.mono.since(same.at) < SAME_WITHIN => {
                same.at = now.mono;
                same.event.count = Some(same.event.count.unwrap_or(1).saturating_add(1));
                same.event.last_timestamp = Some(seen);
                same.event.clone()
            }
            _ => {
                let event = self.make(&key.0, note, &key.2, suffix, now.wall);
                self.forget_oldest();
                self.same.insert(
                    key,
                    Same {
                        event: event.clone(),
                        at: now.mono,
                    },
                );
                event
            }
        };
        // The newest count of one event is all that matters.
        self.waiting
            .retain(|other| other.metadata.name != event.metadata.name);
        self.waiting.push_back(event);
        while self.waiting.len() > MAX_WAITING {
            self.waiting.pop_front();
        }
    }

    /// Takes up to `most` events that wait, oldest first.
    pub(crate) fn take(&mut self, most: usize) -> Vec<Event> {
        let count = most.min(self.waiting.len());
        self.waiting.drain(..count).collect()
    }

    /// Puts events back that could not be sent.
    pub(crate) fn put_back(&mut self, events: Vec<Event>) {
        for event in events.into_iter().rev() {
            if self.waiting.len() < MAX_WAITING
                && !self
                    .waiting
                    .iter()
                    .any(|w| w.metadata.name == event.metadata.name)
            {
                self.waiting.push_front(event);
            }
        }
    }

    /// Whether any wait.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn may_speak(&mut self, subject: &Subject, now: Mono) -> bool {
        let whole = Subject {
            field_path: String::new(),
            ..subject.clone()
        };
        if self.buckets.len() > MAX_KEYS {
            self.buckets.clear();
        }
        let bucket = self.buckets.entry(whole).or_insert(Bucket {
            left: BURST,
            refilled: now,
        });
        let earned = now.since(bucket.refilled).as_secs() / REFILL.as_secs();
        if earned > 0 {
            bucket.left = bucket
                .left
                .saturating_add(u32::try_from(earned).unwrap_or(BURST))
                .min(BURST);
            bucket.refilled = now;
        }
        bucket.left = match bucket.left.checked_sub(1) {
            Some(left) => left,
            None => return false,
        };
        true
    }

    fn merged(&mut self, subject: &Subject, note: &EventNote, now: Mono) -> String {
        if self.same.contains_key(&(
            subject.clone(),
            note.reason.to_string(),
            note.message.clone(),
        )) {
            return note.message.clone();
        }
        let key = (subject.clone(), note.reason.to_string());
        let similar = self.similar.entry(key).or_insert(Similar {
            count: 0,
            since: now,
        });
        if now.since(similar.since) >= SAME_WITHIN {
            *similar = Similar {
                count: 0,
                since: now,
            };
        }
        similar.count = similar.count.saturating_add(1);
        if similar.count <= MAX_SIMILAR {
            return note.message.clone();
        }
        // One event stands for all of them from here on.
        format!("(combined from similar events): {}", note.message)
    }

    fn forget_oldest(&mut self) {
        if self.similar.len() > MAX_KEYS {
            self.similar.clear();
        }
        while self.same.len() >= MAX_KEYS {
            let oldest = self
                .same
                .iter()
                .min_by_key(|(_, same)| same.at)
                .map(|(key, _)| key.clone());
            match oldest {
                Some(key) => self.same.remove(&key),
                None => break,
            };
        }
    }

    fn make(
        &self,
        subject: &Subject,
        note: &EventNote,
        message: &str,
        suffix: u64,
        now: Timestamp,
    ) -> Event {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let namespace = if subject.namespace.is_empty() {
            "default"
        } else {
            &subject.namespace
        };
        let seen = Some(Time(whole_seconds(now)));
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{suffix:016x}", subject.name)),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".into()),
                kind: Some(subject.kind.into()),
                namespace: text(&subject.namespace),
                name: text(&subject.name),
                uid: text(&subject.uid),
                field_path: text(&subject.field_path),
                ..ObjectReference::default()
            },
            type_: Some(if note.warning { "Warning" } else { "Normal" }.into()),
            reason: Some(note.reason.to_string()),
            message: Some(message.to_owned()),
            count: Some(1),
            first_timestamp: seen.clone(),
            last_timestamp: seen,
            source: Some(EventSource {
                component: Some("kubelet".into()),
                host: Some(self.host.clone()),
            }),
            reporting_component: Some("kubelet".into()),
            reporting_instance: Some(self.host.clone()),
            ..Event::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Moment {
        Moment {
            wall: Timestamp::from_second(1_769_853_600 + seconds).unwrap(),
            mono: Mono(seconds * 1000),
        }
    }

    fn note(message: &str) -> EventNote {
        EventNote::warning(Some("c"), "BackOff", message)
    }

    #[test]
    fn the_same_event_is_counted_within_ten_minutes() {
        let mut recorder = Recorder::new("n1");
        for second in [0, 10, 20] {
            recorder.record(Subject::node("n1"), &note("again"), 1, at(second));
        }
        let sent = recorder.take(10);
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].count, Some(3));
        assert_eq!(
            sent[0].metadata.name.as_deref(),
            Some("n1.0000000000000001")
        );
        assert_eq!(
            sent[0].source.as_ref().unwrap().component.as_deref(),
            Some("kubelet")
        );
        recorder.record(Subject::node("n1"), &note("again"), 2, at(700));
        assert_eq!(recorder.take(10)[0].count, Some(1));
    }

    #[test]
    fn an_object_that_floods_is_held_to_its_burst() {
        let mut recorder = Recorder::new("n1");
        for index in 0..40 {
            recorder.record(
                Subject::node("n1"),
                &note(&format!("m{index}")),
                index,
                at(0),
            );
        }
        let sent = recorder.take(100);
        assert_eq!(sent.len(), 25);
        assert_eq!(
            sent.iter()
                .filter(|e| e.message.as_ref().unwrap().starts_with("(combined"))
                .count(),
            15
        );
        recorder.record(Subject::node("n1"), &note("later"), 99, at(301));
        assert_eq!(recorder.take(100).len(), 1);
    }

    #[test]
    fn what_could_not_be_sent_waits_in_order() {
        let mut recorder = Recorder::new("n1");
        recorder.record(Subject::node("n1"), &note("a"), 1, at(0));
        recorder.record(Subject::node("n1"), &note("b"), 2, at(0));
        let taken = recorder.take(10);
        recorder.record(Subject::node("n1"), &note("c"), 3, at(0));
        recorder.put_back(taken);
        let messages: Vec<_> = recorder
            .take(10)
            .into_iter()
            .filter_map(|e| e.message)
            .collect();
        assert_eq!(messages, ["a", "b", "c"]);
    }
}
