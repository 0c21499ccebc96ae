//! Events: what happened to an object, for people. Recorded best effort, never in anybody's way.
//!
//! ```text
//! controllers, agents --> Recorder (bounded) --> Scribe task --> Correlator --> one commit a batch
//! ```

mod ages;
mod correlate;

use std::time::Duration;

use muster_model::kind::EVENT;
use muster_model::object::{NamespacedName, Object};
use muster_model::time::{self, SharedClock, Timestamp};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use ages::Ages;
pub use correlate::{Correlator, Note, Outcome, Regarding};

use crate::auth::Caller;
use crate::registry::{DeleteOptions, Precondition, Registry, Write};

/// Events waiting to be written at most; a new one is dropped when full (events are best effort).
const WAITING: usize = 4_096;
/// Events in one commit at most.
const BATCH: usize = 256;
/// Events are gathered for this long before they are written, so that a burst is one commit.
const GATHER: Duration = Duration::from_millis(50);
/// Between two sweeps of old events.
const SWEEP: Duration = Duration::from_secs(60);

/// Takes events. Cheap to clone; [`Scribe`] writes them.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<(Note, Timestamp)>,
    clock: SharedClock,
}

impl Recorder {
    /// A recorder and the task that must run for it.
    pub fn new(registry: Registry) -> (Self, Scribe) {
        let clock = registry.clock().clone();
        let (sender, receiver) = mpsc::channel(WAITING);
        let scribe = Scribe {
            registry,
            receiver,
            correlator: Correlator::default(),
            ages: Ages::default(),
            caller: Caller::internal("events"),
        };
        (Self { sender, clock }, scribe)
    }

    /// Something ordinary happened to `object`.
    pub fn normal(
        &self,
        component: &str,
        object: &Object,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.record("Normal", component, object, reason, message.into());
    }

    /// Something happened to `object` that its owner should look at.
    pub fn warning(
        &self,
        component: &str,
        object: &Object,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.record("Warning", component, object, reason, message.into());
    }

    fn record(
        &self,
        type_: &'static str,
        component: &str,
        object: &Object,
        reason: &str,
        message: String,
    ) {
        let note = Note::about(object, type_, component, reason, message);
        self.note(note, self.clock.now());
    }

    /// A note with its own time, as agents send them.
    pub fn note(&self, note: Note, at: Timestamp) {
        if self.sender.try_send((note, at)).is_err() {
            tracing::debug!("an event was dropped: too many are waiting");
        }
    }
}

impl Regarding {
    /// Of a whole object.
    pub fn of(object: &Object) -> Self {
        Self {
            api_version: object.api_version().to_owned(),
            kind: object.kind_name().to_owned(),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            field_path: String::new(),
        }
    }
}

impl Note {
    /// Something ordinary happened to `object`.
    pub fn normal(
        component: &str,
        object: &Object,
        reason: &str,
        message: impl Into<String>,
    ) -> Self {
        Self::about(object, "Normal", component, reason, message.into())
    }

    /// Something happened to `object` that its owner should look at.
    pub fn warning(
        component: &str,
        object: &Object,
        reason: &str,
        message: impl Into<String>,
    ) -> Self {
        Self::about(object, "Warning", component, reason, message.into())
    }

    fn about(
        object: &Object,
        type_: &'static str,
        component: &str,
        reason: &str,
        message: String,
    ) -> Self {
        Self {
            regarding: Regarding::of(object),
            type_,
            reason: reason.to_owned(),
            message,
            component: component.to_owned(),
            host: String::new(),
        }
    }

    /// Reads an Event object that an agent sent; `None` when it names no object or reason.
    pub fn of_event(event: &Object) -> Option<Self> {
        let text = |pointer: &str| event.text_at(pointer).to_owned();
        let reason = text("/reason");
        let regarding = Regarding {
            api_version: text("/involvedObject/apiVersion"),
            kind: text("/involvedObject/kind"),
            namespace: text("/involvedObject/namespace"),
            name: text("/involvedObject/name"),
            uid: text("/involvedObject/uid"),
            field_path: text("/involvedObject/fieldPath"),
        };
        (!reason.is_empty() && !regarding.name.is_empty()).then(|| Self {
            regarding,
            type_: if event.text_at("/type") == "Warning" {
                "Warning"
            } else {
                "Normal"
            },
            reason,
            message: text("/message"),
            component: text("/source/component"),
            host: text("/source/host"),
        })
    }
}

/// Writes what a [`Recorder`] took.
pub struct Scribe {
    registry: Registry,
    receiver: mpsc::Receiver<(Note, Timestamp)>,
    correlator: Correlator,
    ages: Ages,
    caller: Caller,
}

