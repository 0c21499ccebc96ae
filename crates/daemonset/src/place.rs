//! One node: should it run the daemon, does it, what is wrong (spec/daemonset.md 6 and 10.1).

use std::sync::Arc;

use muster_model::pod_status::{Availability, Phase};
use muster_model::pre_pull::State;
use muster_model::time::Timestamp;

use crate::evidence::{self, Failing};
use crate::facts::{DaemonFacts, NodeFacts, PodFacts, PodUid, Rules};
use crate::fit::{Fit, fit};
use crate::group::Group;
use crate::rollout::{self, Part};
use crate::seen::{Seen, SeenPod};
use crate::verdict::{No, Verdict};

/// A pod, as a decision names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    /// Its name, for people and for the API call.
    pub name: Arc<str>,
    /// Its uid: which pod is really meant.
    pub uid: PodUid,
}

impl PodRef {
    pub(crate) fn of(pod: &PodFacts) -> Self {
        Self {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        }
    }
}

/// Why a pod has to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeleteWhy {
    /// It failed, and its back-off has passed.
    Failed,
    /// It succeeded; daemons do not end.
    Succeeded,
    /// The node may not keep it.
    Misplaced,
    /// Another pod of the same daemon stays on the node.
    Excess,
    /// It has no `nodeName` and is meant for a node that does not exist.
    NoSuchNode,
    /// Its successor stands beside it (surge).
    Replaced,
    /// It is of an older revision, and it is its turn.
    Outdated,
    /// It does not work, and a revision that does is at hand.
    Failing,
}

impl DeleteWhy {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Succeeded => "succeeded",
            Self::Misplaced => "should not be there",
            Self::Excess => "one too many",
            Self::NoSuchNode => "no such node",
            Self::Replaced => "replaced",
            Self::Outdated => "old revision",
            Self::Failing => "does not work",
        }
    }
}

/// What counts in the status (spec/daemonset.md 14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// The node should run the daemon.
    pub desired: bool,
    /// It should, and has a pod.
    pub current: bool,
    /// It should not, and has a pod.
    pub misscheduled: bool,
    /// It should, and its oldest pod is Ready.
    pub ready: bool,
    /// It should, and its oldest pod is available.
    pub available: bool,
    /// It should, and its oldest pod is of the current revision.
    pub updated: bool,
}

/// How far a node is with the images of the current revision, while it runs an older one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Pulled {
    /// Nobody wants them early.
    #[default]
    Unneeded,
    /// They have not been asked for.
    Unasked,
    /// They are being pulled.
    Asked,
    /// They are there.
    Ready,
    /// They could not be pulled; the node tries again.
    Failed(String),
}

impl Pulled {
    /// Nothing has to be pulled before the old pod is stopped.
    pub(crate) fn is_there(&self) -> bool {
        matches!(self, Self::Unneeded | Self::Ready)
    }
}

/// One node's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// Why it is as it is.
    pub verdict: Verdict,
    /// What counts in the status.
    pub counts: Counts,
    /// It has a pod, and would be desired if its agent were in reach and ready.
    pub cut_off: bool,
    /// Its agent is out of reach, or not ready and tainted for it: nothing can be learnt there.
    pub lost: bool,
    /// One of the daemon's pods there is available, whichever.
    pub served: bool,
    /// A pod is missing: create one.
    pub create: bool,
    /// Pods that have to go, whatever a rollout does.
    pub deletes: Vec<(PodRef, DeleteWhy)>,
    /// The pod of an older revision that stays for now.
    pub old: Option<PodRef>,
    /// The pod of the current revision.
    pub new: Option<PodRef>,
    /// The new pod is available.
    pub new_available: bool,
    /// Since when it is, if it says so.
    pub new_available_since: Option<Timestamp>,
    /// The node's part in a rollout, once `create` and `deletes` have been carried out.
    pub part: Part,
    /// With which nodes it has its turn.
    pub group: Group,
    /// A pod there shows that its revision is at fault.
    pub failing: Option<Failing>,
    /// How far the node is with the new images.
    pub pulled: Pulled,
    /// The revision to fall back to could run here too.
    pub fits_stable: bool,
    /// Hashes of all pods given, whatever their state: their revisions are in use.
    pub hashes: Vec<String>,
    /// When this answer changes by the mere passing of time.
    pub changes_at: Option<Timestamp>,
}

