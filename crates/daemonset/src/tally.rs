//! All placements of one DaemonSet, with counts and ordered candidates kept up to date: a change of one node or
//! pod costs the logarithm of the number of nodes, never a pass over them.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::time::Timestamp;

use crate::facts::NodeName;
use crate::place::Placement;
use crate::rollout::Part;
use crate::verdict::Verdict;

/// What is counted over all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// Nodes that should run the daemon.
    pub desired: usize,
    /// ... and have a pod.
    pub current: usize,
    /// Nodes that should not run it and have a pod.
    pub misscheduled: usize,
    /// Nodes that should run it, whose oldest pod is Ready.
    pub ready: usize,
    /// ... is available.
    pub available: usize,
    /// ... is of the current revision.
    pub updated: usize,
    /// Nodes with an available pod once this pass's placement has been carried out, in a surge's counting.
    pub available_parts: usize,
}

/// The placements of one DaemonSet on all nodes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Placements {
    by_node: BTreeMap<NodeName, Placement>,
    tally: Tally,
    parts: BTreeMap<Part, BTreeSet<NodeName>>,
    creates: BTreeSet<NodeName>,
    deletes: BTreeSet<NodeName>,
    changes: BTreeSet<(Timestamp, NodeName)>,
    hashes: BTreeMap<String, usize>,
}

static NO_NODES: BTreeSet<NodeName> = BTreeSet::new();

impl Placements {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts in a node's placement in place of the one it had; `None` takes the node out.
    pub fn set(&mut self, node: NodeName, placement: Option<Placement>) {
        if let Some(before) = self.by_node.remove(&node) {
            self.uncount(&node, &before);
        }
        if let Some(placement) = placement {
            self.count(&node, &placement);
            self.by_node.insert(node, placement);
        }
    }

    /// The placement of one node.
    pub fn get(&self, node: &NodeName) -> Option<&Placement> {
        self.by_node.get(node)
    }

    /// All placements, by node name.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeName, &Placement)> {
        self.by_node.iter()
    }

    /// The counts.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Nodes with that part in a rollout, by name.
    pub fn with_part(&self, part: Part) -> &BTreeSet<NodeName> {
        self.parts.get(&part).unwrap_or(&NO_NODES)
    }

    /// Nodes that lack a pod.
    pub fn to_create(&self) -> &BTreeSet<NodeName> {
        &self.creates
    }

    /// Nodes with pods that have to go, whatever a rollout does.
    pub fn to_delete(&self) -> &BTreeSet<NodeName> {
        &self.deletes
    }

    /// When the next placement changes by the mere passing of time.
    pub fn next_change(&self) -> Option<Timestamp> {
        self.changes.first().map(|(at, _)| *at)
    }

    /// The nodes whose placement has changed by `now` through the passing of time: to be placed again before
    /// planning.
    pub fn due(&self, now: Timestamp) -> Vec<NodeName> {
        self.changes
            .iter()
            .take_while(|(at, _)| *at <= now)
            .map(|(_, node)| node.clone())
            .collect()
    }

    /// Whether a pod of that revision hash exists, in whatever state.
    pub fn is_in_use(&self, hash: &str) -> bool {
        self.hashes.contains_key(hash)
    }

    /// The nodes that should run the daemon and are not up to date and available, with the reason: what a
    /// rollout waits for. Costs a pass over the nodes.
    pub fn waiting(&self) -> impl Iterator<Item = (&NodeName, &Verdict)> {
        self.by_node
            .iter()
            .map(|(node, placement)| (node, &placement.verdict))
            .filter(|(_, verdict)| verdict.should_run() && !matches!(verdict, Verdict::Runs { .. }))
    }

    fn count(&mut self, node: &NodeName, placement: &Placement) {
        self.add_counts(placement, |total| *total += 1);
        self.parts
            .entry(placement.part)
            .or_default()
            .insert(node.clone());
        if placement.create {
            self.creates.insert(node.clone());
        }
        if !placement.deletes.is_empty() {
            self.deletes.insert(node.clone());
        }
        if let Some(at) = placement.changes_at {
            self.changes.insert((at, node.clone()));
        }
        for hash in &placement.hashes {
            *self.hashes.entry(hash.clone()).or_default() += 1;
        }
    }

    fn uncount(&mut self, node: &NodeName, placement: &Placement) {
        self.add_counts(placement, |total| *total -= 1);
        if let Some(nodes) = self.parts.get_mut(&placement.part) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.parts.remove(&placement.part);
            }
        }
        self.creates.remove(node);
        self.deletes.remove(node);
        if let Some(at) = placement.changes_at {
            self.changes.remove(&(at, node.clone()));
        }
        for hash in &placement.hashes {
            if let Some(pods) = self.hashes.get_mut(hash) {
                *pods -= 1;
                if *pods == 0 {
                    self.hashes.remove(hash);
                }
            }
        }
    }

    fn add_counts(&mut self, placement: &Placement, change: fn(&mut usize)) {
        let (counts, tally) = (placement.counts, &mut self.tally);
        for (holds, total) in [
            (counts.desired, &mut tally.desired),
            (counts.current, &mut tally.current),
            (counts.misscheduled, &mut tally.misscheduled),
            (counts.ready, &mut tally.ready),
            (counts.available, &mut tally.available),
            (counts.updated, &mut tally.updated),
            (placement.part.is_available(), &mut tally.available_parts),
        ] {
            if holds {
                change(total);
            }
        }
    }
}

impl FromIterator<(NodeName, Placement)> for Placements {
    fn from_iter<I: IntoIterator<Item = (NodeName, Placement)>>(placements: I) -> Self {
        let mut all = Self::new();
        for (node, placement) in placements {
            all.set(node, Some(placement));
        }
        all
    }
}