impl Scribe {
    /// Runs until told to stop, then writes what is waiting.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut sweeps = tokio::time::interval(SWEEP);
        sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = sweeps.tick() => self.sweep().await,
                received = self.receiver.recv_many(&mut batch, BATCH) => {
                    if received == 0 {
                        return;
                    }
                    self.write(std::mem::take(&mut batch)).await;
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => break,
                        () = tokio::time::sleep(GATHER) => {}
                    }
                }
            }
        }
        self.receiver.close();
        while self.receiver.recv_many(&mut batch, BATCH).await > 0 {
            self.write(std::mem::take(&mut batch)).await;
        }
    }

    async fn write(&mut self, notes: Vec<(Note, Timestamp)>) {
        let now = self.registry.clock().monotonic();
        // One write per event, in the order of their first notes, however often it is in the batch.
        let mut entries: Vec<Entry> = Vec::with_capacity(notes.len());
        for (note, at) in notes {
            let prefix = format!("{}.", note.regarding.name);
            let fresh = self.registry.ids().name(&prefix);
            let (name, count, message) = match self.correlator.judge(&note, &fresh, now) {
                Outcome::Drop => continue,
                Outcome::Create => (fresh, 1, note.message.clone()),
                Outcome::Repeat {
                    name,
                    count,
                    message,
                } => (name, count, message),
            };
            match entries.iter_mut().find(|entry| entry.name == name) {
                Some(entry) => entry.again(count, message, at),
                None => entries.push(Entry {
                    name,
                    note: Note { message, ..note },
                    count,
                    first: at,
                    last: at,
                }),
            }
        }
        let writes = entries.iter().map(|entry| self.write_of(entry)).collect();
        for answer in self.registry.commit(&self.caller, writes).await {
            match answer {
                Ok(_) => {}
                // The namespace goes away with its events.
                Err(error) if error.is_namespace_terminating() || error.is_not_found() => {}
                Err(error) => tracing::debug!(%error, "an event was not written"),
            }
        }
    }

    fn write_of(&self, entry: &Entry) -> Write {
        let key = NamespacedName::new(namespace_of(&entry.note.regarding), entry.name.as_str());
        // It may have been swept, or deleted by a person.
        if self.registry.cache().get(&EVENT, &key).is_none() {
            return Write::create(&EVENT, entry.to_object());
        }
        let (count, message) = (entry.count, entry.note.message.clone());
        let last = time::to_seconds_text(entry.last);
        Write::edit(&EVENT, key, Precondition::default(), move |event| {
            let tree = event.tree_mut();
            tree.insert("count".into(), count.into());
            tree.insert("lastTimestamp".into(), last.clone().into());
            tree.insert("message".into(), message.clone().into());
            Ok(())
        })
    }

    /// Removes what has not happened again for an hour.
    async fn sweep(&mut self) {
        let clock = self.registry.clock();
        let events = self.registry.cache().list(&EVENT).items;
        let old = self.ages.old(&events, clock.monotonic(), clock.now());
        let doomed: Vec<Write> = old
            .into_iter()
            .map(|stored| {
                let options = DeleteOptions {
                    precondition: Precondition::version(stored),
                    ..DeleteOptions::default()
                };
                Write::delete(&EVENT, stored.key.clone(), options)
            })
            .collect();
        for batch in doomed.chunks(BATCH) {
            for answer in self.registry.commit(&self.caller, batch.to_vec()).await {
                if let Err(error) = answer
                    && !error.is_not_found()
                    && !error.is_conflict()
                {
                    tracing::debug!(%error, "an old event was not removed");
                }
            }
        }
        // Whoever listed events with a selector had them parsed.
        self.registry.cache().cool(&EVENT);
    }
}

/// What one batch does to one event.
struct Entry {
    name: String,
    /// What it says in the end.
    note: Note,
    count: u64,
    first: Timestamp,
    last: Timestamp,
}

impl Entry {
    fn again(&mut self, count: u64, message: String, at: Timestamp) {
        self.count = count;
        self.note.message = message;
        self.first = self.first.min(at);
        self.last = self.last.max(at);
    }

    fn to_object(&self) -> Object {
        let note = &self.note;
        let about = &note.regarding;
        let mut involved = json!({
            "apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid,
        });
        if !about.namespace.is_empty() {
            involved["namespace"] = about.namespace.clone().into();
        }
        if !about.field_path.is_empty() {
            involved["fieldPath"] = about.field_path.clone().into();
        }
        let mut source = json!({"component": note.component});
        if !note.host.is_empty() {
            source["host"] = note.host.clone().into();
        }
        let tree = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"namespace": namespace_of(about), "name": self.name},
            "involvedObject": involved,
            "type": note.type_, "reason": note.reason, "message": note.message,
            "source": source, "reportingComponent": note.component, "reportingInstance": note.host,
            "firstTimestamp": time::to_seconds_text(self.first),
            "lastTimestamp": time::to_seconds_text(self.last),
            "count": self.count,
        });
        Object::from_value(tree).expect("json! of a mapping is a mapping")
    }
}

/// Events of cluster-scoped objects live in `default`.
fn namespace_of(regarding: &Regarding) -> String {
    if regarding.namespace.is_empty() {
        "default".to_owned()
    } else {
        regarding.namespace.clone()
    }
}
