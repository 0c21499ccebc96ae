//! The part of the pure step that has running containers probed (spec/node-agent.md 19, 26.5).

use std::collections::BTreeSet;
use std::time::Duration;

use muster_model::k8s::api::core::v1::{Container, ContainerStatus, PodStatus};

use super::actions::{Action, ProbeOrder, Work};
use super::step::{Draft, Stage, stage};
use crate::facts::PodFacts;
use crate::moment::whole_seconds;
use crate::probe::state::{Before, ContainerProbes};
use crate::runtime::{ContainerId, ContainerState, ContainerView};
use crate::spec;

/// Begins the probes of containers that have come, ends those of containers that went.
pub(super) fn observe(draft: &mut Draft<'_>) {
    let (pod, seen, now) = (draft.pod, draft.seen, draft.now);
    let mut running = BTreeSet::new();
    for container in pod.containers() {
        let Some(view) = seen.newest(&container.name) else {
            continue;
        };
        let ContainerState::Running { started_at, .. } = view.state else {
            continue;
        };
        running.insert(&view.id);
        if draft.memory.probes.contains_key(&view.id) {
            continue;
        }
        let spread = spec::fnv32(format!("{}/{}", pod.uid, container.name).as_bytes());
        let before = before(draft, container, view);
        let probes = ContainerProbes::begin(container, started_at, before, spread, now);
        if !probes.is_empty() {
            draft.memory.probes.insert(view.id.clone(), probes);
        }
    }
    draft.memory.probes.retain(|id, _| running.contains(id));
}

/// What was last reported of this very container, by this agent or, where it lost its memory, as the server kept it.
fn before(draft: &Draft<'_>, container: &Container, view: &ContainerView) -> Before {
    let id = format!("docker://{}", view.id.0);
    let find = |status: &PodStatus| -> Option<ContainerStatus> {
        let mut all = status.container_statuses.iter().flatten();
        all.find(|s| s.name == container.name && s.container_id.as_deref() == Some(&id))
            .cloned()
    };
    let reported = find(&draft.memory.last).or_else(|| find(draft.pod.pod.status.as_ref()?));
    let ContainerState::Running { started_at, .. } = view.state else {
        return Before::default();
    };
    let same_start = |status: &ContainerStatus| {
        let running = status.state.as_ref()?.running.as_ref()?;
        Some(running.started_at.as_ref()?.0 == whole_seconds(started_at))
    };
    match reported.filter(|status| same_start(status) == Some(true)) {
        Some(status) => Before {
            started: status.started == Some(true),
            ready: status.ready,
        },
        None => Before::default(),
    }
}

/// Whether probes say otherwise of a container in one status than in the other.
pub(super) fn told_otherwise(pod: &PodFacts, then: &PodStatus, now: &PodStatus) -> bool {
    let told = |status: &PodStatus, container: &Container| {
        let mut all = status.container_statuses.iter().flatten();
        let found = all.find(|status| status.name == container.name);
        found.map_or((false, false), |status| {
            let started = container.startup_probe.is_some() && status.started == Some(true);
            (status.ready, started)
        })
    };
    pod.containers()
        .iter()
        .filter(|container| {
            container.startup_probe.is_some() || container.readiness_probe.is_some()
        })
        .any(|container| told(then, container) != told(now, container))
}

/// Has probed what is due.
pub(super) fn plan(draft: &mut Draft<'_>) {
    if draft.memory.probes.is_empty() {
        return;
    }
    let ending = stage(draft) != Stage::Running;
    let pod_ip = draft.pod_ip();
    for container in draft.pod.containers() {
        let Some(view) = draft.seen.newest(&container.name) else {
            continue;
        };
        let (id, memory) = (&view.id, &mut draft.memory);
        let Some(probes) = memory.probes.get_mut(id) else {
            continue;
        };
        let in_flight = &memory.in_flight;
        let running = |kind| in_flight.contains(&Work::Probe(id.clone(), kind));
        let due = probes.due(running, ending, draft.now.mono);
        for kind in due.now {
            draft.act(Action::Probe(Box::new(ProbeOrder {
                container: container.name.clone(),
                id: id.clone(),
                kind,
                pod_ip: pod_ip.clone(),
            })));
        }
        if let Some(next) = due.next {
            draft.wake(next);
        }
    }
}

/// Why a running container is to be killed, if a probe says so, and within which grace.
pub(super) fn verdict(
    draft: &Draft<'_>,
    container: &Container,
    id: &ContainerId,
) -> Option<(String, Duration)> {
    let kind = draft.memory.probes.get(id)?.failed()?;
    let mut message = format!("Container {} failed {} probe", container.name, kind.name());
    if draft.pod.restart_policy() != "Never" {
        message.push_str(", will be restarted");
    }
    let own = kind
        .of(container)
        .and_then(|probe| probe.termination_grace_period_seconds);
    let grace = own.map_or_else(
        || spec::own_grace(draft.pod),
        |seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0).max(1)),
    );
    Some((message, grace))
}

#[cfg(test)]
#[path = "probes_tests.rs"]
mod tests;
