//! What is known of one DaemonSet: its facts, its pods by node, its revisions, and its placements, kept current
//! as changes come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_daemonset::facts::{Rules, Target};
use muster_daemonset::fit::fit;
use muster_daemonset::gap;
use muster_daemonset::revision::{self, Settlement};
use muster_daemonset::{
    Claim, DaemonFacts, NodeFacts, NodeName, Placements, PodFacts, PodUid, RevisionFacts,
    claim_object, place, place_gone,
};
use muster_model::object::NamespacedName;
use muster_model::time::{Moment, Timestamp, shifted};
use muster_store::Revision;

use super::troubles::Known;
use crate::cache::Stored;

/// A pod that names this DaemonSet as its controller.
struct Owned {
    facts: PodFacts,
    stored: Arc<Stored>,
    /// Its labels match; otherwise it is to be released and does not count.
    mine: bool,
    heard: Heard,
    /// It was seen available.
    was_available: bool,
}

/// The times that a pod tells, and when each was heard of.
#[derive(Clone, Copy, Default)]
struct Heard {
    created: Option<(Timestamp, Moment)>,
    ready_since: Option<(Timestamp, Moment)>,
}

impl Owned {
    /// The facts, with times as the clock is set now. So a clock that is set harms nothing: a Ready pod becomes available in
    /// the time it needs, neither at once nor when the clock has caught up, and no new pod is overdue.
    fn facts_at(&mut self, rules: &Rules, now: Moment) -> PodFacts {
        let mut facts = self.facts.clone();
        facts.created = carry(facts.created, &mut self.heard.created, now);
        facts.ready_since = carry(facts.ready_since, &mut self.heard.ready_since, now);
        self.was_available |= facts.is_available(rules, now.wall);
        facts.was_available = self.was_available;
        facts
    }
}

fn carry(
    told: Option<Timestamp>,
    heard: &mut Option<(Timestamp, Moment)>,
    now: Moment,
) -> Option<Timestamp> {
    let told = told?;
    let (_, at) = *heard
        .filter(|(before, _)| *before == told)
        .get_or_insert((told, now));
    *heard = Some((told, at));
    Some(now.carry(told, at))
}

/// One DaemonSet.
pub(super) struct Set {
    /// The stored object that `facts` were taken from.
    pub(super) stored: Arc<Stored>,
    /// Its facts. The target is that of the last settled history.
    pub(super) facts: DaemonFacts,
    /// The answers, node by node, as of the last refresh.
    pub(super) placements: Placements,
    /// Look at nothing older than this: the store's revision when a write's outcome was not seen.
    pub(super) must_reach: Revision,
    /// The last creations all succeeded, so that the next ones need no slow start.
    pub(super) confident: bool,
    pods: BTreeMap<PodUid, Owned>,
    by_node: BTreeMap<NodeName, BTreeSet<PodUid>>,
    to_release: BTreeSet<PodUid>,
    revisions: BTreeMap<String, Arc<Stored>>,
    /// Revisions of others with our name and data: used, but not owned. Kept as current as its own: what is noted on them
    /// counts, and they may go with their owner.
    borrowed: BTreeMap<String, RevisionFacts>,
    /// Facts of `revisions` and `borrowed`; `None`: to be taken anew.
    history: Option<Arc<[RevisionFacts]>>,
    /// What that history was settled to, when nothing was left to be done.
    settled: Option<Arc<Settlement>>,
    /// Nodes to be placed again.
    dirty: BTreeSet<NodeName>,
    /// What all placements were made with.
    placed_with: Option<(Rules, i64)>,
    /// When the clock was last looked at.
    looked: Option<Moment>,
}

impl Set {
    pub(super) fn new(stored: Arc<Stored>, facts: DaemonFacts) -> Self {
        Self {
            stored,
            facts,
            placements: Placements::new(),
            must_reach: Revision::default(),
            confident: false,
            pods: BTreeMap::new(),
            by_node: BTreeMap::new(),
            to_release: BTreeSet::new(),
            revisions: BTreeMap::new(),
            borrowed: BTreeMap::new(),
            history: None,
            settled: None,
            dirty: BTreeSet::new(),
            placed_with: None,
            looked: None,
        }
    }

    /// Takes a newer version of the same DaemonSet. `true`: it says something new.
    pub(super) fn update(&mut self, stored: Arc<Stored>, mut facts: DaemonFacts) -> bool {
        facts.keep_history_of(&self.facts);
        if facts.template != self.facts.template
            || facts.collision_count != self.facts.collision_count
        {
            self.settled = None;
        }
        let changed = facts != self.facts;
        if facts.selector != self.facts.selector || facts.terminating != self.facts.terminating {
            self.facts = facts;
            let pods: Vec<Arc<Stored>> = self.pods.values().map(|pod| pod.stored.clone()).collect();
            for pod in pods {
                self.put_pod(&pod);
            }
        } else {
            self.facts = facts;
        }
        self.stored = stored;
        changed
    }

