//! Judges nodes by their heartbeats, keeps their taints, marks the pods of lost ones, and evicts what does
//! not tolerate a NoExecute taint (spec/node-agent.md 5).
//!
//! The decisions are pure: [`judge`] for a node, [`rate`] for how fast, [`evict`] for a pod.
//!
//! Each look takes a node one step further, from what is *stored*: conditions, then the taints that follow from
//! them, then the pods that must leave because of those. So a write that loses against the agent's own status
//! report has no consequences, and a restart goes on where it was. The change that a step makes is the
//! reason for the next look; an unchanged fleet costs one pass in five seconds that writes nothing.

mod act;
mod evict;
mod fleet;
mod judge;
mod rate;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_model::k8s::api::core::v1::{Node, Pod, Taint};
use muster_model::kind::NODE;
use muster_model::object::NamespacedName;
use muster_model::taint::NO_EXECUTE;
use muster_model::time::SharedClock;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

pub use judge::{Graces, Health};

use crate::auth::Caller;
use crate::cache::Stored;
use crate::events::{Note, Recorder};
use crate::heartbeats::Heartbeats;
use crate::registry::Registry;
use act::Act;
use evict::{Stay, stay};
use fleet::Fleet;
use judge::{Judgement, is_evicting, judge, merged, present_taints, with_eviction};
use rate::EvictionRate;

/// `source.component` of this controller's events about nodes and their pods.
const COMPONENT: &str = "node-controller";
/// The same about evictions.
const EVICTOR: &str = "taint-eviction-controller";
/// Writes in one commit at most.
const BATCH: usize = 250;

/// What this controller works with.
pub(super) struct NodeLifecycle {
    pub(super) registry: Registry,
    pub(super) heartbeats: Heartbeats,
    pub(super) events: Recorder,
    pub(super) clock: SharedClock,
    pub(super) graces: Graces,
    /// Between two looks at every node.
    pub(super) period: Duration,
}

/// What is remembered between looks.
#[derive(Default)]
struct Memory {
    fleet: Fleet,
    /// The first look is over: a node not known yet is new, not merely new to this server.
    started: bool,
    rate: EvictionRate,
    /// By node: since when each pod (by uid) has been under NoExecute taints that it tolerates only for a while.
    leaving: BTreeMap<String, BTreeMap<String, Duration>>,
}

impl NodeLifecycle {
    /// Runs until told to stop.
    pub(super) async fn run(self, stop: CancellationToken) {
        let caller = Caller::internal(COMPONENT);
        let mut memory = Memory::default();
        let mut changes = self.registry.cache().subscribe(&[&NODE]);
        let mut ticks = tokio::time::interval_at(Instant::now() + self.period, self.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut names = self.everyone(&memory);
        loop {
            self.look(&caller, &mut memory, &names).await;
            memory.started = true;
            // Every arm is cancel-safe: a tick and a change are seen again by the next look.
            names = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = ticks.tick() => self.everyone(&memory),
                batch = changes.next() => match batch {
                    Ok(batch) => batch.iter().map(|change| change.key().name.clone()).collect(),
                    Err(_lagged) => {
                        changes = self.registry.cache().subscribe(&[&NODE]);
                        self.everyone(&memory)
                    }
                }
            };
        }
    }

    /// The nodes there are and those that were there at the last look.
    fn everyone(&self, memory: &Memory) -> BTreeSet<String> {
        let nodes = self.registry.cache().list(&NODE).items;
        nodes
            .iter()
            .map(|node| node.name().to_owned())
            .chain(memory.fleet.names().cloned())
            .collect()
    }

    async fn look(&self, caller: &Caller, memory: &mut Memory, names: &BTreeSet<String>) {
        let now = self.clock.monotonic();
        let mut nodes = Vec::with_capacity(names.len());
        for name in names {
            // Always the newest version: an older one may be answered already.
            let key = NamespacedName::new("", name.as_str());
            match self.registry.cache().get(&NODE, &key) {
                Some(stored) => nodes.extend(self.meet(memory, stored, now)),
                None => self.part(memory, name),
            }
        }
        // Only now is it known how much of the fleet is out.
        let (total, lost) = (memory.fleet.len(), memory.fleet.lost());
        let may_evict = memory.rate.observe(total, lost, now);
        let mut acts = Vec::new();
        for (stored, node, judged) in nodes {
            self.step(memory, &stored, &node, judged, may_evict, &mut acts);
        }
        self.carry_out(caller, acts).await;
    }

    /// Takes a node in as it is now.
    fn meet(
        &self,
        memory: &mut Memory,
        stored: Arc<Stored>,
        now: Duration,
    ) -> Option<(Arc<Stored>, Arc<Node>, Judgement)> {
        let name = stored.name();
        let node = stored.typed::<Node>().ok()?;
        let known = memory
            .fleet
            .get(name)
            .is_some_and(|member| member.stored.uid() == stored.uid());
        if !known && memory.started {
            self.heartbeats.appeared(name);
            let message = format!("Node {name} event: Registered Node {name} in Controller");
            self.events
                .normal(COMPONENT, stored.object(), "RegisteredNode", message);
        }
        let silent_for = self.heartbeats.silent_for(name);
        let judged = judge(&node, silent_for, &self.graces, self.clock.now());
        memory.fleet.set(&stored, judged.health, now);
        Some((stored, node, judged))
    }

