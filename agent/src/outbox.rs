//! What waits to be told to the server: the last status of each pod, confirmations, events, the node's status. A burst of
//! changes becomes one message, and the last one wins; after a reconnect everything current is told again.
//!
//! What others act on is told at once: a pod that becomes ready, or ceases to be, or ends. The steps on the way there
//! (its address, a container being made) wait a moment for the next one, and mostly need not be told at all: each costs
//! the server a commit, and everybody who watches pods a message.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use muster_model::k8s::api::core::v1::{Event, NodeStatus, PodStatus};
use muster_model::kind;
use muster_model::object::Object;
use muster_model::reason::condition;
use muster_proto::v1::{self, agent_report::Report};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::events::{Recorder, Subject};
use crate::facts::{Life, PodFacts};
use crate::moment::{Moment, Mono};
use crate::worker::actions::EventNote;

/// Most events in one message.
const EVENTS_PER_MESSAGE: usize = 50;
/// Most pod statuses in one message.
const PODS_PER_MESSAGE: usize = 100;
/// How long a change that nobody acts on may wait for the next one.
const TOGETHER: Duration = Duration::from_millis(200);
/// How long an event waits for others: people read them, later.
const EVENTS_TOGETHER: Duration = Duration::from_millis(500);

/// The waiting reports of one agent.
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
    changed: Notify,
    events_named: AtomicU64,
}

struct Inner {
    statuses: BTreeMap<String, Entry>,
    gone: BTreeMap<String, Gone>,
    node: Option<NodeStatus>,
    /// When it is to be told; `None`: it was.
    node_due: Option<Mono>,
    /// Whether the server has told which pods there are: before, nothing is said about any.
    open: bool,
    recorder: Recorder,
    /// When the events that wait are to be told.
    events_due: Mono,
}

struct Entry {
    namespace: String,
    name: String,
    /// Encoded when it is told: most are replaced before.
    status: PodStatus,
    /// When it is to be told; `None`: it was.
    due: Option<Mono>,
}

impl Entry {
    fn message(&self, uid: &str) -> v1::PodStatusUpdate {
        v1::PodStatusUpdate {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: uid.to_owned(),
            status: encoded(&self.status),
        }
    }
}

fn encoded(status: &PodStatus) -> bytes::Bytes {
    serde_json::to_vec(status).unwrap_or_default().into()
}

fn is_ready(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|c| c.type_ == condition::READY && c.status == "True")
}

/// Whether others act on what changed. Of a pod that is being deleted the confirmation tells the rest.
fn is_urgent(before: Option<&PodStatus>, after: &PodStatus, life: Life) -> bool {
    let ended =
        |status: &PodStatus| matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let was = |of: &dyn Fn(&PodStatus) -> bool| before.is_some_and(of);
    life == Life::Wanted && (ended(after) != was(&ended) || is_ready(after) != was(&is_ready))
}

struct Gone {
    message: v1::PodGone,
    sent: bool,
    /// The server refused it: not again before then.
    not_before: Option<Mono>,
    done: Option<oneshot::Sender<()>>,
}

/// A report that was sent and not acknowledged.
pub(crate) enum Sent {
    /// The node's status. After a reconnect it is told again anyway.
    Node,
    /// Statuses of the pods with these uids. After a reconnect all are told again anyway.
    Statuses(Vec<String>),
    /// Confirmation for this uid.
    Gone(String),
    /// Events.
    Events(Vec<Event>),
}

impl Outbox {
    /// Empty, for the agent of this node.
    pub(crate) fn new(node: &str, seed: u64) -> Self {
        let inner = Inner {
            statuses: BTreeMap::new(),
            gone: BTreeMap::new(),
            node: None,
            node_due: None,
            open: false,
            recorder: Recorder::new(node),
            events_due: Mono(0),
        };
        Self {
            inner: Mutex::new(inner),
            changed: Notify::new(),
            events_named: AtomicU64::new(seed),
        }
    }

