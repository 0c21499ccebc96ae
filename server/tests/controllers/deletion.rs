//! Owners that go, and what becomes of their dependents (spec/daemonset.md 15).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use muster_model::kind::{CONFIG_MAP, CONTROLLER_REVISION, DAEMON_SET, POD};
use muster_model::object::Object;
use muster_server::registry::{DeleteOptions, ListQuery, Propagation, Selection, keys};
use muster_store::{Op, Txn};
use serde_json::{Value, json};

use crate::world::{World, daemon, key};

const NODES: [&str; 3] = ["n1", "n2", "n3"];

async fn serving() -> World {
    let world = World::start().await;
    for node in NODES {
        world.agent_up(node).await;
    }
    world.daemon("web", "web").await;
    world
        .until("all serve", 10, || world.all_serve(&NODES))
        .await;
    world
}

fn agents_down(world: &World) {
    NODES.iter().for_each(|node| world.agent_down(node));
}

async fn agents_up(world: &World) {
    for node in NODES {
        world.agent_up(node).await;
    }
}

async fn delete_web(world: &World, propagation: Option<Propagation>) {
    let options = DeleteOptions {
        propagation,
        ..DeleteOptions::default()
    };
    world
        .delete(&DAEMON_SET, key("default", "web"), options)
        .await
        .unwrap();
}

fn web(world: &World) -> Option<Arc<Object>> {
    world.get(&DAEMON_SET, "default", "web")
}

fn revisions(world: &World) -> Vec<Arc<Object>> {
    let all = world.cache().list_ns(&CONTROLLER_REVISION, "default").items;
    all.iter().map(|r| Arc::clone(r.object())).collect()
}

fn uids(world: &World) -> BTreeSet<String> {
    world.pods().iter().map(|p| p.uid().to_owned()).collect()
}

fn status(world: &World, name: &str, field: &str) -> Option<u64> {
    let set = world.get(&DAEMON_SET, "default", name)?;
    set.at(&format!("/status/{field}"))?.as_u64()
}

