//! The blast radius: where a revision that fails stops its rollout, no more nodes than the budget allows run a pod of an
//! unproven revision that is not available. Nodes out of reach should not run the daemon, and are not among them.

use std::collections::BTreeSet;

use muster_model::time::Moment;

use super::budget;
use crate::objects::{Manner, PodSeen};
use crate::seen::Seen;

/// Judges a pod that was just created. A revision is proven once it was available everywhere; before any is, there is
/// nothing to go back to, and nothing to judge.
pub(crate) fn made(seen: &Seen, pod: &PodSeen, now: Moment) -> Option<String> {
    let set = seen.set_of(&pod.owner)?;
    let of_set = || {
        seen.revisions
            .values()
            .filter(|revision| revision.owner == set.uid)
    };
    let unproven = of_set().any(|revision| revision.hash == pod.hash && !revision.proven);
    let judged = set.guarded
        && unproven
        && of_set().any(|revision| revision.proven)
        && !seen.lately(set.controlled)
        && !seen.lately(set.changed)
        && set.before.as_ref().is_none_or(|(_, at)| !seen.lately(*at));
    if !judged {
        return None;
    }
    let desired = budget::most_desired(seen, set);
    let most = match &set.manner {
        Manner::OnDelete => return None,
        Manner::Replace(share) | Manner::Surge(share) => share.of(desired).max(1),
    };
    let suffers = |node: &str| {
        let mut pods = seen
            .pods_on(&set.uid, node)
            .filter(|pod| !pod.is_over() && !pod.terminating);
        pods.any(|other| {
            let is_known_well =
                other.is_available(set.min_ready_seconds, now) || seen.is_lately_renewed(other);
            other.hash == pod.hash && !is_known_well
        })
    };
    let out: BTreeSet<&str> = seen
        .nodes
        .values()
        .filter(|node| budget::counts(seen, set, node, false) && suffers(&node.name))
        .filter(|node| node.name == pod.node || !budget::unforeseen(seen, set, node))
        .map(|node| node.name.as_str())
        .collect();
    (out.len() > most).then(|| {
        format!(
            "pod {} of {} on {} makes {} nodes with a pod of the unproven {} that is not available, {most} allowed: {out:?}",
            pod.name,
            set.name,
            pod.node,
            out.len(),
            pod.hash
        )
    })
}
