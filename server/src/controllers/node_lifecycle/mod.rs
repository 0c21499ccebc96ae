//! Judges nodes by their heartbeats, keeps their taints, marks the pods of lost ones, and evicts what does
//! not tolerate a NoExecute taint (spec/node-agent.md 5).
//!
//! The decisions are pure: [`judge`] for a node, [`rate`] for how fast, [`evict`] for a pod.

mod evict;
mod judge;
mod rate;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_model::k8s::api::core::v1::{Node, Pod, Taint};
use muster_model::kind::{NODE, POD};
use muster_model::object::{NamespacedName, Object};
use muster_model::reason::condition;
use muster_model::taint::NO_EXECUTE;
use muster_model::time::{self, SharedClock};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub use judge::{Graces, Health};

use super::pod_gc::{disruption_target, set_condition};
use crate::auth::Caller;
use crate::cache::{Change, Stored};
use crate::events::Recorder;
use crate::heartbeats::Heartbeats;
use crate::registry::{DeleteOptions, Precondition, Registry, Write};
use evict::{Stay, stay};
use judge::{awaits_eviction, judge};
use rate::EvictionRate;

/// `source.component` of this controller's events.
const COMPONENT: &str = "node-controller";
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
    /// Health as last judged.
    health: BTreeMap<String, Health>,
    rate: EvictionRate,
    /// When each pod's node was first seen with NoExecute taints that the pod tolerates only for a while.
    leaving: BTreeMap<NamespacedName, Duration>,
}

impl NodeLifecycle {
    /// Runs until told to stop.
    pub(super) async fn run(self, stop: CancellationToken) {
        let caller = Caller::internal(COMPONENT);
        let mut memory = Memory::default();
        let mut ticks = tokio::time::interval(self.period);
        let mut returned = self.heartbeats.returned();
        let (snapshot, mut changes) = self.registry.cache().list_and_subscribe(&[&NODE]);
        drop(snapshot);
        loop {
            // Every arm is cancel-safe: a tick, a change and a return are all seen again by the next look.
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => self.look_at_all(&caller, &mut memory).await,
                _ = returned.changed() => self.look_at_all(&caller, &mut memory).await,
                batch = changes.next() => match batch {
                    Ok(batch) => self.look_at_changed(&caller, &mut memory, &batch).await,
                    Err(_lagged) => {
                        changes = self.registry.cache().subscribe(&[&NODE]);
                        self.look_at_all(&caller, &mut memory).await;
                    }
                }
            }
        }
    }

    async fn look_at_all(&self, caller: &Caller, memory: &mut Memory) {
        let nodes = self.registry.cache().list(&NODE).items;
        memory
            .health
            .retain(|name, _| nodes.iter().any(|node| node.name() == name));
        self.look_at(caller, memory, &nodes, nodes.len()).await;
    }

    async fn look_at_changed(&self, caller: &Caller, memory: &mut Memory, batch: &[Arc<Change>]) {
        let mut nodes: BTreeMap<String, Arc<Stored>> = BTreeMap::new();
        for change in batch {
            let name = change.key().name.clone();
            match (&change.old, &change.new) {
                (None, Some(new)) => {
                    let message =
                        format!("Node {name} event: Registered Node {name} in Controller");
                    self.events
                        .normal(COMPONENT, new.object(), "RegisteredNode", message);
                    nodes.insert(name, Arc::clone(new));
                }
                (_, Some(new)) => {
                    nodes.insert(name, Arc::clone(new));
                }
                (Some(old), None) => {
                    let message =
                        format!("Node {name} event: Removing Node {name} from Controller");
                    self.events
                        .normal(COMPONENT, old.object(), "RemovingNode", message);
                    self.heartbeats.forget(&name);
                    memory.health.remove(&name);
                    nodes.remove(&name);
                }
                (None, None) => {}
            }
        }
        let nodes: Vec<Arc<Stored>> = nodes.into_values().collect();
        let total = self.registry.cache().count(&NODE);
        self.look_at(caller, memory, &nodes, total).await;
    }

    async fn look_at(
        &self,
        caller: &Caller,
        memory: &mut Memory,
        nodes: &[Arc<Stored>],
        total: usize,
    ) {
        let now = self.clock.monotonic();
        let mut writes = Vec::new();
        for stored in nodes {
            let Ok(node) = stored.typed::<Node>() else {
                continue;
            };
            let silent_for = self.heartbeats.silent_for(stored.name());
            let wall = self.clock.now();
            let health = Health::of(&judge::conditions(&node, silent_for, &self.graces, wall));
            memory.health.insert(stored.name().to_owned(), health);
            let may_evict = awaits_eviction(&node, health) && {
                let lost = memory
                    .health
                    .values()
                    .filter(|health| health.is_lost())
                    .count();
                memory.rate.take(total, lost, now)
            };
            let judged = judge(&node, silent_for, &self.graces, may_evict, wall);
            let (conditions, taints) = (json!(judged.conditions), json!(judged.taints));
            let present = stored.object();
            if conditions != *list_at(present, "/status/conditions") {
                writes.push(set_conditions(stored, conditions));
                if judged.health == Health::Unknown {
                    let message = format!("Node {} status is now: NodeNotReady", stored.name());
                    self.events
                        .normal(COMPONENT, present, "NodeNotReady", message);
                }
            }
            if taints != *list_at(present, "/spec/taints") {
                writes.push(set_taints(stored, taints));
            }
            if judged.health.is_lost() {
                self.mark_pods_not_ready(stored.name(), &mut writes);
            }
            self.evict(stored.name(), &judged.taints, memory, now, &mut writes);
        }
        self.carry_out(caller, writes).await;
    }

    /// Pods of a lost node are not Ready, whatever they said last; nothing else of them is touched.
    fn mark_pods_not_ready(&self, node: &str, writes: &mut Vec<Write>) {
        let now = time::to_seconds_text(self.clock.now());
        for pod in self.registry.cache().pods_on_node(node) {
            let conditions = pod
                .object()
                .at("/status/conditions")
                .and_then(Value::as_array);
            let is_ready = conditions.is_some_and(|list| {
                list.iter()
                    .any(|c| c["type"] == condition::READY && c["status"] == "True")
            });
            if !is_ready {
                continue;
            }
            self.events
                .warning(COMPONENT, pod.object(), "NodeNotReady", "Node is not ready");
            let now = now.clone();
            writes.push(Write::edit_status(
                &POD,
                pod.key.clone(),
                Precondition::uid(pod.uid()),
                move |object| {
                    let list = object
                        .tree_mut()
                        .get_mut("status")
                        .and_then(|status| status.get_mut("conditions"));
                    for ready in list.and_then(Value::as_array_mut).into_iter().flatten() {
                        if ready["type"] == condition::READY {
                            ready["status"] = "False".into();
                            ready["lastTransitionTime"] = now.clone().into();
                        }
                    }
                    Ok(())
                },
            ));
        }
    }

    /// Deletes what does not tolerate the node's NoExecute taints, when its time has come.
    fn evict(
        &self,
        node: &str,
        taints: &[Taint],
        memory: &mut Memory,
        now: Duration,
        writes: &mut Vec<Write>,
    ) {
        let tainted = taints.iter().any(|taint| taint.effect == NO_EXECUTE);
        for stored in self.registry.cache().pods_on_node(node) {
            let pod = stored.object();
            if pod.is_terminating() {
                memory.leaving.remove(&stored.key);
                continue;
            }
            let verdict = if tainted {
                let Ok(typed) = stored.typed::<Pod>() else {
                    continue;
                };
                let tolerations = typed
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.tolerations.as_deref());
                stay(taints, tolerations.unwrap_or_default())
            } else {
                Stay::Forever
            };
            match verdict {
                Stay::Forever => {
                    if memory.leaving.remove(&stored.key).is_some() {
                        let message = format!("Cancelling deletion of Pod {}", stored.key);
                        self.events.normal(
                            "taint-eviction-controller",
                            pod,
                            "TaintManagerEviction",
                            message,
                        );
                    }
                }
                Stay::For(limit) => {
                    let since = *memory.leaving.entry(stored.key.clone()).or_insert(now);
                    if now.saturating_sub(since) >= limit {
                        memory.leaving.remove(&stored.key);
                        let message = format!("Marking for deletion Pod {}", stored.key);
                        self.events.normal(
                            "taint-eviction-controller",
                            pod,
                            "TaintManagerEviction",
                            message,
                        );
                        writes.extend(evict_writes(&stored, self.clock.now()));
                    }
                }
            }
        }
    }

    async fn carry_out(&self, caller: &Caller, writes: Vec<Write>) {
        for batch in writes.chunks(BATCH) {
            for answer in self.registry.commit(caller, batch.to_vec()).await {
                match answer {
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
}

fn list_at<'a>(object: &'a Object, pointer: &str) -> &'a Value {
    static EMPTY: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| json!([]));
    object
        .at(pointer)
        .filter(|value| value.is_array())
        .unwrap_or(&EMPTY)
}

