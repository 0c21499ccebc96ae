//! The budget rule's other half: nodes out of reach since before the rollout.

use serde_json::json;

use crate::world::World;

#[test]
fn a_node_lost_before_the_rollout_neither_blocks_nor_is_touched() {
    let mut world = World::running(3);
    world.graceful = true;
    world.pass(100);
    world.lose("n0");
    world.sync();
    let before = world.only("n0");
    world.pass(100);
    world.set_image("img:2");
    for node in ["n1", "n2"] {
        assert_eq!(world.sync(), (0, 1), "{node}");
        assert!(world.on(node)[0].terminating);
        world.finish();
        assert_eq!(world.sync(), (1, 0));
        world.ready_all();
    }
    assert_eq!(world.sync(), (0, 0));
    assert_eq!(world.only("n0"), before);
    assert!(!world.pods[&before].terminating);
    assert_eq!(
        world.verdict("n0"),
        format!(
            "the node's agent is out of reach since 2026-01-01T00:01:40Z, so pod {before} cannot be looked after; \
             the rollout does not wait for it"
        )
    );
    let waiting: Vec<&str> = world
        .placements
        .waiting()
        .map(|(node, _)| node.as_str())
        .collect();
    assert_eq!(waiting, ["n0"]);
    // It comes back: now it is its turn.
    world.regain("n0");
    assert_eq!(world.sync(), (0, 1));
    world.finish();
    assert_eq!(world.sync(), (1, 0));
}

#[test]
fn a_node_that_came_back_waits_for_the_budget() {
    let mut world = World::running(3);
    world.lose("n0");
    world.pass(100);
    world.set_image("img:2");
    assert_eq!(world.syncs(2), [(0, 1), (1, 0)]);
    world.regain("n0");
    assert_eq!(
        world.sync(),
        (0, 0),
        "n1 is out, and that is all the budget"
    );
    world.ready_all();
    assert_eq!(world.sync(), (0, 1));
    assert!(world.on("n0").is_empty());
}

#[test]
fn with_the_annotation_it_counts_as_in_kubernetes() {
    let mut world = World::running(3);
    world.graceful = true;
    world.daemon["metadata"]["annotations"]["muster.dev/offline-nodes"] = "count".into();
    world.lose("n0");
    world.pass(100);
    world.set_image("img:2");
    assert_eq!(world.syncs(3), [(0, 1), (0, 0), (0, 0)]);
    assert!(world.on("n0")[0].terminating);
}

#[test]
fn a_node_lost_during_the_rollout_counts() {
    let mut world = World::running(3);
    world.graceful = true;
    world.set_image("img:2");
    assert_eq!(world.sync(), (0, 1));
    world.pass(60);
    world.lose("n0");
    assert_eq!(world.syncs(2), [(0, 0), (0, 0)]);
}

#[test]
fn a_surge_passes_over_it_too() {
    let mut world = World::running(2);
    world.set_budget(json!(0), json!(1));
    world.lose("n0");
    world.pass(100);
    world.set_image("img:2");
    assert_eq!(world.sync(), (1, 0));
    assert_eq!(world.on("n1").len(), 2);
    world.ready_all();
    assert_eq!(world.syncs(2), [(0, 1), (0, 0)]);
    assert_eq!(world.on("n0").len(), 1);
}