    /// Forgets a node that is no longer there.
    fn part(&self, memory: &mut Memory, name: &str) {
        self.heartbeats.forget(name);
        memory.leaving.remove(name);
        if let Some(member) = memory.fleet.remove(name) {
            let message = format!("Node {name} event: Removing Node {name} from Controller");
            self.events
                .normal(COMPONENT, member.stored.object(), "RemovingNode", message);
        }
    }

    /// The next step for one node.
    fn step(
        &self,
        memory: &mut Memory,
        stored: &Arc<Stored>,
        node: &Node,
        judged: Judgement,
        may_evict: bool,
        acts: &mut Vec<Act>,
    ) {
        if let Some(conditions) = judged.conditions {
            acts.push(act::set_conditions(stored, &conditions));
            return;
        }
        let evicting = may_evict
            && judged.health.is_lost()
            && (is_evicting(node, judged.health) || self.may_begin(memory, stored.name()));
        let ours = if evicting {
            with_eviction(judged.ours, judged.health, self.clock.now())
        } else {
            judged.ours
        };
        self.mark_pods(memory, stored.name(), judged.health, acts);
        let present = present_taints(node);
        if merged(present, &ours) == present {
            self.evict(memory, stored.name(), present, acts);
        } else {
            acts.push(act::set_taints(stored, ours));
        }
    }

    fn may_begin(&self, memory: &mut Memory, node: &str) -> bool {
        let (nodes, lost) = (memory.fleet.len(), memory.fleet.lost());
        let since = memory.fleet.get(node).and_then(|member| member.lost_since);
        // One beat and one look: by then all who vanished together are noticed.
        let settle = self.graces.heartbeat / 4 + self.period;
        let now = self.clock.monotonic();
        since.is_some_and(|since| memory.rate.take(nodes, lost, since, settle, now))
    }

    /// Pods of a lost node are not Ready, whatever they said last. Where the agent lives and says so itself, once:
    /// what it reports of its pods afterwards counts.
    fn mark_pods(&self, memory: &mut Memory, node: &str, health: Health, acts: &mut Vec<Act>) {
        let marked = memory.fleet.get(node).is_none_or(|m| m.pods_marked);
        let silent = self.heartbeats.silent_for(node) >= self.graces.heartbeat;
        if !health.is_lost() || (marked && !(health == Health::Unknown && silent)) {
            return;
        }
        memory.fleet.pods_are_marked(node);
        let now = self.clock.now();
        for pod in self.registry.cache().pods_on_node(node) {
            acts.extend(act::mark_not_ready(&pod, now));
        }
    }

    /// Deletes what does not tolerate the node's NoExecute taints, when its time has come.
    fn evict(&self, memory: &mut Memory, node: &str, taints: &[Taint], acts: &mut Vec<Act>) {
        let tainted = taints.iter().any(|taint| taint.effect == NO_EXECUTE);
        let before = memory.leaving.remove(node);
        if !tainted && before.is_none() {
            return;
        }
        let before = before.unwrap_or_default();
        let mut leaving = BTreeMap::new();
        let now = self.clock.monotonic();
        for pod in self.registry.cache().pods_on_node(node) {
            if pod.object().is_terminating() {
                continue;
            }
            let since = before.get(pod.uid()).copied();
            match self.stay_of(&pod, taints, tainted) {
                Stay::Forever if since.is_some() => {
                    let message = format!("Cancelling deletion of Pod {}", pod.key);
                    self.events
                        .normal(EVICTOR, pod.object(), "TaintManagerEviction", message);
                }
                Stay::Forever => {}
                Stay::For(limit) => {
                    let since = since.unwrap_or(now);
                    if now.saturating_sub(since) >= limit {
                        acts.extend(act::evict(&pod, self.clock.now()));
                    }
                    // Kept until the deletion is seen: a write may fail.
                    leaving.insert(pod.uid().to_owned(), since);
                }
            }
        }
        if !leaving.is_empty() {
            memory.leaving.insert(node.to_owned(), leaving);
        }
    }

    fn stay_of(&self, pod: &Stored, taints: &[Taint], tainted: bool) -> Stay {
        match pod.typed::<Pod>() {
            Ok(pod) if tainted => {
                let spec = pod.spec.as_ref();
                let tolerations = spec.and_then(|spec| spec.tolerations.as_deref());
                stay(taints, tolerations.unwrap_or_default())
            }
            _ => Stay::Forever,
        }
    }

    async fn carry_out(&self, caller: &Caller, acts: Vec<Act>) {
        for batch in acts.chunks(BATCH) {
            let writes: Vec<_> = batch.iter().map(|act| act.write.clone()).collect();
            let answers = self.registry.carry_out(caller, &writes).await;
            for (answer, act) in answers.into_iter().zip(batch) {
                match answer {
                    Ok(written) if written.changed => self.announce(act.note.as_ref()),
                    Ok(_) => {}
                    // The change that was in the way is seen next.
                    Err(error) if error.is_not_found() || error.is_conflict() => {}
                    Err(error) => {
                        tracing::warn!(%error, "could not write what was judged of a node")
                    }
                }
            }
        }
    }

    fn announce(&self, note: Option<&Note>) {
        if let Some(note) = note {
            self.events.note(note.clone(), self.clock.now());
        }
    }
}
