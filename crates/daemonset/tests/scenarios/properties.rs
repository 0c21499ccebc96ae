//! What must always hold, over random clusters and random histories.

use std::collections::BTreeMap;

use muster_daemonset::control::OnFailure;
use muster_daemonset::hold::Hold;
use muster_daemonset::place::DeleteWhy;
use muster_daemonset::plan::{CreateWhy, From, Plan};
use muster_daemonset::release::Release;
use muster_daemonset::rollout::{Budget, Part};
use muster_daemonset::{DaemonFacts, NodeName, Placements, PodFacts, place, plan};
use muster_model::pod_status::Phase;
use muster_model::pre_pull::{Answer, State};
use proptest::prelude::*;
use serde_json::json;

use crate::world::{World, node};

#[derive(Debug, Clone)]
enum Event {
    AddNode(usize),
    RemoveNode(usize),
    Taint(usize, usize),
    Label(usize, bool),
    Lose(usize),
    Regain(usize),
    Ready(usize),
    Unready(usize),
    Fail(usize),
    Succeed(usize),
    Vanish(usize),
    DeletePod(usize),
    Finish,
    Pass(i64),
    Image(usize),
    Budget(usize),
    MinReady(i64),
    Selector(bool),
    OnDelete,
    /// One of [`CONTROLS`] is set.
    Control(usize),
    /// All of them are taken away.
    NoControl,
    Crash(usize),
    Pulled(usize, bool),
    Promote(usize),
    Sync,
}

const CONTROLS: [(&str, &str); 12] = [
    ("paused", "true"),
    ("paused", "false"),
    ("on-failure", "halt"),
    ("on-failure", "rollback"),
    ("failure-threshold", "40%"),
    ("progress-deadline", "30s"),
    ("canary", "pool=a"),
    ("canary", "2"),
    ("waves", "1; pool=a; 60%"),
    ("partition", "2"),
    ("pre-pull", "true"),
    ("failure-domain", "pool"),
];

const TAINTS: [&[&str]; 4] = [
    &[],
    &["k=v:NoSchedule"],
    &["k=v:NoExecute"],
    &["node.kubernetes.io/not-ready:NoExecute"],
];

fn event() -> impl Strategy<Value = Event> {
    let at = 0..8_usize;
    prop_oneof![
        2 => at.clone().prop_map(Event::AddNode),
        1 => at.clone().prop_map(Event::RemoveNode),
        2 => (at.clone(), 0..TAINTS.len()).prop_map(|(n, t)| Event::Taint(n, t)),
        1 => (at.clone(), any::<bool>()).prop_map(|(n, yes)| Event::Label(n, yes)),
        1 => at.clone().prop_map(Event::Lose),
        2 => at.clone().prop_map(Event::Regain),
        8 => at.clone().prop_map(Event::Ready),
        2 => at.clone().prop_map(Event::Unready),
        2 => at.clone().prop_map(Event::Fail),
        1 => at.clone().prop_map(Event::Succeed),
        1 => at.clone().prop_map(Event::Vanish),
        1 => at.prop_map(Event::DeletePod),
        4 => Just(Event::Finish),
        3 => (1..40_i64).prop_map(Event::Pass),
        2 => (1..4_usize).prop_map(Event::Image),
        1 => (0..4_usize).prop_map(Event::Budget),
        1 => prop_oneof![Just(0), Just(10)].prop_map(Event::MinReady),
        1 => any::<bool>().prop_map(Event::Selector),
        1 => Just(Event::OnDelete),
        3 => (0..CONTROLS.len()).prop_map(Event::Control),
        1 => Just(Event::NoControl),
        2 => (0..8_usize).prop_map(Event::Crash),
        2 => ((0..8_usize), any::<bool>()).prop_map(|(n, well)| Event::Pulled(n, well)),
        1 => (0..4_usize).prop_map(Event::Promote),
        16 => Just(Event::Sync),
    ]
}

/// Every pod of our making that has, or may have, containers on the node.
fn live(world: &World, node: &str) -> usize {
    world
        .on(node)
        .iter()
        .filter(|pod| !pod.phase.is_terminal())
        .count()
}

fn set_budget(world: &mut World, size: usize, surging: bool) {
    if surging {
        world.set_budget(json!(0), json!(size.max(1)));
    } else {
        world.set_budget(json!(size), json!(0));
    }
}