#[tokio::test(start_paused = true)]
async fn ds_110_background_deletion_collects_pods_and_history_afterwards() {
    let world = serving().await;
    agents_down(&world);
    delete_web(&world, None).await;
    assert!(web(&world).is_none(), "it is gone at once");
    world
        .until("collected", 5, || {
            let pods = world.pods();
            pods.len() == 3
                && pods.iter().all(|pod| pod.is_terminating())
                && revisions(&world).is_empty()
        })
        .await;
    let pod = &world.pods()[0];
    assert_eq!(
        pod.at("/metadata/deletionGracePeriodSeconds"),
        Some(&json!(30))
    );
    agents_up(&world).await;
    world.until("gone", 5, || world.pods().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn ds_110_foreground_deletion_waits_for_the_last_pod() {
    let world = serving().await;
    agents_down(&world);
    delete_web(&world, Some(Propagation::Foreground)).await;
    world
        .until("pods go", 5, || {
            world.pods().iter().all(|pod| pod.is_terminating())
        })
        .await;
    let pods = world.pods();
    for pod in &pods[..2] {
        let now = DeleteOptions::now(pod.uid());
        world
            .delete(&POD, key("default", pod.name()), now)
            .await
            .unwrap();
    }
    world.pass(20).await;
    let set = web(&world).unwrap();
    assert!(set.is_terminating());
    assert_eq!(set.finalizers(), ["foregroundDeletion"]);
    assert_eq!(world.pods().len(), 1, "no pod is replaced meanwhile");
    agents_up(&world).await;
    world.until("gone", 5, || web(&world).is_none()).await;
    world
        .until("history too", 2, || revisions(&world).is_empty())
        .await;
    assert!(world.pods().is_empty());
}

#[tokio::test(start_paused = true)]
async fn ds_110_orphans_run_on_and_are_adopted_by_the_same_set_made_again() {
    let world = serving().await;
    let before = uids(&world);
    let hash = revisions(&world)[0].name().to_owned();
    delete_web(&world, Some(Propagation::Orphan)).await;
    world.until("gone", 5, || web(&world).is_none()).await;
    let owned = |object: &Object| !object.owner_references().is_empty();
    assert!(world.pods().iter().all(|pod| !owned(pod)));
    assert!(revisions(&world).iter().all(|revision| !owned(revision)));
    world.pass(30).await;
    assert_eq!(uids(&world), before);

    let again = world.daemon("web", "web").await;
    world
        .until("adopted", 5, || {
            let adopted = |object: &Arc<Object>| {
                object
                    .controller()
                    .is_some_and(|owner| owner.uid == again.uid())
            };
            world.pods().iter().all(adopted) && revisions(&world).iter().all(adopted)
        })
        .await;
    world
        .until("up to date", 5, || {
            status(&world, "web", "updatedNumberScheduled") == Some(3)
        })
        .await;
    world.pass(60).await;
    assert_eq!(uids(&world), before, "none was restarted");
    let names: Vec<String> = revisions(&world)
        .iter()
        .map(|r| r.name().to_owned())
        .collect();
    assert_eq!(names, [hash]);
}

#[tokio::test(start_paused = true)]
async fn ds_111_orphans_are_adopted_by_a_set_of_another_name() {
    let world = serving().await;
    let before = uids(&world);
    delete_web(&world, Some(Propagation::Orphan)).await;
    world.until("gone", 5, || web(&world).is_none()).await;
    world.daemon("other", "web").await;
    world
        .until("up to date", 5, || {
            status(&world, "other", "updatedNumberScheduled") == Some(3)
        })
        .await;
    world.pass(60).await;
    assert_eq!(uids(&world), before, "none was restarted");
}

#[tokio::test(start_paused = true)]
async fn ds_112_a_set_made_again_at_once_gets_fresh_pods_node_by_node() {
    let world = serving().await;
    let before = uids(&world);
    // One node's agent is slow to confirm.
    world.agent_down("n3");
    delete_web(&world, Some(Propagation::Background)).await;
    let again = world.daemon("web", "web").await;
    let fresh = |wanted: &[&str]| {
        let pods = world.pods();
        let on: BTreeMap<&str, bool> = pods
            .iter()
            .filter(|pod| !before.contains(pod.uid()))
            .map(|pod| {
                let owner = pod.controller().unwrap();
                (pod.text_at("/spec/nodeName"), owner.uid == again.uid())
            })
            .collect();
        wanted.iter().all(|node| on.get(node) == Some(&true)) && on.len() == wanted.len()
    };
    // n3 may have its new pod beside the old one that goes: it waits for no other node.
    world
        .until("fresh pods on the others", 10, || {
            fresh(&["n1", "n2"]) || fresh(&NODES)
        })
        .await;
    let old_adopted = world.pods().iter().any(|pod| {
        before.contains(pod.uid()) && pod.controller().is_some_and(|o| o.uid == again.uid())
    });
    assert!(!old_adopted);
    world.agent_up("n3").await;
    world
        .until("all fresh", 10, || fresh(&NODES) && world.all_serve(&NODES))
        .await;
}

#[tokio::test(start_paused = true)]
async fn ds_109_delete_collection_by_label_takes_the_set_and_its_pods() {
    let world = serving().await;
    world.daemon("other", "other").await;
    world
        .until("six pods", 10, || world.pods().len() == 6)
        .await;
    let query = ListQuery {
        namespace: Some("default".into()),
        selection: Selection::parse(&DAEMON_SET, "app=web", "").unwrap(),
        ..ListQuery::default()
    };
    let registry = world.registry();
    let found = registry.list(&world.admin(), &DAEMON_SET, &query).unwrap();
    assert_eq!(found.items.len(), 1);
    let options = DeleteOptions::default();
    let deleted = registry
        .delete_collection(&world.admin(), &DAEMON_SET, &query, &options)
        .await
        .unwrap();
    assert_eq!(deleted.len(), 1);
    assert!(web(&world).is_none());
    world
        .until("its pods are gone", 10, || {
            let pods = world.pods();
            pods.len() == 3 && pods.iter().all(|pod| pod.label("app") == Some("other"))
        })
        .await;
    assert_eq!(revisions(&world).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn every_deletion_goes_on_after_a_restart_of_the_server() {
    for propagation in [
        Propagation::Background,
        Propagation::Foreground,
        Propagation::Orphan,
    ] {
        let mut world = serving().await;
        let before = uids(&world);
        // The server dies right after it has answered: no controller has seen the deletion.
        world.restart_without_controllers().await;
        delete_web(&world, Some(propagation)).await;
        world.pass(5).await;
        assert_eq!(uids(&world), before);
        world.restart().await;
        world
            .until("the set is gone", 10, || web(&world).is_none())
            .await;
        if propagation == Propagation::Orphan {
            world.pass(30).await;
            assert_eq!(uids(&world), before);
            let free = |pod: &Arc<Object>| pod.owner_references().is_empty();
            assert!(world.pods().iter().all(free));
        } else {
            world
                .until("all is gone", 10, || {
                    world.pods().is_empty() && revisions(&world).is_empty()
                })
                .await;
        }
    }
}

fn config(name: &str, owners: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": owners},
    })
}

fn owner(api_version: &str, kind: &str, uid: &str, blocks: bool) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "name": "o", "uid": uid, "blockOwnerDeletion": blocks,
    })
}

