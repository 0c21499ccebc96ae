//! Inputs that broke others.

use muster_daemonset::revision::settle;
use serde_json::json;

use crate::world::World;

#[test]
fn case_b01_a_pod_that_cannot_stop_takes_one_turn_and_no_more() {
    let mut world = World::running(3);
    world.set_budget(json!(2), json!(0));
    world.graceful = true;
    world.set_image("img:2");
    // n0's agent is dead, but nobody knows it yet.
    assert_eq!(world.sync(), (0, 2));
    world.pass(40);
    let gone = world.only("n1");
    world.remove_pod(&gone);
    world.lose("n0");
    assert_eq!(world.syncs(2), [(1, 0), (0, 0)]);
    world.ready_all();
    assert_eq!(
        world.sync(),
        (0, 1),
        "n2: the stuck pod holds one of two turns"
    );
    let gone = world.only("n2");
    world.remove_pod(&gone);
    assert_eq!(world.sync(), (1, 0));
    world.ready_all();
    assert_eq!(world.sync(), (0, 0));
    assert!(world.on("n0")[0].terminating);
    let waiting: Vec<&str> = world
        .placements
        .waiting()
        .map(|(node, _)| node.as_str())
        .collect();
    assert_eq!(waiting, ["n0"]);
}

#[test]
fn case_b03_ready_pods_that_are_not_available_yet_go_within_the_budget() {
    let mut world = World::running(4);
    world.min_ready(60);
    world.pass(100);
    world.set_image("img:2");
    assert_eq!(world.syncs(2), [(0, 1), (1, 0)]);
    world.ready_all();
    world.pass(1);
    world.set_image("img:3");
    // The half-done node is replaced first; nothing else goes until it is available again.
    assert_eq!(world.syncs(3), [(0, 1), (1, 0), (0, 0)]);
    assert_eq!(world.updated(), 1);
    assert_eq!(world.on("n0").len(), 1);
    world.ready_all();
    for _ in 0..59 {
        world.pass(1);
        assert_eq!(world.sync(), (0, 0));
    }
    world.pass(1);
    assert_eq!(world.sync(), (0, 1));
}

#[test]
fn case_b03_all_pods_fresh_and_a_new_template_take_one_at_a_time() {
    let mut world = World::new(4);
    world.min_ready(60);
    world.sync();
    world.ready_all();
    world.pass(5);
    world.set_image("img:2");
    assert_eq!(world.syncs(3), [(0, 1), (1, 0), (0, 0)]);
}

#[test]
fn case_b05_the_second_look_comes_when_the_nodes_clock_says() {
    let mut world = World::new(1);
    world.min_ready(10);
    world.sync();
    let name = world.only("n0");
    world.set_ready(&name, true);
    // The node's clock is 5 s ahead.
    world.edit_pod(&name).ready_since = Some(world.at(5));
    world.sync();
    assert_eq!(world.stat("numberAvailable"), 0);
    assert_eq!(world.last_plan.requeue_at, Some(world.at(15)));
    world.set_time(15);
    world.sync();
    assert_eq!(world.stat("numberAvailable"), 1);
}

/// With a budget of one the failing node is the one that may be out, and the roll stops there by design; with
/// room for one more, its back-off delays nobody.
#[test]
fn case_b07_a_failing_node_in_back_off_delays_no_other() {
    let mut world = World::running(3);
    world.set_budget(json!(2), json!(0));
    world.sync();
    world.set_image("img:2");
    for _ in 0..12 {
        world.sync();
        world.ready_all();
        for name in world.names_on("n1") {
            if world.facts().rules.target.hash == world.pods[&name].hash.clone().unwrap() {
                world.fail(&name, "NodePorts");
            }
        }
    }
    let hash = Some(world.facts().rules.target.hash);
    for node in ["n0", "n2"] {
        let pod = &world.on(node)[0];
        assert!(pod.ready && pod.hash == hash, "{node}");
    }
    assert!(world.last_plan.requeue_at.is_some());
    assert!(
        world
            .verdict("n1")
            .contains("failed (NodePorts); it is deleted and made again at")
    );
}

#[test]
fn case_b17_a_pod_deleted_right_after_its_creation_is_replaced_when_it_is_gone() {
    let mut world = World::new(1);
    for _ in 0..5 {
        assert_eq!(world.sync(), (1, 0));
        let name = world.only("n0");
        world.edit_pod(&name).terminating = true;
        assert_eq!(world.sync(), (0, 0));
        world.finish();
    }
    assert_eq!(world.sync(), (1, 0));
}

