//! What a rollout would do: the same brain, played ahead over a copy of the facts in a world where every pod stops and
//! starts as long as it is known to take. Nothing of it is carried out.
//!
//! Assumptions, which the answer is only as good as: old pods use their whole grace to stop, new ones take as long to be
//! Ready as the slowest known one, images are there, nobody touches anything, and whoever has to promote a wave does so
//! at once.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use muster_model::pod_status::Phase;
use muster_model::pre_pull::{Answer, State};
use muster_model::reason::label;
use muster_model::time::Timestamp;

use crate::facts::{DaemonFacts, NodeFacts, NodeName, PodFacts, PodUid, RevisionFacts};
use crate::hold::{Hold, WaveWait};
use crate::place::{DeleteWhy, Placement, place};
use crate::plan::{From, Plan, plan};
use crate::release::Release;
use crate::revision;
use crate::tally::Placements;

/// Looks at which a preview gives up: far more than a rollout of some thousand nodes, one at a time, takes.
const MOST_LOOKS: usize = 100_000;
/// How far ahead it is played.
const LONGEST: SignedDuration = SignedDuration::from_hours(24 * 31);

/// How long pods take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// From a deletion until the pod is gone.
    pub stop: SignedDuration,
    /// From a creation until the pod is Ready.
    pub start: SignedDuration,
}

/// Everything a preview looks at.
#[derive(Debug, Clone)]
pub struct Scene {
    /// The DaemonSet as it would be stored. Its history need not be settled.
    pub daemon: DaemonFacts,
    /// Its revisions.
    pub history: Vec<RevisionFacts>,
    /// Every node.
    pub nodes: BTreeMap<NodeName, NodeFacts>,
    /// Its pods, by node.
    pub pods: BTreeMap<NodeName, Vec<PodFacts>>,
    /// How long its pods take.
    pub pace: Pace,
}

/// One step of the rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// How long after the start.
    pub after: SignedDuration,
    /// What is done, or waited for.
    pub what: What,
    /// On which nodes.
    pub nodes: Vec<NodeName>,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A pod is created where there is none.
    Create,
    /// The old pod is stopped, and the new one made when it is gone.
    Replace,
    /// The new pod is made beside the old one.
    Surge,
    /// The pod is stopped and none is made: the node should not run the daemon any more.
    Remove,
    /// Nothing until then, or until somebody acts: the sentence says what.
    Wait(String),
}

/// What a rollout would do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Preview {
    /// The number that the new template has in the history.
    pub revision: i64,
    /// Whether it is a new one; otherwise nothing of the template changes, or it goes back to an earlier one.
    pub is_new: bool,
    /// In order of time.
    pub steps: Vec<Step>,
    /// From the start until the last new pod is available.
    pub takes: SignedDuration,
    /// The longest time that a node is without an available pod through the rollout's own doing, and the first such node;
    /// `None`: none is.
    pub longest_out: Option<(NodeName, SignedDuration)>,
    /// Most nodes out at once, those included that were out before.
    pub most_out: usize,
    /// Nodes that should run the daemon and are not up to date at the end, and why.
    pub left: Vec<(NodeName, String)>,
    /// It was not played to its end: too long.
    pub cut_off: bool,
}

/// Plays a rollout from `now` on.
pub fn preview(scene: Scene, now: Timestamp) -> Preview {
    let mut game = Game::new(scene, now);
    game.settle();
    game.play();
    game.finish()
}

struct Game {
    scene: Scene,
    start: Timestamp,
    now: Timestamp,
    placements: Placements,
    dirty: BTreeSet<NodeName>,
    /// What happens by itself: a pod is gone, or Ready.
    coming: BTreeSet<(Timestamp, NodeName, PodUid)>,
    out_since: BTreeMap<NodeName, Timestamp>,
    made: usize,
    /// When something last happened that nobody had to wait for the author's leave for.
    moved_at: Timestamp,
    preview: Preview,
}

impl Game {
    fn new(scene: Scene, now: Timestamp) -> Self {
        let mut game = Self {
            dirty: scene.nodes.keys().cloned().collect(),
            scene,
            start: now,
            now,
            placements: Placements::new(),
            coming: BTreeSet::new(),
            out_since: BTreeMap::new(),
            made: 0,
            moved_at: now,
            preview: Preview::default(),
        };
        game.go_on();
        game
    }

