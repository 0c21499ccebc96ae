//! All placements of one DaemonSet, with counts and ordered candidates kept up to date: a change of one node or
//! pod costs the logarithm of the number of nodes, never a pass over them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, btree_set};
use std::sync::Arc;

use muster_model::time::Timestamp;

use crate::evidence::Evidence;
use crate::facts::NodeName;
use crate::group::Group;
use crate::place::Placement;
use crate::release::is_busy;
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
    /// Nodes that should run the daemon and have an older pod.
    pub with_old: usize,
    /// ... and none of the current revision beside it (surge).
    pub only_old: usize,
    /// ... a pod of the current revision.
    pub with_new: usize,
    /// ... one that is not available, though the node does not count as out of reach since before the rollout.
    pub unproven: usize,
    /// Nodes that should run the daemon and have neither, likewise: the pod is missing, stopping, or one too many.
    pub bare: usize,
    /// ... nothing but an available pod of the current revision.
    pub through: usize,
    /// ... are out of reach since before the rollout.
    pub skipped: usize,
    /// Nodes that have a pod and are not desired only because their agent is out of reach, or not ready.
    pub cut_off: usize,
    /// ... and run the current revision.
    pub cut_off_new: usize,
    /// Nodes that are desired or cut off, out of reach (whenever that began), and not through.
    pub away: usize,
}

/// The placements of one DaemonSet on all nodes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Placements {
    by_node: BTreeMap<NodeName, Placement>,
    tally: Tally,
    parts: BTreeMap<Part, BTreeMap<Group, BTreeSet<NodeName>>>,
    creates: BTreeSet<NodeName>,
    deletes: BTreeSet<NodeName>,
    changes: BTreeSet<(Timestamp, NodeName)>,
    hashes: BTreeMap<String, usize>,
    failing_now: BTreeSet<NodeName>,
    failing_before: BTreeSet<NodeName>,
    busy_domains: BTreeMap<Arc<str>, usize>,
    /// Nodes by wave that are not through.
    wave_pending: BTreeMap<usize, usize>,
    /// Since when which nodes are through, by wave; those that do not say come first.
    wave_through: BTreeMap<usize, BTreeSet<(Option<Timestamp>, NodeName)>>,
}

