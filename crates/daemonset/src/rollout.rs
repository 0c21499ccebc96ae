//! The rolling update: how many nodes may be out, whose turn it is (spec/daemonset.md 12, and the budget rule).
//!
//! # Assumptions
//! 1. Every node's [`Part`] is judged from the same facts, as they are once this pass's creations and deletions
//!    for placement have been carried out.
//! 2. Nothing was asked for that is not in the facts yet: the driver plans only when its view has reached its own
//!    last commit.
//! 3. A deleted pod is out from the moment its deletion is asked for, and a created one is out until it is
//!    available.
//!
//! # Invariants
//! 1. Without surge, no deletion brings the number of counted nodes without an available pod above
//!    `maxUnavailable`. Nodes that are out already count, whoever took them out.
//! 2. A pod that is Ready but not available yet still serves: deleting it adds no node to those that are out, but
//!    the nodes without a *Ready* pod stay within `maxUnavailable` too. This is stricter than spec 12.3, which
//!    deletes such pods at once.
//! 3. An old pod that is not Ready serves nobody: it goes at once, whatever the limit. (With `muster.dev/on-failure`,
//!    while the new revision is unproven, only as long as no more than the limit run a new pod that is not available.)
//!    But one whose agent is out of reach, or only just back, may well serve: that it is not Ready was not its agent's
//!    word. It stays, and counts as out.
//! 4. With surge, an available old pod goes only when its successor is available or, where the node should not
//!    run the daemon any more, when more nodes are available than desired. Never more than two live pods per node.
//! 5. A node out of reach since before the rollout is neither counted nor touched (unless the annotation
//!    `muster.dev/offline-nodes: count` asks for Kubernetes' own counting), and neither is a node that may not
//!    keep the daemon: placing clears that one.
//! 6. Turns are taken in the order of node names.

use std::collections::BTreeSet;

use muster_model::pod_status::Availability;

use crate::control::OnFailure;
use crate::evidence::Evidence;
use crate::facts::{DaemonFacts, NodeName, Rules, Strategy};
use crate::fit::Fit;
use crate::place::{DeleteWhy, Placement, PodRef, Pulled};
use crate::plan::{CreateWhy, From, Plan};
use crate::release::{Release, Turns};
use crate::seen::{Actions, Seen, SeenPod};
use crate::tally::Placements;

/// A node's part in a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// None: no pod and none due, or it may not keep one.
    Outside,
    /// Out of reach since before the rollout: neither counted nor touched.
    Skipped,
    /// Nothing old is left here.
    Done {
        /// Its pod of the current revision is available.
        available: bool,
    },
    /// Without an available pod, and nothing old to delete.
    Out {
        /// Its pod is Ready, though not available yet.
        serving: bool,
    },
    /// An old pod that is not Ready: it goes at once.
    OldDown,
    /// An old pod that is Ready but not available yet.
    OldWarm,
    /// An old available pod.
    OldServing,
    /// Surge: an old pod that is not available, alone: its successor is made at once.
    SurgeNow,
    /// Surge: an old available pod, alone: its successor is made when it is its turn.
    SurgeTurn,
    /// Surge: old and new stand side by side.
    Surging {
        /// The old one is available.
        available: bool,
    },
    /// Surge: another pod is still stopping here, so the successor would be the third; or nobody knows how the old one does.
    SurgeHeld {
        /// The old one is available.
        available: bool,
    },
    /// Surge: an old pod that is not Ready where the daemon should not run any more: it goes at once.
    LeftoverDown,
    /// Surge: the same, Ready but not available yet.
    LeftoverWarm,
    /// Surge: the same, available.
    Leftover,
}

impl Part {
    /// An older pod is there.
    pub(crate) fn has_old(self) -> bool {
        match self {
            Self::OldDown
            | Self::OldWarm
            | Self::OldServing
            | Self::SurgeNow
            | Self::SurgeTurn
            | Self::Surging { .. }
            | Self::SurgeHeld { .. }
            | Self::LeftoverDown
            | Self::LeftoverWarm
            | Self::Leftover => true,
            Self::Outside | Self::Skipped | Self::Done { .. } | Self::Out { .. } => false,
        }
    }

