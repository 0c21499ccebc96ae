//! The status of a pod, from what the runtime shows (spec/node-agent.md 20).

mod conditions;

use muster_model::k8s::api::core::v1::{
    Container, ContainerState as StatusState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, HostIP, PodIP, PodStatus,
};
use muster_model::k8s::apimachinery::pkg::apis::meta::v1::Time;
use muster_model::time::Timestamp;

use crate::facts::Life;
use crate::images;
use crate::moment::whole_seconds;
use crate::probe::state::ContainerProbes;
use crate::runtime::{ContainerState, ContainerView};
use crate::worker::actions::Work;
use crate::worker::view::{attempt, end_of};
use crate::worker::{Draft, Stage, restarts, resting, stage};

/// Message of a pod past its `activeDeadlineSeconds`.
pub const DEADLINE_MESSAGE: &str = "Pod was active on the node longer than the specified deadline";
/// Message of a container that vanished.
pub const LOST_MESSAGE: &str = "The container could not be located when the pod was deleted.  The container used to be Running";
/// Message of a container that was never found when its pod ended.
pub const NEVER_FOUND_MESSAGE: &str =
    "The container could not be located when the pod was terminated";

/// The whole status.
pub(crate) fn pod_status(draft: &Draft<'_>) -> PodStatus {
    let (pod, memory) = (draft.pod, &draft.memory);
    let mut status = PodStatus {
        qos_class: Some(pod.qos_class.to_owned()),
        start_time: memory.start_time.map(Time),
        observed_generation: pod.pod.metadata.generation,
        ..PodStatus::default()
    };
    let addresses: Vec<&String> = pod.host.ips.iter().filter(|ip| !ip.is_empty()).collect();
    if !addresses.is_empty() {
        status.host_ip = addresses.first().map(|ip| (*ip).clone());
        status.host_ips = Some(
            addresses
                .iter()
                .map(|ip| HostIP { ip: (*ip).clone() })
                .collect(),
        );
    }
    if let Some(rejection) = &memory.rejection {
        status.phase = Some("Failed".into());
        status.reason = Some(rejection.reason.clone());
        status.message = Some(format!("Pod was rejected: {}", rejection.message));
        return status;
    }
    let ip = draft.pod_ip();
    let ip = if ip.is_empty() && stage(draft) != Stage::Running {
        memory.last.pod_ip.clone().unwrap_or_default()
    } else {
        ip
    };
    let anything_made = !draft.seen.containers.is_empty() || !draft.seen.sandboxes.is_empty();
    if !ip.is_empty() && (anything_made || !pod.host_network()) {
        status.pod_ips = Some(vec![PodIP { ip: ip.clone() }]);
        status.pod_ip = Some(ip);
    }
    let mut containers: Vec<ContainerStatus> = pod
        .containers()
        .iter()
        .map(|c| container_status(draft, c))
        .collect();
    containers.sort_by(|a, b| a.name.cmp(&b.name));
    let phase = phase(draft, &containers);
    if memory.deadline_exceeded {
        status.reason = Some("DeadlineExceeded".into());
        status.message = Some(DEADLINE_MESSAGE.into());
    }
    status.conditions = Some(conditions::conditions(draft, &containers, phase));
    status.phase = Some(phase.to_owned());
    status.container_statuses = (!containers.is_empty()).then_some(containers);
    status
}

