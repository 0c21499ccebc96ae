//! What the server thinks of a node, from its silence and its own conditions (spec/node-agent.md 5). Pure.

use std::time::Duration;

use muster_model::k8s::api::core::v1::{Node, NodeCondition, Taint};
use muster_model::k8s::apimachinery::pkg::apis::meta::v1::Time;
use muster_model::reason::{condition, taint as key};
use muster_model::taint::{NO_EXECUTE, NO_SCHEDULE};
use muster_model::time::Timestamp;

/// How long a node may be silent before it counts as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Graces {
    /// Since the last heartbeat or status.
    pub heartbeat: Duration,
    /// For a node that was never heard from.
    pub startup: Duration,
}

impl Default for Graces {
    /// spec/node-agent.md 5: 40 s, and 60 s for a node never heard from.
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(40),
            startup: Duration::from_secs(60),
        }
    }
}

/// What a node's Ready condition says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// True.
    Ready,
    /// False: the agent itself says so.
    NotReady,
    /// Unknown: nobody says anything.
    Unknown,
    /// No condition yet, and not silent for too long: a node that is just registering.
    Starting,
}

impl Health {
    /// Of a list of conditions.
    pub fn of(conditions: &[NodeCondition]) -> Self {
        match conditions
            .iter()
            .find(|c| c.type_ == condition::READY)
            .map(|c| c.status.as_str())
        {
            Some("True") => Self::Ready,
            Some("False") => Self::NotReady,
            Some(_) => Self::Unknown,
            None => Self::Starting,
        }
    }

    /// Whether pods of the node count as out of reach or broken.
    pub fn is_lost(self) -> bool {
        matches!(self, Self::NotReady | Self::Unknown)
    }

    /// The taint that goes with it.
    fn taint_key(self) -> Option<&'static str> {
        match self {
            Self::NotReady => Some(key::NOT_READY),
            Self::Unknown => Some(key::UNREACHABLE),
            Self::Ready | Self::Starting => None,
        }
    }
}

/// What is to be done about a node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Judgement {
    /// Its health once the conditions below are stored.
    pub(super) health: Health,
    /// The conditions it should have; `None`: those it has.
    pub(super) conditions: Option<Vec<NodeCondition>>,
    /// The taints that follow from conditions and `spec.unschedulable`: exactly these of their kind it should have.
    pub(super) ours: Vec<Taint>,
}

/// The condition types that turn Unknown together when a node falls silent, with Ready last as agents write them.
const CONDITIONS: [&str; 4] = [
    condition::MEMORY_PRESSURE,
    condition::DISK_PRESSURE,
    condition::PID_PRESSURE,
    condition::READY,
];

/// The conditions of a node that has been silent for `silent_for`; `None`: those it has. `now` is only written
/// down, never compared.
fn silenced(
    node: &Node,
    silent_for: Duration,
    graces: &Graces,
    now: Timestamp,
) -> Option<Vec<NodeCondition>> {
    let present = present_conditions(node);
    let find = |type_: &str| present.iter().find(|c| c.type_ == type_);
    let heard = find(condition::READY).is_some_and(|c| c.last_heartbeat_time.is_some());
    let grace = if heard {
        graces.heartbeat
    } else {
        graces.startup
    };
    let is_unknown = |type_: &&str| find(type_).is_some_and(|c| c.status == "Unknown");
    if silent_for < grace || CONDITIONS.iter().all(is_unknown) {
        return None;
    }
    let mut conditions = present.to_vec();
    for type_ in CONDITIONS {
        match conditions.iter_mut().find(|c| c.type_ == type_) {
            Some(c) if c.status == "Unknown" => {}
            Some(c) => {
                c.status = "Unknown".to_owned();
                c.reason = Some("NodeStatusUnknown".to_owned());
                c.message = Some("Kubelet stopped posting node status.".to_owned());
                c.last_transition_time = Some(Time(now));
            }
            None => conditions.push(NodeCondition {
                type_: type_.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: None,
                last_transition_time: Some(Time(now)),
            }),
        }
    }
    Some(conditions)
}

