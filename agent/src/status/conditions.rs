//! The conditions of a pod (spec/node-agent.md 20.2).

use muster_model::k8s::api::core::v1::{ContainerStatus, PodCondition};
use muster_model::pre_pull;
use muster_model::reason::condition;

use super::time;
use crate::spec;
use crate::worker::{Draft, Stage, stage};

/// The words of a condition that does not hold.
struct Gap {
    reason: String,
    message: Option<String>,
}

pub(super) fn conditions(
    draft: &Draft<'_>,
    containers: &[ContainerStatus],
    phase: &str,
) -> Vec<PodCondition> {
    let pod = draft.pod;
    let sandbox_ready = match spec::needs_sandbox(pod) {
        true => {
            let sandbox = draft.seen.running_sandbox();
            sandbox.is_some_and(|s| {
                pod.host_network() || s.ip.as_deref().is_some_and(|ip| !ip.is_empty())
            })
        }
        false => draft.memory.volumes.ready_at.is_some() && stage(draft) == Stage::Running,
    };
    let unready: Vec<&str> = containers
        .iter()
        .filter(|c| !c.ready)
        .map(|c| c.name.as_str())
        .collect();
    let containers_gap = match phase {
        "Succeeded" => Some(Gap {
            reason: "PodCompleted".into(),
            message: None,
        }),
        "Failed" => Some(Gap {
            reason: "PodFailed".into(),
            message: None,
        }),
        _ if !unready.is_empty() => Some(Gap {
            reason: "ContainersNotReady".into(),
            message: Some(format!(
                "containers with unready status: [{}]",
                unready.join(" ")
            )),
        }),
        _ => None,
    };
    let ready_gap = containers_gap.as_ref().map(|gap| Gap {
        reason: gap.reason.clone(),
        message: gap.message.clone(),
    });
    let ready_gap = ready_gap.or_else(|| gates_gap(draft));
    let wanted = [
        (
            condition::POD_READY_TO_START_CONTAINERS,
            sandbox_ready,
            None,
        ),
        (
            condition::INITIALIZED,
            true,
            (phase == "Succeeded").then(|| Gap {
                reason: "PodCompleted".into(),
                message: None,
            }),
        ),
        (condition::READY, ready_gap.is_none(), ready_gap),
        (
            condition::CONTAINERS_READY,
            containers_gap.is_none(),
            containers_gap,
        ),
        (condition::POD_SCHEDULED, true, None),
    ];
    let mut conditions: Vec<PodCondition> = Vec::with_capacity(wanted.len());
    for (type_, holds, gap) in wanted {
        let status = if holds { "True" } else { "False" };
        let before = draft
            .memory
            .last
            .conditions
            .iter()
            .flatten()
            .find(|c| c.type_ == type_ && c.status == status);
        conditions.push(PodCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            last_transition_time: before
                .and_then(|c| c.last_transition_time.clone())
                .or_else(|| Some(time(draft.now.wall))),
            reason: gap.as_ref().map(|gap| gap.reason.clone()),
            message: gap.and_then(|gap| gap.message),
            observed_generation: pod.pod.metadata.generation,
            ..PodCondition::default()
        });
    }
    let own = conditions.len();
    conditions.extend(images_pulled(draft));
    // What others set is theirs.
    let foreign = pod
        .pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    let foreign: Vec<&PodCondition> = foreign
        .filter(|c| c.type_ != pre_pull::CONDITION)
        .filter(|c| !conditions[..own].iter().any(|own| own.type_ == c.type_))
        .collect();
    conditions.extend(foreign.into_iter().cloned());
    conditions
}

/// How far the images of the pod's next revision are, where somebody asked. A pod that ends pulls nothing more: what it
/// said last stands.
fn images_pulled(draft: &Draft<'_>) -> Option<PodCondition> {
    let last = draft.memory.last.conditions.iter().flatten();
    let before = last.into_iter().find(|c| c.type_ == pre_pull::CONDITION);
    if stage(draft) == Stage::Ending {
        return before.cloned();
    }
    let (status, reason, message) = draft.memory.pre_pull.as_ref()?.answer()?.condition();
    let since = before.filter(|before| before.status == status);
    Some(PodCondition {
        type_: pre_pull::CONDITION.to_owned(),
        status: status.to_owned(),
        last_transition_time: since
            .and_then(|before| before.last_transition_time.clone())
            .or_else(|| Some(time(draft.now.wall))),
        reason: Some(reason.to_owned()),
        message: Some(message),
        observed_generation: draft.pod.pod.metadata.generation,
        ..PodCondition::default()
    })
}

fn gates_gap(draft: &Draft<'_>) -> Option<Gap> {
    let present = draft
        .pod
        .pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let gates = draft
        .pod
        .spec()
        .readiness_gates
        .iter()
        .flatten()
        .map(|gate| gate.condition_type.as_str());
    let messages: Vec<String> = gates
        .filter_map(
            |gate| match present.into_iter().flatten().find(|c| c.type_ == gate) {
                None => Some(format!(
                    "corresponding condition of pod readiness gate \"{gate}\" does not exist."
                )),
                Some(c) if c.status != "True" => Some(format!(
                    "the status of pod readiness gate \"{gate}\" is not \"True\", but {}",
                    c.status
                )),
                Some(_) => None,
            },
        )
        .collect();
    let message = (!messages.is_empty()).then(|| messages.join(", "))?;
    Some(Gap {
        reason: "ReadinessGatesNotReady".into(),
        message: Some(message),
    })
}
