//! A revision that fails: the rollout stops, goes back if asked, and what it broke is repaired.

use muster_model::pre_pull::State;
use muster_model::reason::annotation::LAST_APPLIED;
use serde_json::json;

use crate::world::World;

pub(crate) fn running(on_failure: &str, nodes: usize) -> World {
    let mut world = World::running(nodes);
    world.annotate("on-failure", on_failure);
    world
}

/// Image `img:2`; its first pod crashes.
pub(crate) fn break_first(world: &mut World) -> String {
    world.set_image("img:2");
    assert_eq!(world.syncs(2), [(0, 1), (1, 0)]);
    let broken = world.only("n0");
    world.crash(&broken);
    broken
}

/// The same, as long as going back takes.
fn fall_back(world: &mut World) {
    break_first(world);
    for _ in 0..8 {
        world.sync();
        world.ready_all_but_crashed();
    }
    world.settle_down();
}

pub(crate) fn condition(world: &World) -> (String, String, String) {
    let condition = &world.daemon["status"]["conditions"][0];
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    assert_eq!(condition["type"], "RolloutFailed");
    (text("status"), text("reason"), text("message"))
}

#[test]
fn a_revision_that_fails_on_one_node_is_stopped_and_the_others_keep_theirs() {
    let mut world = running("halt", 5);
    world.set_budget(json!(3), json!(0));
    let before = world.names_on("n4");
    world.set_image("img:2");
    assert_eq!(world.syncs(2), [(0, 3), (3, 0)]);
    let broken = world.only("n1");
    world.crash(&broken);
    assert_eq!(world.syncs(5), [(0, 0); 5]);
    assert_eq!(world.names_on("n4"), before);
    assert_eq!(world.updated(), 3);
    let why = "it failed on 1 of 5 nodes (n1: container web waits: CrashLoopBackOff)";
    assert_eq!(
        condition(&world),
        (
            "True".into(),
            "RolloutHalted".into(),
            format!("revision 2: {why}")
        )
    );
    let look = world.look();
    assert!(look.is_idle(), "{look}");
    assert!(
        world
            .hold("n4")
            .starts_with("the rollout was stopped: it failed on 1 of 5 nodes"),
        "{}",
        world.hold("n4")
    );
}

#[test]
fn an_old_pod_that_only_just_turned_ready_waits_for_room_instead_of_coming_back_again_and_again() {
    let mut world = running("halt", 3);
    world.min_ready(20);
    world.set_image("img:2");
    assert_eq!(world.syncs(2), [(0, 1), (1, 0)]);
    let tried = world.only("n0");
    world.set_ready(&tried, true);
    // An old pod was restarted: it is Ready again, and not available yet. As many nodes as may try the new revision.
    let old = world.only("n1");
    world.set_ready(&old, false);
    world.set_ready(&old, true);
    assert_eq!(world.syncs(3), [(0, 0); 3]);
    assert_eq!(world.only("n1"), old);
    world.pass(20);
    assert_eq!(world.sync(), (0, 1));
}

#[test]
fn without_the_annotation_nothing_of_it_happens() {
    let mut world = World::running(3);
    break_first(&mut world);
    assert_eq!(world.syncs(3), [(0, 0); 3]);
    assert!(world.daemon["status"]["conditions"].is_null());
    assert_eq!(world.why_failed(), None);
}

#[test]
fn a_node_that_loses_its_pod_while_the_rollout_is_stopped_gets_the_older_revision_back() {
    let mut world = running("halt", 5);
    break_first(&mut world);
    world.syncs(3);
    let lost = world.only("n3");
    world.remove_pod(&lost);
    assert_eq!(world.sync(), (1, 0));
    let image = &world.last_created["n3"].tree()["spec"]["containers"][0]["image"];
    assert_eq!(image, "img:1");
    world.ready_all_but_crashed();
    assert_eq!(world.syncs(3), [(0, 0); 3]);
    assert_eq!(world.stat("updatedNumberScheduled"), 1);
    assert_eq!(world.stat("numberAvailable"), 4);
}