impl Placements {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts in a node's placement in place of the one it had; `None` takes the node out.
    pub fn set(&mut self, node: NodeName, placement: Option<Placement>) {
        if let Some(before) = self.by_node.remove(&node) {
            self.take_out(&node, &before);
        }
        if let Some(placement) = placement {
            self.put_in(&node, &placement);
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

    /// How many nodes have that part in a rollout.
    pub fn count(&self, part: Part) -> usize {
        let groups = self.parts.get(&part).into_iter().flat_map(BTreeMap::values);
        groups.map(BTreeSet::len).sum()
    }

    /// The nodes with that part, in order of names, group by group leaving those whose turn it is not.
    pub(crate) fn line(&self, part: Part) -> Line<'_> {
        let groups = self.parts.get(&part).into_iter().flatten();
        let mut line = Line {
            placements: self,
            next: BinaryHeap::new(),
            groups: groups.map(|(group, nodes)| (group, nodes.iter())).collect(),
        };
        for position in 0..line.groups.len() {
            line.advance(position);
        }
        line
    }

    /// Nodes that show that the current revision, as it is tried now, is at fault.
    pub fn failing_now(&self) -> &BTreeSet<NodeName> {
        &self.failing_now
    }

    /// Nodes whose pod of an older revision, or of an earlier try, shows that that was at fault.
    pub fn failing_before(&self) -> &BTreeSet<NodeName> {
        &self.failing_before
    }

    /// How many nodes of each failure domain are being updated, or are out.
    pub(crate) fn busy_domains(&self) -> &BTreeMap<Arc<str>, usize> {
        &self.busy_domains
    }

    /// Whether every node of a wave that its labels select is through: since when the last one is. `Err`: so many are not.
    pub(crate) fn wave_through(&self, wave: usize) -> Result<Option<Timestamp>, usize> {
        match self.wave_pending.get(&wave) {
            Some(pending) => Err(*pending),
            None => Ok(self
                .wave_through
                .get(&wave)
                .and_then(|nodes| nodes.last()?.0)),
        }
    }

    /// Whether labels select no node that can be reached for a wave.
    pub(crate) fn is_wave_empty(&self, wave: usize) -> bool {
        !self.wave_pending.contains_key(&wave) && !self.wave_through.contains_key(&wave)
    }

    /// Whether so many nodes (or all that can be reached) are through: since when. `Err`: so many are not.
    pub(crate) fn through(&self, wanted: usize) -> Result<Option<Timestamp>, usize> {
        let tally = &self.tally;
        let wanted = wanted.min(tally.desired.saturating_sub(tally.skipped));
        if tally.through < wanted {
            return Err(wanted - tally.through);
        }
        let Some(last) = wanted.checked_sub(1) else {
            return Ok(None);
        };
        let mut times: Vec<Option<Timestamp>> = self
            .wave_through
            .values()
            .flatten()
            .map(|(since, _)| *since)
            .collect();
        let (_, at, _) = times.select_nth_unstable(last);
        Ok(*at)
    }

    /// Nodes that should run the daemon and are selected by one of the waves up to that one.
    pub(crate) fn selected_up_to(&self, wave: usize) -> usize {
        let pending: usize = self
            .wave_pending
            .range(..=wave)
            .map(|(_, count)| count)
            .sum();
        let through = self.wave_through.range(..=wave);
        pending + through.map(|(_, nodes)| nodes.len()).sum::<usize>()
    }

    /// Whether a node waits for something that the passing of time may bring: an older pod to be replaced, or a missing one.
    pub fn is_any_waiting(&self) -> bool {
        !self.creates.is_empty() || self.parts.keys().any(|part| part.has_old())
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
            .filter(|(_, verdict)| verdict.is_waited_for())
    }

    fn put_in(&mut self, node: &NodeName, placement: &Placement) {
        self.add_counts(placement, |total| *total += 1);
        self.parts
            .entry(placement.part)
            .or_default()
            .entry(placement.group.clone())
            .or_default()
            .insert(node.clone());
        if let Some(failing) = &placement.failing {
            self.failing_set(failing.evidence).insert(node.clone());
        }
        if let Some(domain) = busy_domain(placement) {
            *self.busy_domains.entry(domain).or_default() += 1;
        }
        let wave = placement.group.wave;
        if is_through(placement) {
            let since = placement.new_available_since;
            let through = self.wave_through.entry(wave).or_default();
            through.insert((since, node.clone()));
        } else if is_pending(placement) {
            *self.wave_pending.entry(wave).or_default() += 1;
        }
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

    fn take_out(&mut self, node: &NodeName, placement: &Placement) {
        self.add_counts(placement, |total| *total -= 1);
        if let Some(groups) = self.parts.get_mut(&placement.part) {
            take_from(groups, &placement.group, node);
            if groups.is_empty() {
                self.parts.remove(&placement.part);
            }
        }
        if let Some(failing) = &placement.failing {
            self.failing_set(failing.evidence).remove(node);
        }
        if let Some(domain) = busy_domain(placement) {
            count_down(&mut self.busy_domains, &domain);
        }
        let wave = placement.group.wave;
        if is_through(placement) {
            let entry = (placement.new_available_since, node.clone());
            take_from(&mut self.wave_through, &wave, &entry);
        } else if is_pending(placement) {
            count_down(&mut self.wave_pending, &wave);
        }
        self.creates.remove(node);
        self.deletes.remove(node);
        if let Some(at) = placement.changes_at {
            self.changes.remove(&(at, node.clone()));
        }
        for hash in &placement.hashes {
            count_down(&mut self.hashes, hash);
        }
    }

    fn failing_set(&mut self, evidence: Evidence) -> &mut BTreeSet<NodeName> {
        match evidence {
            Evidence::Current => &mut self.failing_now,
            Evidence::LastTry | Evidence::Older => &mut self.failing_before,
        }
    }

    fn add_counts(&mut self, placement: &Placement, change: fn(&mut usize)) {
        let (counts, tally) = (placement.counts, &mut self.tally);
        let (old, new) = (placement.old.is_some(), placement.new.is_some());
        let in_play = is_in_play(placement);
        for (holds, total) in [
            (counts.desired, &mut tally.desired),
            (counts.current, &mut tally.current),
            (counts.misscheduled, &mut tally.misscheduled),
            (counts.ready, &mut tally.ready),
            (counts.available, &mut tally.available),
            (counts.updated, &mut tally.updated),
            (placement.part.is_available(), &mut tally.available_parts),
            (counts.desired && old, &mut tally.with_old),
            (counts.desired && old && !new, &mut tally.only_old),
            (counts.desired && new, &mut tally.with_new),
            (
                in_play && new && !placement.new_available,
                &mut tally.unproven,
            ),
            (in_play && !old && !new, &mut tally.bare),
            (is_through(placement), &mut tally.through),
            (
                counts.desired && placement.part == Part::Skipped,
                &mut tally.skipped,
            ),
            (placement.cut_off, &mut tally.cut_off),
            (placement.cut_off && new, &mut tally.cut_off_new),
            (is_away(placement), &mut tally.away),
        ] {
            if holds {
                change(total);
            }
        }
    }
}

/// The node runs nothing but the current revision, and that is available.
fn is_through(placement: &Placement) -> bool {
    placement.counts.desired && placement.part == Part::Done { available: true }
}

fn is_away(placement: &Placement) -> bool {
    let counts = placement.counts.desired || placement.cut_off;
    counts && placement.lost && !is_through(placement)
}

/// What happens on the node tells about the current revision: it should run the daemon, or ran that revision when it was cut
/// off. A revision that cuts off its nodes must not be rid of them by that.
fn is_in_play(placement: &Placement) -> bool {
    let tried = placement.cut_off && placement.new.is_some();
    (placement.counts.desired || tried) && placement.part != Part::Skipped
}

/// A wave waits for the node.
fn is_pending(placement: &Placement) -> bool {
    is_in_play(placement) && !is_through(placement)
}

fn busy_domain(placement: &Placement) -> Option<Arc<str>> {
    let domain = placement.group.domain.as_ref()?;
    is_busy(placement.part).then(|| Arc::clone(domain))
}

fn count_down<Key: Ord>(counts: &mut BTreeMap<Key, usize>, key: &Key) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

fn take_from<Key: Ord, Item: Ord>(
    sets: &mut BTreeMap<Key, BTreeSet<Item>>,
    key: &Key,
    item: &Item,
) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(item);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

/// Nodes that wait for their turn, by name. A group whose turn it is not leaves as a whole, so that thousands of nodes
/// held back cost one look.
pub(crate) struct Line<'a> {
    placements: &'a Placements,
    next: BinaryHeap<Reverse<(&'a NodeName, usize)>>,
    groups: Vec<(&'a Group, btree_set::Iter<'a, NodeName>)>,
}

impl<'a> Line<'a> {
    /// The next node of a group that is open.
    pub(crate) fn next(
        &mut self,
        is_open: impl Fn(&Group) -> bool,
    ) -> Option<(&'a NodeName, &'a Placement)> {
        while let Some(Reverse((node, position))) = self.next.pop() {
            if !is_open(self.groups[position].0) {
                continue;
            }
            self.advance(position);
            if let Some(placement) = self.placements.get(node) {
                return Some((node, placement));
            }
        }
        None
    }

    fn advance(&mut self, position: usize) {
        if let Some(node) = self.groups[position].1.next() {
            self.next.push(Reverse((node, position)));
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
