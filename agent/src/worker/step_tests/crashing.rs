//! Containers that end by themselves.

use std::time::Duration;

use serde_json::json;

use super::running;
use crate::testing::pod_with;
use crate::worker::step::*;
use crate::worker::world::World;

/// Runs a container that ends at once with this code; the delays from each end to the next start.
fn delays(exit_code: i32, spec: serde_json::Value, crashes: usize) -> (World, Vec<i64>) {
    let mut world = World::new(pod_with("p", spec));
    world.settle();
    let mut delays = Vec::new();
    for _ in 0..crashes {
        let ended = world.now_ms;
        world.crash("c", exit_code);
        let started = world.starts.len();
        while world.starts.len() == started {
            let wake = world.settle().wake_at.0;
            if world.starts.len() == started {
                world.now_ms = wake.max(world.now_ms + 1);
            }
        }
        delays.push((world.now_ms - ended) / 1000);
    }
    (world, delays)
}

#[test]
fn na_066_a_crash_loop_backs_off_and_says_so() {
    let spec = json!({"containers": [{"name": "c", "image": "t:1"}]});
    let (mut world, gaps) = delays(1, spec, 9);
    assert_eq!(gaps, [0, 10, 20, 40, 80, 160, 300, 300, 300]);
    world.crash("c", 1);
    world.settle();
    let (reason, message) = world.waiting("c");
    assert_eq!(reason, "CrashLoopBackOff");
    assert_eq!(
        message,
        "back-off 5m0s restarting failed container=c pod=p_default(UID-p)"
    );
    assert_eq!(world.status().phase.as_deref(), Some("Running"));
    assert_eq!(world.of("c").restart_count, 9);
    assert_eq!(
        world
            .of("c")
            .last_state
            .unwrap()
            .terminated
            .unwrap()
            .reason
            .as_deref(),
        Some("Error")
    );
    assert_eq!(
        world.said("BackOff")[0],
        "Back-off restarting failed container c in pod p_default(UID-p)"
    );
    assert_eq!(world.condition("Ready").0, "False");
}

#[test]
fn na_067_a_clean_exit_backs_off_as_well() {
    let spec = json!({"containers": [{"name": "c", "image": "t:1"}]});
    let (mut world, gaps) = delays(0, spec, 4);
    assert_eq!(gaps, [0, 10, 20, 40]);
    world.crash("c", 0);
    world.settle();
    let last = world.of("c").last_state.unwrap().terminated.unwrap();
    assert_eq!(
        (last.reason.as_deref(), last.exit_code),
        (Some("Completed"), 0)
    );
}

#[test]
fn case_b63_an_annotation_caps_the_delay() {
    for (text, millis) in [
        ("15s", 15_000),
        ("15", 15_000),
        ("1m30s", 90_000),
        ("2500ms", 2_500),
        // Never without a pause, never above the node's own cap.
        ("0", 1_000),
        ("1h", 300_000),
        ("18446744073709551615", 300_000),
        ("307445734561825861m", 300_000),
        ("soon", 300_000),
    ] {
        let pod = crate::testing::pod_from(json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "UID-p",
                         "annotations": {"muster.dev/max-restart-delay": text}},
            "spec": {"containers": [{"name": "c", "image": "t:1"}]}}));
        assert_eq!(pod.restart_max(), Duration::from_millis(millis), "{text}");
    }
}

#[test]
fn case_b65_a_long_run_restarts_at_once() {
    let mut world = running();
    for _ in 0..3 {
        world.pass(660);
        world.crash("c", 0);
        let starts = world.starts.len();
        world.settle();
        assert_eq!(world.starts.len(), starts + 1);
    }
    assert_eq!(world.of("c").restart_count, 3);
}

#[test]
fn na_050_a_command_that_cannot_run_is_an_end_with_back_off() {
    let mut world = running();
    world.crash("c", 1);
    world.settle();
    let id = world.current("c").id;
    let failed = world.containers.iter_mut().find(|c| c.id == id).unwrap();
    let message = "exec: \"nosuch\": executable file not found in $PATH".to_owned();
    failed.state = ContainerState::StartFailed {
        exit_code: 127,
        message: message.clone(),
    };
    world.settle();
    assert_eq!(world.waiting("c").0, "CrashLoopBackOff");
    let last = world.of("c").last_state.unwrap().terminated.unwrap();
    assert_eq!(
        (last.reason.as_deref(), last.exit_code),
        (Some("ContainerCannotRun"), 127)
    );
    assert_eq!(last.message, Some(message));
    assert_eq!(last.started_at, last.finished_at);
}

#[test]
fn a_container_removed_by_hand_is_restarted_and_accounted_for() {
    let mut world = running();
    let id = world.current("c").id;
    world.containers.retain(|c| c.id != id);
    world.settle();
    assert!(world.is_up("c"));
    assert_eq!(world.of("c").restart_count, 1);
    let last = world.of("c").last_state.unwrap().terminated.unwrap();
    assert_eq!(
        (last.reason.as_deref(), last.exit_code),
        (Some("ContainerStatusUnknown"), 137)
    );
}

#[test]
fn a_pod_that_need_not_restart_ends_for_good() {
    for (policy, code, phase) in [
        ("Never", 0, "Succeeded"),
        ("Never", 3, "Failed"),
        ("OnFailure", 0, "Succeeded"),
    ] {
        let spec = json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "t:1"}]});
        let mut world = World::new(pod_with("p", spec));
        world.settle();
        world.crash("c", code);
        world.pass(1);
        assert_eq!(
            world.status().phase.as_deref(),
            Some(phase),
            "{policy} {code}"
        );
        assert!(!world.is_up("POD"), "the sandbox goes with its containers");
        world.containers.clear();
        world.restart_agent(true);
        world.pass(600);
        assert_eq!(world.status().phase.as_deref(), Some(phase));
        assert_eq!(world.starts.len(), 1, "{policy} {code}");
    }
}

#[test]
fn na_077_last_words_are_told() {
    let mut world = running();
    world.crash("c", 3);
    let id = world.current("c").id;
    let mut view = world.view();
    view.messages.insert(id, "bye".into());
    let step = step(&world.pod, &view, &world.memory, world.now());
    let terminated = step.status.container_statuses.unwrap()[0]
        .state
        .clone()
        .unwrap()
        .terminated
        .unwrap();
    assert_eq!(
        (terminated.message.as_deref(), terminated.exit_code),
        (Some("bye"), 3)
    );
    assert_eq!(terminated.reason.as_deref(), Some("Error"));
}

#[test]
fn na_068_a_kill_for_memory_is_told() {
    let mut world = running();
    let id = world.current("c").id;
    let now = world.now().wall;
    world
        .containers
        .iter_mut()
        .find(|c| c.id == id)
        .unwrap()
        .state = ContainerState::Exited {
        started_at: now,
        finished_at: now,
        exit_code: 137,
        oom_killed: true,
        message: String::new(),
    };
    world.settle();
    let last = world.of("c").last_state.unwrap().terminated.unwrap();
    assert_eq!(
        (last.reason.as_deref(), last.exit_code),
        (Some("OOMKilled"), 137)
    );
    assert_eq!(world.of("c").restart_count, 1);
    assert_eq!(
        world.said("OOMKilled"),
        ["Container c was killed: there was no memory left"]
    );
}