    /// Counts as an available node in a surge.
    pub(crate) fn is_available(self) -> bool {
        match self {
            Self::Done { available }
            | Self::Surging { available }
            | Self::SurgeHeld { available } => available,
            Self::OldServing | Self::SurgeTurn | Self::Leftover => true,
            Self::Outside
            | Self::Skipped
            | Self::Out { .. }
            | Self::OldDown
            | Self::OldWarm
            | Self::SurgeNow
            | Self::LeftoverDown
            | Self::LeftoverWarm => false,
        }
    }
}

/// How many nodes may be touched at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Nodes without an available pod.
    pub max_unavailable: usize,
    /// Nodes with an old and a new pod.
    pub max_surge: usize,
}

impl Budget {
    /// Scaled over `desired` nodes (spec/daemonset.md 12.2); `None` for `OnDelete`.
    pub fn of(strategy: Strategy, desired: usize) -> Option<Self> {
        let Strategy::RollingUpdate {
            max_unavailable,
            max_surge,
        } = strategy
        else {
            return None;
        };
        let mut budget = Self {
            max_unavailable: max_unavailable.scale_up(desired),
            max_surge: max_surge.scale_up(desired),
        };
        if budget.max_unavailable == 0 && budget.max_surge == 0 && desired > 0 {
            budget.max_unavailable = 1;
        }
        Some(budget)
    }

    /// Most nodes that are being updated at once.
    pub(crate) fn most(self) -> usize {
        self.max_unavailable.max(self.max_surge).max(1)
    }
}

/// A node's part, and the old and the new pod that stay for now.
pub(crate) fn part<'a>(
    seen: &Seen<'a>,
    actions: &Actions,
    fit: &Fit,
    rules: &Rules,
    skipped: bool,
) -> (Part, Option<SeenPod<'a>>, Option<SeenPod<'a>>) {
    let stays = |pod: &&SeenPod<'_>| !pod.facts.terminating && !actions.deletes(pod.facts);
    let mut staying: Vec<SeenPod<'a>> = seen.pods.iter().filter(stays).copied().collect();
    // A failed pod that waits for its back-off is no node's daemon when another one is there. But in a surge a failed new
    // pod keeps its place beside the old one: the next would be refused as well, and at once.
    let is_live = |pod: &SeenPod<'_>| !pod.facts.phase.is_terminal();
    if actions.create || staying.iter().any(is_live) {
        let has_new = actions.create || staying.iter().any(|pod| pod.updated && is_live(pod));
        let refused = staying
            .iter()
            .rev()
            .find(|pod| rules.surging && !has_new && pod.updated)
            .map(|pod| pod.facts.uid.clone());
        staying.retain(|pod| is_live(pod) || Some(&pod.facts.uid) == refused.as_ref());
    }
    let (new, old): (Vec<_>, Vec<_>) = staying.into_iter().partition(|pod| pod.updated);
    let part = if !fit.keep || (!fit.run && seen.pods.is_empty()) {
        Part::Outside
    } else if skipped {
        Part::Skipped
    } else if rules.surging {
        surge_part(&old, &new, actions.create, fit.run, seen.live())
    } else if actions.is_empty() {
        plain_part(&old, &new)
    } else {
        // What was just asked for is looked at again when it has happened.
        Part::Out { serving: false }
    };
    (part, old.first().copied(), new.first().copied())
}

fn plain_part(old: &[SeenPod<'_>], new: &[SeenPod<'_>]) -> Part {
    match (old, new) {
        ([], [new]) if new.is_available() => Part::Done { available: true },
        ([], [new]) => Part::Out {
            serving: new.facts.ready,
        },
        ([old], []) => match old.availability {
            Availability::NotReady if old.unheard_until.is_some() => Part::Out { serving: false },
            Availability::NotReady => Part::OldDown,
            Availability::Waiting(_) => Part::OldWarm,
            Availability::Available => Part::OldServing,
        },
        _ => Part::Out { serving: false },
    }
}