/// What a node's silence comes to. The taints are those of a node that may not be evicted; see [`with_eviction`].
pub(super) fn judge(
    node: &Node,
    silent_for: Duration,
    graces: &Graces,
    now: Timestamp,
) -> Judgement {
    let conditions = silenced(node, silent_for, graces, now);
    let shown = conditions.as_deref().unwrap_or(present_conditions(node));
    let health = Health::of(shown);
    let mut ours: Vec<Taint> = health
        .taint_key()
        .map(|key| taint_of(key, NO_SCHEDULE))
        .into_iter()
        .collect();
    for (type_, key) in [
        (condition::MEMORY_PRESSURE, key::MEMORY_PRESSURE),
        (condition::DISK_PRESSURE, key::DISK_PRESSURE),
        (condition::PID_PRESSURE, key::PID_PRESSURE),
    ] {
        if shown.iter().any(|c| c.type_ == type_ && c.status == "True") {
            ours.push(taint_of(key, NO_SCHEDULE));
        }
    }
    if node.spec.as_ref().and_then(|s| s.unschedulable) == Some(true) {
        ours.push(taint_of(key::UNSCHEDULABLE, NO_SCHEDULE));
    }
    Judgement {
        health,
        conditions,
        ours,
    }
}

/// Adds the NoExecute taint that goes with this health, if any.
pub(super) fn with_eviction(mut ours: Vec<Taint>, health: Health, now: Timestamp) -> Vec<Taint> {
    if let Some(key) = health.taint_key() {
        let taint = Taint {
            time_added: Some(Time(now)),
            ..taint_of(key, NO_EXECUTE)
        };
        ours.insert(1.min(ours.len()), taint);
    }
    ours
}

/// Whether a node has the NoExecute taint that goes with this health.
pub(super) fn is_evicting(node: &Node, health: Health) -> bool {
    health
        .taint_key()
        .is_some_and(|key| has(present_taints(node), key, NO_EXECUTE))
}

/// A node's taints with ours put right and everybody else's left alone.
pub(super) fn merged(present: &[Taint], ours: &[Taint]) -> Vec<Taint> {
    let mut taints: Vec<Taint> = present
        .iter()
        .filter(|t| !is_ours(t) || has(ours, &t.key, &t.effect))
        .cloned()
        .collect();
    for wanted in ours {
        if !has(&taints, &wanted.key, &wanted.effect) {
            taints.push(wanted.clone());
        }
    }
    taints
}

fn taint_of(key: &str, effect: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        value: None,
        time_added: None,
    }
}

fn has(taints: &[Taint], key: &str, effect: &str) -> bool {
    taints.iter().any(|t| t.key == key && t.effect == effect)
}

/// Taints that follow from conditions and `spec.unschedulable`: nobody else may keep them.
fn is_ours(taint: &Taint) -> bool {
    match taint.key.as_str() {
        key::NOT_READY | key::UNREACHABLE => {
            [NO_SCHEDULE, NO_EXECUTE].contains(&taint.effect.as_str())
        }
        key::MEMORY_PRESSURE | key::DISK_PRESSURE | key::PID_PRESSURE | key::UNSCHEDULABLE => {
            taint.effect == NO_SCHEDULE
        }
        _ => false,
    }
}

fn present_conditions(node: &Node) -> &[NodeCondition] {
    node.status
        .as_ref()
        .and_then(|s| s.conditions.as_deref())
        .unwrap_or_default()
}