    /// Pods that stop or start already go on doing so.
    fn go_on(&mut self) {
        let pace = self.scene.pace;
        let mut coming = Vec::new();
        for (node, pod) in self
            .scene
            .pods
            .iter()
            .flat_map(|(node, pods)| pods.iter().map(move |pod| (node, pod)))
        {
            let starts = !pod.ready && pod.failing.is_none() && !pod.phase.is_terminal();
            if pod.terminating {
                coming.push((pace.stop, node.clone(), pod.uid.clone()));
            } else if starts {
                coming.push((pace.start, node.clone(), pod.uid.clone()));
            }
        }
        for (wait, node, uid) in coming {
            if self.is_reachable(&node) {
                self.coming_after(wait, &node, uid);
            }
        }
    }

    fn is_reachable(&self, node: &NodeName) -> bool {
        let nodes = &self.scene.nodes;
        nodes
            .get(node)
            .is_some_and(|node| node.unreachable_since.is_none())
    }

    fn settle(&mut self) {
        let scene = &mut self.scene;
        let before = scene.daemon.rules.target.clone();
        // Twice at most: a new or renumbered revision is in order at the second look.
        for _ in 0..2 {
            let settlement = revision::settle(&scene.daemon, &scene.history);
            if let Some(new) = &settlement.create {
                let object = revision::object(&scene.daemon, new);
                scene.history.push(RevisionFacts::from_object(&object));
                self.preview.is_new = true;
            }
            if let Some((name, number)) = &settlement.renumber {
                for one in scene.history.iter_mut().filter(|one| one.name == *name) {
                    one.number = *number;
                    one.failed = None;
                    one.promoted = 0;
                    one.tried_again = 0;
                }
            }
            let since = settlement.target.since.or(Some(self.start));
            scene.daemon.take(&settlement);
            scene.daemon.rules.target.since = since;
        }
        // A preview is asked before the rollout: whatever is out of reach now, is so since before it. One that is under way
        // goes on.
        let target = &mut scene.daemon.rules.target;
        if self.preview.is_new || target.hash != before.hash {
            target.since = Some(self.start);
        } else if before.since.is_some() {
            target.since = before.since;
        }
        self.preview.revision = scene.daemon.course.number;
    }

    fn play(&mut self) {
        for _ in 0..MOST_LOOKS {
            self.refresh();
            let plan = plan(
                &self.scene.daemon,
                &self.placements,
                &self.scene.history,
                self.now,
            );
            if self.carry_out(&plan) {
                continue;
            }
            if self.coming.is_empty() && self.promote() {
                continue;
            }
            let coming = self.coming.first().map(|(at, _, _)| *at);
            let turning = self.placements.next_change().filter(|at| *at > self.now);
            let moves = coming.into_iter().chain(turning).min();
            let allowed = match moves {
                None => self.wait(),
                Some(_) => plan.requeue_at,
            };
            let Some(next) = moves.into_iter().chain(allowed).min() else {
                return;
            };
            if next.duration_since(self.start) > LONGEST {
                break;
            }
            self.now = self.now.max(next);
            if moves == Some(next) {
                self.moved_at = self.now;
            }
            self.happen();
        }
        self.preview.cut_off = true;
    }

    fn refresh(&mut self) {
        self.dirty.extend(self.placements.due(self.now));
        for name in std::mem::take(&mut self.dirty) {
            let Some(node) = self.scene.nodes.get(&name) else {
                continue;
            };
            let pods = self.scene.pods.get(&name).map_or(&[][..], Vec::as_slice);
            let placement = place(&self.scene.daemon, node, pods, None, self.now);
            self.count_out(&name, &placement);
            self.placements.set(name, Some(placement));
        }
        let tally = self.placements.tally();
        let out = tally.desired - tally.available;
        // Pods that are stopping may still look available.
        let stopping = self.out_since.keys().filter(|name| {
            let placement = self.placements.get(name);
            placement.is_some_and(|placement| placement.counts.available)
        });
        self.preview.most_out = self.preview.most_out.max(out + stopping.count());
    }

