use serde_json::{Value, json};

use super::super::actions::{Done, Outcome};
use super::super::world::World;
use super::*;
use crate::facts::PodFacts;
use crate::probe::{ProbeKind, Reply};
use crate::testing::pod_with;

fn pod(restart_policy: &str, probes: Value) -> PodFacts {
    let mut container = json!({"name": "c", "image": "t:1"});
    for (name, probe) in probes.as_object().unwrap() {
        container[name] = probe.clone();
    }
    pod_with(
        "p",
        json!({"restartPolicy": restart_policy, "containers": [container]}),
    )
}

/// A world a minute after its agent's start.
fn world(pod: PodFacts) -> World {
    let mut world = World::new(pod);
    world.now_ms = 60_000;
    world
}

fn fail(world: &mut World, kind: ProbeKind) {
    world.probed.insert(kind, Reply::Failure("no".into()));
}

#[test]
fn na_081_a_failed_liveness_probe_kills_and_the_back_off_is_the_usual_one() {
    let probe = json!({"periodSeconds": 1, "failureThreshold": 3});
    let mut world = world(pod("Always", json!({"livenessProbe": probe})));
    fail(&mut world, ProbeKind::Liveness);
    world.pass(1);
    assert_eq!(world.starts.len(), 1);
    world.pass(60);
    // Each run lasts 2 s; the rests after them are 0, 10 and 20 s.
    let starts: Vec<i64> = world.starts.iter().map(|(_, at)| *at).collect();
    assert_eq!(starts, [60, 62, 74, 96]);
    assert_eq!(world.of("c").restart_count, 3);
    assert_eq!(
        world.said("Killing"),
        ["Container c failed liveness probe, will be restarted"; 4]
    );
    assert_eq!(world.said("BackOff").len(), 3);
}

#[test]
fn a_pod_that_never_restarts_is_told_so_and_fails() {
    let mut world = world(pod(
        "Never",
        json!({"startupProbe": {"failureThreshold": 1}}),
    ));
    fail(&mut world, ProbeKind::Startup);
    world.pass(2);
    assert_eq!(world.said("Killing"), ["Container c failed startup probe"]);
    assert_eq!(world.status().phase.as_deref(), Some("Failed"));
}

#[test]
fn the_grace_of_a_kill_is_the_probes_own_or_the_pods() {
    let stops = |own: Value| -> Vec<Duration> {
        let mut probe = json!({"failureThreshold": 1});
        probe["terminationGracePeriodSeconds"] = own;
        let mut world = world(pod("Always", json!({"livenessProbe": probe})));
        fail(&mut world, ProbeKind::Liveness);
        world.settle();
        let graces = world.asked.iter().filter_map(|action| match action {
            Action::Stop { grace, .. } => Some(*grace),
            _ => None,
        });
        graces.collect()
    };
    assert_eq!(stops(json!(7))[0], Duration::from_secs(7));
    assert_eq!(stops(Value::Null)[0], Duration::from_secs(30));
}

#[test]
fn case_b73_case_b75_an_agent_that_starts_takes_nothing_back() {
    let probes =
        json!({"readinessProbe": {"periodSeconds": 30}, "startupProbe": {"failureThreshold": 1}});
    let mut world = world(pod("Always", probes));
    world.settle();
    let c = world.of("c");
    assert_eq!((c.ready, c.started), (true, Some(true)));
    let id = world.current("c").id;
    fail(&mut world, ProbeKind::Startup);
    fail(&mut world, ProbeKind::Readiness);
    for _ in 0..5 {
        world.restart_agent(true);
        world.settle();
        let c = world.of("c");
        assert_eq!((c.ready, c.started), (true, Some(true)));
    }
    // Its own new results count from there on.
    world.pass(90);
    let c = world.of("c");
    assert_eq!((c.ready, c.started), (false, Some(true)));
    assert_eq!(world.current("c").id, id);
    let unready = "containers with unready status: [c]".to_owned();
    let gap = ("False".to_owned(), "ContainersNotReady".to_owned(), unready);
    assert_eq!(world.condition("Ready"), gap);
}

#[test]
fn what_probes_come_to_is_on_disk_at_once() {
    let mut world = world(pod("Always", json!({"readinessProbe": {}})));
    world.settle();
    assert!(world.of("c").ready);
    let last = |wanted: fn(&Action) -> bool| world.asked.iter().rposition(wanted).unwrap();
    assert!(last(|action| *action == Action::Keep) > last(|a| matches!(a, Action::Probe(_))));
}

#[test]
fn what_changes_while_the_checkpoint_is_written_is_written_after_it() {
    let mut world = world(pod("Always", json!({"readinessProbe": {}})));
    fail(&mut world, ProbeKind::Readiness);
    world.pass(5);
    let end = |world: &mut World, work, done| {
        let (timing, now) = (world.pod.host.timing.clone(), world.now());
        world.memory.note(Outcome { work, done }, &timing, now);
    };
    let probe = Work::Probe(world.current("c").id, ProbeKind::Readiness);
    end(&mut world, probe.clone(), Done::Probed(Reply::Success));
    assert_eq!(world.step().actions, [Action::Keep]);
    for _ in 0..3 {
        let failure = Reply::Failure("no".into());
        end(&mut world, probe.clone(), Done::Probed(failure));
    }
    for _ in 0..2 {
        assert_eq!(world.step().actions, [], "one write is under way");
        world.wait(Duration::from_secs(2));
    }
    assert!(!world.of("c").ready);
    end(&mut world, Work::Keep, Done::Well);
    assert_eq!(world.step().actions, [Action::Keep]);
}

#[test]
fn an_agent_that_lost_its_memory_goes_by_what_the_server_kept() {
    let mut world = world(pod("Always", json!({"readinessProbe": {}})));
    world.settle();
    let mut tree = world.pod.object.tree().clone();
    tree["status"] = serde_json::to_value(world.status()).unwrap();
    world.pod = crate::testing::pod_from(tree);
    world.memory = Default::default();
    fail(&mut world, ProbeKind::Readiness);
    world.settle();
    assert!(world.of("c").ready);
}

#[test]
fn another_container_begins_anew() {
    let mut world = world(pod("Always", json!({"readinessProbe": {}})));
    world.settle();
    assert!(world.of("c").ready);
    fail(&mut world, ProbeKind::Readiness);
    world.crash("c", 1);
    world.settle();
    let c = world.of("c");
    assert_eq!(
        (c.ready, c.started, c.restart_count),
        (false, Some(true), 1)
    );
}
