use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::super::actions::{Done, Work};
use super::super::view::is_running;
use super::super::world::{World, image};
use super::*;
use crate::runtime::ContainerView;
use crate::testing::{pod, pod_with};

fn world() -> World {
    World::new(pod("p"))
}

fn running() -> World {
    let mut world = world();
    world.settle();
    assert!(world.is_up("c"));
    world
}

#[test]
fn na_086_a_fresh_pod_runs_and_says_so() {
    let world = running();
    let status = world.status();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let types: Vec<_> = status
        .conditions
        .iter()
        .flatten()
        .map(|c| (c.type_.as_str(), c.status.as_str()))
        .collect();
    assert_eq!(
        types,
        [
            ("PodReadyToStartContainers", "True"),
            ("Initialized", "True"),
            ("Ready", "True"),
            ("ContainersReady", "True"),
            ("PodScheduled", "True"),
        ]
    );
    let c = world.of("c");
    assert_eq!(c.image_id, "docker://sha256:t:1");
    assert_eq!(c.image, "t:1");
    assert_eq!(c.container_id.unwrap().len(), "docker://".len() + 64);
    assert_eq!((c.ready, c.started, c.restart_count), (true, Some(true), 0));
    assert_eq!(status.pod_ip.as_deref(), Some("172.17.0.2"));
    assert_eq!(status.host_ip.as_deref(), Some("10.0.0.1"));
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
    assert!(status.start_time.is_some());
    assert!(world.events.is_empty());
}

#[test]
fn what_waits_on_nothing_is_asked_for_together() {
    let mut world = world();
    let first: Vec<Work> = world
        .step()
        .actions
        .iter()
        .filter_map(Action::work)
        .collect();
    assert_eq!(
        first,
        [Work::Keep, Work::Prepare, Work::Image("t:1".into())]
    );
    assert_eq!(world.status().phase.as_deref(), Some("Pending"));
    assert_eq!(world.waiting("c").0, "ContainerCreating");
    let (status, reason, message) = world.condition("Ready");
    assert_eq!(status, "False");
    assert_eq!(reason, "ContainersNotReady");
    assert_eq!(message, "containers with unready status: [c]");
}

#[test]
fn the_checkpoint_comes_before_the_first_container() {
    let mut world = running();
    let keep = world.asked.iter().position(|a| *a == Action::Keep).unwrap();
    let sandbox = world
        .asked
        .iter()
        .position(|a| matches!(a, Action::RunSandbox { .. }))
        .unwrap();
    let start = world
        .asked
        .iter()
        .position(|a| matches!(a, Action::Start(_)))
        .unwrap();
    assert!(keep < sandbox && sandbox < start);
    world.asked.clear();
    world.pass(2);
    assert_eq!(world.asked, [Action::Keep]);
}

#[test]
fn na_045_no_sandbox_where_nothing_is_shared() {
    let mut world = World::new(pod_with(
        "p",
        json!({"hostNetwork": true, "containers": [{"name": "c", "image": "t:1"}]}),
    ));
    world.settle();
    assert_eq!(world.containers.len(), 1);
    assert_eq!(world.status().phase.as_deref(), Some("Running"));
    assert_eq!(world.status().pod_ip, world.status().host_ip);
    assert_eq!(world.condition("PodReadyToStartContainers").0, "True");
    world.delete(5);
    world.pass(1);
    assert!(world.over);
}

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
    let mut world = world();
    let mut capped = crate::testing::pod_from(json!({
        "metadata": {"name": "p", "namespace": "default", "uid": "UID-p",
                     "annotations": {"muster.dev/max-restart-delay": "15s"}},
        "spec": {"containers": [{"name": "c", "image": "t:1"}]}}));
    std::mem::swap(&mut world.pod, &mut capped);
    assert_eq!(world.pod.restart_max(), Duration::from_secs(15));
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
fn na_035_a_configuration_error_waits_without_counting() {
    let mut world = world();
    let failure = Done::Failed {
        reason: "CreateContainerConfigError".into(),
        message: "configmap \"m\" not found".into(),
    };
    world.fail.insert(Work::Start("c".into()), failure.clone());
    world.settle();
    assert_eq!(
        world.waiting("c"),
        (
            "CreateContainerConfigError".into(),
            "configmap \"m\" not found".into()
        )
    );
    assert_eq!(world.of("c").restart_count, 0);
    world.fail.insert(Work::Start("c".into()), failure);
    world.pass(10);
    assert!(!world.is_up("c"));
    let now = world.now();
    world.memory.hurry(now);
    world.settle();
    assert!(world.is_up("c"));
    assert_eq!(world.of("c").restart_count, 0);
}

