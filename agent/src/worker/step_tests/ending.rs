//! Pods that are deleted, rejected, or past their deadline.

use std::time::Duration;

use serde_json::json;

use super::{running, world};
use crate::testing::pod_with;
use crate::worker::actions::{Done, Work};
use crate::worker::step::*;
use crate::worker::world::World;

#[test]
fn na_079_a_pod_past_its_deadline_fails_and_stops() {
    let mut world = World::new(pod_with(
        "p",
        json!({"activeDeadlineSeconds": 5, "containers": [{"name": "c", "image": "t:1"}]}),
    ));
    world.pass(4);
    assert!(world.is_up("c"));
    world.pass(2);
    assert!(!world.is_up("c"));
    assert_eq!(world.status().phase.as_deref(), Some("Failed"));
    assert_eq!(world.status().reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(
        world.said("DeadlineExceeded"),
        ["Pod was active on the node longer than the specified deadline"]
    );
    world.pass(600);
    assert_eq!(world.starts.len(), 1);
}

#[test]
fn na_073_a_deleted_pod_stops_in_order_and_is_confirmed() {
    let mut world = running();
    world.asked.clear();
    world.delete(30);
    world.settle();
    assert!(world.over);
    assert!(world.containers.is_empty());
    assert_eq!(world.said("Killing"), ["Stopping container c"]);
    let works: Vec<String> = world
        .asked
        .iter()
        .filter_map(|action| match action {
            Action::Stop { grace, .. } => Some(format!("stop {}", grace.as_secs())),
            Action::Release => Some("release".into()),
            Action::Confirm => Some("confirm".into()),
            Action::Remove { .. } => Some("remove".into()),
            _ => None,
        })
        .collect();
    assert_eq!(
        works,
        [
            "stop 30", "stop 10", "release", "confirm", "remove", "remove"
        ]
    );
    let terminated = world.of("c").state.unwrap().terminated.unwrap();
    assert_eq!(terminated.exit_code, 143);
}

#[test]
fn a_pod_is_not_over_while_a_container_of_it_is_being_started() {
    let mut world = running();
    world.crash("c", 137);
    // It is deleted while the start is under way: a successor made now would run beside what comes up.
    let start = Work::Start("c".into());
    world.memory.in_flight.insert(start.clone());
    world.delete(5);
    assert_eq!(world.step().status.phase.as_deref(), Some("Running"));
    world.memory.in_flight.remove(&start);
    assert_eq!(world.step().status.phase.as_deref(), Some("Failed"));
}

#[test]
fn the_last_status_tells_how_it_ended() {
    let mut world = running();
    world.crash("c", 0);
    world.delete(30);
    let step = world.settle();
    assert_eq!(step.status.phase.as_deref(), Some("Succeeded"));
    let mut world = running();
    world.delete(30);
    assert_eq!(world.settle().status.phase.as_deref(), Some("Failed"));
}

#[test]
fn na_074_a_later_delete_shortens_the_running_stop() {
    let mut world = running();
    world.delete(30);
    let id = world.current("c").id;
    let grace = |step: &Step| {
        step.actions.iter().find_map(|action| match action {
            Action::Stop {
                id: stopped, grace, ..
            } if *stopped == id => Some(grace.as_secs()),
            _ => None,
        })
    };
    assert_eq!(grace(&world.step()), Some(30));
    assert_eq!(grace(&world.step()), None);
    world.wait(Duration::from_secs(4));
    world.delete(10);
    assert_eq!(grace(&world.step()), Some(6));
    world.wait(Duration::from_secs(1));
    world.delete(3);
    assert_eq!(grace(&world.step()), Some(2));
    assert_eq!(grace(&world.step()), None);
}

#[test]
fn a_pod_that_was_removed_needs_no_confirmation() {
    let mut world = running();
    world.pod.life = Life::Removed;
    world.settle();
    assert!(world.over);
    assert!(!world.asked.contains(&Action::Confirm));
    assert!(world.asked.contains(&Action::Release));
}

#[test]
fn a_pod_deleted_before_anything_was_made_is_confirmed_at_once() {
    let mut world = world();
    world.delete(30);
    world.settle();
    assert!(world.over);
    assert_eq!(world.asked, [Action::Release, Action::Confirm]);
}

#[test]
fn a_hanging_pull_does_not_hold_up_the_end() {
    let mut world = world();
    let first = world.step();
    for action in first
        .actions
        .iter()
        .filter(|a| !matches!(a, Action::EnsureImage { .. }))
    {
        let outcome = crate::worker::actions::Outcome {
            work: action.work().unwrap(),
            done: Done::Well,
        };
        let (timing, now) = (world.pod.host.timing.clone(), world.now());
        world.memory.note(outcome, &timing, now);
    }
    world.delete(30);
    assert_eq!(
        world.step().actions,
        [Action::Cancel(Work::Image("t:1".into())), Action::Release]
    );
}

#[test]
fn a_rejected_pod_fails_and_nothing_is_made() {
    let mut world = world();
    let message =
        "Node didn't have enough resource: cpu, requested: 500, used: 1800, capacity: 2000";
    world.memory.rejection = Some(crate::worker::memory::Rejection {
        reason: "OutOfcpu".into(),
        message: message.into(),
    });
    world.settle();
    assert!(world.containers.is_empty());
    let status = world.status();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("OutOfcpu"));
    assert_eq!(status.message, Some(format!("Pod was rejected: {message}")));
    assert_eq!(
        (
            status.container_statuses.as_ref(),
            status.qos_class.as_deref()
        ),
        (None, Some("BestEffort"))
    );
    world.delete(30);
    world.settle();
    assert!(world.over);
}
