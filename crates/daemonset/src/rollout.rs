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
//! 3. An old pod that is not Ready serves nobody: it goes at once, whatever the limit.
//! 4. With surge, an available old pod goes only when its successor is available or, where the node should not
//!    run the daemon any more, when more nodes are available than desired. Never more than two live pods per node.
//! 5. A node out of reach since before the rollout is neither counted nor touched (unless the annotation
//!    `muster.dev/offline-nodes: count` asks for Kubernetes' own counting), and neither is a node that may not
//!    keep the daemon: placing clears that one.
//! 6. Turns are taken in the order of node names.

use muster_model::pod_status::Availability;

use crate::facts::{Rules, Strategy};
use crate::place::{Actions, DeleteWhy, Fit, PodRef, Seen, SeenPod};
use crate::plan::{CreateWhy, Plan};
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
    /// Surge: another pod is still stopping here, so the successor would be the third.
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
}

/// A node's part, and the old and the new pod that stay for now.
pub(crate) fn part(
    seen: &Seen<'_>,
    actions: &Actions,
    fit: &Fit,
    rules: &Rules,
    skipped: bool,
) -> (Part, Option<PodRef>, Option<PodRef>) {
    let stays = |pod: &&SeenPod<'_>| !pod.facts.terminating && !actions.deletes(pod.facts);
    let mut staying: Vec<SeenPod<'_>> = seen.pods.iter().filter(stays).copied().collect();
    // A failed pod that waits for its back-off is no node's daemon when another one is there.
    if actions.create || staying.iter().any(|pod| !pod.facts.phase.is_terminal()) {
        staying.retain(|pod| !pod.facts.phase.is_terminal());
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
    (
        part,
        old.first().map(SeenPod::reference),
        new.first().map(SeenPod::reference),
    )
}

fn plain_part(old: &[SeenPod<'_>], new: &[SeenPod<'_>]) -> Part {
    match (old, new) {
        ([], [new]) if new.is_available() => Part::Done { available: true },
        ([], [new]) => Part::Out {
            serving: new.facts.ready,
        },
        ([old], []) => match old.availability {
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
        ([old], 0) if run && live > 1 => Part::SurgeHeld {
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

/// Adds the rollout's next step to a plan that placement left room in.
pub(crate) fn step(strategy: Strategy, placements: &Placements, plan: &mut Plan) {
    let Some(budget) = Budget::of(strategy, placements.tally().desired) else {
        return;
    };
    if strategy.is_surging() {
        surge(budget, placements, plan);
    } else {
        replace(budget, placements, plan);
    }
}

/// Without surge: old pods are deleted, and placing creates the new ones (spec/daemonset.md 12.3).
fn replace(budget: Budget, placements: &Placements, plan: &mut Plan) {
    let count = |part| placements.with_part(part).len();
    let (down, warm) = (count(Part::OldDown), count(Part::OldWarm));
    let without_ready = count(Part::Out { serving: false }) + down;
    let without_available = without_ready + count(Part::Out { serving: true }) + warm;
    let turns = [
        (Part::OldDown, down),
        (
            Part::OldWarm,
            budget.max_unavailable.saturating_sub(without_ready),
        ),
        (
            Part::OldServing,
            budget.max_unavailable.saturating_sub(without_available),
        ),
    ];
    for (part, turns) in turns {
        delete_old(placements, part, turns, DeleteWhy::Outdated, plan);
    }
}

/// With surge: a new pod is made beside the old one (spec/daemonset.md 12.4). Placing deletes the old one once
/// its successor is available.
fn surge(budget: Budget, placements: &Placements, plan: &mut Plan) {
    let tally = placements.tally();
    let count = |part| placements.with_part(part).len();
    let used = count(Part::Surging { available: true }) + count(Part::Surging { available: false });
    let turns = [
        (Part::SurgeNow, usize::MAX),
        (Part::SurgeTurn, budget.max_surge.saturating_sub(used)),
    ];
    for (part, turns) in turns {
        for node in placements.with_part(part).iter().take(turns) {
            plan.create(node.clone(), CreateWhy::Surge);
        }
    }
    delete_old(
        placements,
        Part::LeftoverDown,
        usize::MAX,
        DeleteWhy::Outdated,
        plan,
    );
    // A leftover that only just turned Ready is not among the available ones: it goes when the others suffice.
    let suffices = tally.available_parts >= tally.desired;
    let warm = if suffices { usize::MAX } else { 0 };
    delete_old(
        placements,
        Part::LeftoverWarm,
        warm,
        DeleteWhy::Outdated,
        plan,
    );
    let spare = tally.available_parts.saturating_sub(tally.desired);
    delete_old(placements, Part::Leftover, spare, DeleteWhy::Outdated, plan);
}

fn delete_old(placements: &Placements, part: Part, turns: usize, why: DeleteWhy, plan: &mut Plan) {
    for node in placements.with_part(part).iter().take(turns) {
        let Some(old) = placements
            .get(node)
            .and_then(|placement| placement.old.clone())
        else {
            continue;
        };
        if !plan.delete(node.clone(), old, why) {
            return;
        }
    }
}