fn set_conditions(node: &Stored, conditions: Value) -> Write {
    Write::edit_status(
        &NODE,
        node.key.clone(),
        Precondition::version(node),
        move |object| {
            let status = object
                .tree_mut()
                .entry("status")
                .or_insert_with(|| json!({}));
            if let Some(status) = status.as_object_mut() {
                status.insert("conditions".into(), conditions.clone());
            }
            Ok(())
        },
    )
}

fn set_taints(node: &Stored, taints: Value) -> Write {
    Write::edit(
        &NODE,
        node.key.clone(),
        Precondition::uid(node.uid()),
        move |object| {
            let spec = object.tree_mut().entry("spec").or_insert_with(|| json!({}));
            if let Some(spec) = spec.as_object_mut() {
                if taints.as_array().is_some_and(Vec::is_empty) {
                    spec.remove("taints");
                } else {
                    spec.insert("taints".into(), taints.clone());
                }
            }
            Ok(())
        },
    )
}

fn evict_writes(pod: &Stored, now: muster_model::time::Timestamp) -> [Write; 2] {
    let mark = Write::edit_status(
        &POD,
        pod.key.clone(),
        Precondition::uid(pod.uid()),
        move |object| {
            let status = object
                .tree_mut()
                .entry("status")
                .or_insert_with(|| json!({}));
            if let Some(status) = status.as_object_mut() {
                let message = "Taint manager: deleting due to NoExecute taint";
                let conditions = status.entry("conditions").or_insert_with(|| json!([]));
                set_condition(
                    conditions,
                    disruption_target("DeletionByTaintManager", message, now),
                );
            }
            Ok(())
        },
    );
    let options = DeleteOptions {
        precondition: Precondition::uid(pod.uid()),
        ..DeleteOptions::default()
    };
    [mark, Write::delete(&POD, pod.key.clone(), options)]
}
