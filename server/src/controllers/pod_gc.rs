//! Removes pods that no agent will ever confirm: those of nodes that are gone, those on machines that an
//! administrator gave up, and too many finished ones (spec/node-agent.md 5).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_model::k8s::api::core::v1::Node;
use muster_model::kind::{NODE, POD};
use muster_model::object::{NamespacedName, Object};
use muster_model::reason::{condition, taint};
use muster_model::time::{self, SharedClock, Timestamp};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::node_lifecycle::Health;
use crate::auth::Caller;
use crate::cache::Stored;
use crate::registry::{DeleteOptions, Precondition, Registry, Write};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(20);
/// A node is missing for this long before its pods are taken to be lost.
const MISSING_FOR: Duration = Duration::from_secs(40);
/// Finished pods kept at most, over all namespaces.
const FINISHED_KEPT: usize = 12_500;
/// Writes in one commit at most.
const BATCH: usize = 250;

/// Runs until told to stop.
pub(super) async fn run(registry: Registry, clock: SharedClock, stop: CancellationToken) {
    let caller = Caller::internal("pod-garbage-collector");
    let mut missing = MissingNodes::default();
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let doomed = look(&registry, &mut missing, clock.monotonic());
        for batch in doomed.chunks(BATCH) {
            remove(&registry, &caller, batch, clock.now()).await;
        }
    }
}

/// Since when each node that some pod names has been missing, on the monotonic clock.
#[derive(Debug, Default)]
struct MissingNodes {
    since: BTreeMap<String, Duration>,
    /// Those that the present look has found missing.
    found: BTreeMap<String, Duration>,
}

impl MissingNodes {
    /// Whether this node, missing at `now`, has been so at every look for long enough.
    fn long_missing(&mut self, node: &str, now: Duration) -> bool {
        let since = self.since.get(node).copied().unwrap_or(now);
        self.found.insert(node.to_owned(), since);
        now.saturating_sub(since) >= MISSING_FOR
    }

    /// The look is over: what was not found missing is there, or nobody asks for it any more.
    fn remember(&mut self) {
        self.since = std::mem::take(&mut self.found);
    }
}

/// A pod to be removed.
struct Doomed {
    pod: Arc<Stored>,
    /// Tell the world first that the pod was lost with its node.
    lost: bool,
}

fn look(registry: &Registry, missing: &mut MissingNodes, now: Duration) -> Vec<Doomed> {
    let cache = registry.cache();
    let pods = cache.list(&POD).items;
    let is_there = |name: &str| cache.is_broken(&NODE, &NamespacedName::new("", name));
    let node = |name: &str| cache.get(&NODE, &NamespacedName::new("", name));
    let mut doomed = Vec::new();
    let mut finished = Vec::new();
    for pod in pods {
        let object = Arc::clone(pod.object());
        let node_name = object.text_at("/spec/nodeName");
        let terminal = is_terminal(&object);
        if node_name.is_empty() {
            if object.is_terminating() {
                doomed.push(Doomed { pod, lost: false });
            } else if terminal {
                finished.push(pod);
            }
            continue;
        }
        match node(node_name) {
            None if !is_there(node_name) && missing.long_missing(node_name, now) => {
                doomed.push(Doomed {
                    pod,
                    lost: !terminal,
                })
            }
            Some(node) if object.is_terminating() && is_given_up(&node) => {
                doomed.push(Doomed { pod, lost: false })
            }
            _ if terminal && !object.is_terminating() => finished.push(pod),
            _ => {}
        }
    }
    missing.remember();
    doomed.extend(
        surplus(finished)
            .into_iter()
            .map(|pod| Doomed { pod, lost: false }),
    );
    doomed
}

/// Finished pods above the limit: evicted ones first, then the oldest.
fn surplus(mut finished: Vec<Arc<Stored>>) -> Vec<Arc<Stored>> {
    let surplus = finished.len().saturating_sub(FINISHED_KEPT);
    if surplus == 0 {
        return Vec::new();
    }
    finished.sort_by_key(|pod| {
        let object = pod.object();
        let evicted = object.text_at("/status/reason") == "Evicted";
        (
            !evicted,
            object.text_at("/metadata/creationTimestamp").to_owned(),
            pod.key.clone(),
        )
    });
    finished.truncate(surplus);
    finished
}

fn is_terminal(pod: &Object) -> bool {
    matches!(pod.text_at("/status/phase"), "Succeeded" | "Failed")
}

/// An administrator says that the machine is off for good, and it does not contradict.
fn is_given_up(node: &Stored) -> bool {
    let Ok(node) = node.typed::<Node>() else {
        return false;
    };
    let tainted = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default()
        .iter()
        .any(|t| t.key == taint::OUT_OF_SERVICE);
    let conditions = node
        .status
        .as_ref()
        .and_then(|s| s.conditions.as_deref())
        .unwrap_or_default();
    tainted && Health::of(conditions) != Health::Ready
}

async fn remove(registry: &Registry, caller: &Caller, doomed: &[Doomed], now: Timestamp) {
    let marks: Vec<Write> = doomed
        .iter()
        .filter(|d| d.lost)
        .map(|d| mark_lost(&d.pod, now))
        .collect();
    let deletions = doomed
        .iter()
        .map(|d| Write::delete(&POD, d.pod.key.clone(), DeleteOptions::now(d.pod.uid())));
    for writes in [marks, deletions.collect()] {
        for answer in registry.commit(caller, writes).await {
            match answer {
                Ok(_) => {}
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                // The next look comes in 20 s.
                Err(error) => {
                    tracing::warn!(%error, "could not remove a pod that nobody will confirm")
                }
            }
        }
    }
}

fn mark_lost(pod: &Stored, now: Timestamp) -> Write {
    Write::edit_status(
        &POD,
        pod.key.clone(),
        Precondition::uid(pod.uid()),
        move |object| {
            let status = object
                .tree_mut()
                .entry("status")
                .or_insert_with(|| json!({}));
            if let Some(status) = status.as_object_mut() {
                status.insert("phase".into(), "Failed".into());
                let conditions = status.entry("conditions").or_insert_with(|| json!([]));
                set_condition(
                    conditions,
                    disruption_target("DeletionByPodGC", "PodGC: node no longer exists", now),
                );
            }
            Ok(())
        },
    )
}

/// The condition that says a pod is taken away by the cluster.
pub(super) fn disruption_target(reason: &str, message: &str, now: Timestamp) -> Value {
    json!({
        "type": condition::DISRUPTION_TARGET, "status": "True", "reason": reason, "message": message,
        "lastProbeTime": null, "lastTransitionTime": time::to_seconds_text(now),
    })
}

/// Puts a condition into a list of conditions in place of one of its type, or at the end.
pub(super) fn set_condition(conditions: &mut Value, condition: Value) {
    if let Some(list) = conditions.as_array_mut() {
        match list.iter_mut().find(|c| c["type"] == condition["type"]) {
            Some(present) => *present = condition,
            None => list.push(condition),
        }
    }
}