fn happen(world: &mut World, event: &Event, surging: bool) {
    let name = |index: &usize| format!("n{index}");
    let pod_on = |world: &World, index: &usize| {
        world
            .on(&name(index))
            .last()
            .map(|pod| pod.name.to_string())
    };
    match event {
        Event::AddNode(n) if !world.nodes.contains_key(&name(n)) => world.add_node(node(&name(n))),
        Event::RemoveNode(n) => world.remove_node(&name(n)),
        Event::Taint(n, t) if world.nodes.contains_key(&name(n)) => {
            world.taint(&name(n), TAINTS[*t])
        }
        Event::Label(n, yes) if world.nodes.contains_key(&name(n)) => {
            world.label(&name(n), "pool", if *yes { "a" } else { "b" });
        }
        Event::Lose(n) if world.nodes.contains_key(&name(n)) => world.lose(&name(n)),
        Event::Regain(n) if world.nodes.contains_key(&name(n)) => world.regain(&name(n)),
        Event::Ready(n) => world.set_ready_on(&name(n), true),
        Event::Unready(n) => world.set_ready_on(&name(n), false),
        Event::Fail(n) => {
            if let Some(pod) = pod_on(world, n) {
                world.fail(&pod, "OutOfcpu");
            }
        }
        Event::Succeed(n) => {
            if let Some(pod) = pod_on(world, n) {
                let pod = world.edit_pod(&pod);
                pod.phase = Phase::Succeeded;
                pod.ready = false;
            }
        }
        Event::Vanish(n) => {
            if let Some(pod) = pod_on(world, n) {
                world.remove_pod(&pod);
            }
        }
        Event::DeletePod(n) => {
            if let Some(pod) = pod_on(world, n) {
                world.edit_pod(&pod).terminating = true;
            }
        }
        Event::Finish => world.finish(),
        Event::Pass(seconds) => world.pass(*seconds),
        Event::Image(image) => world.set_image(&format!("img:{image}")),
        Event::Budget(size) => set_budget(world, *size, surging),
        Event::MinReady(seconds) => world.min_ready(*seconds),
        Event::Selector(narrow) => world.edit_template(|template| {
            template["spec"]["nodeSelector"] = if *narrow {
                json!({"pool": "a"})
            } else {
                json!({})
            };
        }),
        Event::OnDelete if !surging => world.on_delete(),
        Event::Control(index) => {
            let (key, value) = CONTROLS[*index];
            world.annotate(key, value);
        }
        Event::NoControl => world.uncontrol(),
        Event::Crash(n) => {
            if let Some(pod) = pod_on(world, n)
                && !world.pods[&pod].phase.is_terminal()
            {
                world.crash(&pod);
            }
        }
        Event::Pulled(n, well) => {
            if let Some(pod) = pod_on(world, n) {
                let state = if *well {
                    State::Pulled
                } else {
                    State::Failed("no such image".to_owned())
                };
                let revision = world.facts().rules.target.pulled_for();
                world.edit_pod(&pod).pull_answer = Some(Answer { revision, state });
            }
        }
        Event::Promote(waves) => world.promote_if_made(*waves),
        Event::Sync => {
            let plan = checked_sync(world);
            check_live(world, surging, &plan);
        }
        _ => {}
    }
}

fn check_live(world: &World, surging: bool, plan: &Plan) {
    let most = if surging { 2 } else { 1 };
    for node in world.nodes.keys() {
        assert!(
            live(world, node) <= most,
            "{} live pods on {node} after\n{plan}",
            live(world, node)
        );
    }
}

/// Nodes that count and have no available pod, and no Ready one, when `gone` are deleted.
fn out(world: &World, gone: &[PodFacts]) -> (usize, usize) {
    let daemon = world.facts();
    let release = Release::of(&daemon, &world.placements, world.now());
    let rules = daemon.rules.clone();
    let counts =
        |pod: &PodFacts| !pod.terminating && !gone.iter().any(|other| other.uid == pod.uid);
    let (mut unavailable, mut unready) = (0, 0);
    for (node, placement) in world.placements.iter() {
        // Only the new template wants such a node, and not before its wave.
        let withheld = matches!(
            release.hold_of_missing(&world.placements, placement),
            Some(Hold::Wave { .. })
        );
        if !placement.counts.desired || placement.part == Part::Skipped || withheld {
            continue;
        }
        let pods: Vec<PodFacts> = world.on(node.as_str()).into_iter().filter(counts).collect();
        let available = |pod: &PodFacts| pod.is_available(&rules, world.now());
        unavailable += usize::from(!pods.iter().any(available));
        unready += usize::from(!pods.iter().any(|pod| pod.ready));
    }
    (unavailable, unready)
}

