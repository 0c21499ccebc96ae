//! What the pods of a node tell about the revisions that they are of: that one is at fault, and which.

use muster_model::time::Timestamp;

use crate::facts::{NodeFacts, PodFacts, Rules};
use crate::place::Pulled;
use crate::seen::SeenPod;

/// What a failing pod tells about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The current revision: a pod of it, or its images cannot be pulled.
    Current,
    /// An earlier try of the current revision: the pod is of that.
    LastTry,
    /// An older revision.
    Older,
}

/// A pod that shows that its revision is at fault, not merely slow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// What it tells about.
    pub evidence: Evidence,
    /// The hash of its revision.
    pub hash: Option<String>,
    /// In words.
    pub why: String,
}

/// When a pod that stays turns overdue.
pub(crate) fn overdue_at(
    old: Option<&SeenPod<'_>>,
    new: Option<&SeenPod<'_>>,
    rules: &Rules,
    node: &NodeFacts,
    now: Timestamp,
) -> Option<Timestamp> {
    let new = new.filter(|pod| !pod.is_available());
    let old = old.filter(|pod| !pod.facts.ready);
    let pods = new.into_iter().chain(old);
    pods.filter_map(|pod| Some(Deadline::of(pod.facts, node, rules)?.at))
        .filter(|at| *at > now)
        .min()
}

/// When a pod that is not available by then counts as failed.
struct Deadline {
    at: Timestamp,
    /// From when it counts.
    since: &'static str,
}

impl Deadline {
    /// A node that was out of reach has the whole time once it is back, and a pod that was in time and has come down since
    /// has it again.
    fn of(pod: &PodFacts, node: &NodeFacts, rules: &Rules) -> Option<Self> {
        let allowed = rules.progress_deadline?;
        let (begun, since) = match (pod.created?, node.reachable_since) {
            (made, Some(back)) if made < back => (back, "its node was back"),
            (made, _) => (made, "it was made"),
        };
        let at = begun.checked_add(allowed).ok()?;
        let turned = pod.unready_since.or(pod.ready_since);
        // Whoever turned later than that was not judged then, so it was available.
        match turned.filter(|turned| pod.was_available || *turned > at) {
            Some(turned) if turned > begun => Some(Self {
                at: turned.checked_add(allowed).ok()?,
                since: "it came down",
            }),
            _ => Some(Self { at, since }),
        }
    }

    /// What is wrong with a pod that is past it.
    fn words(pod: &PodFacts, node: &NodeFacts, rules: &Rules, now: Timestamp) -> Option<String> {
        let Self { since, .. } = Self::of(pod, node, rules).filter(|due| due.at <= now)?;
        let allowed = rules.progress_deadline?.as_secs();
        let name = &pod.name;
        Some(format!(
            "pod {name} is not available {allowed}s after {since}"
        ))
    }
}

/// What a node's pods show of their revisions; `None`: nothing is wrong, or it is merely slow.
pub(crate) fn failing(
    old: Option<&SeenPod<'_>>,
    new: Option<&SeenPod<'_>>,
    pulled: &Pulled,
    rules: &Rules,
    node: &NodeFacts,
    now: Timestamp,
) -> Option<Failing> {
    let of = |pod: &SeenPod<'_>, evidence: Evidence, why: String| Failing {
        evidence,
        hash: pod.facts.hash.clone(),
        why,
    };
    let why = |pod: &SeenPod<'_>| {
        let shown = pod.facts.failing.clone();
        shown.or_else(|| Deadline::words(pod.facts, node, rules, now))
    };
    if let Some(new) = new.filter(|pod| !pod.is_available())
        && let Some(why) = why(new)
    {
        let attempt = rules.target.attempt;
        let made_in = new.facts.attempt.as_deref();
        // Without a word of it, it was the first try of this number.
        let this_try = made_in.map_or(attempt.again == 0, |made| made == attempt.to_string());
        return match this_try {
            true => Some(of(new, Evidence::Current, why)),
            // One that serves may yet become available.
            false => (!new.facts.ready).then(|| of(new, Evidence::LastTry, why)),
        };
    }
    if let Pulled::Failed(why) = pulled {
        return Some(Failing {
            evidence: Evidence::Current,
            hash: Some(rules.target.hash.clone()),
            why: format!("its images cannot be pulled: {why}"),
        });
    }
    let old = old.filter(|pod| !pod.facts.ready)?;
    Some(of(old, Evidence::Older, why(old)?))
}
