use serde_json::json;

use crate::world::World;

/// All of them Ready, with that budget.
fn running(nodes: usize, max_unavailable: serde_json::Value) -> World {
    let mut world = World::running(nodes);
    world.set_budget(max_unavailable, json!(0));
    world.sync();
    world
}

fn ready_old(world: &World) -> usize {
    let daemon = world.facts();
    world
        .pods
        .values()
        .filter(|pod| pod.ready && !pod.is_updated(&daemon.rules))
        .count()
}

#[test]
fn ds_062_waves_within_the_limit() {
    let mut world = running(5, json!(2));
    world.set_image("img:2");
    for _ in 0..2 {
        assert_eq!(world.syncs(4), [(0, 2), (2, 0), (0, 0), (0, 0)]);
        world.ready_all();
    }
    assert_eq!(world.syncs(3), [(0, 1), (1, 0), (0, 0)]);
    world.ready_all();
    assert_eq!(world.sync(), (0, 0));
    assert_eq!(world.updated(), 5);
}

#[test]
fn ds_063_pods_that_never_turn_ready_stop_the_roll() {
    let mut world = running(5, json!(3));
    world.set_image("img:2");
    assert_eq!(world.syncs(4), [(0, 3), (3, 0), (0, 0), (0, 0)]);
    assert_eq!(ready_old(&world), 2);
}

#[test]
fn ds_064_old_pods_that_are_not_ready_do_not_wait() {
    let mut world = running(5, json!(3));
    for node in ["n0", "n1", "n2", "n3", "n4"] {
        world.set_ready_on(node, false);
    }
    world.set_image("img:2");
    assert_eq!(world.syncs(2), [(0, 5), (5, 0)]);
}

#[test]
fn ds_065_a_third_template_replaces_the_unready_ones_first() {
    let mut world = running(5, json!(2));
    world.set_image("img:2");
    assert_eq!(world.syncs(3), [(0, 2), (2, 0), (0, 0)]);
    world.set_image("img:3");
    assert_eq!(world.syncs(3), [(0, 2), (2, 0), (0, 0)]);
    assert_eq!(ready_old(&world), 3);
}

#[test]
fn ds_066_many_templates_one_after_the_other_never_touch_the_ready_ones() {
    let mut world = running(20, json!(10));
    world.set_image("img:2");
    assert_eq!(world.syncs(3), [(0, 10), (10, 0), (0, 0)]);
    for limit in 0..10 {
        world.set_budget(json!(limit), json!(0));
        world.set_image(&format!("img:{}", limit + 3));
        assert_eq!(world.syncs(3), [(0, 10), (10, 0), (0, 0)], "limit {limit}");
        assert_eq!(ready_old(&world), 10);
    }
    world.set_budget(json!(11), json!(0));
    world.set_image("img:13");
    assert_eq!(world.syncs(3), [(0, 11), (11, 0), (0, 0)]);
    assert_eq!(ready_old(&world), 9);
}

#[test]
fn ds_067_only_the_broken_old_ones_go_when_the_limit_is_exceeded() {
    let mut world = running(100, json!(88));
    world.set_image("img:2");
    assert_eq!(world.syncs(3), [(0, 88), (88, 0), (0, 0)]);
    world.set_budget(json!(10), json!(0));
    let rules = world.facts().rules;
    let old: Vec<String> = world
        .pods
        .values()
        .filter(|pod| !pod.is_updated(&rules))
        .map(|pod| pod.name.to_string())
        .collect();
    for name in &old[..2] {
        world.set_ready(name, false);
    }
    assert_eq!(world.syncs(3), [(0, 2), (2, 0), (0, 0)]);
    assert_eq!(ready_old(&world), 10);
}

#[test]
fn ds_068_a_changed_strategy_rolls_nothing() {
    let mut world = World::running(5);
    let revisions = world.history.clone();
    world.set_budget(json!(3), json!(0));
    assert_eq!(world.syncs(2), [(0, 0), (0, 0)]);
    assert_eq!(world.history, revisions);
    assert_eq!(world.stat("observedGeneration"), 2);
}

#[test]
fn ds_069_percentages_round_up() {
    for (percent, nodes, deleted) in [("50%", 2, 1), ("50%", 3, 2), ("100%", 5, 5), ("1%", 5, 1)] {
        let mut world = running(nodes, json!(percent));
        world.set_image("img:2");
        assert_eq!(world.sync(), (0, deleted), "{percent} of {nodes}");
    }
}

#[test]
fn ds_070_a_budget_of_nothing_counts_as_one() {
    use muster_daemonset::facts::Strategy;
    use muster_daemonset::rollout::Budget;
    use muster_model::int_or_percent::IntOrPercent;
    let none = Strategy::RollingUpdate {
        max_unavailable: IntOrPercent::Int(0),
        max_surge: IntOrPercent::Int(0),
    };
    assert_eq!(
        Budget::of(none, 2),
        Some(Budget {
            max_unavailable: 1,
            max_surge: 0
        })
    );
    assert_eq!(
        Budget::of(none, 0),
        Some(Budget {
            max_unavailable: 0,
            max_surge: 0
        })
    );
    assert_eq!(Budget::of(Strategy::OnDelete, 2), None);
}

#[test]
fn ds_071_an_empty_node_counts() {
    let mut world = running(2, json!(1));
    let name = world.only("n0");
    world.remove_pod(&name);
    world.set_image("img:2");
    assert_eq!(world.syncs(3), [(1, 0), (0, 0), (0, 0)]);
    world.ready_all();
    assert_eq!(world.syncs(2), [(0, 1), (1, 0)]);
}

