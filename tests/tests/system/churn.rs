//! Random changes, and a recount at rest.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_model::kind::{DAEMON_SET, NODE, POD};
use muster_model::object::{NamespacedName, Object};
use muster_server::auth::Caller;
use muster_server::controllers::Timing;
use muster_server::registry::{DeleteOptions, Registry, WriteOptions};
use muster_testkit::check;
use muster_testkit::{Cluster, ClusterOptions, build, is_ready};
use serde_json::{Value, json};

use crate::support::{AN_HOUR, status};

const SETS: [&str; 3] = ["a", "b", "c"];
const STEPS: usize = 400;

/// A small source of chance: the test must be the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).unwrap()).unwrap()
    }

    fn of<T: Clone>(&mut self, list: &[T]) -> Option<T> {
        if list.is_empty() {
            return None;
        }
        Some(list[self.below(list.len())].clone())
    }
}

fn caller() -> Caller {
    Caller::internal("churn")
}

fn options() -> ClusterOptions {
    let mut options = ClusterOptions::paused();
    // Nodes here have no agents: their silence must not count.
    let mut timing = Timing::default();
    timing.graces.heartbeat = Duration::from_secs(1_000_000);
    timing.graces.startup = Duration::from_secs(1_000_000);
    options.server_timing = timing;
    options
}

/// As an agent would: Running and Ready, or not.
async fn report(registry: &Registry, pod: &Object, phase: &str, ready: bool, now: &str) {
    let condition = if ready { "True" } else { "False" };
    let told = build::changed(
        pod,
        "/status",
        json!({
            "phase": phase,
            "conditions": [{"type": "Ready", "status": condition, "lastTransitionTime": now}],
        }),
    );
    // Somebody else may have been faster: then this report is void.
    let _ = registry
        .update_status(&caller(), &POD, told, &WriteOptions::default())
        .await;
}

async fn remove(
    registry: &Registry,
    kind: &'static muster_model::kind::Kind,
    object: &Object,
    now: bool,
) {
    let options = DeleteOptions {
        grace_seconds: now.then_some(0),
        ..DeleteOptions::default()
    };
    let key = NamespacedName::new(object.namespace(), object.name());
    let _ = registry.delete(&caller(), kind, key, options).await;
}

/// What agents do of themselves: start what is bound, finish what is to go.
async fn agents_work(cluster: &Cluster) {
    let now = muster_model::time::to_seconds_text(cluster.clock().now());
    for pod in cluster.objects(&POD) {
        if pod.is_terminating() {
            remove(cluster.registry(), &POD, &pod, true).await;
        } else if pod.text_at("/status/phase") != "Failed" && !is_ready(&pod) {
            report(cluster.registry(), &pod, "Running", true, &now).await;
        }
    }
}

async fn step(cluster: &Cluster, dice: &mut Dice, number: usize) {
    let registry = cluster.registry();
    let now = muster_model::time::to_seconds_text(cluster.clock().now());
    let (pods, nodes) = (cluster.objects(&POD), cluster.objects(&NODE));
    match dice.below(12) {
        0 | 1 => {
            if let Some(pod) = dice.of(&pods) {
                report(registry, &pod, "Running", true, &now).await;
            }
        }
        2 => {
            if let Some(pod) = dice.of(&pods) {
                report(registry, &pod, "Running", false, &now).await;
            }
        }
        3 => {
            if let Some(pod) = dice.of(&pods) {
                report(registry, &pod, "Failed", false, &now).await;
            }
        }
        4 | 5 => {
            if let Some(pod) = dice.of(&pods) {
                remove(registry, &POD, &pod, dice.below(2) == 0).await;
            }
        }
        6 if nodes.len() < 8 => {
            let node = build::node(&format!("n{number}"), true);
            let node = match dice.below(3) {
                0 => node.label("pool", "x"),
                1 => node.set(
                    "/spec/taints",
                    json!([{"key": "k", "effect": "NoSchedule"}]),
                ),
                _ => node,
            };
            let _ = registry
                .create(&caller(), &NODE, node.object(), &WriteOptions::default())
                .await;
        }
        6 | 7 if nodes.len() > 3 => {
            if let Some(node) = dice.of(&nodes) {
                remove(registry, &NODE, &node, true).await;
            }
        }
        8 => {
            if let Some(node) = dice.of(&nodes) {
                let taints = match dice.below(3) {
                    0 => json!([{"key": "k", "effect": "NoSchedule"}]),
                    1 => json!([{"key": "out", "effect": "NoExecute"}]),
                    _ => json!([]),
                };
                let changed = build::changed(&node, "/spec/taints", taints);
                let _ = registry
                    .update(&caller(), &NODE, changed, &WriteOptions::default())
                    .await;
            }
        }
        9 => {
            let name = dice.of(&SETS).unwrap();
            let set = cluster.object(&DAEMON_SET, name).unwrap();
            let image = format!("img:{}", 1 + dice.below(4));
            let changed = build::changed(&set, "/spec/template/spec/containers/0/image", image);
            let _ = registry
                .update(&caller(), &DAEMON_SET, changed, &WriteOptions::default())
                .await;
        }
        10 => {
            // An orphan that every one of the sets selects.
            if let Some(node) = dice.of(&nodes) {
                let orphan =
                    build::pod(&format!("orphan-{number}"), node.name()).label("tier", "daemon");
                let _ = registry
                    .create(&caller(), &POD, orphan.object(), &WriteOptions::default())
                    .await;
            }
        }
        _ => agents_work(cluster).await,
    }
}