#[test]
fn the_template_goes_back_to_the_last_revision_that_was_available_everywhere() {
    let mut world = running("rollback", 5);
    // Never available everywhere: not what one goes back to.
    world.set_budget(json!(1), json!(0));
    fall_back(&mut world);
    let image = &world.daemon["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, "img:1");
    assert_eq!(world.updated(), 5);
    assert_eq!(world.stat("numberAvailable"), 5);
    // Only the broken node was ever touched.
    assert_eq!(world.names_on("n4"), ["web-00005"]);
    let numbers: Vec<i64> = world.history.iter().map(|one| one.number).collect();
    assert_eq!(numbers, [3, 2]);
    let (status, reason, message) = condition(&world);
    assert_eq!((status.as_str(), reason.as_str()), ("True", "RolledBack"));
    assert!(
        message.starts_with("revision 2: it failed on 1 of 5 nodes"),
        "{message}"
    );
    assert!(
        message.ends_with("; revision 3 took its place"),
        "{message}"
    );
    // The next template that works clears it.
    world.set_image("img:3");
    world.settle_down();
    assert_eq!(condition(&world).0, "False");
}

#[test]
fn a_template_that_a_person_puts_back_is_no_failure() {
    let mut world = running("halt", 3);
    let broken = break_first(&mut world);
    world.syncs(3);
    assert_eq!(condition(&world).1, "RolloutHalted");
    world.set_image("img:1");
    world.syncs(3);
    world.remove_pod_if_there(&broken);
    world.settle_down();
    assert_eq!(condition(&world).0, "False");
}

#[test]
fn a_way_back_is_told_until_a_manifest_is_applied_that_leaves_the_template_as_it_is() {
    let mut world = running("rollback", 3);
    world.daemon["metadata"]["annotations"][LAST_APPLIED] = "img:2".into();
    fall_back(&mut world);
    assert_eq!(condition(&world).1, "RolledBack");
    world.annotate("partition", "0");
    world.settle_down();
    assert_eq!(condition(&world).1, "RolledBack");
    world.daemon["metadata"]["annotations"][LAST_APPLIED] = "img:1".into();
    world.settle_down();
    assert_eq!(condition(&world).0, "False");
}

#[test]
fn without_a_history_the_failed_revision_stays_as_long_as_its_failure_is_told() {
    let mut world = running("rollback", 3);
    world.edit_spec(|spec| spec["revisionHistoryLimit"] = 0.into());
    fall_back(&mut world);
    assert_eq!(condition(&world).1, "RolledBack");
    world.set_image("img:3");
    world.settle_down();
    assert_eq!(condition(&world).0, "False");
    let numbers: Vec<i64> = world.history.iter().map(|one| one.number).collect();
    assert_eq!(numbers, [4]);
}

#[test]
fn a_failed_template_that_is_applied_again_is_tried_again() {
    let mut world = running("halt", 3);
    let broken = break_first(&mut world);
    world.syncs(3);
    world.set_image("img:1");
    world.syncs(3);
    world.remove_pod_if_there(&broken);
    world.settle_down();
    world.set_image("img:2");
    world.settle_down();
    assert_eq!(world.updated(), 3);
    assert_eq!(world.why_failed(), None);
}

#[test]
fn a_revision_that_is_tried_again_is_not_judged_by_what_its_last_try_left() {
    for surging in [false, true] {
        let mut world = running("halt", 3);
        world.annotate("progress-deadline", "2m");
        if surging {
            world.set_budget(json!(0), json!(1));
        }
        world.set_image("img:2");
        world.syncs(2);
        let broken = world.names_on("n0").pop().unwrap();
        world.crash(&broken);
        world.syncs(3);
        let is_halted = |world: &World| world.history.iter().any(|one| one.failed.is_some());
        assert!(is_halted(&world));
        world.pass(600);
        world.try_again();
        assert_eq!(world.sync(), (0, 1));
        assert!(!world.pods.contains_key(&broken));
        assert_eq!(world.sync(), (1, 0));
        let next = world.names_on("n0").pop().unwrap();
        assert!(!is_halted(&world));
        // The next one is judged by itself.
        world.crash(&next);
        world.syncs(2);
        assert!(is_halted(&world));
        world.try_again();
        world.settle_down();
        assert_eq!((world.updated(), world.stat("numberAvailable")), (3, 3));
    }
}

#[test]
fn a_template_whose_image_was_missing_is_asked_for_anew_when_it_comes_back() {
    let mut world = running("rollback", 3);
    world.annotate("pre-pull", "true");
    world.set_image("img:2");
    world.sync();
    world.answer_pull("n0", State::Failed("img:2: not found".to_owned()));
    world.settle_down();
    world.sync();
    assert_eq!(world.image(), "img:1");
    world.set_image("img:2");
    world.sync();
    let asked: Vec<&str> = world
        .last_plan
        .pre_pulls
        .iter()
        .map(|pull| pull.node.as_str())
        .collect();
    assert_eq!(asked, ["n0", "n1"]);
    world.syncs(2);
    assert_eq!(world.image(), "img:2");
    for node in ["n0", "n1", "n2"] {
        world.sync();
        world.answer_pull(node, State::Pulled);
        world.settle_down();
    }
    assert_eq!(world.updated(), 3);
}

#[test]
fn going_back_mends_what_a_partition_or_a_shut_window_holds() {
    for (key, value) in [
        ("partition", "3"),
        // The world starts on a Thursday at midnight.
        ("maintenance-windows", "*: Thu 00:00-00:30"),
    ] {
        let mut world = running("rollback", 5);
        world.annotate(key, value);
        world.annotate("progress-deadline", "1h");
        world.set_image("img:2");
        world.syncs(2);
        world.pass(3_600);
        world.go_on_but("img:2");
        assert_eq!(world.image(), "img:1", "{key}");
        assert_eq!(
            (world.updated(), world.stat("numberAvailable")),
            (5, 5),
            "{key}"
        );
    }
}

#[test]
fn undo_of_a_partitioned_rollout_goes_everywhere() {
    let mut world = running("rollback", 5);
    world.annotate("partition", "3");
    world.set_image("img:2");
    world.settle_down();
    assert_eq!(world.updated(), 2);
    world.set_image("img:1");
    world.settle_down();
    assert_eq!(world.updated(), 5);
}

#[test]
fn the_death_spiral_of_pods_that_only_never_turn_ready_heals_too() {
    let mut world = running("rollback", 4);
    world.on_delete();
    world.annotate("progress-deadline", "5m");
    world.settle_down();
    world.set_image("img:2");
    world.sync();
    world.delete_all();
    world.syncs(2);
    world.pass(300);
    world.go_on_but("img:2");
    assert_eq!(world.image(), "img:1");
    assert_eq!((world.updated(), world.stat("numberAvailable")), (4, 4));
}

#[test]
fn no_more_nodes_than_the_budget_run_an_unproven_pod_that_is_not_available() {
    let mut world = running("halt", 5);
    world.annotate("failure-threshold", "5");
    world.set_image("img:2");
    world.syncs(2);
    // Three more nodes lose their pods by themselves: theirs come back as they were.
    for node in ["n1", "n2", "n3"] {
        let lost = world.only(node);
        world.remove_pod(&lost);
    }
    assert_eq!(world.sync(), (3, 0));
    assert_eq!(world.updated(), 1);
    world.settle_down();
    assert_eq!(world.updated(), 5);
}

#[test]
fn the_death_spiral_heals_when_the_template_is_right_again() {
    let mut world = running("halt", 4);
    world.on_delete();
    world.settle_down();
    world.set_image("img:2");
    world.sync();
    world.delete_all_and_crash();
    world.syncs(3);
    assert_eq!(world.stat("numberAvailable"), 0);
    // A person puts the template right; nobody deletes a pod a second time.
    world.set_image("img:3");
    assert_eq!(world.syncs(2), [(0, 4), (4, 0)]);
    world.settle_down();
    assert_eq!((world.updated(), world.stat("numberAvailable")), (4, 4));
}

#[test]
fn with_rollback_the_death_spiral_heals_by_itself() {
    let mut world = running("rollback", 4);
    world.on_delete();
    world.settle_down();
    world.set_image("img:2");
    world.sync();
    world.delete_all_and_crash();
    for _ in 0..6 {
        world.sync();
        world.ready_all_but_crashed();
    }
    assert_eq!((world.updated(), world.stat("numberAvailable")), (4, 4));
    let image = &world.daemon["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, "img:1");
}

#[test]
fn on_delete_leaves_pods_that_work_alone() {
    let mut world = running("rollback", 4);
    world.on_delete();
    world.settle_down();
    world.set_image("img:2");
    assert_eq!(world.syncs(3), [(0, 0); 3]);
    world.set_ready_on("n2", false);
    assert_eq!(world.syncs(3), [(0, 0); 3]);
}

#[test]
fn a_pod_made_from_the_older_revision_is_left_to_start() {
    let mut world = running("halt", 5);
    world.set_image("img:2");
    world.syncs(2);
    let lost = world.only("n2");
    world.remove_pod(&lost);
    assert_eq!(world.sync(), (1, 0));
    let back = world.only("n2");
    // It is of an older revision and not Ready yet: no reason to make it again and again.
    assert_eq!(world.syncs(6), [(0, 0); 6]);
    assert_eq!(world.only("n2"), back);
}

#[test]
fn old_pods_that_do_not_work_are_replaced_by_an_unproven_revision_within_the_budget_only() {
    let mut world = running("halt", 6);
    for node in ["n1", "n2", "n3", "n4"] {
        world.set_ready_on(node, false);
    }
    world.set_image("img:2");
    assert_eq!(world.syncs(2), [(0, 1), (1, 0)]);
    assert_eq!(world.syncs(4), [(0, 0); 4]);
    assert_eq!(world.updated(), 1);
    world.settle_down();
    assert_eq!(world.updated(), 6);
}

#[test]
fn a_surge_touches_no_more_nodes_with_an_unproven_revision_than_its_budget() {
    let mut world = running("halt", 6);
    world.set_budget(json!(0), json!(2));
    for node in ["n1", "n2", "n3", "n4"] {
        world.set_ready_on(node, false);
    }
    world.set_image("img:2");
    assert_eq!(world.sync(), (2, 0));
    world.syncs(4);
    assert_eq!(world.updated(), 2);
    world.settle_down();
    assert_eq!(world.updated(), 6);
}

#[test]
fn nodes_that_come_back_after_the_rollout_began_are_updated_within_the_budget() {
    let mut world = running("halt", 4);
    world.tolerate_everything();
    for node in ["n1", "n2", "n3"] {
        world.lose(node);
        let lost = world.only(node);
        world.remove_pod(&lost);
    }
    world.pass(60);
    world.set_image("img:2");
    // One pod each for those that are out of reach, of the revision that is known to work.
    assert_eq!(world.sync(), (3, 1));
    world.syncs(2);
    assert_eq!(world.updated(), 1);
}

#[test]
fn a_fix_after_a_failed_canary_takes_its_pod_once() {
    let mut world = running("halt", 4);
    world.annotate("canary", "1");
    break_first(&mut world);
    world.syncs(3);
    world.set_image("img:3");
    assert_eq!(world.syncs(2), [(0, 1), (1, 0)]);
    assert_eq!(world.updated(), 1);
}

#[test]
fn the_condition_ends_with_the_template_that_a_person_puts_in_its_place() {
    let mut world = running("halt", 3);
    let broken = break_first(&mut world);
    world.syncs(3);
    assert_eq!(condition(&world).1, "RolloutHalted");
    world.pass(60);
    world.set_image("img:3");
    world.sync();
    world.remove_pod_if_there(&broken);
    world.settle_down();
    assert_eq!(world.updated(), 3);
    assert_eq!(condition(&world).0, "False");
}

#[test]
fn a_failure_is_forgotten_when_nobody_asks_for_failures_any_more() {
    let mut world = running("halt", 3);
    break_first(&mut world);
    world.syncs(3);
    world.annotations().remove("muster.dev/on-failure");
    world.sync();
    assert_eq!(condition(&world).0, "False");
    // The cause was elsewhere.
    let healed = world.only("n0");
    world.edit_pod(&healed).failing = None;
    world.settle_down();
    assert_eq!(world.updated(), 3);
    // It is available everywhere: asked for again, its old failure stops nothing.
    world.annotate("on-failure", "halt");
    world.settle_down();
    assert_eq!(condition(&world).0, "False");
    let proven = world.history.iter().find(|one| one.number == 2);
    assert!(proven.unwrap().proven);
    assert_eq!(world.hold("n0"), "");
}

#[test]
fn a_surge_with_a_way_back_keeps_the_old_pod_beside_one_that_fails() {
    let mut world = running("halt", 3);
    world.set_budget(json!(0), json!(1));
    world.settle_down();
    world.set_image("img:2");
    assert_eq!(world.sync(), (1, 0));
    let names = world.names_on("n0");
    let (old, new) = (&names[0], &names[1]);
    world.crash(new);
    world.set_ready(old, false);
    world.syncs(3);
    assert_eq!(world.names_on("n0"), names, "a moment of weakness");
}
