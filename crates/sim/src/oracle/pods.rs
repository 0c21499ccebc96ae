//! Invariant 1 on the objects: one live pod of a DaemonSet per node, two while surging.

use crate::objects::{Manner, PodSeen};
use crate::seen::Seen;

/// Judges a pod that was just created. A pod counts until it is over: one that is still stopping has, or may have,
/// containers on its node.
pub(crate) fn made(seen: &Seen, pod: &PodSeen) -> Option<String> {
    let set = seen.set_of(&pod.owner)?;
    let live: Vec<&str> = seen
        .pods_on(&pod.owner, &pod.node)
        .filter(|other| !other.is_over())
        .map(|other| other.name.as_str())
        .collect();
    let surges = matches!(set.manner, Manner::Surge(_));
    let lately = set
        .before
        .as_ref()
        .is_some_and(|(manner, at)| matches!(manner, Manner::Surge(_)) && seen.lately(*at));
    let most = if surges || lately { 2 } else { 1 };
    (live.len() > most).then(|| {
        format!(
            "pod {} makes {} live pods of {} on {}, {most} allowed: {live:?}",
            pod.name,
            live.len(),
            set.name,
            pod.node
        )
    })
}
