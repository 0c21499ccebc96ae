//! One DaemonSet: what to do now. A plan is sorted piles; carrying it out is the driver's.

use std::fmt;
use std::sync::Arc;

use jiff::SignedDuration;
use muster_model::time::{Timestamp, to_seconds_text};

use crate::control::OnFailure;
use crate::course::{Condition, Stable};
use crate::event::{self, Note};
use crate::facts::{DaemonFacts, NodeName, RevisionFacts};
use crate::failure;
use crate::place::{DeleteWhy, Placement, PodRef};
use crate::release::{Release, Turns};
use crate::revision;
use crate::rollout;
use crate::status::Numbers;
use crate::tally::Placements;

/// Most creations, and most deletions, in one plan (spec/daemonset.md 1).
pub const BURST: usize = 250;

/// How long a revision that failed has to be available everywhere, where no progress deadline says it.
const PROOF_AFTER_FAILURE: SignedDuration = SignedDuration::from_mins(10);

/// Why a pod is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CreateWhy {
    /// The node should run the daemon and does not.
    Missing,
    /// A successor beside an old pod.
    Surge,
}

/// From which template a pod is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum From {
    /// The present one.
    Current,
    /// That of the revision to fall back to: the node is held back, and lost its pod.
    Stable,
}

/// A pod to create.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Create {
    /// On which node.
    pub node: NodeName,
    /// Why.
    pub why: CreateWhy,
    /// From which template.
    pub from: From,
}

/// Images to be pulled on a node before its old pod is stopped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrePull {
    /// On which node.
    pub node: NodeName,
    /// The pod that is there: it carries the request.
    pub pod: PodRef,
}

/// A pod to delete, gracefully.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delete {
    /// On which node (or meant for which).
    pub node: NodeName,
    /// Which pod.
    pub pod: PodRef,
    /// Why.
    pub why: DeleteWhy,
}

/// What to do for one DaemonSet now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// The DaemonSet's name, for the plan's text.
    pub daemon: String,
    /// Hash of the revision that pods are created from.
    pub hash: String,
    /// Pods to create, at most [`BURST`]: those that placement misses by node name, then the rollout's.
    pub creates: Vec<Create>,
    /// Pods to delete, at most [`BURST`].
    pub deletes: Vec<Delete>,
    /// Requests for images of the current revision.
    pub pre_pulls: Vec<PrePull>,
    /// The current revision is available everywhere for the first time: to be noted on its ControllerRevision.
    pub proven: bool,
    /// The current revision failed, and how: to be noted on its ControllerRevision, after which nothing of it is rolled
    /// out any more.
    pub halt: Option<String>,
    /// The template is to become that of this revision again.
    pub roll_back: Option<Arc<Stable>>,
    /// Names of ControllerRevisions to delete, once all of the above has succeeded.
    pub drop_revisions: Vec<String>,
    /// Events that the deletions cause, besides the one of each deletion itself.
    pub events: Vec<Note>,
    /// The status to write; `None`: as it is.
    pub status: Option<Numbers>,
    /// The condition to write beside it; `None`: as it is.
    pub condition: Option<Condition>,
    /// Look again at that time although nothing changed.
    pub requeue_at: Option<Timestamp>,
    /// The burst cut the plan short: there is more to do as soon as it has been carried out.
    pub more: bool,
}

/// What to do now for `daemon`, whose placements have all been made with its present facts and whose
/// `history` is what [`revision::settle`] left. Costs as much as it finds to do.
pub fn plan(
    daemon: &DaemonFacts,
    placements: &Placements,
    history: &[RevisionFacts],
    now: Timestamp,
) -> Plan {
    let mut plan = Plan {
        daemon: daemon.id.name.clone(),
        hash: daemon.rules.target.hash.clone(),
        ..Plan::default()
    };
    // Stored data of old: a selector that selects all. Nothing may be created or deleted for it; the same for
    // a DaemonSet that is being deleted (spec/daemonset.md 9, steps 2 and 3).
    if daemon.terminating {
        return plan;
    }
    if daemon.selects_all() {
        plan.events.push(event::selecting_all());
        return plan;
    }
    let release = Release::of(daemon, placements, now);
    let mut proof = None;
    plan.halt = failure::judge(daemon, placements, &release);
    plan.roll_back = fallback(daemon);
    if plan.halt.is_some() || plan.roll_back.is_some() {
        // What pods are made from is about to change: nothing is made or replaced before it has.
        plan.more = true;
    } else {
        let withheld = fill_in(daemon, placements, &release, &mut plan);
        if !plan.more {
            rollout::step(daemon, placements, &release, withheld, &mut plan);
        }
        proof = proven_at(daemon, placements);
        plan.proven = proof.is_some_and(|at| at <= now);
    }
    plan.drop_revisions = revision::surplus(daemon, history, placements);
    let numbers = Numbers::of(placements.tally(), daemon.generation);
    plan.status = (numbers != daemon.status).then_some(numbers);
    plan.condition =
        Condition::wanted(daemon).filter(|wanted| Some(wanted) != daemon.condition.as_ref());
    let opens = release.next.filter(|_| placements.is_any_waiting());
    plan.requeue_at = placements
        .next_change()
        .into_iter()
        .chain(opens)
        .chain(proof)
        .filter(|at| *at > now)
        .min();
    plan
}

