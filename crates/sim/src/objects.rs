//! The objects as the oracles see them, taken from their JSON as it is stored.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_model::reason::annotation;
use muster_model::time::{Moment, Timestamp};
use serde_json::Value;

/// A taint of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taint {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) effect: String,
}

/// A Node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeSeen {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    /// Status of the condition Ready.
    pub(crate) ready: String,
    /// Since when it is out of reach, by the same clocks.
    pub(crate) lost: Option<Moment>,
    /// When labels, taints or reach changed last, or the node came.
    pub(crate) changed: Duration,
}

/// A Pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PodSeen {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) node: String,
    /// Uid of the DaemonSet that controls it.
    pub(crate) owner: String,
    pub(crate) hash: String,
    pub(crate) image: String,
    pub(crate) phase: String,
    pub(crate) ready: bool,
    /// Since when it is Ready: as it says, and as it was seen.
    pub(crate) ready_since: Option<Timestamp>,
    pub(crate) ready_seen: Option<Duration>,
    /// The last time it said to be Ready since, and when that was first heard: a node that was out of reach says it again.
    pub(crate) heard: Option<(Timestamp, Duration)>,
    /// When it last began anew to be Ready, without a word that it was not in between.
    pub(crate) renewed: Option<Duration>,
    pub(crate) terminating: bool,
}

impl PodSeen {
    /// It has ended.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase.as_str(), "Failed" | "Succeeded")
    }

    /// It serves, and nobody asked it to go.
    pub(crate) fn is_serving(&self) -> bool {
        self.ready && !self.terminating && !self.is_over()
    }

    /// It has served long enough, by either clock. Since when, is told in whole seconds: it may be one less.
    pub(crate) fn is_available(&self, min_ready_seconds: i64, now: Moment) -> bool {
        let served = self.served(now);
        let long =
            |seconds: Option<f64>| seconds.is_some_and(|s| s + 1.0 > min_ready_seconds as f64);
        self.is_serving() && (min_ready_seconds == 0 || long(served.0) || long(served.1))
    }

    /// It has, by both.
    pub(crate) fn is_surely_available(&self, min_ready_seconds: i64, now: Moment) -> bool {
        let served = self.served(now);
        let long = |seconds: Option<f64>| seconds.is_some_and(|s| s >= min_ready_seconds as f64);
        self.is_serving() && (min_ready_seconds == 0 || (long(served.0) && long(served.1)))
    }

    /// For how many seconds it has been Ready: as it says, and as it was seen.
    fn served(&self, now: Moment) -> (Option<f64>, Option<f64>) {
        let told = self
            .ready_since
            .map(|since| now.wall.duration_since(since).as_secs_f64());
        let seen = self
            .ready_seen
            .map(|since| now.mono.saturating_sub(since).as_secs_f64());
        (told, seen)
    }
}

/// A share of the nodes, as a manifest says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share(pub(crate) Value);

impl Share {
    /// Of so many nodes, rounded up.
    pub(crate) fn of(&self, nodes: usize) -> usize {
        if let Some(count) = self.0.as_u64() {
            return usize::try_from(count).unwrap_or(usize::MAX);
        }
        let percent = self
            .0
            .as_str()
            .and_then(|text| text.strip_suffix('%')?.parse::<usize>().ok());
        percent.map_or(0, |percent| (nodes * percent).div_ceil(100))
    }
}

/// How a DaemonSet's pods are replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Manner {
    OnDelete,
    Replace(Share),
    Surge(Share),
}

