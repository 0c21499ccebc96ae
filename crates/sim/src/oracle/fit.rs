//! Which nodes a DaemonSet is meant for.

use crate::objects::{NodeSeen, SetSeen, Taint};

/// What a node is to a DaemonSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fit {
    /// It should have a pod.
    pub(crate) run: bool,
    /// It may keep one that it has.
    pub(crate) keep: bool,
}

/// Taints that every daemon pod tolerates: key and effect.
const AUTOMATIC: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// Judges a node for a DaemonSet, by labels and taints.
pub(crate) fn of(set: &SetSeen, node: &NodeSeen) -> Fit {
    let selected = set
        .node_selector
        .iter()
        .all(|(key, value)| node.labels.get(key) == Some(value));
    let bars = |effect: &str| {
        node.taints
            .iter()
            .any(|taint| taint.effect == effect && !is_tolerated(set, taint))
    };
    let keep = selected && !bars("NoExecute");
    Fit {
        run: keep && !bars("NoSchedule"),
        keep,
    }
}

/// The tolerations of scenarios: a key with `Exists`, with an effect or with any.
fn is_tolerated(set: &SetSeen, taint: &Taint) -> bool {
    let automatic = AUTOMATIC.contains(&(taint.key.as_str(), taint.effect.as_str()));
    automatic
        || set.tolerations.iter().any(|toleration| {
            toleration["operator"] == "Exists"
                && toleration["key"] == *taint.key
                && (toleration["effect"].is_null() || toleration["effect"] == *taint.effect)
        })
}
