//! What the world looks like, taken from the store's commits as they happen: no cache, no controller, no server in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_model::kind::{CONTROLLER_REVISION, DAEMON_SET, EVENT, Kind, NODE, POD};
use muster_model::reason::annotation;
use muster_model::time::{Clock, Moment};
use muster_server::registry::keys;
use muster_store::{Op, Revision, Txn};
use muster_testkit::clock::SteppingClock;
use serde_json::Value;

use crate::objects::{self, Loss, NodeSeen, PodSeen, RevisionSeen, SetSeen};
use crate::oracle;
use crate::trace::Trace;

/// Everything seen so far.
pub(crate) struct Seen {
    clock: Arc<SteppingClock>,
    trace: Trace,
    pub(crate) nodes: BTreeMap<String, NodeSeen>,
    pub(crate) pods: BTreeMap<String, PodSeen>,
    pub(crate) sets: BTreeMap<String, SetSeen>,
    pub(crate) revisions: BTreeMap<String, RevisionSeen>,
    /// Every pod that ever was, by uid, as it was last.
    pub(crate) ever: BTreeMap<String, PodSeen>,
    /// By uid of the DaemonSet and node.
    pub(crate) losses: BTreeMap<(String, String), Loss>,
    /// Uids of pods that a person deletes.
    pub(crate) by_hand: BTreeSet<String>,
    /// Every write: key and revision.
    written: BTreeSet<(String, u64)>,
    last: u64,
    /// How old the facts may be on which something was decided: more when the store is slow.
    pub(crate) slack: Duration,
    /// What was broken.
    pub(crate) faults: Vec<String>,
}

/// What became of a pod in a commit.
struct Changed {
    before: Option<PodSeen>,
    after: Option<PodSeen>,
}

