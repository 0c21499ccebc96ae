//! Pause, canary, waves, partition, windows, failure domains, early pulls.

use muster_model::pre_pull::{Answer, State};
use serde_json::json;

use crate::world::World;

/// Syncs and makes pods Ready until nothing more happens at this time.
fn roll(world: &mut World) -> Vec<String> {
    world.settle_down();
    world.updated_nodes()
}

#[test]
fn a_paused_rollout_stays_where_it_is_and_goes_on_when_resumed() {
    let mut world = World::running(5);
    world.set_image("img:2");
    world.syncs(2);
    world.ready_all();
    world.annotate("paused", "true");
    assert_eq!(roll(&mut world), ["n0"]);
    assert_eq!(
        world.hold("n1"),
        "the rollout is paused (`muster rollout resume`)"
    );
    // A node that loses its pod meanwhile gets what it had.
    let lost = world.only("n4");
    world.remove_pod(&lost);
    assert_eq!(roll(&mut world), ["n0"]);
    assert_eq!(world.stat("numberAvailable"), 5);
    world.annotate("paused", "false");
    assert_eq!(roll(&mut world).len(), 5);
}

#[test]
fn a_pause_holds_old_pods_that_do_not_work_too() {
    let mut world = World::running(3);
    world.annotate("paused", "true");
    world.set_image("img:2");
    world.set_ready_on("n1", false);
    assert_eq!(world.syncs(3), [(0, 0); 3]);
}

#[test]
fn a_canary_is_watched_until_somebody_promotes_it() {
    let mut world = World::running(6);
    world.label("n4", "canary", "yes");
    world.label("n5", "canary", "yes");
    world.annotate("canary", "canary=yes");
    world.set_image("img:2");
    assert_eq!(world.syncs(2), [(0, 1), (1, 0)]);
    assert_eq!(
        world.hold("n0"),
        "wave 1 of 1 (canary=yes) has 2 nodes to go"
    );
    assert_eq!(roll(&mut world), ["n4", "n5"]);
    world.pass(1_000_000);
    assert_eq!(roll(&mut world), ["n4", "n5"]);
    assert_eq!(
        world.hold("n0"),
        "wave 1 of 1 (canary=yes) is through; somebody has to let it go on (`muster rollout promote`)"
    );
    world.promote(1);
    assert_eq!(roll(&mut world).len(), 6);
}

#[test]
fn a_new_node_and_a_lost_pod_outside_of_the_canary_get_the_older_revision() {
    let mut world = World::running(3);
    world.annotate("canary", "1");
    world.set_image("img:2");
    assert_eq!(roll(&mut world), ["n0"]);
    world.add_node(crate::world::node("n9"));
    let lost = world.only("n1");
    world.remove_pod(&lost);
    assert_eq!(roll(&mut world), ["n0"]);
    assert_eq!(world.stat("numberAvailable"), 4);
    world.promote(usize::MAX);
    assert_eq!(roll(&mut world).len(), 4);
}

#[test]
fn waves_follow_each_other_when_each_was_watched_long_enough() {
    let mut world = World::running(10);
    world.set_budget(json!("100%"), json!(0));
    world.annotate("canary", "1");
    world.annotate("canary-pause", "10m");
    world.annotate("waves", "30%; 60%");
    world.annotate("wave-pause", "1m");
    world.set_image("img:2");
    assert_eq!(roll(&mut world).len(), 1);
    let in_ten_minutes = world.now() + std::time::Duration::from_secs(600);
    assert_eq!(world.look().requeue_at, Some(in_ten_minutes));
    world.pass(599);
    assert_eq!(roll(&mut world).len(), 1);
    world.pass(1);
    assert_eq!(roll(&mut world).len(), 3);
    world.pass(60);
    assert_eq!(roll(&mut world).len(), 6);
    world.pass(59);
    assert_eq!(roll(&mut world).len(), 6);
    world.pass(1);
    assert_eq!(roll(&mut world).len(), 10);
}

#[test]
fn going_back_to_a_revision_that_was_available_everywhere_needs_no_waves() {
    let mut world = World::running(6);
    world.annotate("canary", "2");
    world.set_image("img:2");
    assert_eq!(roll(&mut world).len(), 2);
    world.set_image("img:1");
    assert_eq!(roll(&mut world).len(), 6);
}

#[test]
fn the_first_revision_goes_everywhere_at_once() {
    let mut world = World::new(6);
    world.annotate("canary", "2");
    world.annotate("partition", "3");
    world.annotate("maintenance-windows", "*: Sun 00:00-00:01");
    assert_eq!(world.sync(), (6, 0));
}