fn container_status(draft: &Draft<'_>, container: &Container) -> ContainerStatus {
    let (pod, memory) = (draft.pod, &draft.memory);
    let name = &container.name;
    let newest = draft.seen.newest(name);
    let reported = memory
        .last
        .container_statuses
        .iter()
        .flatten()
        .find(|status| status.name == *name);
    let reported_count = reported.map_or(0, |status| status.restart_count);
    let stage = stage(draft);
    let vanished = memory
        .vanished
        .get(name)
        .map(|gone| terminated(gone.terminated.clone()));
    let predecessor = draft
        .seen
        .predecessor(name)
        .map(|view| terminated(terminated_of(draft, view)));
    let waiting = |reason: String, message: Option<String>| StatusState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(reason),
            message,
        }),
        ..StatusState::default()
    };
    let trouble =
        || why_waiting(draft, container).map(|(reason, message)| waiting(reason, Some(message)));
    let creating = || trouble().unwrap_or_else(|| waiting("ContainerCreating".into(), None));
    let will_restart =
        |exit_code| stage == Stage::Running && restarts::wanted(pod.restart_policy(), exit_code);
    let kept_last = || {
        let same = reported
            .filter(|r| newest.is_some_and(|n| r.container_id.as_deref() == Some(&id_text(n))));
        same.and_then(|r| r.last_state.clone())
            .filter(|state| *state != StatusState::default())
    };
    let (state, last_state) = match newest {
        None => match vanished {
            Some(gone)
                if !gone
                    .terminated
                    .as_ref()
                    .is_some_and(|t| will_restart(t.exit_code)) =>
            {
                (gone, None)
            }
            Some(gone) => (creating(), Some(gone)),
            None if stage == Stage::Ending && memory.released => (never_found(), None),
            None => (creating(), None),
        },
        Some(view) => match &view.state {
            ContainerState::Running { started_at, .. } => {
                let running = ContainerStateRunning {
                    started_at: Some(time(*started_at)),
                };
                let state = StatusState {
                    running: Some(running),
                    ..StatusState::default()
                };
                (state, predecessor.or(vanished).or_else(kept_last))
            }
            ContainerState::Exited { .. } | ContainerState::StartFailed { .. } => {
                let ended = terminated(terminated_of(draft, view));
                let exit_code = end_of(view).map_or(0, |(_, code)| code);
                match resting(draft, container).filter(|_| stage == Stage::Running) {
                    Some(delay) => {
                        let message = restarts::waiting_message(delay, name, &pod.full_name());
                        (
                            waiting("CrashLoopBackOff".into(), Some(message)),
                            Some(ended),
                        )
                    }
                    None if will_restart(exit_code) => match trouble() {
                        Some(waiting) => (waiting, Some(ended)),
                        None => (ended, predecessor.or(vanished).or_else(kept_last)),
                    },
                    None => (ended, predecessor.or(vanished).or_else(kept_last)),
                }
            }
            ContainerState::Created | ContainerState::Gone
                if stage == Stage::Ending && memory.released =>
            {
                (never_found(), predecessor)
            }
            ContainerState::Created | ContainerState::Gone => {
                (creating(), predecessor.or(vanished))
            }
        },
    };
    let running = state.running.is_some();
    // Without probes a container has started, and is ready, as soon as it runs.
    let probes = newest.and_then(|view| memory.probes.get(&view.id));
    let (image, image_id) = image_names(draft, container, newest, reported);
    let counted = newest.map_or(0, |view| i32::try_from(attempt(view)).unwrap_or(i32::MAX));
    ContainerStatus {
        name: name.clone(),
        ready: running && probes.is_none_or(ContainerProbes::ready),
        started: Some(running && probes.is_none_or(ContainerProbes::started)),
        restart_count: counted.max(reported_count),
        container_id: newest
            .map(id_text)
            .or_else(|| reported.and_then(|r| r.container_id.clone())),
        image,
        image_id,
        state: Some(state),
        last_state: Some(last_state.unwrap_or_default()),
        ..ContainerStatus::default()
    }
}

fn image_names(
    draft: &Draft<'_>,
    container: &Container,
    newest: Option<&ContainerView>,
    reported: Option<&ContainerStatus>,
) -> (String, String) {
    let wanted = container.image.clone().unwrap_or_default();
    let Some(view) = newest else {
        return (
            wanted,
            reported.map(|r| r.image_id.clone()).unwrap_or_default(),
        );
    };
    if let Some(named) = draft.memory.image_names.get(&view.image_id) {
        let image = if named.image.is_empty() {
            wanted
        } else {
            named.image.clone()
        };
        return (image, named.image_id.clone());
    }
    match reported
        .filter(|r| r.container_id.as_deref() == Some(&id_text(view)) && !r.image_id.is_empty())
    {
        Some(reported) => (reported.image.clone(), reported.image_id.clone()),
        None => (wanted, format!("docker://{}", view.image_id)),
    }
}

/// Why a container that is to run does not, beside its own end.
fn why_waiting(draft: &Draft<'_>, container: &Container) -> Option<(String, String)> {
    let memory = &draft.memory;
    if let Some(trouble) = memory.trouble.get(&container.name) {
        return Some((trouble.reason.clone(), trouble.message.clone()));
    }
    let reference = container.image.as_deref().unwrap_or_default();
    let trouble = memory.images.get(reference)?.trouble.as_ref()?;
    let backing_off = trouble.reason == images::ERR_IMAGE_PULL
        && draft.now.mono >= trouble.at.plus(images::ERROR_SHOWN)
        && draft.now.mono < trouble.retry_at();
    Some(if backing_off {
        let message = format!(
            "Back-off pulling image \"{reference}\": {}: {}",
            trouble.reason, trouble.message
        );
        (images::IMAGE_PULL_BACK_OFF.to_owned(), message)
    } else {
        (trouble.reason.clone(), trouble.message.clone())
    })
}