/// A DaemonSet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SetSeen {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) generation: i64,
    pub(crate) terminating: bool,
    pub(crate) manner: Manner,
    pub(crate) min_ready_seconds: i64,
    pub(crate) history_limit: usize,
    pub(crate) node_selector: BTreeMap<String, String>,
    pub(crate) tolerations: Vec<Value>,
    pub(crate) template: Value,
    pub(crate) status: Value,
    /// When its spec changed last.
    pub(crate) changed: Duration,
    /// When what it should run changed last: its template, or its newest revision.
    pub(crate) rollout: Moment,
    /// How pods were replaced before the last change of that, and when it changed.
    pub(crate) before: Option<(Manner, Duration)>,
    /// When it last surged.
    pub(crate) surged: Option<Duration>,
    /// Its rollouts are paused.
    pub(crate) paused: bool,
    /// A revision that fails stops its rollout.
    pub(crate) guarded: bool,
    /// When one of the two changed last.
    pub(crate) controlled: Duration,
    /// Some nodes are to try a revision before others.
    pub(crate) has_canary: bool,
    /// When what it asks of nodes changed last.
    pub(crate) wants_changed: Duration,
}

/// A ControllerRevision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RevisionSeen {
    pub(crate) name: String,
    pub(crate) owner: String,
    pub(crate) number: i64,
    pub(crate) hash: String,
    /// It was available everywhere once.
    pub(crate) proven: bool,
    /// It failed, and another took its place.
    pub(crate) taken_back: bool,
}

/// When a node last lost a pod that served, and whether the controller took it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Loss {
    pub(crate) at: Duration,
    pub(crate) ours: bool,
}

/// A text, or nothing.
pub(crate) fn text(tree: &Value, pointer: &str) -> String {
    tree.pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// An annotation.
pub(crate) fn annotation<'a>(tree: &'a Value, key: &str) -> Option<&'a str> {
    tree.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// Uid of the controller, or nothing.
pub(crate) fn owner(tree: &Value) -> String {
    let owners = tree
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    let controller = owners.and_then(|all| all.iter().find(|owner| owner["controller"] == true));
    controller
        .and_then(|owner| owner["uid"].as_str())
        .unwrap_or_default()
        .to_owned()
}

fn condition<'a>(tree: &'a Value, type_: &str) -> Option<&'a Value> {
    tree.pointer("/status/conditions")?
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == type_)
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

fn map(tree: &Value, pointer: &str) -> BTreeMap<String, String> {
    let found = tree.pointer(pointer).and_then(Value::as_object);
    found
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect()
}

/// A Pod, given what was seen of it before.
pub(crate) fn pod(tree: &Value, before: Option<&PodSeen>, now: Moment) -> PodSeen {
    let condition = condition(tree, "Ready");
    let ready = condition.is_some_and(|condition| condition["status"] == "True");
    let ready_since = condition
        .filter(|_| ready)
        .and_then(|condition| time(&condition["lastTransitionTime"]));
    let heard_before = before.and_then(|pod| pod.heard);
    // Another time than before: it was not Ready in between, though nobody told.
    let heard = ready_since.map(|told| match heard_before {
        Some((before, at)) if before == told => (told, at),
        _ => (told, now.mono),
    });
    let anew = before.is_some_and(|pod| pod.ready) && ready && heard != heard_before;
    PodSeen {
        name: text(tree, "/metadata/name"),
        uid: text(tree, "/metadata/uid"),
        node: text(tree, "/spec/nodeName"),
        owner: owner(tree),
        hash: text(tree, "/metadata/labels/controller-revision-hash"),
        image: text(tree, "/spec/containers/0/image"),
        phase: match text(tree, "/status/phase") {
            phase if phase.is_empty() => "Pending".to_owned(),
            phase => phase,
        },
        ready,
        ready_since,
        ready_seen: ready.then(|| heard.map_or(now.mono, |(_, at)| at)),
        heard: heard.or(heard_before),
        renewed: match anew {
            true => Some(now.mono),
            false => before.and_then(|pod| pod.renewed),
        },
        terminating: tree.pointer("/metadata/deletionTimestamp").is_some(),
    }
}