#[test]
fn a_partition_keeps_so_many_nodes_on_the_older_revision() {
    let mut world = World::running(10);
    world.annotate("partition", "70%");
    world.set_image("img:2");
    assert_eq!(roll(&mut world), ["n0", "n1", "n2"]);
    assert_eq!(
        world.hold("n5"),
        "the partition keeps 7 nodes on the older revision"
    );
    world.annotate("partition", "0");
    assert_eq!(roll(&mut world).len(), 10);
}

#[test]
fn nodes_that_only_the_new_template_wants_do_not_keep_the_canary_waiting() {
    for surging in [false, true] {
        let mut world = World::new(4);
        if surging {
            world.set_budget(json!(0), json!(1));
        }
        world.taint("n3", &["role=control:NoSchedule"]);
        world.settle_down();
        world.label("n1", "role", "canary");
        world.annotate("canary", "role=canary");
        world.annotate("on-failure", "halt");
        let toleration = json!([{"key": "role", "operator": "Exists"}]);
        world.edit_template(|template| template["spec"]["tolerations"] = toleration);
        assert_eq!(roll(&mut world), ["n1"], "surging: {surging}");
        assert!(world.on("n3").is_empty());
        world.promote(usize::MAX);
        assert_eq!(roll(&mut world), ["n0", "n1", "n2", "n3"]);
    }
}

#[test]
fn a_shut_window_keeps_nothing_from_a_node_that_only_the_new_template_wants() {
    let mut world = World::new(3);
    world.taint("n2", &["role=control:NoSchedule"]);
    world.settle_down();
    world.label("n2", "site", "shop");
    world.annotate("maintenance-windows", "site=shop: Fri 02:00-03:00");
    let toleration = json!([{"key": "role", "operator": "Exists"}]);
    world.edit_template(|template| template["spec"]["tolerations"] = toleration);
    assert_eq!(roll(&mut world), ["n0", "n1", "n2"]);
}

#[test]
fn the_end_of_a_pause_is_looked_for_also_by_nodes_that_only_miss_a_pod() {
    let mut world = World::new(4);
    for (node, zone) in [("n0", "a"), ("n1", "b"), ("n2", "b"), ("n3", "b")] {
        world.label(node, "zone", zone);
    }
    let wants = |world: &mut World, zone: &str| {
        let zone = json!({"zone": zone});
        world.edit_template(|template| template["spec"]["nodeSelector"] = zone);
    };
    wants(&mut world, "a");
    world.settle_down();
    world.annotate("canary", "1");
    world.annotate("canary-pause", "10m");
    wants(&mut world, "b");
    assert_eq!(roll(&mut world), ["n1"]);
    let in_ten_minutes = world.now() + std::time::Duration::from_secs(600);
    assert_eq!(world.look().requeue_at, Some(in_ten_minutes));
    world.pass(600);
    assert_eq!(roll(&mut world), ["n1", "n2", "n3"]);
}

#[test]
fn nodes_are_updated_only_in_their_windows() {
    // The world starts at 2026-01-01T00:00:00Z, a Thursday.
    let mut world = World::running(4);
    for node in ["n0", "n1"] {
        world.label(node, "site", "shop");
    }
    world.annotate(
        "maintenance-windows",
        "site=shop: Thu 02:00-03:00 UTC\nsite=shop: Fri 02:00-03:00 UTC",
    );
    world.set_image("img:2");
    assert_eq!(roll(&mut world), ["n2", "n3"]);
    assert_eq!(
        world.hold("n0"),
        "its maintenance window opens at 2026-01-01T02:00:00Z"
    );
    assert_eq!(world.look().requeue_at, Some(world.at(7_200)));
    world.set_time(7_200);
    assert_eq!(world.syncs(2), [(0, 1), (1, 0)]);
    // The window closes with one node left: it waits for the next night.
    world.set_time(3 * 3_600);
    assert_eq!(roll(&mut world).len(), 3);
    assert_eq!(
        world.hold("n1"),
        "its maintenance window opens at 2026-01-02T02:00:00Z"
    );
    world.set_time(26 * 3_600);
    assert_eq!(roll(&mut world).len(), 4);
}

#[test]
fn failure_domains_are_updated_a_node_at_a_time() {
    let mut world = World::running(7);
    world.set_budget(json!(5), json!(0));
    for (node, zone) in [
        ("n0", "a"),
        ("n1", "a"),
        ("n2", "a"),
        ("n3", "b"),
        ("n4", "b"),
        ("n5", "c"),
    ] {
        world.label(node, "zone", zone);
    }
    world.annotate("failure-domain", "zone");
    world.settle_down();
    world.set_image("img:2");
    assert_eq!(world.sync(), (0, 4));
    let gone: Vec<String> = world
        .last_plan
        .deletes
        .iter()
        .map(|d| d.node.to_string())
        .collect();
    assert_eq!(gone, ["n0", "n3", "n5", "n6"]);
    assert_eq!(
        world.hold("n1"),
        "enough nodes of failure domain a are being updated or out"
    );
    assert_eq!(roll(&mut world).len(), 7);
}

