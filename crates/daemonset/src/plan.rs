//! One DaemonSet: what to do now. A plan is sorted piles; carrying it out is the driver's.

use std::fmt;

use muster_model::time::{Timestamp, to_seconds_text};

use crate::event::{self, Note};
use crate::facts::{DaemonFacts, NodeName, RevisionFacts};
use crate::place::{DeleteWhy, PodRef};
use crate::revision;
use crate::rollout;
use crate::status::Numbers;
use crate::tally::Placements;

/// Most creations, and most deletions, in one plan (spec/daemonset.md 1).
pub const BURST: usize = 250;

/// Why a pod is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CreateWhy {
    /// The node should run the daemon and does not.
    Missing,
    /// A successor beside an old pod.
    Surge,
}

/// A pod to create.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Create {
    /// On which node.
    pub node: NodeName,
    /// Why.
    pub why: CreateWhy,
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The DaemonSet's name, for the plan's text.
    pub daemon: String,
    /// Hash of the revision that pods are created from.
    pub hash: String,
    /// Pods to create, at most [`BURST`]: those that placement misses by node name, then the rollout's.
    pub creates: Vec<Create>,
    /// Pods to delete, at most [`BURST`].
    pub deletes: Vec<Delete>,
    /// Names of ControllerRevisions to delete, once all of the above has succeeded.
    pub drop_revisions: Vec<String>,
    /// Events that the deletions cause, besides the one of each deletion itself.
    pub events: Vec<Note>,
    /// The status to write; `None`: as it is.
    pub status: Option<Numbers>,
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
    for node in placements.to_create() {
        if !plan.create(node.clone(), CreateWhy::Missing) {
            break;
        }
    }
    'deletes: for node in placements.to_delete() {
        for (pod, why) in placements
            .get(node)
            .iter()
            .flat_map(|placement| &placement.deletes)
        {
            if !plan.delete(node.clone(), pod.clone(), *why) {
                break 'deletes;
            }
            plan.events
                .extend(event::before_delete(&daemon.id.namespace, pod, node, *why));
        }
    }
    if !plan.more {
        rollout::step(daemon.strategy, placements, &mut plan);
    }
    plan.drop_revisions = revision::surplus(daemon, history, placements);
    let numbers = Numbers::of(placements.tally(), daemon.generation);
    plan.status = (numbers != daemon.status).then_some(numbers);
    plan.requeue_at = placements.next_change().filter(|at| *at > now);
    plan
}

impl Plan {
    /// Whether nothing is to be done now.
    pub fn is_idle(&self) -> bool {
        self.creates.is_empty()
            && self.deletes.is_empty()
            && self.drop_revisions.is_empty()
            && self.events.is_empty()
            && self.status.is_none()
            && !self.more
    }

    /// Adds a creation; `false` when the burst is used up.
    pub(crate) fn create(&mut self, node: NodeName, why: CreateWhy) -> bool {
        let fits = self.creates.len() < BURST;
        if fits {
            self.creates.push(Create { node, why });
        }
        self.more |= !fits;
        fits
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
        for Create { node, why } in &self.creates {
            let was = match why {
                CreateWhy::Missing => "missing",
                CreateWhy::Surge => "old revision",
            };
            lines.push(format!(
                "create {} on {node} from {} (was: {was})",
                self.daemon, self.hash
            ));
        }
        for Delete { node, pod, why } in &self.deletes {
            lines.push(format!(
                "delete {} on {node} (was: {})",
                pod.name,
                why.as_str()
            ));
        }
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
