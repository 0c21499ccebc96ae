//! Agents that restart, hosts that reboot, engines that stop.

use std::time::Duration;

use super::running;
use crate::worker::step::*;

#[test]
fn na_092_a_restarted_agent_adopts_and_a_crash_loop_keeps_its_delay() {
    let mut world = running();
    world.crash("c", 1);
    world.settle();
    world.crash("c", 1);
    world.settle();
    assert_eq!(
        world.waiting("c").1,
        "back-off 10s restarting failed container=c pod=p_default(UID-p)"
    );
    let before = world.containers.clone();
    world.wait(Duration::from_secs(4));
    world.restart_agent(true);
    world.settle();
    assert_eq!(world.containers, before);
    assert_eq!(
        world.waiting("c").1,
        "back-off 10s restarting failed container=c pod=p_default(UID-p)"
    );
    world.pass(5);
    assert!(!world.is_up("c"));
    world.pass(1);
    assert!(world.is_up("c"));
    assert_eq!(world.of("c").restart_count, 2);
}

#[test]
fn na_092_running_containers_are_adopted_as_they_are() {
    let mut world = running();
    world.pass(30);
    let (before, ready) = (world.containers.clone(), world.status().conditions.clone());
    world.restart_agent(true);
    world.asked.clear();
    world.settle();
    assert_eq!(world.containers, before);
    assert_eq!(world.status().conditions, ready);
    assert_eq!(world.asked, [Action::Prepare]);
}

#[test]
fn na_093_a_death_while_the_agent_was_away_is_told_truly() {
    let mut world = running();
    world.pass(5);
    world.crash("c", 7);
    let ended = world.now().wall;
    world.wait(Duration::from_secs(60));
    world.restart_agent(true);
    world.settle();
    let last = world.of("c").last_state.unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.finished_at.unwrap().0), (7, ended));
    assert_eq!(world.of("c").restart_count, 1);
}

#[test]
fn na_096_after_a_reboot_everything_is_made_anew_under_the_same_identity() {
    let mut world = running();
    world.containers.clear();
    world.restart_agent(false);
    world.settle();
    assert!(
        world.current("POD").name.ends_with("_1"),
        "{}",
        world.current("POD").name
    );
    assert_eq!(world.of("c").restart_count, 1);
    assert!(world.current("c").name.ends_with("_1"));
    assert_eq!(
        world.said("SandboxChanged"),
        ["Pod sandbox changed, it will be killed and re-created."]
    );
}

#[test]
fn na_099_the_engines_own_stop_is_no_crash() {
    let mut world = running();
    world.crash("c", 1);
    world.settle();
    for name in ["c", "POD"] {
        world.crash(name, 137);
    }
    world.engine_stopped_at = Some(world.now().wall);
    world.wait(Duration::from_secs(15));
    world.settle();
    assert!(world.is_up("c"));
    assert_eq!(world.said("BackOff"), Vec::<String>::new());
}

#[test]
fn na_101_without_its_sandbox_the_whole_pod_is_made_anew() {
    let mut world = running();
    let (sandbox, old) = (world.current("POD").id, world.current("c").id);
    world.containers.retain(|c| c.id != sandbox);
    world.settle();
    assert_eq!(
        world.said("SandboxChanged"),
        ["Pod sandbox changed, it will be killed and re-created."]
    );
    assert!(world.current("POD").name.ends_with("_1"));
    assert_ne!(world.current("c").id, old);
    assert_eq!(world.of("c").restart_count, 1);
    assert!(world.is_up("c"));
}

#[test]
fn a_container_that_was_made_and_never_started_is_made_again_with_its_number() {
    let mut world = running();
    let id = world.current("c").id;
    world
        .containers
        .iter_mut()
        .find(|c| c.id == id)
        .unwrap()
        .state = ContainerState::Created;
    world.settle();
    assert_ne!(world.current("c").id, id);
    assert_eq!(world.of("c").restart_count, 0);
}
