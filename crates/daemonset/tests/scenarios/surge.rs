use serde_json::json;

use crate::world::World;

fn running(nodes: usize, max_surge: serde_json::Value) -> World {
    let mut world = World::running(nodes);
    world.set_budget(json!(0), max_surge);
    world.sync();
    world
}

fn available(world: &World) -> usize {
    world.pods.values().filter(|pod| pod.ready).count()
}

#[test]
fn ds_078_new_pods_stand_beside_old_ones_within_the_surge() {
    let mut world = running(5, json!(2));
    world.set_image("img:2");
    let mut steps = Vec::new();
    for _ in 0..20 {
        let step = world.sync();
        assert!(available(&world) >= 5, "never less than 5 available");
        assert!(world.pods.len() <= 7, "never more than 7 pods");
        steps.push(step);
        if step == (0, 0) {
            world.ready_all();
        }
    }
    assert_eq!(steps[..6], [(2, 0), (0, 0), (2, 2), (0, 0), (1, 2), (0, 0)]);
    assert_eq!(steps[6..8], [(0, 1), (0, 0)]);
    assert_eq!(world.updated(), 5);
}

/// None of five was Ready, so that all were replaced at once.
fn five_replaced_at_once() -> World {
    let mut world = running(5, json!(3));
    for node in ["n0", "n1", "n2", "n3", "n4"] {
        world.set_ready_on(node, false);
    }
    world.set_image("img:2");
    assert_eq!(world.syncs(2), [(5, 0), (0, 5)]);
    world
}

#[test]
fn ds_079_old_pods_that_are_not_ready_go_as_soon_as_a_new_one_stands_beside_them() {
    let mut world = five_replaced_at_once();
    world.ready_all();
    assert_eq!(world.sync(), (0, 0));
    assert_eq!(world.updated(), 5);
}

#[test]
fn ds_080_new_pods_count_once_they_were_ready_long_enough() {
    let mut world = five_replaced_at_once();
    world.ready_all();
    world.min_ready(15);
    world.set_time(300);
    world.set_image("img:3");
    assert_eq!(world.sync(), (3, 0));
    for node in ["n0", "n1"] {
        world.set_ready_on(node, true);
    }
    world.set_ready_on("n3", false);
    world.set_time(310);
    assert_eq!(world.sync(), (1, 0));
    world.set_time(320);
    assert_eq!(world.sync(), (1, 3));
    world.ready_all();
    world.set_time(340);
    assert_eq!(world.sync(), (0, 2));
    world.set_time(350);
    assert_eq!(world.sync(), (0, 0));
    assert_eq!(world.updated(), 5);
}

fn without_toleration_for_n0() -> World {
    let mut world = World::new(5);
    let toleration = json!([{"key": "k", "operator": "Exists"}]);
    world.edit_template(|template| template["spec"]["tolerations"] = toleration);
    world.taint("n0", &["k=v:NoSchedule"]);
    world.settle_down();
    world.set_budget(json!(0), json!(1));
    world.sync();
    world.edit_template(|template| template["spec"]["tolerations"] = json!([]));
    world
}

#[test]
fn ds_081_a_leftover_goes_when_more_are_available_than_desired() {
    let mut world = without_toleration_for_n0();
    assert_eq!(world.syncs(2), [(1, 1), (0, 0)]);
    assert!(world.on("n0").is_empty());
    let mut done = (1, 1);
    for _ in 0..3 {
        world.ready_all();
        assert_eq!(world.syncs(2), [(1, 1), (0, 0)]);
        done = (done.0 + 1, done.1 + 1);
    }
    world.ready_all();
    assert_eq!(world.syncs(2), [(0, 1), (0, 0)]);
    assert_eq!((done.0, done.1 + 1, world.pods.len()), (4, 5, 4));
    // With one of the others not Ready, only as many are available as desired.
    let mut world = without_toleration_for_n0();
    world.set_ready_on("n2", false);
    let (_, deleted) = world.sync();
    assert_eq!(deleted, 0);
    assert_eq!(world.on("n0").len(), 1);
}

#[test]
fn ds_082_placement_does_not_wait_for_the_surge() {
    let mut world = World::new(2);
    world.label("n0", "pool", "a");
    world.label("n1", "pool", "b");
    world.edit_template(|template| template["spec"]["nodeSelector"] = json!({"pool": "a"}));
    world.settle_down();
    world.set_budget(json!(0), json!(1));
    world.sync();
    world.edit_template(|template| template["spec"]["nodeSelector"] = json!({"pool": "b"}));
    assert_eq!(world.sync(), (1, 1));
    let mut world = running(2, json!(1));
    world.taint("n0", &["k=v:NoSchedule"]);
    assert_eq!(world.syncs(2), [(0, 0), (0, 0)]);
    assert_eq!(world.on("n0").len(), 2 - 1);
}