#[test]
fn a_node_that_is_out_uses_up_its_domain() {
    let mut world = World::running(4);
    world.set_budget(json!(3), json!(0));
    for node in ["n0", "n1", "n2"] {
        world.label(node, "zone", "a");
    }
    world.annotate("failure-domain", "zone");
    let lost = world.only("n1");
    world.remove_pod(&lost);
    world.set_image("img:2");
    assert_eq!(world.sync(), (1, 1));
    assert_eq!(world.last_plan.deletes[0].node.as_str(), "n3");
}

#[test]
fn images_are_pulled_before_old_pods_are_stopped() {
    let mut world = World::running(5);
    world.annotate("pre-pull", "true");
    world.set_image("img:2");
    // Asked on this wave's node and the next one's.
    assert_eq!(world.sync(), (0, 0));
    let asked: Vec<String> = world
        .last_plan
        .pre_pulls
        .iter()
        .map(|p| p.node.to_string())
        .collect();
    assert_eq!(asked, ["n0", "n1"]);
    assert_eq!(world.syncs(2), [(0, 0); 2]);
    assert_eq!(world.hold("n0"), "the new images are being pulled there");
    world.answer_pull("n1", State::Pulled);
    assert_eq!(world.syncs(2), [(0, 1), (1, 0)]);
    assert_eq!(
        world.names_on("n0"),
        ["web-00001"],
        "still pulling, still serving"
    );
    world.answer_pull("n0", State::Failed("img:2: no such image".into()));
    world.ready_all();
    world.sync();
    assert_eq!(
        world.hold("n0"),
        "the new images cannot be pulled there: img:2: no such image"
    );
    // It costs no coverage, and holds up nobody else.
    for node in ["n2", "n3", "n4", "n0"] {
        world.sync();
        world.answer_pull(node, State::Pulled);
        world.syncs(2);
        world.ready_all();
    }
    assert_eq!(roll(&mut world).len(), 5);
}

#[test]
fn an_answer_about_another_revision_counts_for_nothing() {
    let mut world = World::running(1);
    world.annotate("pre-pull", "true");
    world.set_image("img:2");
    world.sync();
    let name = world.only("n0");
    world.edit_pod(&name).pull_answer = Some(Answer {
        revision: "other".into(),
        state: State::Pulled,
    });
    assert_eq!(world.syncs(2), [(0, 0); 2]);
}