    /// A pod's status is this.
    pub(crate) fn put_status(&self, pod: &PodFacts, status: &PodStatus, now: Mono) {
        let mut inner = self.inner.lock();
        let before = inner.statuses.remove(&pod.uid);
        let urgent = is_urgent(before.as_ref().map(|entry| &entry.status), status, pod.life);
        let due = if urgent { now } else { now.plus(TOGETHER) };
        let waiting = before.and_then(|entry| entry.due);
        let entry = Entry {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            status: status.clone(),
            due: Some(waiting.map_or(due, |waiting| waiting.min(due))),
        };
        inner.statuses.insert(pod.uid.clone(), entry);
        drop(inner);
        self.changed.notify_one();
    }

    /// The server has no such pod (any more): nothing is told of it.
    pub(crate) fn forget_pod(&self, uid: &str) {
        let mut inner = self.inner.lock();
        inner.statuses.remove(uid);
        // Its waiter learns by the closed channel that there is nobody to tell.
        inner.gone.remove(uid);
    }

    /// Nothing of the pod is left. The receiver answers when the server has taken it, and is closed when the server no
    /// longer knows the pod.
    pub(crate) fn put_gone(&self, pod: &PodFacts, status: &PodStatus) -> oneshot::Receiver<()> {
        let (done, taken) = oneshot::channel();
        let message = v1::PodGone {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            status: encoded(status),
        };
        let mut inner = self.inner.lock();
        inner.statuses.remove(&pod.uid);
        inner.gone.insert(
            pod.uid.clone(),
            Gone {
                message,
                sent: false,
                not_before: None,
                done: Some(done),
            },
        );
        drop(inner);
        self.changed.notify_one();
        taken
    }

    /// The node's status is this.
    pub(crate) fn put_node(&self, status: NodeStatus) {
        let mut inner = self.inner.lock();
        inner.node = Some(status);
        inner.node_due = Some(Mono(0));
        drop(inner);
        self.changed.notify_one();
    }

    /// Records an event of a pod.
    pub(crate) fn pod_event(&self, pod: &PodFacts, note: &EventNote, now: Moment) {
        self.record(Subject::pod(pod, note.container.as_deref()), note, now);
    }

    /// Records an event of the node.
    pub(crate) fn node_event(&self, node: &str, note: &EventNote, now: Moment) {
        self.record(Subject::node(node), note, now);
    }

    fn record(&self, subject: Subject, note: &EventNote, now: Moment) {
        let count = self.events_named.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(now.wall.as_nanosecond().unsigned_abs() & u128::from(u64::MAX))
            .unwrap_or(0);
        let mut inner = self.inner.lock();
        if inner.recorder.is_empty() {
            inner.events_due = now.mono.plus(EVENTS_TOGETHER);
        }
        inner
            .recorder
            .record(subject, note, nanos ^ count.rotate_left(48), now);
        drop(inner);
        self.changed.notify_one();
    }

    /// Resolves when there may be something to send, now or later: see [`Outbox::due`].
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// When the next status or event that waits is to be told; `None`: none waits. It may be past.
    pub(crate) fn due(&self) -> Option<Mono> {
        let inner = self.inner.lock();
        let statuses = inner.statuses.values().filter(|_| inner.open);
        let events = (!inner.recorder.is_empty()).then_some(inner.events_due);
        let statuses = statuses.filter_map(|entry| entry.due);
        statuses.chain(inner.node_due).chain(events).min()
    }

    /// The last status of a pod.
    pub(crate) fn status(&self, uid: &str) -> Option<PodStatus> {
        let inner = self.inner.lock();
        Some(inner.statuses.get(uid)?.status.clone())
    }

    /// The server has told which pods there are.
    pub(crate) fn open(&self) {
        self.inner.lock().open = true;
        self.changed.notify_one();
    }

    /// A stream begins: everything current is to be told, of pods once it is known which there are.
    pub(crate) fn start_over(&self) {
        let mut inner = self.inner.lock();
        inner.open = false;
        inner
            .statuses
            .values_mut()
            .for_each(|entry| entry.due = Some(Mono(0)));
        inner.gone.values_mut().for_each(|gone| gone.sent = false);
        inner.node_due = inner.node.is_some().then_some(Mono(0));
    }