#[test]
fn ds_083_which_of_two_pods_stays() {
    let rows = [
        ("old Ready, new not", true, false, 0, (0, 0)),
        ("old not Ready, new not", false, false, 0, (0, 1)),
        ("both Ready, not for long enough", true, true, 5, (0, 0)),
        ("both Ready, long enough", true, true, 10, (0, 1)),
    ];
    for (name, old_ready, new_ready, seconds, expected) in rows {
        let mut world = running(1, json!(1));
        world.min_ready(10);
        world.pass(100);
        world.set_image("img:2");
        let old = world.only("n0");
        assert_eq!(world.sync(), (1, 0));
        let new = world
            .names_on("n0")
            .into_iter()
            .find(|pod| *pod != old)
            .unwrap();
        world.set_ready(&old, old_ready);
        world.set_ready(&new, new_ready);
        world.pass(seconds);
        assert_eq!(world.sync(), expected, "{name}");
        if expected.1 == 1 {
            assert_eq!(world.only("n0"), new, "{name}");
        }
    }
    let mut world = running(1, json!(1));
    world.set_image("img:2");
    let old = world.only("n0");
    for (name, created) in [("old-2", 200), ("old-3", 300)] {
        world.add_pod(name, "n0", created);
        world.edit_pod(name).hash = Some("older".to_owned());
        world.set_ready(name, true);
    }
    world.add_pod("new", "n0", 400);
    let hash = muster_daemonset::revision::settle(&world.facts(), &world.history)
        .target
        .hash;
    world.edit_pod("new").hash = Some(hash);
    assert_eq!(world.sync(), (0, 2));
    assert_eq!(world.names_on("n0"), [old, "new".to_owned()]);
}

#[test]
fn ds_084_a_vanished_old_pod_is_replaced_at_once_though_the_surge_is_used_up() {
    let mut world = running(5, json!(1));
    world.set_image("img:2");
    assert_eq!(world.syncs(2), [(1, 0), (0, 0)]);
    let name = world.only("n4");
    world.remove_pod(&name);
    assert_eq!(world.sync(), (1, 0));
    assert_eq!(world.on("n4").len(), 1);
}

#[test]
fn ds_085_percentages_round_up() {
    for (percent, nodes, created) in [("50%", 2, 1), ("100%", 2, 2), ("1%", 5, 1)] {
        let mut world = running(nodes, json!(percent));
        world.set_image("img:2");
        assert_eq!(world.sync(), (created, 0), "{percent} of {nodes}");
    }
}

#[test]
fn ds_086_on_delete_does_not_surge() {
    let mut world = running(1, json!(1));
    world.edit_spec(|spec| spec["updateStrategy"]["type"] = "OnDelete".into());
    world.add_pod("second", "n0", 500);
    world.edit_pod("second").hash = Some("older".to_owned());
    assert_eq!(world.sync(), (0, 1));
    assert_eq!(world.on("n0").len(), 1);
}

#[test]
fn ds_087_a_failed_pod_in_back_off_does_not_keep_its_replacement_away() {
    let mut world = running(5, json!(1));
    let name = world.only("n0");
    world.fail(&name, "OutOfcpu");
    assert_eq!(world.sync(), (1, 1), "the first failure is deleted at once");
    let again = world.only("n0");
    world.fail(&again, "OutOfcpu");
    assert_eq!(
        world.sync(),
        (1, 0),
        "within 1 s it stays, and a replacement is made beside it"
    );
    assert_eq!(world.on("n0").len(), 2);
    let names = world.names_on("n0");
    let replacement = names.iter().find(|name| **name != again).unwrap();
    world.fail(replacement, "OutOfcpu");
    assert_eq!(
        world.syncs(2),
        [(0, 0), (0, 0)],
        "and no more until the back-off has passed"
    );
    world.pass(1);
    assert_eq!(world.sync(), (1, 2));
}

#[test]
fn case_b09_a_new_pod_that_is_refused_beside_the_old_one_is_tried_at_the_pace_of_the_back_off() {
    let mut world = running(2, json!(1));
    world.set_image("img:2");
    let old = world.only("n0");
    let refuse = |world: &mut World| {
        let names = world.names_on("n0");
        let new = names.iter().find(|name| **name != old).unwrap().clone();
        world.fail(&new, "NodePorts");
        new
    };
    assert_eq!(world.sync(), (1, 0));
    refuse(&mut world);
    assert_eq!(
        world.sync(),
        (1, 1),
        "the first failure is tried again at once"
    );
    for wait in [1, 2, 4, 8] {
        let new = refuse(&mut world);
        assert_eq!(world.syncs(2), [(0, 0), (0, 0)], "within {wait} s");
        assert_eq!(
            world.verdict("n0"),
            format!(
                "pod {old} runs an older revision, and the new pod {new} beside it failed: NodePorts"
            )
        );
        world.pass(wait);
        assert_eq!(world.sync(), (1, 1), "after {wait} s");
    }
    assert_eq!(available(&world), 2, "no old pod has gone");
}

#[test]
fn a_third_live_pod_is_never_made() {
    let mut world = running(1, json!(1));
    world.graceful = true;
    world.set_image("img:2");
    assert_eq!(world.sync(), (1, 0));
    world.ready_all();
    assert_eq!(world.sync(), (0, 1), "the old one stops, slowly");
    world.set_image("img:3");
    assert_eq!(world.syncs(2), [(0, 0), (0, 0)]);
    world.finish();
    assert_eq!(world.sync(), (1, 0));
}