fn terminated(state: ContainerStateTerminated) -> StatusState {
    StatusState {
        terminated: Some(state),
        ..StatusState::default()
    }
}

fn never_found() -> StatusState {
    terminated(ContainerStateTerminated {
        exit_code: 137,
        reason: Some("ContainerStatusUnknown".into()),
        message: Some(NEVER_FOUND_MESSAGE.into()),
        ..ContainerStateTerminated::default()
    })
}

fn terminated_of(draft: &Draft<'_>, view: &ContainerView) -> ContainerStateTerminated {
    let words = draft
        .seen
        .messages
        .get(&view.id)
        .cloned()
        .filter(|text| !text.is_empty());
    let base = |exit_code: i32, reason: &str, started, finished, message: Option<String>| {
        ContainerStateTerminated {
            container_id: Some(id_text(view)),
            exit_code,
            reason: Some(reason.to_owned()),
            message: message.filter(|text| !text.is_empty()),
            started_at: Some(time(started)),
            finished_at: Some(time(finished)),
            signal: None,
        }
    };
    match &view.state {
        ContainerState::StartFailed { exit_code, message } => base(
            *exit_code,
            "ContainerCannotRun",
            view.created_at,
            view.created_at,
            Some(message.clone()),
        ),
        ContainerState::Exited {
            started_at,
            finished_at,
            exit_code,
            oom_killed,
            message,
        } => {
            let reason = match exit_code {
                _ if *oom_killed => "OOMKilled",
                0 => "Completed",
                _ => "Error",
            };
            base(
                *exit_code,
                reason,
                *started_at,
                *finished_at,
                words.or_else(|| Some(message.clone())),
            )
        }
        _ => ContainerStateTerminated::default(),
    }
}

fn id_text(view: &ContainerView) -> String {
    format!("docker://{}", view.id.0)
}

fn time(time: Timestamp) -> Time {
    Time(whole_seconds(time))
}

fn phase(draft: &Draft<'_>, containers: &[ContainerStatus]) -> &'static str {
    let last = draft.memory.last.phase.as_deref();
    match last {
        Some("Succeeded") => return "Succeeded",
        Some("Failed") => return "Failed",
        _ if draft.memory.deadline_exceeded => return "Failed",
        _ => {}
    }
    let computed = computed_phase(draft, containers);
    // A pod that ran does not go back to Pending while something of the same sandbox is there.
    if computed == "Pending" && last == Some("Running") && !draft.seen.containers.is_empty() {
        "Running"
    } else {
        computed
    }
}

fn computed_phase(draft: &Draft<'_>, containers: &[ContainerStatus]) -> &'static str {
    let (mut running, mut stopped, mut failed, mut waiting) = (0, 0, 0, 0);
    for status in containers {
        let state = status.state.as_ref();
        let ended = |state: Option<&StatusState>| {
            state.and_then(|s| s.terminated.as_ref().map(|t| t.exit_code))
        };
        if state.is_some_and(|s| s.running.is_some()) {
            running += 1;
        } else if let Some(exit_code) = ended(state).or_else(|| ended(status.last_state.as_ref())) {
            stopped += 1;
            failed += usize::from(exit_code != 0);
        } else {
            waiting += 1;
        }
    }
    let ending = draft.pod.life != Life::Wanted || draft.memory.ending_since.is_some();
    let starting = draft
        .memory
        .in_flight
        .iter()
        .any(|work| matches!(work, Work::Start(_)));
    if waiting > 0 {
        "Pending"
    } else if running > 0 {
        "Running"
    } else if stopped > 0 {
        match draft.pod.restart_policy() {
            // What is being started may run in a moment: the pod is not over, and no successor may be made yet.
            _ if starting => "Running",
            _ if ending => {
                if failed == 0 {
                    "Succeeded"
                } else {
                    "Failed"
                }
            }
            "Always" => "Running",
            _ if failed == 0 => "Succeeded",
            "Never" => "Failed",
            _ => "Running",
        }
    } else {
        "Pending"
    }
}