    /// The server stopped believing what it was told, although the stream lived on: it is told again. Confirmations
    /// on their way need nothing, they are answered.
    pub(crate) fn tell_again(&self, node: NodeStatus) {
        let mut inner = self.inner.lock();
        inner
            .statuses
            .values_mut()
            .for_each(|entry| entry.due = Some(Mono(0)));
        inner.node = Some(node);
        inner.node_due = Some(Mono(0));
        drop(inner);
        self.changed.notify_one();
    }

    /// The server believes that this pod is not Ready, though it was told otherwise: it may have meant a node out of reach,
    /// and have written it after the node was back. It is told again.
    pub(crate) fn contradicted(&self, uid: &str) {
        let mut inner = self.inner.lock();
        let entry = inner.statuses.get_mut(uid);
        if let Some(entry) = entry.filter(|entry| is_ready(&entry.status)) {
            entry.due = Some(Mono(0));
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// Takes the next message; `None` when there is nothing new. Order: the node, statuses, confirmations, events.
    pub(crate) fn next(&self, node_name: &str, now: Mono) -> Option<(Report, Sent)> {
        let mut inner = self.inner.lock();
        if inner.node_due.is_some_and(|due| due <= now) {
            inner.node_due = None;
            if let Some(status) = &inner.node {
                let tree = serde_json::json!({
                    "apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name}, "status": status,
                });
                return Some((Report::NodeStatus(tree.to_string().into()), Sent::Node));
            }
        }
        let open = inner.open;
        let due = inner
            .statuses
            .iter_mut()
            .filter(|(_, entry)| open && entry.due.is_some_and(|due| due <= now))
            .take(PODS_PER_MESSAGE);
        let pods: Vec<v1::PodStatusUpdate> = due
            .map(|(uid, entry)| {
                entry.due = None;
                entry.message(uid)
            })
            .collect();
        if !pods.is_empty() {
            let uids = pods.iter().map(|pod| pod.uid.clone()).collect();
            let report = Report::PodStatuses(v1::PodStatuses { pods });
            return Some((report, Sent::Statuses(uids)));
        }
        if let Some((uid, gone)) = inner
            .gone
            .iter_mut()
            .find(|(_, gone)| open && !gone.sent && gone.not_before.is_none_or(|at| at <= now))
        {
            gone.sent = true;
            return Some((
                Report::PodGone(gone.message.clone()),
                Sent::Gone(uid.clone()),
            ));
        }
        if inner.recorder.is_empty() || now < inner.events_due {
            return None;
        }
        let events = inner.recorder.take(EVENTS_PER_MESSAGE);
        let encoded = events
            .iter()
            .filter_map(|event| Object::from_typed(&kind::EVENT, event).ok());
        let encoded = encoded.map(|object| object.to_bytes().into()).collect();
        Some((
            Report::Events(v1::Events { events: encoded }),
            Sent::Events(events),
        ))
    }

    /// The server took it.
    pub(crate) fn taken(&self, sent: Sent) {
        if let Sent::Gone(uid) = sent
            && let Some(mut gone) = self.inner.lock().gone.remove(&uid)
            && let Some(done) = gone.done.take()
        {
            // A worker that has gone meanwhile needs no answer.
            let _ = done.send(());
        }
    }

    /// The server said no, maybe only for now: its disk was full. What is current is tried again from then on, or as soon as
    /// it changes; an event never.
    pub(crate) fn refused(&self, sent: Sent, again_at: Mono) {
        let mut inner = self.inner.lock();
        match sent {
            Sent::Node => {
                inner.node_due.get_or_insert(again_at);
            }
            Sent::Statuses(uids) => {
                for uid in uids {
                    // One that has changed meanwhile goes out by itself.
                    if let Some(entry) = inner.statuses.get_mut(&uid) {
                        entry.due.get_or_insert(again_at);
                    }
                }
            }
            Sent::Gone(uid) => {
                if let Some(gone) = inner.gone.get_mut(&uid) {
                    gone.sent = false;
                    gone.not_before = Some(again_at);
                }
            }
            Sent::Events(_) => {}
        }
    }

    /// It did not reach the server.
    pub(crate) fn lost(&self, sent: Sent) {
        if let Sent::Events(events) = sent {
            self.inner.lock().recorder.put_back(events);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    fn now() -> Moment {
        Moment {
            wall: "2026-01-31T10:00:00Z".parse().unwrap(),
            mono: Mono(0),
        }
    }

    /// When everything that waited is told.
    const LATER: Mono = Mono(1_000);

    fn phase(phase: &str) -> PodStatus {
        PodStatus {
            phase: Some(phase.into()),
            ..PodStatus::default()
        }
    }

    #[test]
    fn a_burst_of_statuses_goes_out_as_one_message_and_the_last_one_wins() {
        let outbox = Outbox::new("n1", 0);
        outbox.open();
        let (a, b) = (pod("a"), pod("b"));
        outbox.put_status(&a, &phase("Pending"), Mono(0));
        outbox.put_status(&b, &phase("Pending"), Mono(0));
        outbox.put_status(&a, &phase("Running"), Mono(0));
        let Some((Report::PodStatuses(sent), _)) = outbox.next("n1", LATER) else {
            panic!("no statuses")
        };
        let texts: Vec<_> = sent
            .pods
            .iter()
            .map(|p| String::from_utf8(p.status.to_vec()).unwrap())
            .collect();
        assert_eq!(texts, [r#"{"phase":"Running"}"#, r#"{"phase":"Pending"}"#]);
        assert!(outbox.next("n1", LATER).is_none());
        outbox.start_over();
        outbox.open();
        assert!(
            matches!(outbox.next("n1", LATER), Some((Report::PodStatuses(sent), _)) if sent.pods.len() == 2)
        );
    }

    #[test]
    fn what_others_act_on_is_told_at_once_and_steps_on_the_way_wait_for_it() {
        let with = |name: &str, ready: &str| PodStatus {
            conditions: serde_json::from_value(
                serde_json::json!([{"type": "Ready", "status": ready}]),
            )
            .unwrap(),
            ..phase(name)
        };
        let outbox = Outbox::new("n1", 0);
        let told = |at: i64| match outbox.next("n1", Mono(at)) {
            Some((Report::PodStatuses(sent), _)) => {
                let status: PodStatus = serde_json::from_slice(&sent.pods[0].status).unwrap();
                status.phase
            }
            _ => None,
        };
        let mut a = pod("a");
        outbox.put_status(&a, &with("Pending", "False"), Mono(0));
        assert_eq!(
            outbox.due(),
            None,
            "nothing is told before the server's pods are known"
        );
        outbox.open();
        assert_eq!((outbox.due(), told(199)), (Some(Mono(200)), None));
        outbox.put_status(&a, &with("Running", "True"), Mono(150));
        assert_eq!(told(150).as_deref(), Some("Running"));
        assert_eq!(outbox.due(), None);
        // The first of a row of changes sets the time, not the last.
        for at in [1_000, 1_150, 1_199] {
            outbox.put_status(&a, &with("Running", "True"), Mono(at));
            assert_eq!(told(at), None);
        }
        assert_eq!(told(1_200).as_deref(), Some("Running"));
        outbox.put_status(&a, &with("Running", "False"), Mono(2_000));
        assert_eq!(told(2_000).as_deref(), Some("Running"));
        outbox.put_status(&a, &with("Failed", "False"), Mono(3_000));
        assert_eq!(told(3_000).as_deref(), Some("Failed"));
        a.life = Life::Deleted { grace_seconds: 1 };
        outbox.put_status(&a, &with("Running", "True"), Mono(4_000));
        assert_eq!(
            (told(4_199), told(4_200).as_deref()),
            (None, Some("Running"))
        );
    }

    #[test]
    fn events_are_told_together() {
        let outbox = Outbox::new("n1", 0);
        for (at, text) in [(0, "a"), (499, "b")] {
            let moment = Moment {
                mono: Mono(at),
                ..now()
            };
            outbox.pod_event(&pod("a"), &EventNote::normal(None, "Started", text), moment);
            assert!(outbox.next("n1", Mono(at)).is_none());
        }
        assert_eq!(outbox.due(), Some(Mono(500)));
        let told = outbox.next("n1", Mono(500));
        assert!(matches!(told, Some((Report::Events(events), _)) if events.events.len() == 2));
    }

    #[test]
    fn what_is_told_again_is_the_node_and_every_pod_but_no_confirmation() {
        let outbox = Outbox::new("n1", 0);
        outbox.open();
        outbox.put_status(&pod("a"), &phase("Running"), Mono(0));
        let _taken = outbox.put_gone(&pod("b"), &phase("Succeeded"));
        while outbox.next("n1", LATER).is_some() {}
        outbox.tell_again(NodeStatus::default());
        let next = || outbox.next("n1", LATER).map(|(report, _)| report);
        assert!(matches!(next(), Some(Report::NodeStatus(_))));
        assert!(matches!(next(), Some(Report::PodStatuses(sent)) if sent.pods.len() == 1));
        assert!(next().is_none());
    }

    #[test]
    fn what_is_current_and_was_refused_is_told_again_after_a_while() {
        let outbox = Outbox::new("n1", 0);
        outbox.open();
        let (a, b) = (pod("a"), pod("b"));
        outbox.put_node(NodeStatus::default());
        outbox.put_status(&a, &phase("Running"), Mono(0));
        outbox.put_status(&b, &phase("Running"), Mono(0));
        let node = outbox.next("n1", Mono(1_000)).unwrap().1;
        let pods = outbox.next("n1", Mono(1_000)).unwrap().1;
        outbox.refused(node, Mono(11_000));
        outbox.refused(pods, Mono(11_000));
        assert!(outbox.next("n1", Mono(10_999)).is_none());
        // A change does not wait.
        outbox.put_status(&b, &phase("Succeeded"), Mono(2_000));
        let told = |at: i64| match outbox.next("n1", Mono(at)) {
            Some((Report::PodStatuses(sent), _)) => {
                sent.pods.into_iter().map(|pod| pod.name).collect()
            }
            Some(_) => vec!["node".to_owned()],
            None => Vec::new(),
        };
        assert_eq!(told(2_000), ["b"]);
        assert_eq!(told(11_000), ["node"]);
        assert_eq!(told(11_000), ["a"]);
        assert!(outbox.next("n1", Mono(60_000)).is_none());
    }

    #[tokio::test]
    async fn a_confirmation_is_repeated_until_it_is_taken() {
        let outbox = Outbox::new("n1", 0);
        outbox.open();
        let a = pod("a");
        let taken = outbox.put_gone(&a, &phase("Succeeded"));
        let Some((Report::PodGone(message), sent)) = outbox.next("n1", LATER) else {
            panic!("no confirmation")
        };
        assert_eq!(message.uid, a.uid);
        outbox.lost(sent);
        assert!(outbox.next("n1", LATER).is_none());
        outbox.start_over();
        outbox.open();
        let Some((Report::PodGone(_), sent)) = outbox.next("n1", LATER) else {
            panic!("not repeated")
        };
        outbox.taken(sent);
        assert_eq!(taken.await, Ok(()));
    }

    #[tokio::test]
    async fn a_pod_the_server_no_longer_knows_needs_no_confirmation() {
        let outbox = Outbox::new("n1", 0);
        outbox.open();
        let a = pod("a");
        let taken = outbox.put_gone(&a, &phase("Succeeded"));
        outbox.forget_pod(&a.uid);
        assert!(taken.await.is_err());
        assert!(outbox.next("n1", LATER).is_none());
    }

    #[test]
    fn events_wait_for_a_stream() {
        let outbox = Outbox::new("n1", 0);
        outbox.open();
        outbox.pod_event(
            &pod("a"),
            &EventNote::normal(Some("c"), "Started", "Started container c"),
            now(),
        );
        let Some((Report::Events(events), sent)) = outbox.next("n1", LATER) else {
            panic!("no events")
        };
        let event: serde_json::Value = serde_json::from_slice(&events.events[0]).unwrap();
        assert_eq!(event["involvedObject"]["fieldPath"], "spec.containers{c}");
        assert_eq!(event["kind"], "Event");
        outbox.lost(sent);
        assert!(matches!(
            outbox.next("n1", LATER),
            Some((Report::Events(_), _))
        ));
    }
}