fn surge_part(
    old: &[SeenPod<'_>],
    new: &[SeenPod<'_>],
    creates: bool,
    run: bool,
    live: usize,
) -> Part {
    let new_pods = new.len() + usize::from(creates);
    match (old, new_pods) {
        ([], 0 | 1) => Part::Done {
            available: new.first().is_some_and(SeenPod::is_available),
        },
        ([old], 0) if (run && live > 1) || old.unheard_until.is_some() => Part::SurgeHeld {
            available: old.is_available(),
        },
        ([old], 0) if run && old.is_available() => Part::SurgeTurn,
        ([_], 0) if run => Part::SurgeNow,
        ([old], 0) => match old.availability {
            Availability::NotReady => Part::LeftoverDown,
            Availability::Waiting(_) => Part::LeftoverWarm,
            Availability::Available => Part::Leftover,
        },
        ([old], 1) => Part::Surging {
            available: old.is_available(),
        },
        _ => Part::Surging { available: false },
    }
}

/// Adds the rollout's next step to a plan that placement left room in. `withheld` nodes without a pod count for nothing yet.
pub(crate) fn step(
    daemon: &DaemonFacts,
    placements: &Placements,
    release: &Release<'_>,
    withheld: usize,
    plan: &mut Plan,
) {
    let strategy = daemon.strategy;
    let mut turns = Turns::begin(release, placements).without(withheld);
    match Budget::of(strategy, placements.tally().desired) {
        Some(budget) if strategy.is_surging() => surge(budget, placements, &mut turns, plan),
        Some(budget) => replace(budget, placements, withheld, &mut turns, plan),
        None => {}
    }
    repair(daemon, placements, &turns, plan);
}

/// Without surge: old pods are deleted, and placing creates the new ones (spec/daemonset.md 12.3).
fn replace(
    budget: Budget,
    placements: &Placements,
    withheld: usize,
    turns: &mut Turns<'_>,
    plan: &mut Plan,
) {
    let count = |part| placements.count(part);
    let (down, warm) = (count(Part::OldDown), count(Part::OldWarm));
    let out = count(Part::Out { serving: false });
    let without_ready = out.saturating_sub(withheld) + down;
    let without_available = without_ready + count(Part::Out { serving: true }) + warm;
    let left = |out: usize| budget.max_unavailable.saturating_sub(out);
    delete_in_turn(placements, Part::OldDown, turns.room(), turns, plan);
    // Without room for another unproven pod the next one would be of the older revision again, and go again.
    let warm = left(without_ready).min(turns.room());
    delete_in_turn(placements, Part::OldWarm, warm, turns, plan);
    let mut left = left(without_available);
    // Images are asked for on as many nodes as this wave and the next have.
    let ahead = 2 * budget.max_unavailable;
    let (mut pulling, mut refused) = (0, 0);
    let mut is_somewhere = placements.tally().with_new > 0;
    let mut line = placements.line(Part::OldServing);
    while left > 0 || pulling < ahead {
        let open = |turns: &Turns<'_>, group: &_| {
            turns.closed_to(group).is_none() && turns.full(group).is_none()
        };
        let Some((node, placement)) = line.next(|group| open(turns, group)) else {
            return;
        };
        match placement.pulled {
            Pulled::Unneeded if left == 0 => return,
            Pulled::Unneeded | Pulled::Ready if left > 0 => {
                left -= 1;
                is_somewhere = true;
                turns.take(placement);
                if !delete_old(node, placement, DeleteWhy::Outdated, plan) {
                    return;
                }
            }
            // Nodes that cannot pull hold up no others; but an image that is nowhere is not asked for everywhere.
            Pulled::Unasked if pulling < ahead && (refused < ahead || is_somewhere) => {
                pulling += 1;
                plan.pre_pull(node, placement);
            }
            Pulled::Unasked => return,
            Pulled::Failed(_) => refused += 1,
            Pulled::Ready => {
                pulling += 1;
                is_somewhere = true;
            }
            Pulled::Unneeded | Pulled::Asked => pulling += 1,
        }
    }
}

/// With surge: a new pod is made beside the old one (spec/daemonset.md 12.4). Placing deletes the old one once
/// its successor is available.
fn surge(budget: Budget, placements: &Placements, turns: &mut Turns<'_>, plan: &mut Plan) {
    let tally = placements.tally();
    let count = |part| placements.count(part);
    let used = count(Part::Surging { available: true }) + count(Part::Surging { available: false });
    for (part, most) in [
        (Part::SurgeNow, usize::MAX),
        (Part::SurgeTurn, budget.max_surge.saturating_sub(used)),
    ] {
        let mut line = placements.line(part);
        for _ in 0..most.min(turns.room()) {
            let Some((node, placement)) = line.next(|group| {
                turns.closed_to(group).is_none()
                    && (part == Part::SurgeNow || turns.full(group).is_none())
            }) else {
                break;
            };
            turns.take(placement);
            plan.create(node.clone(), CreateWhy::Surge, From::Current);
        }
    }
    // A leftover that only just turned Ready is not among the available ones: it goes when the others suffice.
    let suffices = tally.available_parts >= tally.desired;
    let spare = tally.available_parts.saturating_sub(tally.desired);
    for (part, most) in [
        (Part::LeftoverDown, usize::MAX),
        (Part::LeftoverWarm, if suffices { usize::MAX } else { 0 }),
        (Part::Leftover, spare),
    ] {
        let mut line = placements.line(part);
        for _ in 0..most {
            let Some((node, placement)) = line.next(|group| turns.closed_to(group).is_none())
            else {
                break;
            };
            if !delete_old(node, placement, DeleteWhy::Outdated, plan) {
                return;
            }
        }
    }
}

fn delete_in_turn(
    placements: &Placements,
    part: Part,
    most: usize,
    turns: &mut Turns<'_>,
    plan: &mut Plan,
) {
    let mut line = placements.line(part);
    for _ in 0..most {
        let Some((node, placement)) = line.next(|group| turns.closed_to(group).is_none()) else {
            return;
        };
        // What serves goes on serving until the images are there.
        if part == Part::OldWarm && !placement.pulled.is_there() {
            continue;
        }
        turns.take(placement);
        if !delete_old(node, placement, DeleteWhy::Outdated, plan) {
            return;
        }
    }
}

/// `false`: no room in the plan.
fn delete_old(node: &NodeName, placement: &Placement, why: DeleteWhy, plan: &mut Plan) -> bool {
    match placement.old.clone() {
        Some(old) => plan.delete(node.clone(), old, why),
        None => true,
    }
}

/// With `on-failure`, a pod that does not work at all goes where nothing else would replace it, because something better is at
/// hand: under `OnDelete` the current revision (the death spiral of a mass deletion heals once the template is right again),
/// on a node that is held back the revision to fall back to, or the current one when it has proven itself, and another pod of
/// the current one where it is tried again. It serves nobody, so this costs no coverage.
fn repair(daemon: &DaemonFacts, placements: &Placements, turns: &Turns<'_>, plan: &mut Plan) {
    if daemon.control.on_failure == OnFailure::Off {
        return;
    }
    let gone: BTreeSet<NodeName> = plan.deletes.iter().map(|gone| gone.node.clone()).collect();
    for node in placements.failing_before() {
        let Some(placement) = placements.get(node).filter(|_| !gone.contains(node)) else {
            continue;
        };
        if let Some(pod) = unrepaired(daemon, placement, turns)
            && !plan.delete(node.clone(), pod.clone(), DeleteWhy::Failing)
        {
            return;
        }
    }
}

/// The pod of a node that does not work and has something better.
fn unrepaired<'a>(
    daemon: &DaemonFacts,
    placement: &'a Placement,
    turns: &Turns<'_>,
) -> Option<&'a PodRef> {
    let failing = placement.failing.as_ref()?;
    if failing.evidence == Evidence::LastTry {
        return placement.new.as_ref().filter(|_| !turns.is_stopped());
    }
    let stable = daemon.course.stable.as_ref().map(|stable| &stable.hash);
    let heals = match (turns.closed_to(&placement.group).is_some(), stable) {
        (false, _) => daemon.strategy == Strategy::OnDelete,
        (true, Some(stable)) => failing.hash.as_ref() != Some(stable) && placement.fits_stable,
        (true, None) => daemon.course.proven,
    };
    let is_down = matches!(placement.part, Part::OldDown | Part::SurgeNow);
    placement.old.as_ref().filter(|_| is_down && heals)
}