/// Judges one node. `pods` are the daemon's own pods on it, in any order, whatever their state. `retry_at` is
/// when a failed pod may be replaced there ([`crate::backoff::Backoff::retry_at`]); `None` means at once.
pub fn place(
    daemon: &DaemonFacts,
    node: &NodeFacts,
    pods: &[PodFacts],
    retry_at: Option<Timestamp>,
    now: Timestamp,
) -> Placement {
    let rules = &daemon.rules;
    let fit = fit(rules, node);
    let retry_at = retry_at.filter(|at| *at > now);
    let seen = Seen::sort(pods, node, rules, now);
    let actions = seen.act(&fit, rules, retry_at);
    let skipped = !rules.count_offline
        && node
            .unreachable_since
            .zip(rules.target.since)
            .is_some_and(|(lost, begun)| lost <= begun);
    let (part, old, new) = rollout::part(&seen, &actions, &fit, rules, skipped);
    let cut_off = fit.cut_off && !seen.pods.is_empty();
    let pulled = old.map_or(Pulled::Unneeded, |old| pulled(old.facts, rules));
    // A node out of reach says nothing about a revision.
    let failing = if node.unreachable_since.is_some() {
        None
    } else {
        evidence::failing(old.as_ref(), new.as_ref(), &pulled, rules, node, now)
    };
    let overdue_at = evidence::overdue_at(old.as_ref(), new.as_ref(), rules, node, now);
    Placement {
        verdict: verdict(&seen, &fit, node, skipped, retry_at),
        counts: seen.counts(&fit),
        cut_off,
        lost: fit.cut_off || node.unreachable_since.is_some(),
        served: seen.pods.iter().any(SeenPod::is_available),
        create: actions.create,
        deletes: actions.deletes,
        old: old.as_ref().map(SeenPod::reference),
        new: new.as_ref().map(SeenPod::reference),
        new_available: new.as_ref().is_some_and(SeenPod::is_available),
        new_available_since: new.and_then(|pod| pod.facts.available_since(rules)),
        part,
        group: rules.grouping.of(&node.labels),
        failing,
        pulled,
        fits_stable: rules
            .stable_wants
            .as_ref()
            .is_some_and(|wants| wants.fit(node).run),
        hashes: pods.iter().filter_map(|pod| pod.hash.clone()).collect(),
        changes_at: seen
            .changes_at(retry_at)
            .into_iter()
            .chain(overdue_at)
            .min(),
    }
}

/// How far the node of an old pod is with the current revision's images.
fn pulled(old: &PodFacts, rules: &Rules) -> Pulled {
    if !rules.pre_pull {
        return Pulled::Unneeded;
    }
    let wanted = rules.target.pulled_for();
    if old.pull_asked.as_ref() != Some(&wanted) {
        return Pulled::Unasked;
    }
    match old
        .pull_answer
        .as_ref()
        .filter(|answer| answer.revision == wanted)
        .map(|answer| &answer.state)
    {
        None | Some(State::Pulling) => Pulled::Asked,
        Some(State::Pulled) => Pulled::Ready,
        Some(State::Failed(why)) => Pulled::Failed(why.clone()),
    }
}