#[test]
fn na_070_a_failed_pull_backs_off_and_is_told_as_such() {
    let mut world = world();
    let failure = || Done::Failed {
        reason: "ErrImagePull".into(),
        message: "connection refused".into(),
    };
    let work = Work::Image("t:1".into());
    let mut tries = Vec::new();
    for _ in 0..7 {
        world.fail.insert(work.clone(), failure());
        while world.fail.contains_key(&work) {
            let wake = world.settle().wake_at.0;
            if world.fail.contains_key(&work) {
                world.now_ms = wake.max(world.now_ms + 1);
            }
        }
        tries.push(world.now_ms / 1000);
    }
    let gaps: Vec<i64> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [10, 20, 40, 80, 160, 300]);
    assert_eq!(
        world.waiting("c"),
        ("ErrImagePull".into(), "connection refused".into())
    );
    world.wait(Duration::from_secs(3));
    world.settle();
    let message = "Back-off pulling image \"t:1\": ErrImagePull: connection refused";
    assert_eq!(
        world.waiting("c"),
        ("ImagePullBackOff".into(), message.into())
    );
    assert!(
        world
            .said("BackOff")
            .contains(&"Back-off pulling image \"t:1\"".to_owned())
    );
    assert_eq!(world.status().phase.as_deref(), Some("Pending"));
    world.pass(300);
    assert!(world.is_up("c"));
}

