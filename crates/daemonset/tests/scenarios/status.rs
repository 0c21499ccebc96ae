use muster_daemonset::Numbers;
use muster_model::object::Object;
use serde_json::json;

use crate::world::World;

#[test]
fn ds_099_the_counters() {
    let mut world = World::running(5);
    world.set_ready_on("n0", false);
    world.set_ready_on("n1", false);
    world.sync();
    assert_eq!(
        world.daemon["status"],
        json!({
            "desiredNumberScheduled": 5, "currentNumberScheduled": 5, "numberReady": 3, "numberAvailable": 3,
            "numberUnavailable": 2, "updatedNumberScheduled": 5, "numberMisscheduled": 0,
            "observedGeneration": 1,
        })
    );
}

#[test]
fn ds_100_one_sync_observes_a_generation() {
    let mut world = World::running(5);
    world.edit_spec(|_| {});
    assert_eq!(world.stat("observedGeneration"), 1);
    world.sync();
    assert_eq!(world.stat("observedGeneration"), 2);
}

#[test]
fn ds_101_an_unchanged_status_is_not_written() {
    let mut world = World::running(5);
    let writes = world.status_writes;
    for _ in 0..10 {
        world.pass(60);
        assert_eq!(world.sync(), (0, 0));
    }
    assert_eq!(world.status_writes, writes);
}

#[test]
fn ds_102_conditions_and_the_collision_count_of_others_stay() {
    let condition = json!([{"type": "StatusPatched", "status": "True"}]);
    let mut daemon = Object::from_value(json!({
        "status": {"conditions": condition, "collisionCount": 2, "numberAvailable": 7},
    }))
    .unwrap();
    Numbers {
        observed_generation: 3,
        desired: 1,
        unavailable: 1,
        ..Numbers::default()
    }
    .write_into(&mut daemon);
    assert_eq!(
        daemon.at("/status").unwrap(),
        &json!({
            "conditions": [{"type": "StatusPatched", "status": "True"}], "collisionCount": 2,
            "observedGeneration": 3, "desiredNumberScheduled": 1, "currentNumberScheduled": 0,
            "numberReady": 0, "numberMisscheduled": 0, "numberUnavailable": 1,
        })
    );
}