/// What holds a rollout, holds it: nothing old goes while it is paused or has failed, and no more nodes than the budget get
/// an unproven pod.
fn check_holds(world: &World, plan: &Plan, before: &DaemonFacts) {
    let (control, course) = (&before.control, &before.course);
    let watched = control.on_failure != OnFailure::Off;
    let held =
        control.paused || control.unreadable.is_some() || (watched && course.failed.is_some());
    if held {
        let rolled = plan
            .deletes
            .iter()
            .find(|delete| delete.why == DeleteWhy::Outdated);
        let surged = plan
            .creates
            .iter()
            .find(|create| create.why == CreateWhy::Surge);
        assert!(surged.is_none(), "surged while held:\n{plan}");
        assert!(rolled.is_none(), "rolled while held:\n{plan}");
    }
    let budget = Budget::of(before.strategy, world.placements.tally().desired);
    if let (true, false, Some(_), Some(budget)) = (watched, course.proven, &course.stable, budget) {
        let most = budget.max_unavailable.max(budget.max_surge).max(1);
        let unproven = world.placements.tally().unproven;
        let fresh = plan
            .creates
            .iter()
            .filter(|create| create.from == From::Current)
            .count();
        assert!(
            fresh <= most.saturating_sub(unproven),
            "{unproven} unproven, {fresh} more, {most} allowed:\n{plan}"
        );
    }
}

/// A sync whose deletions are held against the budget.
fn checked_sync(world: &mut World) -> Plan {
    world.settle_history();
    let before_pods = world.pods.clone();
    // Settles the history first, as a sync does, so that the look below sees what the sync sees.
    let daemon = world.facts();
    world.place_all(&daemon);
    world.sync();
    let plan = world.last_plan.clone();
    check_holds(world, &plan, &daemon);
    let after_pods = std::mem::replace(&mut world.pods, before_pods);
    let gone: Vec<PodFacts> = plan
        .deletes
        .iter()
        .map(|delete| world.pods[&*delete.pod.name].clone())
        .collect();
    let (unavailable_before, unready_before) = out(world, &[]);
    let (unavailable, unready) = out(world, &gone);
    let daemon = world.facts();
    let limit = Budget::of(daemon.strategy, world.placements.tally().desired)
        .map_or(0, |budget| budget.max_unavailable);
    assert!(
        unavailable <= unavailable_before.max(limit),
        "{unavailable_before} out before, {unavailable} after, limit {limit}:\n{plan}"
    );
    assert!(
        unready <= unready_before.max(limit),
        "{unready_before} not Ready before, {unready} after, limit {limit}:\n{plan}"
    );
    world.pods = after_pods;
    plan
}