    /// Takes a version of a pod that names this DaemonSet as its controller. `true`: it says something new.
    pub(super) fn put_pod(&mut self, stored: &Arc<Stored>) -> bool {
        let Ok(typed) = stored.typed() else {
            return false;
        };
        let facts = PodFacts::from_typed(&typed);
        let mine = claim_object(&self.facts, stored.object()) == Claim::Mine;
        let uid = facts.uid.clone();
        let before = self.pods.get(&uid);
        let changed = before.is_none_or(|pod| pod.mine != mine || pod.facts != facts);
        let heard = before.map(|pod| pod.heard).unwrap_or_default();
        let was_available = before.is_some_and(|pod| pod.was_available);
        if changed {
            self.unlink(&uid);
            if mine {
                if let Some(node) = &facts.node {
                    self.by_node
                        .entry(node.clone())
                        .or_default()
                        .insert(uid.clone());
                    self.dirty.insert(node.clone());
                }
            } else {
                self.to_release.insert(uid.clone());
            }
        }
        let stored = stored.clone();
        self.pods.insert(
            uid,
            Owned {
                facts,
                stored,
                mine,
                heard,
                was_available,
            },
        );
        changed
    }

    /// Forgets a pod. `true`: it was known.
    pub(super) fn remove_pod(&mut self, uid: &str) -> bool {
        let uid = PodUid::from(uid);
        self.unlink(&uid);
        self.pods.remove(&uid).is_some()
    }

    fn unlink(&mut self, uid: &PodUid) {
        self.to_release.remove(uid);
        let Some(node) = self.pods.get(uid).and_then(|pod| pod.facts.node.clone()) else {
            return;
        };
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.remove(uid);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
        self.dirty.insert(node);
    }

    /// Pods that name this DaemonSet but do not match it any more.
    pub(super) fn to_release(&self) -> impl Iterator<Item = &Arc<Stored>> {
        self.to_release
            .iter()
            .filter_map(|uid| self.pods.get(uid))
            .map(|pod| &pod.stored)
    }

    /// The version of a pod that its facts were taken from.
    pub(super) fn version_of(&self, uid: &PodUid) -> Option<Revision> {
        self.pods.get(uid).map(|pod| pod.stored.revision)
    }

    /// Its pods with one of these revision hashes.
    pub(super) fn pods_with_hash(&self, hashes: &[String]) -> Vec<Arc<Stored>> {
        self.pods
            .values()
            .filter(|pod| pod.mine && pod.facts.hash.as_ref().is_some_and(|h| hashes.contains(h)))
            .map(|pod| pod.stored.clone())
            .collect()
    }

    /// Whether it has a pod on that node.
    pub(super) fn has_pod_on(&self, node: &NodeName) -> bool {
        self.by_node.contains_key(node)
    }

    /// Takes a version of a ControllerRevision that names this DaemonSet as its controller.
    pub(super) fn put_revision(&mut self, stored: &Arc<Stored>) {
        self.borrowed.remove(stored.name());
        self.revisions
            .insert(stored.name().to_owned(), stored.clone());
        self.forget_history();
    }

    /// Forgets a revision of its own. `true`: it was known.
    pub(super) fn remove_revision(&mut self, name: &str) -> bool {
        let known = self.revisions.remove(name).is_some();
        if known {
            self.forget_history();
        }
        known
    }

    /// Uses a revision of somebody else that has our name and data. One that is known to be ours is not borrowed besides:
    /// it would be its own duplicate, and duplicates are deleted.
    pub(super) fn borrow_revision(&mut self, stored: &Stored) {
        let controller = stored.object().controller();
        let is_ours = controller.is_some_and(|reference| reference.uid == self.facts.uid);
        if is_ours || self.revisions.contains_key(stored.name()) {
            return;
        }
        let facts = RevisionFacts::from_object(stored.object());
        self.borrowed.insert(facts.name.clone(), facts);
        self.forget_history();
    }

    /// A revision that it may have borrowed changed, or went (`None`). `true`: it did, and that says something new.
    pub(super) fn borrowed_changed(&mut self, name: &str, now: Option<&Stored>) -> bool {
        let Some(known) = self.borrowed.get_mut(name) else {
            return false;
        };
        match now.map(|stored| RevisionFacts::from_object(stored.object())) {
            Some(facts) if facts == *known => return false,
            Some(facts) => *known = facts,
            None => {
                self.borrowed.remove(name);
            }
        }
        self.forget_history();
        true
    }

    /// Revisions that name this DaemonSet but do not match it any more.
    pub(super) fn revisions_to_release(&self) -> impl Iterator<Item = &Arc<Stored>> {
        self.revisions
            .values()
            .filter(|stored| claim_object(&self.facts, stored.object()) == Claim::Release)
    }