/// Every DaemonSet's status, recounted from the objects; empty when they agree and every node is served.
fn disagreements(
    cluster: &Cluster,
    rows: &BTreeMap<String, BTreeMap<String, bool>>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for set in SETS {
        let object = cluster.object(&DAEMON_SET, set).unwrap();
        let pods = cluster.pods_of(set);
        let should: BTreeSet<&String> = rows[set]
            .iter()
            .filter(|(_, should_run)| **should_run)
            .map(|(node, _)| node)
            .collect();
        let mut live: BTreeMap<String, Vec<&Object>> = BTreeMap::new();
        for pod in &pods {
            if check::is_live(pod) {
                live.entry(pod.text_at("/spec/nodeName").to_owned())
                    .or_default()
                    .push(pod);
            } else {
                wrong.push(format!("{set}: {} is not at rest", pod.name()));
            }
        }
        for node in &should {
            let count = live.get(*node).map_or(0, Vec::len);
            if count != 1 {
                wrong.push(format!("{set}: {count} pods on {node}"));
            }
        }
        let on_wanted = |wanted: bool| {
            live.iter()
                .filter(|(node, _)| should.contains(*node) == wanted)
                .count()
        };
        let ready = live
            .iter()
            .filter(|(node, pods)| should.contains(*node) && pods.iter().any(|pod| is_ready(pod)))
            .count();
        let recount = [
            ("desiredNumberScheduled", should.len()),
            ("currentNumberScheduled", on_wanted(true)),
            ("numberMisscheduled", on_wanted(false)),
            ("numberReady", ready),
            ("numberAvailable", ready),
            ("updatedNumberScheduled", should.len()),
        ];
        for (field, counted) in recount {
            let said = status(cluster, set, field);
            if said != i64::try_from(counted).unwrap() {
                wrong.push(format!("{set}: {field} says {said}, counted {counted}"));
            }
        }
        let observed = object
            .at("/status/observedGeneration")
            .and_then(Value::as_i64);
        if observed != Some(object.generation()) {
            wrong.push(format!("{set}: the newest generation was not observed"));
        }
    }
    for pod in cluster.objects(&POD) {
        let controllers = pod
            .owner_references()
            .iter()
            .filter(|owner| owner.controller)
            .count();
        if controllers > 1 {
            wrong.push(format!("{} has {controllers} controllers", pod.name()));
        }
    }
    wrong
}

async fn churn(seed: u64) {
    let cluster = Cluster::start(options()).await.unwrap();
    for number in 0..5 {
        let node = build::node(&format!("first-{number}"), true);
        cluster.create(&node.object()).await.unwrap();
    }
    for (index, set) in SETS.into_iter().enumerate() {
        // Their selectors overlap: all three match the pods of each.
        let manifest = build::daemon_set(set)
            .set("/spec/selector/matchLabels", json!({"tier": "daemon"}))
            .set(
                "/spec/template/metadata/labels",
                json!({"tier": "daemon", "of": set}),
            )
            .max_unavailable(i64::try_from(index).unwrap() + 1);
        cluster.create(&manifest.object()).await.unwrap();
    }
    let mut dice = Dice(seed);
    for number in 0..STEPS {
        step(&cluster, &mut dice, number).await;
        tokio::time::sleep(Duration::from_millis(
            u64::try_from(dice.below(400)).unwrap(),
        ))
        .await;
    }
    cluster
        .eventually("rest", AN_HOUR, async || {
            agents_work(&cluster).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut rows = BTreeMap::new();
            for set in SETS {
                let verdicts = cluster.coverage(set).await.ok()?;
                let by_node = verdicts
                    .into_iter()
                    .map(|row| (row.node, row.should_run))
                    .collect();
                rows.insert(set.to_owned(), by_node);
            }
            let wrong = disagreements(&cluster, &rows);
            (wrong.is_empty()).then_some(())
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn ds_122_after_random_churn_every_node_is_served_once_and_counts_agree() {
    churn(0x9e37_79b9_7f4a_7c15).await;
}

#[tokio::test(start_paused = true)]
async fn ds_122_again_with_other_luck() {
    churn(0x2545_f491_4f6c_dd1d).await;
}
