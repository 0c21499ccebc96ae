//! Node names that change their machine (spec/node-agent.md 2).

use muster_model::kind::NODE;
use muster_server::machines;
use muster_server::registry::DeleteOptions;

use crate::world::{World, key};

async fn serving() -> (World, String) {
    let world = World::start().await;
    let claimed = machines::claim(world.registry(), "n1", "machine-a").await;
    assert_eq!(claimed.unwrap(), 0);
    world.agent_up("n1").await;
    world.daemon("web", "web").await;
    world
        .until("it serves", 10, || world.all_serve(&["n1"]))
        .await;
    let uid = world.pods()[0].uid().to_owned();
    (world, uid)
}

async fn delete_node(world: &World) {
    world.agent_down("n1");
    world
        .delete(&NODE, key("", "n1"), DeleteOptions::default())
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn case_b91_another_machine_of_the_same_name_gets_fresh_pods() {
    let (mut world, uid) = serving().await;
    delete_node(&world).await;
    // What is remembered outlives the server.
    world.restart().await;
    let removed = machines::claim(world.registry(), "n1", "machine-b").await;
    assert_eq!(removed.unwrap(), 1);
    assert!(world.pods().is_empty(), "removed at once");
    world.agent_up("n1").await;
    let took = world
        .until("a fresh pod", 5, || world.all_serve(&["n1"]))
        .await;
    assert!(took.as_secs() < 5);
    assert_ne!(world.pods()[0].uid(), uid);
}

#[tokio::test(start_paused = true)]
async fn na_008_the_same_machine_keeps_its_pods() {
    let (world, uid) = serving().await;
    delete_node(&world).await;
    world.pass(10).await;
    let removed = machines::claim(world.registry(), "n1", "machine-a").await;
    assert_eq!(removed.unwrap(), 0);
    world.agent_up("n1").await;
    world.pass(120).await;
    assert!(world.all_serve(&["n1"]));
    assert_eq!(world.pods()[0].uid(), uid);
}

#[tokio::test(start_paused = true)]
async fn the_machine_behind_a_name_is_remembered_while_anything_bears_it() {
    let (mut world, _) = serving().await;
    let former = machines::former(world.registry(), "n1").await;
    assert_eq!(former.as_deref(), Some("machine-a"));
    delete_node(&world).await;
    world.restart().await;
    let former = machines::former(world.registry(), "n1").await;
    assert_eq!(former.as_deref(), Some("machine-a"), "its pod is there");
    let claimed = machines::claim(world.registry(), "n1", "").await;
    assert_eq!(claimed.unwrap(), 0, "one that does not say who it is");
    assert_eq!(world.pods().len(), 1);
}