fn start(nodes: usize, budget: usize, surging: bool, graceful: bool) -> World {
    let mut world = World::new(nodes);
    world.graceful = graceful;
    set_budget(&mut world, budget, surging);
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// Safety: never two live pods per node (two while surging), never more nodes out than the budget allows;
    /// and, in every sync of the world, incremental = from scratch.
    #[test]
    fn safety_holds_whatever_happens(
        nodes in 0..8_usize,
        budget in 0..4_usize,
        surging in any::<bool>(),
        graceful in any::<bool>(),
        events in prop::collection::vec(event(), 1..120),
    ) {
        let mut world = start(nodes, budget, surging, graceful);
        for event in &events {
            happen(&mut world, event, surging);
        }
    }

    /// Progress: when the world is fair again, the roll ends, with one current pod on every node that should
    /// run one and none anywhere else.
    #[test]
    fn with_a_fair_world_the_roll_ends(
        nodes in 0..8_usize,
        budget in 0..4_usize,
        surging in any::<bool>(),
        graceful in any::<bool>(),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut world = start(nodes, budget, surging, graceful);
        for event in &events {
            happen(&mut world, event, surging);
        }
        for node in world.nodes.keys().cloned().collect::<Vec<_>>() {
            world.regain(&node);
        }
        world.uncontrol();
        for name in world.pods.keys().cloned().collect::<Vec<_>>() {
            world.edit_pod(&name).failing = None;
        }
        set_budget(&mut world, budget, surging);
        let mut idle = 0;
        for round in 0.. {
            assert!(round < 200, "does not end:\n{}", world.last_plan);
            world.pass(1000);
            world.finish();
            world.ready_all();
            checked_sync(&mut world);
            idle = if world.last_plan.is_idle() { idle + 1 } else { 0 };
            if idle == 3 {
                break;
            }
        }
        let DaemonFacts { rules, strategy, .. } = world.facts();
        // A budget of nothing becomes one only where something is desired (spec/daemonset.md 12.2).
        let no_turns = Budget::of(strategy, world.placements.tally().desired)
            .is_some_and(|budget| budget.max_unavailable + budget.max_surge == 0);
        for (name, placement) in world.placements.iter() {
            let pods = world.on(name.as_str());
            if placement.counts.desired {
                prop_assert_eq!(pods.len(), 1);
                prop_assert!(pods[0].ready && pods[0].is_updated(&rules));
            } else if !no_turns && world.nodes.contains_key(name.as_str()) {
                prop_assert!(pods.iter().all(|pod| pod.is_updated(&rules)), "only pods that may stay, stay");
            }
        }
        prop_assert_eq!(world.stat("numberAvailable"), world.stat("desiredNumberScheduled"));
        prop_assert_eq!(world.stat("updatedNumberScheduled"), world.stat("desiredNumberScheduled"));
    }

    /// A plan that was carried out is not made again: without anything new to see, nothing is left after a few
    /// looks, and no pod is deleted and no node given a pod twice.
    #[test]
    fn a_plan_is_idempotent_after_it_was_applied(
        nodes in 0..8_usize,
        budget in 0..4_usize,
        surging in any::<bool>(),
        events in prop::collection::vec(event(), 1..80),
    ) {
        let mut world = start(nodes, budget, surging, true);
        for event in &events {
            happen(&mut world, event, surging);
        }
        let mut created = BTreeMap::new();
        for _ in 0..8 {
            world.sync();
            for create in &world.last_plan.creates {
                *created.entry(create.node.clone()).or_insert(0) += 1;
            }
        }
        prop_assert!(world.last_plan.is_idle(), "{}", world.last_plan);
        let most = if surging { 2 } else { 1 };
        prop_assert!(created.values().all(|count| *count <= most), "{:?}", created);
    }

    /// The order of nodes, pods and revisions does not matter, and planning twice gives the same plan.
    #[test]
    fn the_order_of_the_input_is_irrelevant(
        nodes in 1..8_usize,
        surging in any::<bool>(),
        events in prop::collection::vec(event(), 1..60),
        seed in any::<prop::sample::Index>(),
    ) {
        let mut world = start(nodes, 2, surging, true);
        for event in &events {
            happen(&mut world, event, surging);
        }
        let daemon = world.facts();
        let now = world.now();
        let turned = |mut pods: Vec<PodFacts>| {
            if !pods.is_empty() {
                let by = seed.index(pods.len());
                pods.rotate_left(by);
                pods.reverse();
            }
            pods
        };
        let mut names: Vec<String> = world.nodes.keys().cloned().collect();
        let all = |names: &[String], turn: bool| -> Placements {
            names
                .iter()
                .map(|name| {
                    let pods = if turn { turned(world.on(name)) } else { world.on(name) };
                    let placement = place(&daemon, &world.node_facts(name), &pods, None, now);
                    (NodeName::from(name.as_str()), placement)
                })
                .collect()
        };
        let first = all(&names, false);
        names.reverse();
        let second = all(&names, true);
        let mut history = world.history.clone();
        let one = plan(&daemon, &first, &history, now);
        history.reverse();
        prop_assert_eq!(&one, &plan(&daemon, &second, &history, now));
        prop_assert_eq!(one.to_string(), plan(&daemon, &second, &history, now).to_string());
    }
}
