//! The budget rule's other half: nodes out of reach since before the rollout.

use std::time::Duration;

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

#[test]
fn with_a_template_that_tolerates_the_loss_it_is_passed_over_likewise() {
    let mut world = World::running(2);
    world.tolerate_everything();
    world.lose("n0");
    world.pass(100);
    world.set_image("img:2");
    assert_eq!(world.syncs(2), [(0, 1), (1, 0)]);
    world.ready_all();
    assert_eq!(world.syncs(2), [(0, 0), (0, 0)]);
    assert!(
        world
            .verdict("n0")
            .ends_with("the rollout does not wait for it")
    );
}

/// The first of three nodes has the new revision, which does not work; then every agent is out of reach.
fn all_lost_in_a_stuck_rollout(prepare: impl FnOnce(&mut World)) -> World {
    let mut world = World::running(3);
    prepare(&mut world);
    world.settle_down();
    world.pass(100);
    world.set_image("img:2");
    world.syncs(2);
    world.pass(10);
    for node in ["n0", "n1", "n2"] {
        world.lose(node);
    }
    world
}

#[test]
fn a_partition_during_a_stuck_rollout_stops_nothing() {
    let surge = |world: &mut World| world.set_budget(json!(0), json!(1));
    for prepare in [
        (|_: &mut World| ()) as fn(&mut World),
        surge,
        World::tolerate_everything,
        |world| {
            world.tolerate_everything();
            world.set_budget(json!(0), json!(1));
        },
        |world| world.annotate("on-failure", "halt"),
    ] {
        let mut world = all_lost_in_a_stuck_rollout(prepare);
        let before: Vec<String> = world.pods.keys().cloned().collect();
        assert_eq!(world.syncs(3), [(0, 0); 3]);
        // The agents are back one after the other, and say how their pods are a little later.
        for node in ["n1", "n2"] {
            world.pass(1);
            world.find_again(node);
            assert_eq!(world.syncs(2), [(0, 0); 2]);
            world.pass(5);
            world.set_ready_on(node, true);
            assert_eq!(world.syncs(2), [(0, 0); 2]);
        }
        assert_eq!(world.pods.keys().cloned().collect::<Vec<_>>(), before);
    }
}

#[test]
fn an_old_pod_of_which_nothing_is_heard_after_its_node_is_back_goes_in_the_end() {
    let mut world = all_lost_in_a_stuck_rollout(|_| ());
    world.find_again("n1");
    assert_eq!(world.sync(), (0, 0));
    let looks_again = world.last_plan.requeue_at;
    assert_eq!(looks_again, Some(world.now() + Duration::from_secs(40)));
    world.pass(40);
    assert_eq!(world.sync(), (0, 1));
}

#[test]
fn a_node_that_uses_up_the_budget_is_named() {
    let mut world = World::running(3);
    world.graceful = true;
    world.set_image("img:2");
    assert_eq!(world.sync(), (0, 1));
    world.finish();
    assert_eq!(world.sync(), (1, 0));
    world.pass(60);
    world.lose("n0");
    assert_eq!(world.sync(), (0, 0));
    let waiting = world.placements.waiting().map(|(node, _)| node.as_str());
    assert_eq!(waiting.collect::<Vec<_>>(), ["n0", "n1", "n2"]);
    assert!(
        world
            .verdict("n0")
            .starts_with("the node's agent is out of reach since")
    );
}

#[test]
fn nodes_that_an_unproven_revision_cuts_off_use_up_its_radius() {
    for budget in [(json!(2), json!(0)), (json!(0), json!(2))] {
        let mut world = World::running(8);
        world.annotate("on-failure", "rollback");
        world.set_budget(budget.0, budget.1);
        world.set_image("img:2");
        // Whoever runs it is cut off soon after it was Ready.
        let mut cut_off: Vec<String> = Vec::new();
        for _ in 0..20 {
            world.sync();
            world.ready_all();
            for node in &cut_off {
                world.set_ready_on(node, false);
            }
            world.sync();
            world.pass(60);
            for node in world.updated_nodes() {
                if !cut_off.contains(&node) {
                    world.lose(&node);
                    cut_off.push(node);
                }
            }
        }
        // Two that are lost, and at most the two that had their turn before that was known.
        assert!(world.updated_nodes().len() <= 4);
    }
}

#[test]
fn a_revision_is_not_proven_while_most_nodes_are_out_of_reach() {
    let mut world = World::running(5);
    world.annotate("on-failure", "rollback");
    for node in ["n2", "n3", "n4"] {
        world.lose(node);
    }
    world.pass(60);
    world.set_image("img:2");
    world.settle_down();
    assert_eq!(world.updated_nodes(), ["n0", "n1"]);
    assert!(!world.facts().course.proven);
    world.regain("n2");
    world.settle_down();
    assert!(
        world.facts().course.proven,
        "three of five, and the others away"
    );
}
