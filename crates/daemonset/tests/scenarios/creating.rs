use muster_daemonset::plan::{BURST, batches};
use muster_daemonset::pod::name_prefix;
use muster_model::pod_status::Phase;

use crate::world::World;

#[test]
fn ds_033_creations_come_in_bursts_of_250() {
    let mut world = World::new(600);
    assert_eq!(world.sync(), (BURST, 0));
    assert!(world.last_plan.more);
    assert_eq!(world.syncs(3), [(250, 0), (100, 0), (0, 0)]);
}

#[test]
fn ds_034_and_035_creations_are_tried_in_growing_batches() {
    assert_eq!(batches(10).collect::<Vec<_>>(), [1, 2, 4, 3]);
    assert_eq!(batches(7).sum::<usize>(), 7);
    assert_eq!(batches(0).count(), 0);
    // All calls fail: one call. Calls fail from the fourth on: 1 + 2 + 4 calls.
    let calls = |first_failing: usize| {
        let mut made = 0;
        for batch in batches(10) {
            made += batch;
            if made >= first_failing {
                break;
            }
        }
        made
    };
    assert_eq!(calls(1), 1);
    assert_eq!(calls(4), 7);
}

#[test]
fn ds_036_the_status_tells_what_is_missing_before_anything_is_created() {
    let mut world = World::new(10);
    let plan = world.look();
    let status = plan.status.unwrap();
    assert_eq!(
        (status.desired, status.current, status.unavailable),
        (10, 0, 10)
    );
}

#[test]
fn ds_040_names_are_made_from_the_daemonsets_name() {
    assert_eq!(name_prefix("web"), "web-");
    assert_eq!(name_prefix(&"a".repeat(253)), "a".repeat(253));
}

#[test]
fn ds_042_failed_pods_wait_longer_each_time() {
    let mut world = World::new(1);
    world.sync();
    let fail = |world: &mut World| {
        let name = world.only("n0");
        world.fail(&name, "OutOfcpu");
    };
    fail(&mut world);
    let name = world.only("n0");
    assert_eq!(world.sync(), (0, 1));
    assert_eq!(world.events.len(), 1);
    assert!(world.events[0].warning);
    assert_eq!(world.events[0].reason, "FailedDaemonPod");
    assert_eq!(
        world.events[0].message,
        format!("Found failed daemon pod default/{name} on node n0, will try to kill it")
    );
    for wait in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900] {
        assert_eq!(world.sync(), (1, 0));
        fail(&mut world);
        let events = world.events.len();
        assert_eq!(world.sync(), (0, 0), "before {wait} s have passed");
        assert_eq!(world.events.len(), events);
        world.pass(wait - 1);
        if wait > 1 {
            assert_eq!(world.sync(), (0, 0));
        }
        let due = world.last_plan.requeue_at.unwrap();
        world.pass(1);
        assert_eq!(due, world.now());
        assert_eq!(world.sync(), (0, 1), "after {wait} s");
    }
}

#[test]
fn ds_043_a_new_generation_or_a_long_pause_starts_the_waits_over() {
    let mut world = World::new(1);
    world.sync();
    for _ in 0..3 {
        let name = world.only("n0");
        world.fail(&name, "OutOfcpu");
        world.pass(10);
        assert_eq!(world.sync(), (0, 1));
        assert_eq!(world.sync(), (1, 0));
    }
    let name = world.only("n0");
    world.fail(&name, "OutOfcpu");
    assert_eq!(world.sync(), (0, 0), "4 s to wait");
    world.edit_spec(|spec| spec["revisionHistoryLimit"] = 5.into());
    // The sync that observes the new generation still counts under the old one.
    world.sync();
    assert_eq!(world.sync(), (0, 1));
    assert_eq!(world.sync(), (1, 0));
    world.pass(1801);
    let name = world.only("n0");
    world.fail(&name, "OutOfcpu");
    assert_eq!(world.sync(), (0, 1));
    assert_eq!(world.sync(), (1, 0));
    let name = world.only("n0");
    world.fail(&name, "OutOfcpu");
    world.pass(1);
    assert_eq!(world.sync(), (0, 1), "back to 1 s");
}