#[tokio::test(start_paused = true)]
async fn a_dependent_goes_with_its_last_owner_and_of_unknown_owners_nothing_is_believed() {
    let world = World::start().await;
    let a = world
        .create(&CONFIG_MAP, config("a", &json!([])))
        .await
        .unwrap();
    let of_a = owner("v1", "ConfigMap", a.uid(), false);
    let gone = owner("v1", "ConfigMap", "gone", false);
    let unknown = owner("example.com/v1", "Thing", "unknown", false);
    for (name, owners) in [
        ("of-a", json!([of_a])),
        ("of-a-and-gone", json!([of_a, gone])),
        ("of-gone", json!([gone])),
        ("of-unknown", json!([unknown])),
    ] {
        world
            .create(&CONFIG_MAP, config(name, &owners))
            .await
            .unwrap();
    }
    let there = |name: &str| world.get(&CONFIG_MAP, "default", name);
    world
        .until("judged", 5, || {
            there("of-gone").is_none()
                && there("of-a-and-gone").is_some_and(|o| o.owner_references().len() == 1)
        })
        .await;
    world
        .delete(&CONFIG_MAP, key("default", "a"), DeleteOptions::default())
        .await
        .unwrap();
    world
        .until("collected", 5, || {
            there("of-a").is_none() && there("of-a-and-gone").is_none()
        })
        .await;
    world.pass(60).await;
    assert!(there("of-unknown").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_foreground_deletion_waits_only_for_those_that_block_and_spares_those_of_others() {
    let world = World::start().await;
    let a = world
        .create(&CONFIG_MAP, config("a", &json!([])))
        .await
        .unwrap();
    let b = world
        .create(&CONFIG_MAP, config("b", &json!([])))
        .await
        .unwrap();
    let shared = json!([
        owner("v1", "ConfigMap", a.uid(), true),
        owner("v1", "ConfigMap", b.uid(), true)
    ]);
    world
        .create(&CONFIG_MAP, config("shared", &shared))
        .await
        .unwrap();
    let mut held = config("held", &json!([owner("v1", "ConfigMap", a.uid(), true)]));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.create(&CONFIG_MAP, held).await.unwrap();
    let options = DeleteOptions {
        propagation: Some(Propagation::Foreground),
        ..DeleteOptions::default()
    };
    world
        .delete(&CONFIG_MAP, key("default", "a"), options)
        .await
        .unwrap();
    // One that comes late goes as well.
    let late = json!([owner("v1", "ConfigMap", a.uid(), false)]);
    world
        .create(&CONFIG_MAP, config("late", &late))
        .await
        .unwrap();
    let there = |name: &str| world.get(&CONFIG_MAP, "default", name);
    world
        .until("judged", 5, || {
            there("late").is_none()
                && there("shared").is_some_and(|o| o.owner_references().len() == 1)
                && there("held").is_some_and(|o| o.is_terminating())
        })
        .await;
    world.pass(30).await;
    assert!(there("a").is_some(), "held blocks it");
    world
        .edit(&CONFIG_MAP, key("default", "held"), |held| {
            held.metadata_mut().remove("finalizers");
        })
        .await;
    world
        .until("gone", 5, || {
            there("a").is_none() && there("held").is_none()
        })
        .await;
    assert!(there("shared").is_some());
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_cannot_be_read_takes_nobody_with_it() {
    let mut world = serving().await;
    let before = uids(&world);
    let garbage = Op::Put {
        key: keys::of(&DAEMON_SET, &key("default", "web")),
        value: Bytes::from_static(b"{"),
        soft: false,
    };
    let txn = Txn {
        compares: Vec::new(),
        ops: vec![garbage],
    };
    world.store.commit(txn).await.unwrap();
    world.pass(60).await;
    assert!(web(&world).is_none());
    assert_eq!(uids(&world), before);
    world.restart().await;
    world.pass(60).await;
    assert_eq!(uids(&world), before);
    assert!(world.pods().iter().all(|pod| !pod.is_terminating()));
    // It is still broken, not silently made again.
    assert!(
        world
            .create(&DAEMON_SET, daemon("default", "web", "web"))
            .await
            .is_err()
    );
}
