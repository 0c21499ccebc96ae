//! Events: what happened to an object, for people. Recorded best effort, never in anybody's way.
//!
//! ```text
//! controllers, agents --> Recorder (bounded) --> Scribe task --> Correlator --> one commit a batch
//! ```

mod correlate;

use std::time::Duration;

use muster_model::kind::EVENT;
use muster_model::object::{NamespacedName, Object};
use muster_model::time::{self, SharedClock, Timestamp};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use correlate::{Correlator, Note, Outcome, Regarding};

use crate::auth::Caller;
use crate::cache::Stored;
use crate::registry::{DeleteOptions, Precondition, Registry, Write};

/// Events waiting to be written at most; a new one is dropped when full (events are best effort).
const WAITING: usize = 4_096;
/// Events in one commit at most.
const BATCH: usize = 256;
/// Events are gathered for this long before they are written, so that a burst is one commit.
const GATHER: Duration = Duration::from_millis(50);
/// Events are removed when they did not repeat for this long, as Kubernetes does.
const KEPT: Duration = Duration::from_secs(3_600);
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
        let note = Note {
            regarding: Regarding::of(object),
            type_,
            reason: reason.to_owned(),
            message,
            component: component.to_owned(),
            host: String::new(),
        };
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
    caller: Caller,
}

impl Scribe {
    /// Runs until told to stop, then writes what is waiting.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut sweeps = tokio::time::interval(SWEEP);
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = sweeps.tick() => self.sweep().await,
                received = self.receiver.recv_many(&mut batch, BATCH) => {
                    if received == 0 {
                        return;
                    }
                    self.write(std::mem::take(&mut batch)).await;
                    tokio::select! {
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
        // One write per event in a batch: of several repeats only the last one counts.
        let mut writes: Vec<(String, Write)> = Vec::with_capacity(notes.len());
        for (note, at) in notes {
            let namespace = namespace_of(&note.regarding);
            let name = self
                .registry
                .ids()
                .name(&format!("{}.", note.regarding.name));
            let (name, write) = match self.correlator.judge(&note, &name, now) {
                Outcome::Drop => continue,
                Outcome::Create => {
                    let write = create(&note, &namespace, &name, at);
                    (name, write)
                }
                Outcome::Repeat {
                    name,
                    count,
                    message,
                } => match writes.iter().any(|(n, _)| *n == name) {
                    // First seen in this very batch: the create carries the count.
                    true => {
                        let mut again = note.clone();
                        again.message = message;
                        let write = create_counted(&again, &namespace, &name, at, count);
                        (name, write)
                    }
                    false => {
                        let write =
                            repeat(&self.registry, &note, &namespace, &name, at, count, message);
                        (name, write)
                    }
                },
            };
            writes.retain(|(known, _)| *known != name);
            writes.push((name, write));
        }
        let writes = writes.into_iter().map(|(_, write)| write).collect();
        for answer in self.registry.commit(&self.caller, writes).await {
            match answer {
                Ok(_) => {}
                // The namespace goes away with its events.
                Err(error) if error.is_namespace_terminating() || error.is_not_found() => {}
                Err(error) => tracing::debug!(%error, "an event was not written"),
            }
        }
    }

    async fn sweep(&self) {
        let now = self.registry.clock().now();
        let old = |stored: &Stored| {
            let event = stored.object();
            let last = [
                "/lastTimestamp",
                "/eventTime",
                "/metadata/creationTimestamp",
            ];
            let last = last
                .iter()
                .find_map(|pointer| time::parse(event.text_at(pointer)));
            last.is_none_or(|last| now.duration_since(last).unsigned_abs() > KEPT)
        };
        let events = self.registry.cache().list(&EVENT).items;
        let doomed: Vec<Write> = events
            .iter()
            .filter(|stored| old(stored))
            .map(|stored| {
                Write::delete(&EVENT, stored.key.clone(), DeleteOptions::now(stored.uid()))
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

fn create(note: &Note, namespace: &str, name: &str, at: Timestamp) -> Write {
    create_counted(note, namespace, name, at, 1)
}

fn create_counted(note: &Note, namespace: &str, name: &str, at: Timestamp, count: u64) -> Write {
    let time = time::to_seconds_text(at);
    let mut involved = json!({
        "apiVersion": note.regarding.api_version, "kind": note.regarding.kind, "name": note.regarding.name,
        "uid": note.regarding.uid,
    });
    if !note.regarding.namespace.is_empty() {
        involved["namespace"] = note.regarding.namespace.clone().into();
    }
    if !note.regarding.field_path.is_empty() {
        involved["fieldPath"] = note.regarding.field_path.clone().into();
    }
    let mut source = json!({"component": note.component});
    if !note.host.is_empty() {
        source["host"] = note.host.clone().into();
    }
    let tree = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"namespace": namespace, "name": name},
        "involvedObject": involved,
        "type": note.type_, "reason": note.reason, "message": note.message,
        "source": source, "reportingComponent": note.component, "reportingInstance": note.host,
        "firstTimestamp": time, "lastTimestamp": time, "count": count,
    });
    let object = Object::from_value(tree).expect("json! of a mapping is a mapping");
    Write::create(&EVENT, object)
}

fn repeat(
    registry: &Registry,
    note: &Note,
    namespace: &str,
    name: &str,
    at: Timestamp,
    count: u64,
    message: String,
) -> Write {
    let key = NamespacedName::new(namespace, name);
    // It may have been swept, or deleted by a person.
    if registry.cache().get(&EVENT, &key).is_none() {
        let mut again = note.clone();
        again.message = message;
        return create_counted(&again, namespace, name, at, count);
    }
    let time = time::to_seconds_text(at);
    Write::edit(&EVENT, key, Precondition::default(), move |event| {
        let tree = event.tree_mut();
        tree.insert("count".into(), count.into());
        tree.insert("lastTimestamp".into(), time.clone().into());
        tree.insert("message".into(), message.clone().into());
        Ok(())
    })
}
