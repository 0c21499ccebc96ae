//! Scenario 122: pods and nodes come, go, fail and turn Ready at random.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_model::kind::{DAEMON_SET, NODE, POD};
use muster_model::object::NamespacedName;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::cluster::{Cluster, daemonset};

const SETS: [&str; 3] = ["one", "three", "two"];

fn key(name: &str) -> NamespacedName {
    NamespacedName::new("default", name)
}

async fn step(cluster: &Cluster, rng: &mut StdRng) {
    let pods = cluster.pods();
    let pod = (!pods.is_empty()).then(|| pods[rng.random_range(0..pods.len())].clone());
    let node = NamespacedName::new("", format!("n{}", rng.random_range(0..6)));
    let there = cluster.registry.cache().get(&NODE, &node).is_some();
    match (rng.random_range(0..12), pod) {
        (0, _) if there => cluster.delete(&NODE, &node).await,
        (0, _) => {
            cluster
                .create(&NODE, json!({"metadata": {"name": node.name}}))
                .await;
        }
        (1, _) if there => {
            let effect = ["NoSchedule", "NoExecute", ""][rng.random_range(0..3)];
            cluster
                .edit(&NODE, &node, move |node| {
                    let taint = json!([{"key": "k", "effect": effect}]);
                    node["spec"]["taints"] = if effect.is_empty() { json!([]) } else { taint };
                })
                .await;
        }
        (2, Some(pod)) if !pod.object().is_terminating() => {
            cluster
                .edit_status(&POD, &pod.key, |pod| {
                    pod["status"] = json!({"phase": "Failed"})
                })
                .await;
        }
        (3, Some(pod)) => cluster.remove_pod(&pod).await,
        (4, Some(pod)) if !pod.object().is_terminating() => cluster.delete(&POD, &pod.key).await,
        (5, Some(pod)) => cluster.set_ready(&pod, rng.random()).await,
        (6, Some(pod)) => {
            let app = if rng.random() { "web" } else { "x" };
            cluster
                .edit(&POD, &pod.key, move |pod| {
                    pod["metadata"]["labels"]["app"] = app.into()
                })
                .await;
        }
        (7, _) => {
            let image = format!("img:{}", rng.random_range(1..3));
            let set = key(SETS[rng.random_range(0..3)]);
            cluster
                .edit(&DAEMON_SET, &set, move |set| {
                    set["spec"]["template"]["spec"]["containers"][0]["image"] =
                        image.clone().into();
                })
                .await;
        }
        (8, _) => tokio::time::advance(Duration::from_secs(rng.random_range(0..5))).await,
        _ => {
            let set = key(SETS[rng.random_range(0..3)]);
            cluster.try_sync_of(&set).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ds_122_at_rest_every_node_has_one_pod_of_each_daemonset() {
    let mut rng = StdRng::seed_from_u64(122);
    let cluster = Cluster::empty(5).await;
    for name in SETS {
        cluster
            .create(&DAEMON_SET, daemonset("default", name))
            .await;
    }
    for _ in 0..1000 {
        step(&cluster, &mut rng).await;
    }
    // A fair world: released pods are cleared away, nodes are untainted, everything turns Ready.
    for node in cluster.registry.cache().list(&NODE).items {
        cluster
            .edit(&NODE, &node.key, |node| node["spec"]["taints"] = json!([]))
            .await;
    }
    cluster
        .create(&NODE, json!({"metadata": {"name": "always"}}))
        .await;
    let mut idle = 0;
    for round in 0.. {
        assert!(round < 300, "does not come to rest");
        tokio::time::advance(Duration::from_secs(1000)).await;
        for pod in cluster.pods() {
            let known = cluster
                .registry
                .cache()
                .get(
                    &NODE,
                    &NamespacedName::new("", pod.object().text_at("/spec/nodeName")),
                )
                .is_some();
            if !known || pod.object().label("app") == Some("x") {
                cluster.remove_pod(&pod).await;
            }
        }
        cluster.be_fair().await;
        let mut done = (0, 0);
        for name in SETS {
            let (created, deleted) = cluster.try_sync_of(&key(name)).await.unwrap();
            done = (done.0 + created, done.1 + deleted);
        }
        idle = if done == (0, 0) { idle + 1 } else { 0 };
        if idle == 3 {
            break;
        }
    }
    let nodes = cluster.registry.cache().list(&NODE).items;
    let mut count: BTreeMap<(String, String), usize> = BTreeMap::new();
    for pod in cluster.pods() {
        let controllers = pod
            .object()
            .owner_references()
            .into_iter()
            .filter(|owner| owner.controller);
        let owners: Vec<String> = controllers.map(|owner| owner.name).collect();
        assert_eq!(owners.len(), 1, "{} has one controller", pod.name());
        let node = pod.object().text_at("/spec/nodeName").to_owned();
        *count.entry((owners[0].clone(), node)).or_default() += 1;
    }
    for name in SETS {
        for node in &nodes {
            let pods = count.get(&(name.to_owned(), node.name().to_owned()));
            assert_eq!(pods, Some(&1), "{name} on {}", node.name());
        }
        let set = cluster.get(&DAEMON_SET, &key(name));
        let number = |field: &str| {
            set.object()
                .at(&format!("/status/{field}"))
                .unwrap()
                .as_u64()
                .unwrap()
        };
        let desired = nodes.len() as u64;
        assert_eq!(number("desiredNumberScheduled"), desired);
        assert_eq!(number("currentNumberScheduled"), desired);
        assert_eq!(number("numberReady"), desired);
        assert_eq!(number("numberAvailable"), desired);
        assert_eq!(number("updatedNumberScheduled"), desired);
    }
}