#[test]
fn ds_072_min_ready_seconds_is_waited_for_without_any_event() {
    let mut world = running(5, json!(1));
    world.min_ready(10);
    world.pass(100);
    world.set_image("img:2");
    assert_eq!(world.syncs(3), [(0, 1), (1, 0), (0, 0)]);
    world.ready_all();
    let ready_at = world.now();
    for second in 0..10 {
        assert_eq!(world.sync(), (0, 0), "{second} s after Ready");
        assert_eq!(
            (world.stat("numberReady"), world.stat("numberAvailable")),
            (5, 4)
        );
        let again = world.last_plan.requeue_at.unwrap();
        assert_eq!(again.as_second() - ready_at.as_second(), 10);
        world.pass(1);
    }
    assert_eq!(world.sync(), (0, 1));
}

#[test]
fn ds_073_a_terminating_pod_takes_a_turn_until_its_successor_is_available() {
    let mut world = running(5, json!(1));
    world.graceful = true;
    world.set_image("img:2");
    assert_eq!(world.syncs(3), [(0, 1), (0, 0), (0, 0)]);
    world.pass(30);
    world.finish();
    assert_eq!(world.syncs(2), [(1, 0), (0, 0)]);
    world.ready_all();
    assert_eq!(world.sync(), (0, 1));
    assert!(world.on("n1")[0].terminating);
}

#[test]
fn ds_074_a_node_that_may_only_keep_its_pod_loses_it_in_its_turn() {
    let mut world = World::new(5);
    let toleration = json!([{"key": "k", "operator": "Exists"}]);
    world.edit_template(|template| template["spec"]["tolerations"] = toleration);
    world.taint("n0", &["k=v:NoSchedule"]);
    world.settle_down();
    world.edit_template(|template| template["spec"]["tolerations"] = json!([]));
    assert_eq!(world.sync(), (0, 1));
    assert!(world.on("n0").is_empty());
    assert_eq!(world.syncs(2), [(0, 1), (1, 0)]);
    assert_eq!(world.stat("desiredNumberScheduled"), 4);
    world.settle_down();
    assert!(world.on("n0").is_empty());
    assert_eq!(world.updated(), 4);
}

#[test]
fn where_nothing_is_desired_a_share_of_nothing_gives_no_turn() {
    let mut world = running(2, json!("50%"));
    for node in ["n0", "n1"] {
        world.taint(node, &["k=v:NoSchedule"]);
    }
    world.set_image("img:2");
    assert_eq!(world.syncs(2), [(0, 0), (0, 0)]);
    assert_eq!(world.stat("desiredNumberScheduled"), 0);
    world.set_budget(json!(1), json!(0));
    assert_eq!(world.syncs(2), [(0, 1), (0, 1)]);
}

#[test]
fn ds_075_excess_pods_count_as_one_that_is_out() {
    let mut world = running(5, json!(1));
    world.set_image("img:2");
    world.add_pod("second", "n0", 500);
    world.edit_pod("second").hash = Some("older".to_owned());
    assert_eq!(
        world.sync(),
        (0, 1),
        "the excess pod, and nothing of the roll"
    );
    assert_ne!(world.only("n0"), "second");
    assert_eq!(world.sync(), (0, 1));
}

#[test]
fn ds_076_on_delete_replaces_what_is_deleted_and_a_switch_rolls_the_rest() {
    let mut world = World::running(5);
    world.on_delete();
    world.set_image("img:2");
    assert_eq!(world.sync(), (0, 0));
    assert_eq!(world.stat("updatedNumberScheduled"), 0);
    let name = world.only("n0");
    world.remove_pod(&name);
    assert_eq!(world.sync(), (1, 0));
    world.ready_all();
    assert_eq!(world.sync(), (0, 0));
    assert_eq!(world.stat("updatedNumberScheduled"), 1);
    world.set_budget(json!(4), json!(0));
    assert_eq!(world.syncs(2), [(0, 4), (4, 0)]);
}

#[test]
fn ds_077_a_template_changed_back_restarts_nothing() {
    let mut world = World::running(5);
    world.set_image("img:2");
    world.edit_spec(|_| {});
    // The second template was seen, but nothing was replaced yet.
    world.set_budget(json!(0), json!(1));
    world.history.push(muster_daemonset::RevisionFacts {
        name: "web-2".to_owned(),
        number: 2,
        hash: Some("2".to_owned()),
        data: "{}".to_owned(),
        ..muster_daemonset::RevisionFacts::default()
    });
    world.set_image("img:1");
    assert_eq!(world.syncs(2), [(0, 0), (0, 0)]);
    assert_eq!(world.updated(), 5);
    assert_eq!(
        world
            .history
            .iter()
            .find(|r| r.name != "web-2")
            .unwrap()
            .number,
        3
    );
}

#[test]
fn ds_090_undo_in_the_middle_of_a_roll_replaces_only_the_broken_pod() {
    let mut world = running(5, json!(1));
    world.set_image("broken");
    assert_eq!(world.syncs(3), [(0, 1), (1, 0), (0, 0)]);
    let kept: Vec<String> = ["n1", "n2", "n3", "n4"]
        .map(|node| world.only(node))
        .to_vec();
    world.set_image("img:1");
    assert_eq!(world.syncs(3), [(0, 1), (1, 0), (0, 0)]);
    world.ready_all();
    assert_eq!(world.sync(), (0, 0));
    assert_eq!(
        ["n1", "n2", "n3", "n4"]
            .map(|node| world.only(node))
            .to_vec(),
        kept
    );
}

#[test]
fn turns_are_taken_in_the_order_of_node_names() {
    let mut world = running(5, json!(1));
    world.set_image("img:2");
    for node in ["n0", "n1", "n2", "n3", "n4"] {
        world.sync();
        assert!(world.on(node).is_empty(), "{node}");
        world.sync();
        world.ready_all();
    }
}
