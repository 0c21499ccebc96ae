//! The budget rule: nothing that the controller deletes brings the number of counted nodes without an available pod above
//! `maxUnavailable`.
//!
//! Judged at each deletion of a Ready pod that nobody asked for by hand, from the objects as they are after that very
//! commit. What happened within the last second, the controller may not have known: such a node is not held against it,
//! unless the controller itself took the pod.

use std::collections::BTreeSet;

use muster_model::time::Moment;

use super::fit;
use crate::objects::{Manner, NodeSeen, PodSeen, SetSeen};
use crate::seen::Seen;

/// Judges the deletion of `pod`, given as it was before; `seen` is after.
pub(crate) fn deleted(seen: &Seen, pod: &PodSeen, now: Moment) -> Option<String> {
    let set = seen.set_of(&pod.owner).filter(|set| !set.terminating)?;
    let node = seen.nodes.get(&pod.node)?;
    let rollout = pod.is_serving()
        && !seen.by_hand.contains(&pod.uid)
        && !seen.lately(node.changed)
        && !seen.lately(set.wants_changed)
        && fit::of(set, node).keep;
    if !rollout {
        return None;
    }
    let min_ready = set.min_ready_seconds;
    let was_available = pod.is_surely_available(min_ready, now);
    let is_as_good = |other: &PodSeen| match was_available {
        true => other.is_available(min_ready, now) || seen.is_lately_renewed(other),
        false => other.is_serving(),
    };
    // Another pod serves there as well: the node is not out.
    if seen.pods_on(&set.uid, &pod.node).any(is_as_good) {
        return None;
    }
    if set.paused && !seen.lately(set.controlled) {
        return Some(format!(
            "pod {} of {} on {} was Ready and was deleted, and the rollout is paused",
            pod.name, set.name, pod.node
        ));
    }
    let (most, counts_kept) = match allowed(seen, set) {
        Allowed::Nothing => {
            return Some(format!(
                "pod {} of {} on {} was Ready and was deleted, and {} is OnDelete",
                pod.name, set.name, pod.node, set.name
            ));
        }
        Allowed::Unknown => return None,
        Allowed::Nodes { most, surging } => (most, !surging),
    };
    // While surging, a node that should not run the daemon any more gives its pod up when the others suffice.
    if !counts_kept && !fit::of(set, node).run {
        return None;
    }
    let out: BTreeSet<&str> = seen
        .nodes
        .values()
        .filter(|other| counts(seen, set, other, counts_kept))
        .filter(|other| !seen.pods_on(&set.uid, &other.name).any(is_as_good))
        .filter(|other| other.name == pod.node || !unforeseen(seen, set, other))
        .map(|other| other.name.as_str())
        .collect();
    let served = if was_available {
        "an available"
    } else {
        "a Ready"
    };
    (out.len() > most).then(|| {
        format!(
            "the deletion of pod {} of {} on {} left {} nodes without {served} pod, {most} allowed: {out:?}",
            pod.name,
            set.name,
            pod.node,
            out.len()
        )
    })
}

enum Allowed {
    /// No deletion at all.
    Nothing,
    /// The strategy has just changed from or to `OnDelete` or a surge.
    Unknown,
    Nodes {
        most: usize,
        surging: bool,
    },
}

fn allowed(seen: &Seen, set: &SetSeen) -> Allowed {
    let desired = most_desired(seen, set);
    let former = set
        .before
        .as_ref()
        .filter(|(_, at)| seen.lately(*at))
        .map(|(manner, _)| manner);
    let of = |manner: &Manner| match manner {
        Manner::OnDelete => None,
        Manner::Surge(_) => Some((0, true)),
        Manner::Replace(share) => Some((share.of(desired), false)),
    };
    match (of(&set.manner), former.map(of)) {
        (None, None) => Allowed::Nothing,
        (Some((most, surging)), None) => Allowed::Nodes {
            // Neither the one nor the other would let nothing ever be updated.
            most: if most == 0 && !surging { 1 } else { most },
            surging,
        },
        (Some((now, false)), Some(Some((before, false)))) => Allowed::Nodes {
            most: now.max(before).max(1),
            surging: false,
        },
        _ => Allowed::Unknown,
    }
}

/// The nodes that should run the daemon, and those that changed so lately that the controller may still count them.
pub(super) fn most_desired(seen: &Seen, set: &SetSeen) -> usize {
    let count = |counts: &dyn Fn(&NodeSeen) -> bool| {
        let nodes = seen.nodes.values();
        nodes.filter(|node| counts(node)).count()
    };
    count(&|node| fit::of(set, node).run) + count(&|node| seen.lately(node.changed))
}

/// Whether a node counts: it should run the daemon (or keeps one, `kept`), and was not out of reach before the rollout.
pub(super) fn counts(seen: &Seen, set: &SetSeen, node: &NodeSeen, kept: bool) -> bool {
    let fit = fit::of(set, node);
    let has_pod = seen.pods_on(&set.uid, &node.name).any(|pod| !pod.is_over());
    // A node that never had a pod may be waiting for its wave: only the new template wants it.
    let key = (set.uid.clone(), node.name.clone());
    let withheld = set.has_canary && !has_pod && !seen.losses.contains_key(&key);
    let concerned = (fit.run && !withheld) || (kept && fit.keep && has_pod);
    // Objects tell whole seconds.
    let left_out = node.lost.is_some_and(|lost| {
        lost.mono <= set.rollout.mono + std::time::Duration::from_secs(1)
            || lost.wall.as_second() <= set.rollout.wall.as_second()
    });
    concerned && !left_out
}

/// Whether a node is out since so lately, and not by our hand, that it cannot be held against the controller.
pub(super) fn unforeseen(seen: &Seen, set: &SetSeen, node: &NodeSeen) -> bool {
    let key = (set.uid.clone(), node.name.clone());
    let lost = seen
        .losses
        .get(&key)
        .is_some_and(|loss| !loss.ours && seen.lately(loss.at));
    lost || seen.lately(node.changed)
}