/// A Node, given what was seen of it before.
pub(crate) fn node(name: &str, tree: &Value, before: Option<&NodeSeen>, now: Moment) -> NodeSeen {
    let taints = tree.pointer("/spec/taints").and_then(Value::as_array);
    let taints = taints.into_iter().flatten().map(|taint| Taint {
        key: text(taint, "/key"),
        value: text(taint, "/value"),
        effect: text(taint, "/effect"),
    });
    let ready = condition(tree, "Ready")
        .and_then(|condition| condition["status"].as_str())
        .unwrap_or_default()
        .to_owned();
    let mut after = NodeSeen {
        name: name.to_owned(),
        labels: map(tree, "/metadata/labels"),
        taints: taints.collect(),
        lost: None,
        changed: now.mono,
        ready,
    };
    let is_lost = after.ready == "Unknown"
        || after
            .taints
            .iter()
            .any(|taint| taint.key == "node.kubernetes.io/unreachable");
    if is_lost {
        after.lost = before.and_then(|node| node.lost).or(Some(now));
    }
    if let Some(before) = before
        && (&before.labels, &before.taints, &before.lost, &before.ready)
            == (&after.labels, &after.taints, &after.lost, &after.ready)
    {
        after.changed = before.changed;
    }
    after
}

/// A DaemonSet, given what was seen of it before.
pub(crate) fn set(name: &str, tree: &Value, before: Option<&SetSeen>, now: Moment) -> SetSeen {
    let strategy = tree.pointer("/spec/updateStrategy").unwrap_or(&Value::Null);
    let share = |field: &str| Share(strategy["rollingUpdate"][field].clone());
    let manner = match strategy["type"].as_str() {
        Some("OnDelete") => Manner::OnDelete,
        _ if share("maxSurge").of(100) > 0 => Manner::Surge(share("maxSurge")),
        _ => Manner::Replace(share("maxUnavailable")),
    };
    let before = before.filter(|before| before.uid == text(tree, "/metadata/uid"));
    let template = tree.pointer("/spec/template").cloned().unwrap_or_default();
    let number = |pointer: &str| tree.pointer(pointer).and_then(Value::as_i64);
    let surges = matches!(manner, Manner::Surge(_));
    let mut after = SetSeen {
        name: name.to_owned(),
        uid: text(tree, "/metadata/uid"),
        generation: number("/metadata/generation").unwrap_or(0),
        terminating: tree.pointer("/metadata/deletionTimestamp").is_some(),
        min_ready_seconds: number("/spec/minReadySeconds").unwrap_or(0),
        history_limit: number("/spec/revisionHistoryLimit")
            .and_then(|limit| usize::try_from(limit).ok())
            .unwrap_or(10),
        node_selector: map(&template, "/spec/nodeSelector"),
        tolerations: template
            .pointer("/spec/tolerations")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default(),
        status: tree.pointer("/status").cloned().unwrap_or_default(),
        manner,
        template,
        changed: now.mono,
        rollout: now,
        before: None,
        surged: surges.then_some(now.mono),
        paused: annotation(tree, annotation::PAUSED) == Some("true"),
        guarded: annotation(tree, annotation::ON_FAILURE).is_some(),
        controlled: now.mono,
        has_canary: annotation(tree, annotation::CANARY).is_some(),
        wants_changed: now.mono,
    };
    let Some(before) = before else {
        return after;
    };
    if before.template == after.template {
        after.rollout = before.rollout;
    }
    if (&before.node_selector, &before.tolerations) == (&after.node_selector, &after.tolerations) {
        after.wants_changed = before.wants_changed;
    }
    if before.generation == after.generation {
        after.changed = before.changed;
    }
    if (before.paused, before.guarded) == (after.paused, after.guarded) {
        after.controlled = before.controlled;
    }
    after.before.clone_from(&before.before);
    if before.manner != after.manner {
        after.before = Some((before.manner.clone(), now.mono));
    }
    if let (false, Some(_)) = (surges, before.surged) {
        let stopped = matches!(before.manner, Manner::Surge(_));
        after.surged = if stopped {
            Some(now.mono)
        } else {
            before.surged
        };
    }
    after
}
