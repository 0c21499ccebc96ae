//! `rollout plan`: what would be done, in which order, and for how long a node is out.

use jiff::SignedDuration;
use muster_daemonset::preview::{Pace, Preview, Scene, What, preview};
use serde_json::json;

use crate::world::World;

fn scene(world: &World) -> Scene {
    Scene {
        daemon: world.facts(),
        history: world.history.clone(),
        nodes: world
            .nodes
            .keys()
            .map(|name| (name.as_str().into(), world.node_facts(name)))
            .collect(),
        pods: world
            .nodes
            .keys()
            .map(|name| (name.as_str().into(), world.on(name)))
            .collect(),
        pace: Pace {
            stop: SignedDuration::from_secs(30),
            start: SignedDuration::from_secs(5),
        },
    }
}

fn look(world: &World) -> Preview {
    preview(scene(world), world.now())
}

/// `+35s Replace n1 n2`, a line for each step.
fn steps(preview: &Preview) -> Vec<String> {
    preview
        .steps
        .iter()
        .map(|step| {
            let what = match &step.what {
                What::Wait(why) => format!("Wait {why}"),
                what => format!("{what:?}"),
            };
            let nodes: Vec<String> = step.nodes.iter().map(ToString::to_string).collect();
            format!("+{}s {what} {}", step.after.as_secs(), nodes.join(" "))
                .trim_end()
                .to_owned()
        })
        .collect()
}

#[test]
fn a_plain_roll_is_told_wave_by_wave_with_the_longest_outage() {
    let mut world = World::running(5);
    world.set_budget(json!(2), json!(0));
    world.min_ready(10);
    world.settle_down();
    world.pass(60);
    world.set_image("img:2");
    let preview = look(&world);
    assert_eq!(
        steps(&preview),
        ["+0s Replace n0 n1", "+45s Replace n2 n3", "+90s Replace n4"]
    );
    assert_eq!((preview.revision, preview.is_new), (2, true));
    assert_eq!(preview.takes.as_secs(), 135);
    let (node, longest) = preview.longest_out.unwrap();
    assert_eq!((node.as_str(), longest.as_secs()), ("n0", 45));
    assert_eq!(preview.most_out, 2);
    assert_eq!(preview.left, []);
    // Nothing was done.
    assert_eq!(world.updated(), 0);
}

#[test]
fn a_rollout_that_is_under_way_goes_on_where_it_is() {
    let mut world = World::running(3);
    world.graceful = true;
    world.set_image("img:2");
    world.sync();
    assert_eq!(
        steps(&look(&world)),
        ["+30s Create n0", "+35s Replace n1", "+70s Replace n2"]
    );
    world.finish();
    world.sync();
    let preview = look(&world);
    assert_eq!(steps(&preview), ["+5s Replace n1", "+40s Replace n2"]);
    assert_eq!(preview.left, []);
}

#[test]
fn going_back_leaves_out_whoever_is_out_of_reach_by_then() {
    let mut world = World::running(3);
    world.set_image("img:2");
    world.settle_down();
    world.lose("n1");
    world.pass(3_600);
    world.set_image("img:1");
    let preview = look(&world);
    assert_eq!(steps(&preview), ["+0s Replace n0", "+35s Replace n2"]);
    let left: Vec<&str> = preview.left.iter().map(|(node, _)| node.as_str()).collect();
    assert_eq!(left, ["n1"]);
}

#[test]
fn a_surge_takes_nobody_out() {
    let mut world = World::running(3);
    world.set_budget(json!(0), json!(2));
    world.set_image("img:2");
    let preview = look(&world);
    assert_eq!(steps(&preview), ["+0s Surge n0 n1", "+5s Surge n2"]);
    assert_eq!(preview.longest_out, None);
    assert_eq!(preview.most_out, 0);
}

