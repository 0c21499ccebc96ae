//! When a new revision counts as failed: what a pod shows, and on how many nodes.

use muster_model::k8s::api::core::v1::{ContainerStatus, Pod};
use muster_model::pod_status::{self, Phase};

use crate::control::OnFailure;
use crate::facts::DaemonFacts;
use crate::release::Release;
use crate::tally::Placements;
use crate::trouble;

/// What a container waits for when it will not come by itself, or not soon, and the fault is not the machine's: an engine
/// that does not answer (`RunContainerError`, `ContainerRuntimeUnavailable`) or a server out of reach
/// (`ConfigUnavailable`) tells nothing of the revision.
const BAD_WAITS: [&str; 6] = [
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
];
/// One restart may be the machine's doing: a reboot, an engine that was upgraded.
const RESTARTS_THAT_TELL: i32 = 2;
/// Nodes that a verdict names.
const NODES_NAMED: usize = 3;

/// Whether a pod that is not Ready shows that its revision is at fault: it failed, crashes, was killed by its probes, or
/// its image or configuration cannot be had. A pod that is merely slow does not.
pub(crate) fn of_pod(pod: &Pod) -> bool {
    if pod_status::is_ready(pod) {
        return false;
    }
    if pod_status::phase(pod) == Phase::Failed {
        return true;
    }
    let status = pod.status.as_ref();
    let init = status
        .and_then(|status| status.init_container_statuses.as_ref())
        .into_iter()
        .flatten();
    let containers = status
        .and_then(|status| status.container_statuses.as_ref())
        .into_iter()
        .flatten();
    init.chain(containers).any(of_container)
}

fn of_container(status: &ContainerStatus) -> bool {
    let state = status.state.as_ref();
    let waits_for = state
        .and_then(|state| state.waiting.as_ref())
        .and_then(|waiting| waiting.reason.as_deref());
    let ended_badly = |state: Option<&muster_model::k8s::api::core::v1::ContainerState>| {
        state
            .and_then(|state| state.terminated.as_ref())
            .is_some_and(|ended| ended.exit_code != 0)
    };
    let keeps_ending = !status.ready
        && status.restart_count >= RESTARTS_THAT_TELL
        && (ended_badly(state) || ended_badly(status.last_state.as_ref()));
    keeps_ending || waits_for.is_some_and(|reason| BAD_WAITS.contains(&reason))
}

/// In words, what is wrong with a failing pod.
pub(crate) fn words(pod: &Pod) -> String {
    let trouble = trouble::of_pod(pod);
    if trouble.is_empty() {
        "a container ended and is started again".to_owned()
    } else {
        trouble
    }
}

/// Why the current revision counts as failed; `None`: it does not, or nobody asked.
pub(crate) fn judge(
    daemon: &DaemonFacts,
    placements: &Placements,
    release: &Release<'_>,
) -> Option<String> {
    let (control, course) = (&daemon.control, &daemon.course);
    if control.on_failure == OnFailure::Off || course.proven || course.failed.is_some() {
        return None;
    }
    let (failing, desired) = (placements.failing_now(), placements.tally().desired);
    // Where it fails it is in the way of its being tried on more nodes: those that may try it are all there will ever be.
    let threshold = control
        .failure_threshold
        .map_or(1, |amount| amount.scale_up(desired))
        .clamp(1, release.most_tried(placements));
    if failing.len() < threshold {
        return None;
    }
    let told = |node: &crate::facts::NodeName| {
        let why = placements
            .get(node)
            .and_then(|placement| placement.failing.as_ref());
        format!("{node}: {}", why.map_or("", |failing| failing.why.as_str()))
    };
    let named: Vec<String> = failing.iter().take(NODES_NAMED).map(told).collect();
    let more = match failing.len().saturating_sub(NODES_NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    Some(format!(
        "it failed on {} of {desired} nodes ({}{more})",
        failing.len(),
        named.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn fails(status: Value) -> bool {
        of_pod(&serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap())
    }

    fn container(restarts: i32, ready: bool, state: Value, last_exit: i32) -> Value {
        json!({"containerStatuses": [{
            "name": "web", "image": "", "imageID": "", "ready": ready, "restartCount": restarts, "state": state,
            "lastState": {"terminated": {"exitCode": last_exit}},
        }]})
    }

    #[test]
    fn what_will_not_come_by_itself_fails_and_what_is_slow_or_the_machines_does_not() {
        let waits = |reason: &str| container(0, false, json!({"waiting": {"reason": reason}}), 0);
        for reason in [
            "CrashLoopBackOff",
            "ImagePullBackOff",
            "CreateContainerConfigError",
        ] {
            assert!(fails(waits(reason)), "{reason}");
        }
        for reason in [
            "ContainerCreating",
            "PodInitializing",
            "ErrImagePull",
            "RunContainerError",
            "ContainerRuntimeUnavailable",
            "ConfigUnavailable",
        ] {
            assert!(!fails(waits(reason)), "{reason}");
        }
        assert!(fails(json!({"phase": "Failed"})));
        assert!(!fails(json!({"phase": "Running"})));
    }

    #[test]
    fn one_restart_may_be_a_reboot_and_the_second_tells() {
        let running = || json!({"running": {}});
        assert!(!fails(container(1, false, running(), 137)));
        assert!(fails(container(2, false, running(), 137)));
        assert!(!fails(container(2, false, running(), 0)));
        assert!(!fails(container(2, true, running(), 137)));
    }

    #[test]
    fn a_ready_pod_never_fails() {
        let mut status = container(5, true, json!({"running": {}}), 1);
        status["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        assert!(!fails(status));
    }
}