#[test]
fn an_image_that_cannot_be_pulled_stops_a_rollout_before_it_costs_anything() {
    let mut world = World::running(4);
    world.annotate("pre-pull", "true");
    world.annotate("on-failure", "rollback");
    world.set_image("img:404");
    world.sync();
    world.answer_pull("n0", State::Failed("img:404: no such image".into()));
    world.syncs(4);
    assert_eq!(world.stat("numberAvailable"), 4);
    let image = &world.daemon["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, "img:1");
    assert_eq!(world.names_on("n0"), ["web-00001"]);
}

#[test]
fn a_surge_obeys_waves_too() {
    let mut world = World::running(5);
    world.set_budget(json!(0), json!(2));
    world.annotate("canary", "1");
    world.set_image("img:2");
    assert_eq!(world.sync(), (1, 0));
    assert_eq!(roll(&mut world), ["n0"]);
    world.promote(1);
    assert_eq!(world.sync(), (2, 0));
    assert_eq!(roll(&mut world).len(), 5);
}

#[test]
fn annotations_that_cannot_be_read_hold_everything() {
    let mut world = World::running(3);
    world.annotate("canary", "10x");
    world.set_image("img:2");
    assert_eq!(world.syncs(3), [(0, 0); 3]);
    assert!(
        world
            .hold("n0")
            .starts_with("an annotation cannot be read: metadata.annotations[muster.dev/canary]")
    );
}

#[test]
fn a_node_that_surges_counts_for_its_wave_before_its_old_pod_is_gone() {
    let mut world = World::running(5);
    world.set_budget(json!(0), json!("100%"));
    world.annotate("canary", "1");
    world.set_image("img:2");
    assert_eq!(world.sync(), (1, 0));
    // The new pod takes its time: no other node becomes a canary meanwhile.
    assert_eq!(world.syncs(3), [(0, 0); 3]);
    assert_eq!(world.updated_nodes(), ["n0"]);
}

#[test]
fn a_canary_that_no_node_tries_lets_nothing_pass_by_itself() {
    let mut world = World::running(4);
    world.annotate("canary", "canary=yes");
    world.annotate("canary-pause", "10m");
    world.set_image("img:2");
    assert_eq!(roll(&mut world), Vec::<String>::new());
    world.pass(100_000);
    assert_eq!(roll(&mut world), Vec::<String>::new());
    assert_eq!(
        world.hold("n1"),
        "wave 1 of 1 (canary=yes) has no node to try the new revision on: label one, or let the rollout go on \
         untried (`muster rollout promote`)"
    );
    world.promote(1);
    assert_eq!(roll(&mut world).len(), 4);
}

#[test]
fn a_canary_whose_only_node_is_out_of_reach_has_tried_nothing() {
    let mut world = World::running(4);
    world.label("n3", "canary", "yes");
    world.annotate("canary", "canary=yes");
    world.annotate("canary-pause", "10m");
    world.lose("n3");
    world.pass(60);
    world.set_image("img:2");
    assert_eq!(roll(&mut world), Vec::<String>::new());
    world.regain("n3");
    assert_eq!(roll(&mut world), ["n3"]);
    world.pass(600);
    assert_eq!(roll(&mut world).len(), 4);
}

#[test]
fn a_pod_that_has_just_turned_ready_is_not_stopped_before_the_images_are_there() {
    let mut world = World::running(3);
    world.min_ready(30);
    world.settle_down();
    world.pass(60);
    world.annotate("pre-pull", "true");
    // Ready, though not for long enough.
    world.set_ready_on("n1", false);
    world.set_ready_on("n1", true);
    world.set_image("img:2");
    assert_eq!(world.syncs(3), [(0, 0); 3]);
}

#[test]
fn a_pause_keeps_a_pod_where_the_daemon_should_not_run_any_more() {
    for budget in [(json!(1), json!(0)), (json!(0), json!(1))] {
        let mut world = World::running(3);
        world.set_budget(budget.0, budget.1);
        world.annotate("paused", "true");
        world.set_image("img:2");
        world.taint("n1", &["k=v:NoSchedule"]);
        assert_eq!(world.syncs(3), [(0, 0); 3]);
    }
}

#[test]
fn a_canary_that_is_lost_after_it_was_updated_holds_the_next_wave() {
    for (prepare, untried) in [
        (World::tolerate_everything as fn(&mut World), "n4"),
        (|_: &mut World| (), "n4"),
        (
            |world: &mut World| world.set_budget(json!(0), json!(2)),
            "n4",
        ),
    ] {
        let mut world = World::running(6);
        prepare(&mut world);
        for node in ["n4", "n5"] {
            world.label(node, "canary", "yes");
        }
        world.annotate("canary", "canary=yes");
        world.annotate("canary-pause", "10m");
        world.settle_down();
        world.set_image("img:2");
        assert_eq!(roll(&mut world), ["n4", "n5"]);
        world.pass(1);
        world.lose(untried);
        world.pass(3_600);
        for _ in 0..3 {
            world.sync();
            assert_eq!(world.updated_nodes(), ["n4", "n5"]);
        }
        assert_eq!(
            world.hold("n1"),
            "wave 1 of 1 (canary=yes) has 1 node to go"
        );
        world.regain(untried);
        world.pass(600);
        assert_eq!(roll(&mut world).len(), 6);
    }
}

#[test]
fn no_other_node_is_tried_in_the_place_of_a_canary_that_is_lost() {
    let mut world = World::running(4);
    world.annotate("canary", "1");
    world.set_image("img:2");
    assert_eq!(roll(&mut world), ["n0"]);
    world.pass(1);
    world.lose("n0");
    world.syncs(4);
    assert_eq!(world.updated_nodes(), ["n0"]);
}

#[test]
fn a_canary_without_nodes_lets_nothing_pass_also_when_another_node_has_tried_it() {
    let mut world = World::running(5);
    world.label("n4", "canary", "yes");
    world.annotate("canary", "canary=yes");
    world.annotate("canary-pause", "30m");
    world.set_image("img:2");
    assert_eq!(roll(&mut world), ["n4"]);
    world.edit_node("n4")["metadata"]["labels"] = json!({});
    assert_eq!(roll(&mut world), ["n4"]);
    world.label("n3", "canary", "yes");
    assert_eq!(roll(&mut world), ["n3", "n4"]);
}

#[test]
fn nodes_that_cannot_pull_hold_up_no_others_however_many_they_are() {
    let mut world = World::running(6);
    world.annotate("pre-pull", "true");
    world.set_image("img:2");
    for _ in 0..6 {
        world.sync();
        for node in ["n0", "n1", "n2", "n3", "n4", "n5"] {
            let name = world.only(node);
            let pod = world.pods[&name].clone();
            if pod.pull_asked.is_none() || pod.pull_answer.is_some() {
                continue;
            }
            let state = match node {
                "n0" | "n2" | "n3" | "n4" => State::Failed("img:2: no image for arm64".into()),
                _ => State::Pulled,
            };
            world.answer_pull(node, state);
        }
        world.sync();
        world.ready_all();
    }
    assert_eq!(world.updated_nodes(), ["n1", "n5"]);
}