    fn count_out(&mut self, name: &NodeName, placement: &Placement) {
        let covered = placement.counts.available
            && self
                .scene
                .pods
                .get(name)
                .is_some_and(|pods| pods.iter().any(|pod| !pod.terminating && pod.ready));
        if !covered || !placement.counts.desired {
            return;
        }
        let Some(since) = self.out_since.remove(name) else {
            return;
        };
        let lasted = self.now.duration_since(since);
        if self
            .preview
            .longest_out
            .as_ref()
            .is_none_or(|(_, most)| lasted > *most)
        {
            self.preview.longest_out = Some((name.clone(), lasted));
        }
    }

    /// `true`: something was done, so that there may be more to do at once.
    fn carry_out(&mut self, plan: &Plan) -> bool {
        let (mut created, mut surged) = (Vec::new(), Vec::new());
        for create in &plan.creates {
            let replaces = self.out_since.contains_key(&create.node);
            if create.why == crate::plan::CreateWhy::Surge {
                surged.push(create.node.clone());
            } else if !replaces {
                created.push(create.node.clone());
            }
            self.create(&create.node, create.from);
        }
        let (mut replaced, mut removed) = (Vec::new(), Vec::new());
        for delete in &plan.deletes {
            let placement = self.placements.get(&delete.node);
            let desired = placement.is_some_and(|placement| placement.counts.desired);
            if !desired {
                removed.push(delete.node.clone());
            } else if delete.why != DeleteWhy::Replaced {
                replaced.push(delete.node.clone());
                if placement.is_some_and(|placement| placement.counts.available) {
                    self.out_since.insert(delete.node.clone(), self.now);
                }
            }
            self.delete(&delete.node, &delete.pod.uid);
        }
        let wanted = self.scene.daemon.rules.target.pulled_for();
        for pull in &plan.pre_pulls {
            let pods = self.scene.pods.get_mut(&pull.node).into_iter().flatten();
            for pod in pods.filter(|pod| pod.uid == pull.pod.uid) {
                pod.pull_asked = Some(wanted.clone());
                pod.pull_answer = Some(Answer {
                    revision: wanted.clone(),
                    state: State::Pulled,
                });
            }
            self.dirty.insert(pull.node.clone());
        }
        for (what, nodes) in [
            (What::Create, created),
            (What::Surge, surged),
            (What::Replace, replaced),
            (What::Remove, removed),
        ] {
            self.note(what, nodes);
        }
        !plan.creates.is_empty() || !plan.deletes.is_empty() || !plan.pre_pulls.is_empty()
    }

    fn note(&mut self, what: What, nodes: Vec<NodeName>) {
        if nodes.is_empty() && !matches!(what, What::Wait(_)) {
            return;
        }
        let after = self.now.duration_since(self.start);
        match self.preview.steps.last_mut() {
            Some(last) if last.what == what && matches!(what, What::Wait(_)) => {}
            Some(last) if last.after == after && last.what == what => last.nodes.extend(nodes),
            _ => self.preview.steps.push(Step { after, what, nodes }),
        }
    }

    fn create(&mut self, node: &NodeName, from: From) {
        self.made += 1;
        let daemon = &self.scene.daemon;
        let object = crate::pod::pod_for(daemon, node, from);
        let uid = PodUid::from(format!("preview-{}", self.made));
        let pod = PodFacts {
            name: format!("{}-{}", daemon.id.name, self.made).into(),
            uid: uid.clone(),
            node: Some(node.clone()),
            bound: true,
            created: Some(self.now),
            phase: Phase::Pending,
            terminating: false,
            ready: false,
            ready_since: None,
            unready_since: None,
            hash: object
                .label(label::CONTROLLER_REVISION_HASH)
                .map(str::to_owned),
            was_available: false,
            template_generation: None,
            trouble: String::new(),
            failing: None,
            attempt: None,
            pull_asked: None,
            pull_answer: None,
        };
        self.scene.pods.entry(node.clone()).or_default().push(pod);
        self.dirty.insert(node.clone());
        self.coming_after(self.scene.pace.start, node, uid);
    }

