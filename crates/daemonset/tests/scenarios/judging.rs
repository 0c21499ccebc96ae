//! When a revision counts as failed, and when as available everywhere: thresholds, deadlines, proof.

use std::time::Duration;

use serde_json::json;

use crate::failing::{break_first, condition, running};
use crate::world::World;

#[test]
fn the_threshold_is_a_number_or_a_percentage_of_nodes() {
    let mut world = running("halt", 5);
    world.annotate("failure-threshold", "40%");
    world.set_budget(json!(3), json!(0));
    world.set_image("img:2");
    world.syncs(2);
    let (first, second) = (world.only("n0"), world.only("n1"));
    world.crash(&first);
    world.syncs(2);
    assert_eq!(world.why_failed(), None);
    world.crash(&second);
    world.syncs(2);
    let failed = world.why_failed();
    assert!(failed.unwrap().starts_with("it failed on 2 of 5 nodes"));
}

#[test]
fn a_threshold_that_cannot_be_reached_is_reached_where_the_revision_fails_everywhere_it_may_be_tried()
 {
    // The budget lets one node try it.
    let mut world = running("halt", 5);
    world.annotate("failure-threshold", "2");
    break_first(&mut world);
    world.syncs(2);
    assert!(world.why_failed().is_some());
    // The budget would let three, the canary lets one.
    let mut world = running("halt", 5);
    world.set_budget(json!(3), json!(0));
    world.annotate("failure-threshold", "2");
    world.label("n0", "role", "canary");
    world.annotate("canary", "role=canary");
    break_first(&mut world);
    world.syncs(2);
    assert!(world.why_failed().is_some());
    // Three may try it, and one of them fails.
    let mut world = running("halt", 5);
    world.set_budget(json!(3), json!(0));
    world.annotate("failure-threshold", "2");
    world.set_image("img:2");
    world.syncs(2);
    let broken = world.only("n0");
    world.crash(&broken);
    world.syncs(2);
    assert_eq!(world.why_failed(), None);
}

#[test]
fn a_pod_that_was_in_time_and_comes_down_has_the_whole_deadline_again() {
    let mut world = running("rollback", 3);
    world.annotate("progress-deadline", "10m");
    world.annotate("canary", "1");
    world.set_image("img:2");
    world.syncs(2);
    world.ready_all();
    world.sync();
    world.pass(3_600);
    world.set_ready_on("n0", false);
    world.syncs(2);
    world.pass(599);
    world.syncs(2);
    assert_eq!(world.why_failed(), None);
    world.pass(1);
    world.syncs(1);
    let told = world.why_failed();
    assert!(
        told.as_ref()
            .is_some_and(|told| told.ends_with("is not available 600s after it came down)")),
        "{told:?}"
    );
}

#[test]
fn a_pod_that_is_not_available_by_the_deadline_counts_as_failed() {
    let mut world = running("halt", 3);
    world.annotate("progress-deadline", "2m");
    world.set_image("img:2");
    world.syncs(2);
    world.pass(119);
    world.syncs(2);
    assert_eq!(world.why_failed(), None);
    assert_eq!(
        world.last_plan.requeue_at,
        Some(world.now() + Duration::from_secs(1))
    );
    world.pass(1);
    world.syncs(2);
    let failed = world.why_failed().unwrap();
    assert_eq!(
        &*failed,
        "it failed on 1 of 3 nodes (n0: pod web-00004 is not available 120s after it was made)"
    );
}

#[test]
fn a_node_out_of_reach_does_not_make_a_revision_fail() {
    let mut world = running("rollback", 3);
    world.annotate("progress-deadline", "2m");
    world.set_image("img:2");
    world.syncs(2);
    world.lose("n0");
    world.pass(600);
    world.syncs(3);
    assert_eq!(world.why_failed(), None);
}

