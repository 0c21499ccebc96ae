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

/// A node as it should be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Judgement {
    /// Its health with these conditions.
    pub(super) health: Health,
    /// All conditions; equal to the present ones when nothing is to be written.
    pub(super) conditions: Vec<NodeCondition>,
    /// All taints; equal to the present ones when nothing is to be written.
    pub(super) taints: Vec<Taint>,
}

/// The condition types that turn Unknown together when a node falls silent, with Ready last as agents write them.
const CONDITIONS: [&str; 4] = [
    condition::MEMORY_PRESSURE,
    condition::DISK_PRESSURE,
    condition::PID_PRESSURE,
    condition::READY,
];

/// Conditions of a node that has been silent for `silent_for`. `now` is only written down, never compared.
pub(super) fn conditions(
    node: &Node,
    silent_for: Duration,
    graces: &Graces,
    now: Timestamp,
) -> Vec<NodeCondition> {
    let present = present_conditions(node);
    let heard = present
        .iter()
        .any(|c| c.type_ == condition::READY && c.last_heartbeat_time.is_some());
    let grace = if heard {
        graces.heartbeat
    } else {
        graces.startup
    };
    let mut conditions = present.to_vec();
    if silent_for < grace {
        return conditions;
    }
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
    conditions
}

/// The whole judgement. `may_evict`: whether the rate of evictions allows a new NoExecute taint now.
pub(super) fn judge(
    node: &Node,
    silent_for: Duration,
    graces: &Graces,
    may_evict: bool,
    now: Timestamp,
) -> Judgement {
    let conditions = conditions(node, silent_for, graces, now);
    let health = Health::of(&conditions);
    let taints = taints(node, health, &conditions, may_evict, now);
    Judgement {
        health,
        conditions,
        taints,
    }
}

/// Whether a node of this health still lacks its NoExecute taint: it waits for the rate of evictions.
pub(super) fn awaits_eviction(node: &Node, health: Health) -> bool {
    health.taint_key().is_some_and(|key| {
        !present_taints(node)
            .iter()
            .any(|t| t.key == key && t.effect == NO_EXECUTE)
    })
}

fn taints(
    node: &Node,
    health: Health,
    conditions: &[NodeCondition],
    may_evict: bool,
    now: Timestamp,
) -> Vec<Taint> {
    let present = present_taints(node);
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    if let Some(key) = health.taint_key() {
        wanted.push((key, NO_SCHEDULE));
        if may_evict || !awaits_eviction(node, health) {
            wanted.push((key, NO_EXECUTE));
        }
    }
    let is_true = |type_: &str| {
        conditions
            .iter()
            .any(|c| c.type_ == type_ && c.status == "True")
    };
    for (type_, key) in [
        (condition::MEMORY_PRESSURE, key::MEMORY_PRESSURE),
        (condition::DISK_PRESSURE, key::DISK_PRESSURE),
        (condition::PID_PRESSURE, key::PID_PRESSURE),
    ] {
        if is_true(type_) {
            wanted.push((key, NO_SCHEDULE));
        }
    }
    let unschedulable = node.spec.as_ref().and_then(|s| s.unschedulable) == Some(true);
    if unschedulable {
        wanted.push((key::UNSCHEDULABLE, NO_SCHEDULE));
    }

    let mut taints: Vec<Taint> = present
        .iter()
        .filter(|t| !is_ours(t) || wanted.contains(&(t.key.as_str(), t.effect.as_str())))
        .cloned()
        .collect();
    for (key, effect) in wanted {
        if !taints.iter().any(|t| t.key == key && t.effect == effect) {
            taints.push(Taint {
                key: key.to_owned(),
                value: None,
                effect: effect.to_owned(),
                time_added: (effect == NO_EXECUTE).then_some(Time(now)),
            });
        }
    }
    taints
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

fn present_taints(node: &Node) -> &[Taint] {
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

    #[test]
    fn na_011_a_node_silent_for_the_grace_is_unknown_and_unreachable() {
        let node = node("True", json!([]), false);
        let graces = Graces::default();
        let before = judge(&node, Duration::from_secs(39), &graces, true, at(1000));
        assert_eq!(before.health, Health::Ready);
        assert_eq!(before.conditions, present_conditions(&node));
        assert!(before.taints.is_empty());

        let after = judge(&node, Duration::from_secs(40), &graces, false, at(1000));
        assert_eq!(after.health, Health::Unknown);
        let ready = after
            .conditions
            .iter()
            .find(|c| c.type_ == "Ready")
            .unwrap();
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
            after.conditions.len(),
            4,
            "all four conditions turn Unknown"
        );
        assert_eq!(
            texts(&after.taints),
            ["node.kubernetes.io/unreachable:NoSchedule"]
        );

        let evicting = judge(&node, Duration::from_secs(40), &graces, true, at(1000));
        assert_eq!(
            texts(&evicting.taints),
            [
                "node.kubernetes.io/unreachable:NoSchedule",
                "node.kubernetes.io/unreachable:NoExecute"
            ]
        );
        assert_eq!(evicting.taints[1].time_added, Some(Time(at(1000))));
    }

    #[test]
    fn a_node_never_heard_from_gets_its_own_words_after_its_own_grace() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
        let graces = Graces::default();
        assert_eq!(
            judge(&node, Duration::from_secs(59), &graces, true, at(0)).health,
            Health::Starting
        );
        let after = judge(&node, Duration::from_secs(60), &graces, true, at(0));
        assert_eq!(after.health, Health::Unknown);
        assert_eq!(
            after.conditions[3].reason.as_deref(),
            Some("NodeStatusNeverUpdated")
        );
        assert_eq!(
            after.conditions[3].message.as_deref(),
            Some("Kubelet never posted node status.")
        );
    }

    #[test]
    fn taints_follow_conditions_and_leave_those_of_people_alone() {
        let own = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
        let unreachable = json!({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"});
        let back = node("True", json!([own, unreachable]), false);
        let judged = judge(&back, Duration::ZERO, &Graces::default(), true, at(0));
        assert_eq!(
            texts(&judged.taints),
            ["k=v:NoSchedule"],
            "back to Ready removes both effects"
        );

        let not_ready = node("False", json!([unreachable]), true);
        let judged = judge(&not_ready, Duration::ZERO, &Graces::default(), false, at(0));
        assert_eq!(
            texts(&judged.taints),
            [
                "node.kubernetes.io/not-ready:NoSchedule",
                "node.kubernetes.io/unschedulable:NoSchedule"
            ],
            "not-ready and unreachable exclude each other"
        );
    }

    #[test]
    fn a_judged_node_is_left_alone() {
        let silent = Duration::from_secs(50);
        let mut node = node("True", json!([]), true);
        let judged = judge(&node, silent, &Graces::default(), true, at(5));
        node.spec.as_mut().unwrap().taints = Some(judged.taints.clone());
        node.status.as_mut().unwrap().conditions = Some(judged.conditions.clone());
        let again = judge(&node, silent, &Graces::default(), false, at(500));
        assert_eq!(again, judged);
    }
}