    fn forget_history(&mut self) {
        self.history = None;
        self.settled = None;
    }

    /// The history: its own revisions and the borrowed ones.
    pub(super) fn history(&mut self) -> Arc<[RevisionFacts]> {
        let (revisions, borrowed) = (&self.revisions, &self.borrowed);
        let history = self.history.get_or_insert_with(|| {
            let own = revisions
                .values()
                .map(|stored| RevisionFacts::from_object(stored.object()));
            own.chain(borrowed.values().cloned()).collect()
        });
        Arc::clone(history)
    }

    /// Finds the current revision and takes it as the target; what is left to be done is in the answer.
    pub(super) fn settle(&mut self, now: Timestamp) -> Arc<Settlement> {
        // A settled history stays so until it or the template changes: no look costs the comparison of templates.
        if let Some(settled) = &self.settled {
            return Arc::clone(settled);
        }
        let history = self.history();
        let settlement = Arc::new(revision::settle(&self.facts, &history));
        let since = self.current_since(&settlement.target, now);
        self.facts.take(&settlement);
        self.facts.rules.target.since = since;
        self.settled = settlement.is_settled().then(|| Arc::clone(&settlement));
        settlement
    }

    /// Since when the target is the current revision. That is known only for a change that happened in front of our
    /// eyes; otherwise it is what the revision says.
    fn current_since(&self, target: &Target, now: Timestamp) -> Option<Timestamp> {
        let before = &self.facts.rules.target;
        if before.hash == target.hash {
            before.since.or(target.since)
        } else if before.hash.is_empty() {
            target.since
        } else {
            Some(now)
        }
    }

    /// A node appeared, changed or went: its placement is made anew at the next refresh. `true`: the DaemonSet
    /// has to be looked at (spec/daemonset.md 6).
    pub(super) fn node_changed(&mut self, name: &NodeName, node: Option<&NodeFacts>) -> bool {
        self.dirty.insert(name.clone());
        let runs = node.is_some_and(|node| fit(&self.facts.rules, node).run);
        let ran = self
            .placements
            .get(name)
            .is_some_and(|placement| placement.counts.desired);
        runs || ran || self.has_pod_on(name)
    }

    /// That node's placement is to be made anew.
    pub(super) fn touch(&mut self, node: NodeName) {
        self.dirty.insert(node);
    }

    /// Where the clock was set, everything is judged anew by it. To be called before anything is noted by its time.
    pub(super) fn follow_clock(&mut self, now: Moment) {
        let step = self
            .looked
            .replace(now)
            .and_then(|before| now.step_since(before));
        let Some(step) = step else { return };
        let since = &mut self.facts.rules.target.since;
        *since = since.map(|since| shifted(since, step));
        self.placed_with = None;
    }

    /// Brings the placements up to date. Answers since when nodes are without an available pod that should have one,
    /// of those that were looked at; `None`: they are not.
    pub(super) fn refresh(
        &mut self,
        nodes: &BTreeMap<NodeName, NodeFacts>,
        known: &Known,
        moment: Moment,
    ) -> Vec<(NodeName, Option<Timestamp>)> {
        self.follow_clock(moment);
        let basis = (
            self.facts.rules.clone(),
            self.facts.status.observed_generation,
        );
        let now = moment.wall;
        if self.placed_with.as_ref() != Some(&basis) {
            let placed = self.placements.iter().map(|(name, _)| name.clone());
            self.dirty.extend(placed);
            self.dirty.extend(nodes.keys().cloned());
            self.dirty.extend(self.by_node.keys().cloned());
            self.placed_with = Some(basis);
        }
        self.dirty.extend(self.placements.due(now));
        let mut gaps = Vec::new();
        for name in std::mem::take(&mut self.dirty) {
            let pods = self.pods_on(&name, moment);
            let (placement, gap) = match nodes.get(&name) {
                None => (place_gone(&pods), None),
                Some(node) => {
                    let retry_at = known.backoff.retry_at(&self.facts, &name, moment);
                    let placement = place(&self.facts, node, &pods, retry_at, now);
                    let unseen = || known.gap_since(&self.facts, node, &pods, now);
                    let gap = gap::follow(self.placements.get(&name), &placement, unseen, now);
                    (Some(placement), gap)
                }
            };
            self.placements.set(name.clone(), placement);
            gaps.push((name, gap));
        }
        gaps
    }

    fn pods_on(&mut self, node: &NodeName, now: Moment) -> Vec<PodFacts> {
        let mut pods = Vec::new();
        for uid in self.by_node.get(node).into_iter().flatten() {
            let pod = self.pods.get_mut(uid);
            pods.extend(pod.map(|pod| pod.facts_at(&self.facts.rules, now)));
        }
        pods
    }

    /// Namespace and name.
    pub(super) fn key(&self) -> &NamespacedName {
        &self.stored.key
    }
}