#[test]
fn ds_044_nodes_wait_independently() {
    let mut world = World::new(2);
    world.sync();
    let (first, second) = (world.only("n0"), world.only("n1"));
    world.fail(&first, "OutOfcpu");
    assert_eq!(world.sync(), (0, 1));
    assert_eq!(world.sync(), (1, 0));
    let again = world.only("n0");
    world.fail(&again, "OutOfcpu");
    world.fail(&second, "OutOfcpu");
    assert_eq!(
        world.sync(),
        (0, 1),
        "n1's first failure does not wait for n0's second"
    );
    assert_eq!(world.only("n0"), again);
}

#[test]
fn ds_045_a_succeeded_pod_is_replaced_without_waiting() {
    let mut world = World::new(1);
    world.sync();
    for round in 1..4 {
        let name = world.only("n0");
        world.edit_pod(&name).phase = Phase::Succeeded;
        assert_eq!(world.sync(), (0, 1));
        let event = world.events.last().unwrap();
        assert!(!event.warning);
        assert_eq!(event.reason, "SucceededDaemonPod");
        assert_eq!(
            event.message,
            format!("Found succeeded daemon pod default/{name} on node n0, will try to delete it")
        );
        assert_eq!(world.events.len(), round);
        assert_eq!(world.sync(), (1, 0));
    }
}

#[test]
fn ds_046_a_terminating_pod_holds_its_node() {
    let mut world = World::running(5);
    let name = world.only("n0");
    world.edit_pod(&name).terminating = true;
    assert_eq!(world.sync(), (0, 0));
    assert_eq!(world.stat("currentNumberScheduled"), 5);
    assert_eq!(
        world.verdict("n0"),
        format!("pod {name} is still stopping; the next one is created when it is gone")
    );
    world.finish();
    assert_eq!(world.sync(), (1, 0));
}

#[test]
fn ds_047_a_failed_terminating_pod_leaves_the_node_empty() {
    let mut world = World::running(5);
    let name = world.only("n0");
    world.fail(&name, "Evicted");
    world.edit_pod(&name).terminating = true;
    assert_eq!(world.sync(), (1, 0));
}

#[test]
fn ds_048_a_failed_pod_beside_a_running_one_goes_alone() {
    let mut world = World::running(5);
    world.add_pod("failed", "n0", 900);
    world.fail("failed", "OutOfcpu");
    assert_eq!(world.sync(), (0, 1));
    assert_ne!(world.only("n0"), "failed");
    assert_eq!(world.sync(), (0, 0));
}

#[test]
fn ds_049_the_oldest_pod_stays() {
    let mut world = World::new(2);
    for (name, node, created) in [
        ("a3", "n0", 3),
        ("a1", "n0", 1),
        ("a2", "n0", 2),
        ("c", "n1", 1),
        ("b", "n1", 1),
    ] {
        world.add_pod(name, node, created);
    }
    assert_eq!(world.sync(), (0, 3));
    assert_eq!(world.only("n0"), "a1");
    assert_eq!(world.only("n1"), "b");
}

/// The budget rule: of several pods the oldest stays, unless it serves worse than a younger one.
#[test]
fn an_available_pod_is_not_given_up_for_an_older_one_that_is_not() {
    let mut world = World::new(1);
    world.add_pod("older", "n0", 1);
    world.add_pod("younger", "n0", 2);
    world.set_ready("younger", true);
    assert_eq!(world.sync(), (0, 1));
    assert_eq!(world.only("n0"), "younger");
}

#[test]
fn ds_050_a_deleted_pod_comes_back_with_the_same_hash() {
    let mut world = World::running(5);
    let before = world.only("n0");
    let hash = world.pods[&before].hash.clone();
    world.remove_pod(&before);
    assert_eq!(world.sync(), (1, 0));
    let after = world.only("n0");
    assert_ne!(after, before);
    assert_eq!(world.pods[&after].hash, hash);
}

#[test]
fn ds_051_a_restarted_controller_finds_nothing_to_do() {
    let mut world = World::running(5);
    let (writes, revisions) = (world.status_writes, world.history.len());
    let again = world.look();
    assert!(again.is_idle(), "{again}");
    assert_eq!(
        (world.status_writes, world.history.len()),
        (writes, revisions)
    );
}