pub(super) fn present_taints(node: &Node) -> &[Taint] {
    node.spec
        .as_ref()
        .and_then(|s| s.taints.as_deref())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn node(ready: &str, taints: serde_json::Value, unschedulable: bool) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n1"},
            "spec": {"taints": taints, "unschedulable": unschedulable},
            "status": {"conditions": [
                {"type": "MemoryPressure", "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
                {"type": "Ready", "status": ready, "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        }))
        .unwrap()
    }

    fn texts(taints: &[Taint]) -> Vec<String> {
        taints.iter().map(muster_model::taint::taint_text).collect()
    }

    fn silent(node: &Node, seconds: u64) -> Judgement {
        judge(
            node,
            Duration::from_secs(seconds),
            &Graces::default(),
            at(1000),
        )
    }

    #[test]
    fn na_011_a_node_silent_for_the_grace_is_unknown_and_unreachable() {
        let node = node("True", json!([]), false);
        let before = silent(&node, 39);
        assert_eq!(before.health, Health::Ready);
        assert_eq!(before.conditions, None);
        assert!(before.ours.is_empty());

        let after = silent(&node, 40);
        assert_eq!(after.health, Health::Unknown);
        let conditions = after.conditions.unwrap();
        assert_eq!(conditions.len(), 4, "all four conditions turn Unknown");
        let ready = conditions.iter().find(|c| c.type_ == "Ready").unwrap();
        assert_eq!(ready.status, "Unknown");
        assert_eq!(ready.reason.as_deref(), Some("NodeStatusUnknown"));
        assert_eq!(
            ready.message.as_deref(),
            Some("Kubelet stopped posting node status.")
        );
        assert_eq!(
            ready.last_heartbeat_time,
            present_conditions(&node)[1].last_heartbeat_time
        );
        assert_eq!(ready.last_transition_time, Some(Time(at(1000))));
        assert_eq!(
            texts(&after.ours),
            ["node.kubernetes.io/unreachable:NoSchedule"]
        );

        let evicting = with_eviction(after.ours, after.health, at(1000));
        assert_eq!(
            texts(&evicting),
            [
                "node.kubernetes.io/unreachable:NoSchedule",
                "node.kubernetes.io/unreachable:NoExecute"
            ]
        );
        assert_eq!(evicting[1].time_added, Some(Time(at(1000))));
    }

    #[test]
    fn a_node_never_heard_from_gets_its_own_words_after_its_own_grace() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
        assert_eq!(silent(&node, 59).health, Health::Starting);
        let after = silent(&node, 60);
        assert_eq!(after.health, Health::Unknown);
        let ready = &after.conditions.unwrap()[3];
        assert_eq!(ready.reason.as_deref(), Some("NodeStatusNeverUpdated"));
        assert_eq!(
            ready.message.as_deref(),
            Some("Kubelet never posted node status.")
        );
    }

    #[test]
    fn taints_follow_conditions_and_leave_those_of_people_alone() {
        let own = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
        let unreachable = json!({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"});
        let back = node("True", json!([own, unreachable]), false);
        let ours = silent(&back, 0).ours;
        assert_eq!(
            texts(&merged(present_taints(&back), &ours)),
            ["k=v:NoSchedule"],
            "back to Ready removes both effects"
        );

        let not_ready = node("False", json!([unreachable]), true);
        let ours = silent(&not_ready, 0).ours;
        assert_eq!(
            texts(&merged(present_taints(&not_ready), &ours)),
            [
                "node.kubernetes.io/not-ready:NoSchedule",
                "node.kubernetes.io/unschedulable:NoSchedule"
            ],
            "not-ready and unreachable exclude each other"
        );
    }

    #[test]
    fn a_judged_node_is_left_alone() {
        let mut node = node("True", json!([]), true);
        let judged = silent(&node, 50);
        let ours = with_eviction(judged.ours, judged.health, at(5));
        let taints = merged(&[], &ours);
        node.spec.as_mut().unwrap().taints = Some(taints.clone());
        node.status.as_mut().unwrap().conditions = judged.conditions;
        let again = silent(&node, 50);
        assert_eq!(again.conditions, None);
        assert!(is_evicting(&node, again.health));
        let ours = with_eviction(again.ours, again.health, at(500));
        assert_eq!(merged(present_taints(&node), &ours), taints);
    }
}