/// Pods that placement misses, and those that have to go whatever a rollout does. Answers on how many nodes a missing pod
/// waits for its wave.
fn fill_in(
    daemon: &DaemonFacts,
    placements: &Placements,
    release: &Release<'_>,
    plan: &mut Plan,
) -> usize {
    let mut turns = Turns::for_missing(release, placements);
    let mut withheld = 0;
    for node in placements.to_create() {
        let Some(placement) = placements.get(node) else {
            continue;
        };
        match release.source(&mut turns, placement) {
            Some(from) => {
                if !plan.create(node.clone(), CreateWhy::Missing, from) {
                    break;
                }
            }
            None => withheld += usize::from(turns.awaits_wave(placement)),
        }
    }
    for node in placements.to_delete() {
        for (pod, why) in placements
            .get(node)
            .iter()
            .flat_map(|placement| &placement.deletes)
        {
            if !plan.delete(node.clone(), pod.clone(), *why) {
                return withheld;
            }
            plan.events
                .extend(event::before_delete(&daemon.id.namespace, pod, node, *why));
        }
    }
    withheld
}

/// Only a revision that was available everywhere is gone back to without asking.
fn fallback(daemon: &DaemonFacts) -> Option<Arc<Stable>> {
    let failed = daemon.control.on_failure == OnFailure::Rollback && daemon.failed().is_some();
    let stable = daemon.course.stable.as_ref();
    stable
        .filter(|stable| failed && stable.proven && !daemon.control.paused)
        .cloned()
}

/// When the current revision, not proven so far, is available everywhere. Nodes out of reach are left out, or one broken
/// machine would keep every revision unproven for ever. They must be fewer than the others; a revision that cuts its nodes
/// off does not get that far, because the budget stops it.
///
/// One that failed and came right by itself (a registry that was slow) has to stay available for as long as a pod may take to
/// turn so: a crash loop has its good moments too. Without that there would be no way back to the first revision of all.
fn proven_at(daemon: &DaemonFacts, placements: &Placements) -> Option<Timestamp> {
    let (course, tally) = (&daemon.course, placements.tally());
    let asked_for = tally.desired + tally.cut_off;
    let everywhere = tally.through > tally.away && tally.through + tally.away == asked_for;
    if !everywhere || course.number == 0 || course.proven {
        return None;
    }
    if daemon.failed().is_none() {
        return Some(Timestamp::UNIX_EPOCH);
    }
    let patience = daemon
        .rules
        .progress_deadline
        .unwrap_or(PROOF_AFTER_FAILURE);
    let through = placements.through(tally.through).ok()??;
    through.checked_add(patience).ok()
}

impl Plan {
    /// Whether nothing is to be done now.
    pub fn is_idle(&self) -> bool {
        self.creates.is_empty()
            && self.deletes.is_empty()
            && self.drop_revisions.is_empty()
            && self.events.is_empty()
            && self.status.is_none()
            && self.condition.is_none()
            && self.pre_pulls.is_empty()
            && !self.proven
            && self.halt.is_none()
            && self.roll_back.is_none()
            && !self.more
    }

    /// Adds a creation; `false` when the burst is used up.
    pub(crate) fn create(&mut self, node: NodeName, why: CreateWhy, from: From) -> bool {
        let fits = self.creates.len() < BURST;
        if fits {
            self.creates.push(Create { node, why, from });
        }
        self.more |= !fits;
        fits
    }

    /// Asks for the new images beside an old pod.
    pub(crate) fn pre_pull(&mut self, node: &NodeName, placement: &Placement) {
        if let Some(pod) = placement.old.clone() {
            let node = node.clone();
            self.pre_pulls.push(PrePull { node, pod });
        }
    }

    /// Adds a deletion; `false` when the burst is used up.
    pub(crate) fn delete(&mut self, node: NodeName, pod: PodRef, why: DeleteWhy) -> bool {
        let fits = self.deletes.len() < BURST;
        if fits {
            self.deletes.push(Delete { node, pod, why });
        }
        self.more |= !fits;
        fits
    }
}

/// The plan as sorted lines for people: `create web on node-3 from 7d9f (was: missing)`.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        for Create { node, why, from } in &self.creates {
            let was = match why {
                CreateWhy::Missing => "missing",
                CreateWhy::Surge => "old revision",
            };
            lines.push(format!(
                "create {} on {node} from {} (was: {was})",
                self.daemon,
                match from {
                    From::Current => &self.hash,
                    From::Stable => "the revision before",
                }
            ));
        }
        for Delete { node, pod, why } in &self.deletes {
            lines.push(format!(
                "delete {} on {node} (was: {})",
                pod.name,
                why.as_str()
            ));
        }
        let pulls = self.pre_pulls.iter();
        lines.extend(pulls.map(|pull| format!("pull images of {} on {}", self.hash, pull.node)));
        lines.extend(self.halt.iter().map(|why| format!("halt: {why}")));
        let back = self.roll_back.iter();
        lines.extend(back.map(|stable| format!("go back to revision {}", stable.number)));
        lines.extend(
            self.proven
                .then(|| format!("{} is available everywhere", self.hash)),
        );
        lines.extend(
            self.drop_revisions
                .iter()
                .map(|name| format!("forget revision {name}")),
        );
        lines.sort();
        lines.extend(
            self.events
                .iter()
                .map(|note| format!("tell {} {}", note.reason, note.message)),
        );
        lines.extend(self.status.map(|status| format!("status {status}")));
        lines.extend(self.more.then(|| "more when this is done".to_owned()));
        lines.extend(
            self.requeue_at
                .map(|at| format!("look again at {}", to_seconds_text(at))),
        );
        f.write_str(&lines.join("\n"))
    }
}

/// The sizes in which `total` creations are tried: 1, 2, 4, ... as long as none fails, never past the total
/// (spec/daemonset.md 10.2). A driver stops after the batch that had a failure.
pub fn batches(total: usize) -> impl Iterator<Item = usize> {
    let mut left = total;
    let mut size = 1;
    std::iter::from_fn(move || {
        let batch = size.min(left);
        left -= batch;
        size *= 2;
        (batch > 0).then_some(batch)
    })
}