    fn delete(&mut self, node: &NodeName, uid: &PodUid) {
        let pods = self.scene.pods.get_mut(node).into_iter().flatten();
        for pod in pods.filter(|pod| pod.uid == *uid) {
            pod.terminating = true;
        }
        self.dirty.insert(node.clone());
        // Nothing stops on a node out of reach.
        if self.is_reachable(node) {
            self.coming_after(self.scene.pace.stop, node, uid.clone());
        }
    }

    fn coming_after(&mut self, wait: SignedDuration, node: &NodeName, uid: PodUid) {
        let at = self.now.checked_add(wait).unwrap_or(Timestamp::MAX);
        self.coming.insert((at, node.clone(), uid));
    }

    /// Everything that is due: pods gone, pods Ready.
    fn happen(&mut self) {
        while let Some((at, node, uid)) = self.coming.first().cloned() {
            if at > self.now {
                return;
            }
            self.coming.remove(&(at, node.clone(), uid.clone()));
            let now = self.now;
            let reachable = self.is_reachable(&node);
            let pods = self.scene.pods.entry(node.clone()).or_default();
            pods.retain(|pod| pod.uid != uid || !pod.terminating);
            for pod in pods.iter_mut().filter(|pod| pod.uid == uid && reachable) {
                pod.phase = Phase::Running;
                pod.ready = true;
                pod.ready_since = Some(now);
            }
            self.dirty.insert(node);
        }
    }

    /// Nothing moves by itself any more: what time lets go next, told once; `None`: time alone lets nothing go.
    fn wait(&mut self) -> Option<Timestamp> {
        let release = Release::of(&self.scene.daemon, &self.placements, self.now);
        let hold = {
            let mut holds = self.placements.iter().filter_map(|(_, placement)| {
                placement.old.as_ref()?;
                release.hold_of(&self.placements, placement)
            });
            holds.find(ends_by_itself)?
        };
        let next = release.next;
        self.note(What::Wait(hold.to_string()), Vec::new());
        next
    }

    /// Lets a wave pass that waits for a person. `false`: that is not what is waited for.
    fn promote(&mut self) -> bool {
        let release = Release::of(&self.scene.daemon, &self.placements, self.now);
        let hold = release.hold();
        let Some(Hold::Wave { wave, wait, .. }) = &hold else {
            return false;
        };
        let is_asked = matches!(wait, WaveWait::Promotion | WaveWait::Nobody);
        if !is_asked || !self.placements.is_any_waiting() {
            return false;
        }
        let wave = *wave;
        let text = hold.map(|hold| hold.to_string()).unwrap_or_default();
        self.scene.daemon.course.promoted = wave;
        self.note(What::Wait(text), Vec::new());
        true
    }

    fn finish(mut self) -> Preview {
        let release = Release::of(&self.scene.daemon, &self.placements, self.now);
        let left = self.placements.waiting().map(|(name, verdict)| {
            let hold = self
                .placements
                .get(name)
                .filter(|placement| placement.old.is_some())
                .and_then(|placement| release.hold_of(&self.placements, placement));
            let why = hold.map_or_else(|| verdict.sentence(), |hold| hold.to_string());
            (name.clone(), why)
        });
        self.preview.left = left.collect();
        // A wait that led to nothing is told by the nodes that are left.
        let leads_nowhere = |step: &Step| matches!(step.what, What::Wait(_));
        while !self.preview.cut_off && self.preview.steps.last().is_some_and(leads_nowhere) {
            self.preview.steps.pop();
        }
        self.preview.takes = match self.preview.steps.is_empty() {
            true => SignedDuration::ZERO,
            false => self.moved_at.duration_since(self.start),
        };
        self.preview
    }
}

/// Whether time alone ends a hold.
fn ends_by_itself(hold: &Hold) -> bool {
    match hold {
        Hold::Window { opens_at } => opens_at.is_some(),
        Hold::Wave { wait, .. } => matches!(wait, WaveWait::Until(_)),
        Hold::Paused
        | Hold::Unreadable { .. }
        | Hold::Halted { .. }
        | Hold::Partition { .. }
        | Hold::Domain { .. }
        | Hold::Pulling
        | Hold::PullFailed { .. }
        | Hold::Unproven
        | Hold::OutOfReach { .. }
        | Hold::OnDelete => false,
    }
}