/// Judges the pods of a node that does not exist: those without a `nodeName` have to go, bound ones are left to
/// the pod garbage collection; none of them counts (spec/daemonset.md 10.1, 14). `None` when there are no pods.
pub fn place_gone(pods: &[PodFacts]) -> Option<Placement> {
    let mut sorted: Vec<&PodFacts> = pods.iter().collect();
    sorted.sort_by(|a, b| a.age_order().cmp(&b.age_order()));
    let first = sorted.first()?;
    Some(Placement {
        verdict: Verdict::No {
            why: No::NodeGone,
            pod: Some(first.name.to_string()),
            stays: false,
        },
        counts: Counts::default(),
        cut_off: false,
        lost: false,
        served: false,
        create: false,
        deletes: sorted
            .iter()
            .filter(|pod| !pod.bound && !pod.terminating)
            .map(|pod| (PodRef::of(pod), DeleteWhy::NoSuchNode))
            .collect(),
        old: None,
        new: None,
        new_available: false,
        new_available_since: None,
        part: Part::Outside,
        group: Group::default(),
        failing: None,
        pulled: Pulled::Unneeded,
        fits_stable: false,
        hashes: sorted.iter().filter_map(|pod| pod.hash.clone()).collect(),
        changes_at: None,
    })
}

/// What the new pod suffers from that surges beside an old one.
fn beside(seen: &Seen<'_>) -> Option<String> {
    let newest_first = seen.pods.iter().rev();
    let new = newest_first
        .filter(|pod| pod.updated && !pod.facts.terminating)
        .find(|pod| !pod.facts.trouble.is_empty())?;
    let how = match new.facts.phase {
        Phase::Failed => "failed",
        _ => "is not ready",
    };
    let (name, trouble) = (&new.facts.name, &new.facts.trouble);
    Some(format!("the new pod {name} beside it {how}: {trouble}"))
}

fn verdict(
    seen: &Seen<'_>,
    fit: &Fit,
    node: &NodeFacts,
    skipped: bool,
    retry_at: Option<Timestamp>,
) -> Verdict {
    let first = seen.pods.first();
    let out_of_reach = |since: Timestamp| Verdict::NodeOutOfReach {
        pod: first.map(|pod| pod.facts.name.to_string()),
        since,
        skipped,
        desired: fit.run,
    };
    if let Some(since) = node.unreachable_since.filter(|_| fit.cut_off) {
        return out_of_reach(since);
    }
    if let Some(why) = fit.why_not.clone() {
        let pod = first.map(|pod| pod.facts.name.to_string());
        return Verdict::No {
            why,
            pod,
            stays: fit.keep,
        };
    }
    let fine = first.is_some_and(|pod| pod.updated && pod.is_available() && !pod.facts.terminating);
    if let Some(since) = node.unreachable_since.filter(|_| !fine) {
        return out_of_reach(since);
    }
    let Some(first) = first else {
        return Verdict::Missing {
            setback: None,
            hold: None,
        };
    };
    // A live pod says more about the node than one that is on its way out beside it.
    let spoken_for = seen
        .pods
        .iter()
        .find(|pod| !pod.facts.terminating && !pod.facts.phase.is_terminal());
    let chosen = spoken_for.unwrap_or(first);
    let pod = chosen.facts.name.to_string();
    let trouble = chosen.facts.trouble.clone();
    if chosen.facts.terminating {
        return Verdict::Stopping { pod };
    }
    match (chosen.facts.phase, chosen.availability) {
        (Phase::Failed, _) => Verdict::Ended {
            pod,
            failed: true,
            trouble,
            retry_at,
        },
        (Phase::Succeeded, _) => Verdict::Ended {
            pod,
            failed: false,
            trouble,
            retry_at: None,
        },
        (_, Availability::NotReady) => Verdict::NotReady { pod, trouble },
        _ if !chosen.updated => Verdict::Outdated {
            pod,
            hold: None,
            beside: beside(seen),
        },
        (_, Availability::Waiting(at)) => Verdict::NotAvailableYet { pod, at },
        (_, Availability::Available) => Verdict::Runs { pod },
    }
}