#[test]
fn na_078_a_changed_image_restarts_its_container_alone() {
    let mut world = running();
    let sandbox = world.current("POD").id;
    world.pod = pod_with("p", json!({"containers": [{"name": "c", "image": "t:2"}]}));
    world.settle();
    assert_eq!(
        world.said("Killing"),
        ["Container c definition changed, will be restarted"]
    );
    assert_eq!(world.current("c").image_id, "sha256:t:2");
    assert_eq!(world.of("c").restart_count, 1);
    assert_eq!(world.current("POD").id, sandbox);
    assert_eq!(world.now_ms, 0);
}

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
        let outcome = super::super::actions::Outcome {
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
fn a_rejected_pod_fails_and_nothing_is_made() {
    let mut world = world();
    let message =
        "Node didn't have enough resource: cpu, requested: 500, used: 1800, capacity: 2000";
    world.memory.rejection = Some(super::super::memory::Rejection {
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

#[test]
fn na_051_a_volume_that_does_not_come_is_tried_again_and_called_timed_out() {
    let spec = json!({
        "containers": [{"name": "c", "image": "t:1"}],
        "volumes": [{"name": "v", "hostPath": {"path": "/nope", "type": "Directory"}}]});
    let mut world = World::new(pod_with("p", spec));
    let mut tries = Vec::new();
    while world.now_ms < 130_000 {
        world.fail.insert(Work::Prepare, Done::failed("no"));
        let asked = world.asked.len();
        let wake = world.settle().wake_at.0;
        if world.asked[asked..].contains(&Action::Prepare) {
            tries.push(world.now_ms);
        }
        world.now_ms = wake.max(world.now_ms + 1);
    }
    assert_eq!(tries[..5], [0, 500, 1500, 3500, 7500]);
    assert_eq!(world.waiting("c").0, "ContainerCreating");
    let said = world.said("FailedMount");
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with("Unable to attach or mount volumes: unmounted volumes=[v]"));
    world.fail.clear();
    world.pass(130);
    assert!(world.is_up("c"));
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

#[test]
fn two_containers_start_one_after_the_other_in_order() {
    let two = json!([{"name": "b", "image": "t:1"}, {"name": "a", "image": "t:2"}]);
    let mut world = World::new(pod_with("p", json!({"containers": two})));
    world.settle();
    let order: Vec<_> = world.starts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(order, ["b", "a"]);
    let names: Vec<_> = world
        .status()
        .container_statuses
        .iter()
        .flatten()
        .map(|s| s.name.clone())
        .collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn a_foreign_condition_is_kept_and_transition_times_move_only_with_the_status() {
    let mut world = running();
    let before = world.status().conditions.clone().unwrap();
    let mut object = world.pod.object.tree().clone();
    object["status"] = json!({"conditions": [{"type": "example.com/x", "status": "True"}]});
    world.pod = crate::testing::pod_from(object);
    world.pass(30);
    let after = world.status().conditions.clone().unwrap();
    assert_eq!(after[..5], before[..]);
    assert_eq!(after[5].type_, "example.com/x");
}

/// Something that happens in a random history.
#[derive(Debug, Clone)]
enum Happening {
    Pass(i64),
    Crash(usize, i32),
    Vanish(usize),
    StayCreated(usize),
    RestartAgent(bool),
    NewImage,
    Delete(i64),
    FailStart,
    FailSandbox,
    FailVolumes,
    Stranger,
    PrePull(usize),
    FailPrePull,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (1..400_i64).prop_map(Happening::Pass),
        (0..6_usize, 0..3_i32).prop_map(|(which, code)| Happening::Crash(which, code)),
        (0..6_usize).prop_map(Happening::Vanish),
        (0..6_usize).prop_map(Happening::StayCreated),
        any::<bool>().prop_map(Happening::RestartAgent),
        Just(Happening::NewImage),
        (0..40_i64).prop_map(Happening::Delete),
        Just(Happening::FailStart),
        Just(Happening::FailSandbox),
        Just(Happening::FailVolumes),
        Just(Happening::Stranger),
        (0..3_usize).prop_map(Happening::PrePull),
        Just(Happening::FailPrePull),
    ]
}

fn spec_of(policy: &str, image: &str) -> serde_json::Value {
    json!({"restartPolicy": policy, "containers": [{"name": "c", "image": image}, {"name": "d", "image": "t:9"}]})
}

fn happen(world: &mut World, policy: &str, happening: &Happening) {
    let pick = |world: &World, index: usize| {
        let count = world.containers.len();
        (count > 0).then(|| world.containers[index % count].id.clone())
    };
    match happening {
        Happening::Pass(seconds) => world.pass(*seconds),
        Happening::Crash(index, code) => {
            if let Some(id) = pick(world, *index) {
                world.end(&id, *code);
            }
        }
        Happening::Vanish(index) => {
            if let Some(id) = pick(world, *index) {
                world.containers.retain(|c| c.id != id);
            }
        }
        Happening::StayCreated(index) => {
            let id = pick(world, *index);
            let sandbox = |c: &ContainerView| {
                c.labels.get(labels::TYPE).map(String::as_str) == Some("podsandbox")
            };
            if let Some(found) = world
                .containers
                .iter_mut()
                .find(|c| Some(&c.id) == id.as_ref() && !sandbox(c))
            {
                found.state = ContainerState::Created;
            }
        }
        Happening::RestartAgent(same_boot) => world.restart_agent(*same_boot),
        Happening::NewImage => {
            let life = world.pod.life;
            world.pod = pod_with("p", spec_of(policy, &format!("t:{}", world.now_ms)));
            world.pod.life = life;
        }
        Happening::Delete(grace) => world.delete(*grace),
        Happening::FailStart => {
            let failure = Done::Failed {
                reason: "CreateContainerError".into(),
                message: "no".into(),
            };
            world.fail.insert(Work::Start("c".into()), failure);
        }
        Happening::FailSandbox => {
            world.fail.insert(Work::Sandbox, Done::failed("no"));
        }
        Happening::FailVolumes => {
            world.fail.insert(Work::Prepare, Done::failed("no"));
        }
        Happening::PrePull(count) => {
            let image = |index| (format!("next:{index}"), "Always".to_owned());
            let images = (0..*count).map(image).collect();
            let request = muster_model::pre_pull::Request {
                revision: format!("r{count}"),
                images,
            };
            world.ask(Some(&request.text()));
        }
        Happening::FailPrePull => {
            world
                .fail
                .insert(Work::PrePull("next:0".into()), Done::failed("no"));
        }
        Happening::Stranger => {
            let Some(mut other) = world.containers.first().cloned() else {
                return;
            };
            other.id = crate::runtime::ContainerId("stranger".into());
            other
                .labels
                .insert(labels::POD_UID.into(), "another".into());
            world.containers.retain(|c| c.id != other.id);
            world.containers.push(other);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Safety of the step over random histories: at most one of each container runs, other pods' containers are never
    /// touched, asking again with nothing changed wants nothing new, and a phase never goes back from an end.
    #[test]
    fn a_step_is_safe_whatever_happens(
        policy in prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")],
        history in prop::collection::vec(happening(), 1..24),
    ) {
        let mut world = World::new(pod_with("p", spec_of(policy, "t:1")));
        let mut ended: Option<String> = None;
        for happening in &history {
            happen(&mut world, policy, happening);
            if world.over {
                break;
            }
            world.settle();
            for name in ["c", "d", "POD"] {
                let of_name = |c: &&ContainerView| {
                    c.labels.get(labels::CONTAINER_NAME).map(String::as_str) == Some(name) && c.id.0 != "stranger"
                };
                let up = world.containers.iter().filter(of_name).filter(|c| is_running(c)).count();
                prop_assert!(up <= 1, "{up} of {name} run after {happening:?}");
            }
            let again = step(&world.pod, &world.view(), &world.memory, world.now());
            prop_assert_eq!(&again.actions, &[]);
            prop_assert_eq!(&again.memory, &world.memory);
            let touched = world.asked.iter().any(|action| match action {
                Action::Stop { id, .. } | Action::Remove { id } => id.0 == "stranger",
                _ => false,
            });
            prop_assert!(!touched, "another pod's container was touched");
            let phase = world.status().phase.clone().unwrap_or_default();
            if let Some(ended) = &ended {
                prop_assert_eq!(&phase, ended);
            }
            if matches!(phase.as_str(), "Succeeded" | "Failed") {
                ended = Some(phase);
            }
        }
    }

    /// Progress: left alone, a pod that always restarts runs again within the longest delay, and a deleted one goes.
    #[test]
    fn a_pod_left_alone_comes_up_and_a_deleted_one_goes(history in prop::collection::vec(happening(), 1..16)) {
        let mut world = World::new(pod_with("p", spec_of("Always", "t:1")));
        for happening in &history {
            happen(&mut world, "Always", happening);
            world.settle();
        }
        world.fail.clear();
        if world.pod.life == Life::Wanted {
            world.pass(400);
            prop_assert!(world.is_up("c") && world.is_up("d"), "{:?}", world.status());
            world.delete(1);
        }
        world.pass(60);
        prop_assert!(world.over);
        prop_assert!(world.containers.iter().all(|c| c.id.0 == "stranger"));
    }
}

#[test]
fn images_are_named_by_tag_and_digest() {
    let mut world = world();
    world.settle();
    let mut view = image("t:1");
    view.digests = vec!["repo@sha256:feed".into()];
    let (timing, now) = (world.pod.host.timing.clone(), world.now());
    let outcome = super::super::actions::Outcome {
        work: Work::Image("t:1".into()),
        done: Done::Image(view),
    };
    world.memory.note(outcome, &timing, now);
    world.settle();
    assert_eq!(world.of("c").image_id, "docker-pullable://repo@sha256:feed");
}