impl Seen {
    pub(crate) fn new(clock: Arc<SteppingClock>, trace: Trace) -> Self {
        Self {
            clock,
            trace,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            sets: BTreeMap::new(),
            revisions: BTreeMap::new(),
            ever: BTreeMap::new(),
            losses: BTreeMap::new(),
            by_hand: BTreeSet::new(),
            written: BTreeSet::new(),
            last: 0,
            slack: Duration::from_secs(1),
            faults: Vec::new(),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.moment()
    }

    /// Something that must not be.
    pub(crate) fn broken(&mut self, fault: String) {
        self.trace.say(format_args!("BROKEN {fault}"));
        self.faults.push(fault);
    }

    /// Whether that happened so lately that a decision may not have known of it.
    pub(crate) fn lately(&self, at: Duration) -> bool {
        self.now().mono.saturating_sub(at) <= self.slack
    }

    /// Whether the pod serves and began anew to be Ready so lately: a decision may have taken it for one that is available.
    pub(crate) fn is_lately_renewed(&self, pod: &PodSeen) -> bool {
        pod.is_serving() && pod.renewed.is_some_and(|at| self.lately(at))
    }

    /// The DaemonSet with this uid.
    pub(crate) fn set_of(&self, uid: &str) -> Option<&SetSeen> {
        self.sets.values().find(|set| set.uid == uid)
    }

    /// The pods of a DaemonSet on a node.
    pub(crate) fn pods_on<'a>(
        &'a self,
        owner: &'a str,
        node: &'a str,
    ) -> impl Iterator<Item = &'a PodSeen> {
        self.pods
            .values()
            .filter(move |pod| pod.owner == owner && pod.node == node)
    }

    /// Whether a key was written at a revision.
    pub(crate) fn was_written(&self, kind: &Kind, name: &str, revision: &str) -> bool {
        let key = muster_model::object::NamespacedName::new(
            if kind.namespaced {
                crate::manifest::NAMESPACE
            } else {
                ""
            },
            name,
        );
        let key = keys::of(kind, &key).as_str().to_owned();
        revision
            .parse()
            .is_ok_and(|revision| self.written.contains(&(key, revision)))
    }

    /// Takes a commit in, and judges it.
    pub(crate) fn commit(&mut self, revision: Revision, txn: &Txn) {
        let now = self.now();
        if revision.0 <= self.last {
            self.broken(format!("revision {revision} after {}", self.last));
        }
        self.last = revision.0;
        let mut changes = Vec::new();
        for op in &txn.ops {
            let (key, value) = match op {
                Op::Put { soft: true, .. } => continue,
                Op::Put { key, value, .. } => (key, Some(value)),
                Op::Delete { key } => (key, None),
            };
            self.written.insert((key.as_str().to_owned(), revision.0));
            let Some((kind, id)) = keys::parse(key.as_str()) else {
                continue;
            };
            let tree = value.and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
            if *kind == POD {
                let before = self.pods.remove(&id.name);
                let after = tree
                    .as_ref()
                    .map(|tree| objects::pod(tree, before.as_ref(), now));
                if let Some(after) = &after {
                    self.pods.insert(id.name.clone(), after.clone());
                    self.ever.insert(after.uid.clone(), after.clone());
                }
                changes.push(Changed { before, after });
            } else if *kind == NODE {
                self.node(&id.name, tree.as_ref(), now);
            } else if *kind == DAEMON_SET {
                self.set(&id.name, tree.as_ref(), now);
            } else if *kind == CONTROLLER_REVISION {
                self.revision(&id.name, tree.as_ref(), now);
            } else if *kind == EVENT
                && let Some(tree) = &tree
            {
                self.trace.say(format_args!(
                    "r{revision} event {} {}: {}",
                    objects::text(tree, "/reason"),
                    objects::text(tree, "/involvedObject/name"),
                    objects::text(tree, "/message"),
                ));
            }
        }
        for change in &changes {
            self.tell_pod(revision, change);
            self.note_loss(change, now);
        }
        for change in changes {
            let fault = match (&change.before, &change.after) {
                (None, Some(made)) => {
                    oracle::pods::made(self, made).or_else(|| oracle::blast::made(self, made, now))
                }
                (Some(before), after)
                    if !before.terminating && after.as_ref().is_none_or(|pod| pod.terminating) =>
                {
                    oracle::budget::deleted(self, before, now)
                }
                _ => None,
            };
            if let Some(fault) = fault {
                self.broken(fault);
            }
        }
    }

    fn note_loss(&mut self, change: &Changed, now: Moment) {
        let Some(before) = change.before.as_ref().filter(|pod| pod.is_serving()) else {
            return;
        };
        let serves = change.after.as_ref().is_some_and(PodSeen::is_serving);
        if serves {
            return;
        }
        let deleted = change.after.as_ref().is_none_or(|pod| pod.terminating);
        let loss = Loss {
            at: now.mono,
            ours: deleted && !self.by_hand.contains(&before.uid),
        };
        self.losses
            .insert((before.owner.clone(), before.node.clone()), loss);
    }

    fn tell_pod(&self, revision: Revision, change: &Changed) {
        let told = |pod: &PodSeen| {
            let going = if pod.terminating { " going" } else { "" };
            let ready = if pod.ready { " ready" } else { "" };
            format!("{}{ready}{going}", pod.phase)
        };
        let (pod, what) = match (&change.before, &change.after) {
            (None, Some(pod)) => (
                pod,
                format!("created on {} of {} ({})", pod.node, pod.hash, pod.image),
            ),
            (Some(pod), None) => (pod, "gone".to_owned()),
            (Some(before), Some(pod)) if told(before) != told(pod) => (pod, told(pod)),
            _ => return,
        };
        self.trace.say(format_args!(
            "r{revision} pod {} on {}: {what}",
            pod.name, pod.node
        ));
    }

    fn node(&mut self, name: &str, tree: Option<&Value>, now: Moment) {
        let before = self.nodes.remove(name);
        let Some(tree) = tree else {
            self.trace.say(format_args!("node {name} gone"));
            return;
        };
        let after = objects::node(name, tree, before.as_ref(), now);
        if before.as_ref() != Some(&after) {
            let taints: Vec<String> = after
                .taints
                .iter()
                .map(|taint| format!("{}={}:{}", taint.key, taint.value, taint.effect))
                .collect();
            self.trace.say(format_args!(
                "node {name} ready={} zone={} taints={taints:?}",
                after.ready,
                after
                    .labels
                    .get(crate::manifest::ZONE)
                    .map_or("", String::as_str),
            ));
        }
        self.nodes.insert(name.to_owned(), after);
    }

    fn set(&mut self, name: &str, tree: Option<&Value>, now: Moment) {
        let before = self.sets.remove(name);
        let Some(tree) = tree else {
            self.trace.say(format_args!("daemonset {name} gone"));
            return;
        };
        let after = objects::set(name, tree, before.as_ref(), now);
        if before.as_ref() != Some(&after) {
            let number = |field: &str| after.status.get(field).and_then(Value::as_i64).unwrap_or(0);
            self.trace.say(format_args!(
                "daemonset {name} generation {}/{} desired {} current {} updated {} ready {} available {} misscheduled {}{}",
                number("observedGeneration"),
                after.generation,
                number("desiredNumberScheduled"),
                number("currentNumberScheduled"),
                number("updatedNumberScheduled"),
                number("numberReady"),
                number("numberAvailable"),
                number("numberMisscheduled"),
                if after.terminating { " going" } else { "" },
            ));
        }
        self.sets.insert(name.to_owned(), after);
    }

    fn revision(&mut self, name: &str, tree: Option<&Value>, now: Moment) {
        let before = self.revisions.remove(name);
        let Some(tree) = tree else {
            self.trace.say(format_args!("revision {name} gone"));
            return;
        };
        let after = RevisionSeen {
            name: name.to_owned(),
            owner: objects::owner(tree),
            number: tree
                .pointer("/revision")
                .and_then(Value::as_i64)
                .unwrap_or(0),
            hash: objects::text(tree, "/metadata/labels/controller-revision-hash"),
            proven: objects::annotation(tree, annotation::AVAILABLE_EVERYWHERE).is_some(),
            taken_back: objects::annotation(tree, annotation::TAKEN_BACK).is_some(),
        };
        if before.as_ref() != Some(&after) {
            let proven = if after.proven { ", proven" } else { "" };
            self.trace.say(format_args!(
                "revision {name} number {}{proven}",
                after.number
            ));
        }
        if before.as_ref().map(|before| before.number) != Some(after.number)
            && let Some(set) = self.sets.values_mut().find(|set| set.uid == after.owner)
        {
            set.rollout = now;
        }
        self.revisions.insert(name.to_owned(), after);
    }

    /// The newest revision of a DaemonSet.
    pub(crate) fn newest(&self, owner: &str) -> Option<&RevisionSeen> {
        self.revisions
            .values()
            .filter(|revision| revision.owner == owner)
            .max_by_key(|revision| revision.number)
    }
}