#[test]
fn a_revision_that_was_available_everywhere_does_not_fail_any_more() {
    let mut world = running("rollback", 3);
    let pod = world.only("n1");
    world.crash(&pod);
    assert_eq!(world.syncs(3), [(0, 0); 3]);
    assert!(
        world
            .history
            .iter()
            .all(|one| one.proven && one.failed.is_none())
    );
}

#[test]
fn a_node_that_was_out_of_reach_has_the_whole_deadline_when_it_is_back() {
    let mut world = running("rollback", 3);
    world.annotate("progress-deadline", "2m");
    world.set_image("img:2");
    world.syncs(2);
    world.pass(1);
    world.lose("n0");
    world.pass(3_600);
    world.syncs(2);
    world.find_again("n0");
    world.syncs(2);
    world.pass(119);
    world.syncs(2);
    assert_eq!(world.why_failed(), None);
    world.pass(1);
    world.sync();
    let failed = world.why_failed();
    assert_eq!(
        failed.as_deref(),
        Some(
            "it failed on 1 of 3 nodes (n0: pod web-00004 is not available 120s after its node was back)"
        )
    );
}

#[test]
fn one_machine_out_of_reach_does_not_keep_a_revision_unproven_for_ever() {
    let mut world = running("rollback", 4);
    world.set_budget(json!(2), json!(0));
    world.set_image("img:2");
    world.syncs(2);
    world.ready_all();
    // One updated node is lost in the middle.
    world.lose("n0");
    world.settle_down();
    assert!(
        world.history.iter().all(|one| one.proven),
        "{:?}",
        world.history.len()
    );
    // Weeks later a pod crashes elsewhere: that is no rollout that failed.
    let pod = world.only("n2");
    world.crash(&pod);
    assert_eq!(world.syncs(3), [(0, 0); 3]);
    assert_eq!(world.why_failed(), None);
}

#[test]
fn a_first_revision_that_recovers_is_what_the_next_one_goes_back_to() {
    let mut world = World::new(2);
    world.annotate("on-failure", "rollback");
    world.sync();
    let slow = world.only("n0");
    world.crash(&slow);
    world.syncs(2);
    assert_eq!(condition(&world).1, "RolloutHalted");
    // A crash loop has its good moments.
    world.pods.values_mut().for_each(|pod| pod.failing = None);
    world.ready_all();
    world.syncs(2);
    let recovers = world.last_plan.requeue_at.unwrap();
    assert_eq!(recovers, world.now() + Duration::from_secs(600));
    world.pass(599);
    world.syncs(2);
    assert_eq!(condition(&world).0, "True");
    world.pass(1);
    world.syncs(2);
    assert_eq!(condition(&world).0, "False");
    break_first(&mut world);
    world.syncs(6);
    assert_eq!(
        world.daemon["spec"]["template"]["spec"]["containers"][0]["image"],
        "img:1"
    );
}

#[test]
fn a_threshold_above_the_number_of_nodes_is_all_of_them() {
    let mut world = running("rollback", 4);
    world.annotate("failure-threshold", "5");
    world.on_delete();
    world.settle_down();
    world.set_image("img:2");
    world.sync();
    world.delete_all_and_crash();
    world.syncs(2);
    assert_eq!(condition(&world).0, "True");
    // The way back may fail as well: with nothing to fall back to the budget alone is what tries it.
    let mut world = World::new(4);
    world.annotate("on-failure", "halt");
    world.annotate("failure-threshold", "2");
    world.sync();
    world.delete_all_and_crash();
    world.syncs(2);
    assert_eq!(condition(&world).1, "RolloutHalted");
    world.set_image("img:2");
    world.syncs(3);
    world.ready_all_but_crashed();
    for _ in 0..6 {
        for node in world.updated_nodes() {
            let name = world.only(&node);
            world.crash(&name);
        }
        world.sync();
    }
    assert!(
        condition(&world).2.starts_with("revision 2"),
        "{:?}",
        condition(&world)
    );
}