#[test]
fn waits_are_steps_and_a_promotion_is_taken_for_granted() {
    let mut world = World::running(4);
    world.set_budget(json!(2), json!(0));
    world.annotate("canary", "1");
    world.annotate("waves", "2");
    world.annotate("wave-pause", "10m");
    world.set_image("img:2");
    let preview = look(&world);
    let waits: Vec<String> = steps(&preview);
    assert_eq!(waits[0], "+0s Replace n0");
    assert!(
        waits[1].starts_with("+35s Wait wave 1 of 2 (1) is through; somebody"),
        "{waits:?}"
    );
    assert_eq!(waits[2], "+35s Replace n1");
    assert!(
        waits[3].starts_with("+70s Wait wave 2 of 2 (2) is through and watched until"),
        "{waits:?}"
    );
    assert_eq!(waits[4], "+670s Replace n2 n3");
    assert_eq!(preview.left, []);
}

#[test]
fn what_stays_behind_is_told_with_its_reason() {
    let mut world = World::running(4);
    world.lose("n3");
    world.pass(60);
    world.annotate("partition", "2");
    world.set_image("img:2");
    let preview = look(&world);
    let left: Vec<String> = preview
        .left
        .iter()
        .map(|(node, why)| format!("{node}: {why}"))
        .collect();
    assert_eq!(
        left[0],
        "n2: the partition keeps 2 nodes on the older revision"
    );
    assert!(left[1].starts_with("n3: "), "{left:?}");
}

#[test]
fn nothing_to_do_takes_no_time_and_a_pause_never_ends() {
    let world = World::running(3);
    let preview = look(&world);
    assert_eq!((steps(&preview).len(), preview.takes.as_secs()), (0, 0));
    assert!(!preview.is_new && preview.left.is_empty());
    let mut world = World::running(3);
    world.annotate("paused", "true");
    world.set_image("img:2");
    let preview = look(&world);
    assert_eq!(preview.steps, []);
    assert_eq!(preview.left.len(), 3);
}

#[test]
fn windows_are_waited_for_and_new_nodes_are_filled_first() {
    // The world starts on a Thursday at midnight.
    let mut world = World::running(2);
    world.annotate("maintenance-windows", "*: Thu 02:00-03:00");
    world.set_image("img:2");
    world.add_node(crate::world::node("n9"));
    let preview = look(&world);
    let said = steps(&preview);
    assert_eq!(said[0], "+0s Create n9");
    assert!(
        said.iter()
            .any(|step| step.contains("maintenance window opens at 2026-01-01T02:00:00Z")),
        "{said:?}"
    );
    assert!(said.contains(&"+7200s Replace n0".to_owned()), "{said:?}");
}

#[test]
fn a_canary_is_promoted_also_where_windows_open_and_close() {
    // The world starts at 2026-01-01T00:00:00Z, a Thursday.
    let mut world = World::running(3);
    world.set_budget(json!(2), json!(0));
    world.annotate("canary", "1");
    world.annotate("maintenance-windows", "*: daily 02:00-04:00");
    world.set_image("img:2");
    let preview = look(&world);
    assert_eq!(
        steps(&preview),
        [
            "+0s Wait its maintenance window opens at 2026-01-01T02:00:00Z",
            "+7200s Replace n0",
            "+7235s Wait wave 1 of 1 (1) is through; somebody has to let it go on (`muster rollout promote`)",
            "+7235s Replace n1 n2",
        ]
    );
    assert!(!preview.cut_off);
}

#[test]
fn nodes_that_no_time_lets_go_end_the_preview_whatever_windows_there_are() {
    let mut world = World::running(3);
    world.annotate("maintenance-windows", "*: daily 00:00-04:00");
    world.annotate("partition", "2");
    world.set_image("img:2");
    let preview = look(&world);
    assert_eq!(steps(&preview), ["+0s Replace n0"]);
    assert_eq!(preview.takes.as_secs(), 35);
    assert_eq!(preview.left.len(), 2);
    assert!(!preview.cut_off);
    world.annotate("paused", "true");
    let preview = look(&world);
    assert_eq!(steps(&preview), Vec::<String>::new());
    assert_eq!((preview.takes.as_secs(), preview.cut_off), (0, false));
}
