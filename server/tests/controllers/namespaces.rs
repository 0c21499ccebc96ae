//! Namespaces and finalizers (spec/kube-api.md 9, Delete).

use muster_model::kind::{CONFIG_MAP, DAEMON_SET, KINDS, NAMESPACE, POD, SERVICE_ACCOUNT};
use muster_server::registry::{DeleteOptions, Write};
use serde_json::{Value, json};

use crate::world::{World, changes, daemon, key, object};

fn config(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}})
}

async fn delete_namespace(world: &World, name: &str) {
    world
        .delete(&NAMESPACE, key("", name), DeleteOptions::default())
        .await
        .unwrap();
}

fn content(world: &World, namespace: &str) -> usize {
    let namespaced = KINDS.iter().filter(|kind| kind.namespaced);
    namespaced
        .map(|kind| world.cache().list_ns(kind, namespace).items.len())
        .sum()
}

async fn filled() -> World {
    let world = World::start().await;
    world.agent_up("n1").await;
    world.namespace("n1").await;
    world.create(&CONFIG_MAP, config("n1", "c")).await.unwrap();
    world
        .create(&DAEMON_SET, daemon("n1", "web", "web"))
        .await
        .unwrap();
    world
        .until("its pod runs", 10, || {
            let pods = world.cache().list_ns(&POD, "n1").items;
            pods.len() == 1 && pods[0].object().text_at("/status/phase") == "Running"
        })
        .await;
    assert!(world.get(&SERVICE_ACCOUNT, "n1", "default").is_some());
    world
}

#[tokio::test(start_paused = true)]
async fn api_025_a_namespace_goes_after_its_content() {
    let world = filled().await;
    world.agent_down("n1");
    delete_namespace(&world, "n1").await;
    let namespace = world.get(&NAMESPACE, "", "n1").unwrap();
    assert_eq!(namespace.text_at("/status/phase"), "Terminating");
    world
        .until("all but the pod is gone", 5, || {
            world.get(&CONFIG_MAP, "n1", "c").is_none()
                && world.get(&DAEMON_SET, "n1", "web").is_none()
                && world.get(&SERVICE_ACCOUNT, "n1", "default").is_none()
        })
        .await;
    world.pass(10).await;
    let pods = world.cache().list_ns(&POD, "n1").items;
    assert_eq!(pods.len(), 1);
    assert!(pods[0].object().is_terminating());
    let refused = world
        .create(&CONFIG_MAP, config("n1", "late"))
        .await
        .unwrap_err();
    assert!(refused.is_namespace_terminating());
    assert_eq!(
        refused.message(),
        "configmaps \"late\" is forbidden: unable to create new content in namespace n1 because it is being terminated"
    );
    assert!(world.get(&NAMESPACE, "", "n1").is_some());

    world.agent_up("n1").await;
    world
        .until("gone", 5, || world.get(&NAMESPACE, "", "n1").is_none())
        .await;
    assert_eq!(content(&world, "n1"), 0);
    world.namespace("n1").await;
    assert_eq!(content(&world, "n1"), 1, "a new service account");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_on_going_after_a_restart() {
    let mut world = filled().await;
    world.restart_without_controllers().await;
    delete_namespace(&world, "n1").await;
    world.pass(5).await;
    assert!(content(&world, "n1") >= 4);
    world.restart().await;
    world
        .until("gone", 10, || world.get(&NAMESPACE, "", "n1").is_none())
        .await;
    assert_eq!(content(&world, "n1"), 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_slips_into_a_namespace_that_goes() {
    for creates_first in [true, false] {
        let world = World::start().await;
        world.namespace("n1").await;
        let registry = world.registry().clone();
        let admin = world.admin();
        let creates: Vec<Write> = (0..50)
            .map(|n| Write::create(&CONFIG_MAP, object(config("n1", &format!("c{n}")))))
            .collect();
        let deletes = vec![Write::delete(
            &NAMESPACE,
            key("", "n1"),
            DeleteOptions::default(),
        )];
        if creates_first {
            tokio::join!(
                registry.commit(&admin, creates),
                registry.commit(&admin, deletes)
            );
        } else {
            tokio::join!(
                registry.commit(&admin, deletes),
                registry.commit(&admin, creates)
            );
        }
        world
            .until("gone", 10, || world.get(&NAMESPACE, "", "n1").is_none())
            .await;
        world.pass(5).await;
        assert_eq!(content(&world, "n1"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_namespaces_cannot_be_deleted() {
    let world = World::start().await;
    let refused = world
        .delete(&NAMESPACE, key("", "default"), DeleteOptions::default())
        .await
        .unwrap_err();
    assert_eq!(
        refused.message(),
        "namespaces \"default\" is forbidden: this namespace may not be deleted"
    );
}

#[tokio::test(start_paused = true)]
async fn api_087_a_finalizer_keeps_a_pod_until_it_is_taken_off() {
    let world = World::start().await;
    world.agent_up("n1").await;
    let pod = world.bare_pod("p", "n1", json!([])).await;
    world
        .edit(&POD, key("default", "p"), |pod| {
            pod.metadata_mut()
                .insert("finalizers".into(), json!(["example.com/hold"]));
        })
        .await;
    world
        .delete(&POD, key("default", "p"), DeleteOptions::default())
        .await
        .unwrap();
    world.pass(60).await;
    let held = world.pod("p").unwrap();
    assert!(held.is_terminating());
    assert_eq!(held.uid(), pod.uid());
    let mut seen = world.cache().subscribe(&[&POD]);
    world
        .edit(&POD, key("default", "p"), |pod| {
            pod.metadata_mut().remove("finalizers");
        })
        .await;
    assert!(world.pod("p").is_none());
    let changes = changes(&mut seen);
    assert_eq!(changes.len(), 1);
    assert!(changes[0].new.is_none(), "watchers are told DELETED");
}