#[test]
fn case_b27_one_matching_node_one_pod_and_the_others_say_why() {
    let mut world = World::new(3);
    world.label("n1", "disk", "ssd");
    world.edit_template(|template| template["spec"]["nodeSelector"] = json!({"disk": "ssd"}));
    assert_eq!(world.sync(), (1, 0));
    for node in ["n0", "n2"] {
        assert_eq!(world.verdict(node), "node selector disk=ssd not matched");
        let verdict = &world.placements.get(&node.into()).unwrap().verdict;
        assert_eq!(
            verdict.fix(node),
            format!("label node {node} with disk=ssd")
        );
        assert_eq!(verdict.rule(), "NodeSelector");
    }
}

#[test]
fn case_b29_a_node_that_no_longer_qualifies_is_not_waited_for() {
    let mut world = World::new(3);
    for node in ["n0", "n1", "n2"] {
        world.label(node, "disk", "ssd");
    }
    world.edit_template(|template| template["spec"]["nodeSelector"] = json!({"disk": "ssd"}));
    world.settle_down();
    world.graceful = true;
    world.edit_node("n2")["metadata"]["labels"] = json!({});
    world.set_image("img:2");
    assert_eq!(
        world.sync(),
        (0, 2),
        "n2's pod, and the first turn of the roll"
    );
    assert_eq!(world.stat("desiredNumberScheduled"), 2);
    for node in ["n0", "n1"] {
        let name = world.only(node);
        assert!(world.pods[&name].terminating, "{node}");
        world.remove_pod(&name);
        assert_eq!(world.sync(), (1, 0));
        world.set_ready_on(node, true);
        world.sync();
    }
    assert!(world.on("n2")[0].terminating, "its ghost is still there");
    assert_eq!(world.stat("updatedNumberScheduled"), 2);
    assert_eq!(world.placements.waiting().count(), 0);
}

#[test]
fn case_b31_the_same_manifest_again_changes_nothing() {
    let mut world = World::new(30);
    world.label("n7", "disk", "ssd");
    world.edit_template(|template| template["spec"]["nodeSelector"] = json!({"disk": "ssd"}));
    world.settle_down();
    assert!(settle(&world.facts(), &world.history).is_settled());
    let plan = world.look();
    assert!(plan.is_idle(), "{plan}");
}

#[test]
fn case_b33_a_later_taint_makes_a_pod_misscheduled_and_says_so() {
    let mut world = World::running(3);
    world.taint("n2", &["dedicated=x:NoSchedule"]);
    assert_eq!(world.sync(), (0, 0));
    let numbers = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "numberMisscheduled",
    ];
    assert_eq!(numbers.map(|field| world.stat(field)), [2, 2, 2, 1]);
    let verdict = world.placements.get(&"n2".into()).unwrap().verdict.clone();
    assert_eq!(verdict.rule(), "UntoleratedTaint");
    assert_eq!(
        verdict.fix("n2"),
        "tolerate dedicated=x:NoSchedule in spec.template.spec.tolerations, or take the taint off node n2"
    );
}

#[test]
fn case_b35_a_misscheduled_count_goes_with_its_node() {
    let mut world = World::running(3);
    world.taint("n2", &["dedicated=x:NoSchedule"]);
    world.sync();
    assert_eq!(world.stat("numberMisscheduled"), 1);
    world.remove_node("n2");
    world.sync();
    assert_eq!(world.stat("numberMisscheduled"), 0);
}

#[test]
fn case_b37_a_hand_made_duplicate_does_not_stop_a_rollback() {
    let mut world = World::running(3);
    world.set_image("img:2");
    world.settle_down();
    let mut copy = world
        .history
        .iter()
        .find(|revision| revision.number == 1)
        .unwrap()
        .clone();
    copy.name = "web-copy".to_owned();
    copy.hash = Some("copy".to_owned());
    world.history.push(copy);
    world.set_image("img:1");
    world.settle_down();
    assert_eq!(world.history.len(), 2);
    let current = world
        .history
        .iter()
        .find(|revision| revision.number == 3)
        .unwrap();
    assert!(current.data.contains("img:1"));
    assert!(world.pods.values().all(|pod| pod.hash == current.hash));
    assert_eq!(world.updated(), 3);
}

#[test]
fn case_b39_revisions_that_run_are_kept() {
    let mut world = World::running(3);
    world.edit_spec(|spec| spec["revisionHistoryLimit"] = 2.into());
    world.on_delete();
    for image in 2..=6 {
        world.set_image(&format!("img:{image}"));
        world.settle_down();
        if image == 3 {
            let name = world.only("n0");
            world.remove_pod(&name);
            world.settle_down();
        }
    }
    let mut numbers: Vec<i64> = world
        .history
        .iter()
        .map(|revision| revision.number)
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 3, 6]);
}
