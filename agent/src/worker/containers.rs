//! The part of the pure step that keeps the regular containers running (spec/node-agent.md 8, 11.5, 16, 17).

use std::time::Duration;

use muster_model::k8s::api::core::v1::Container;

use super::actions::{Action, EventNote, StartOrder, Work};
use super::memory::WorkerMemory;
use super::probes;
use super::restarts::{self, Restart};
use super::sandbox::Footing;
use super::step::Draft;
use super::view::{attempt, end_of, is_running};
use crate::images;
use crate::moment::Mono;
use crate::runtime::labels;
use crate::runtime::{ContainerId, ContainerState, ContainerView};
use crate::spec;

/// Deaths within this time of the engine's stop are the engine's, not the container's (spec/node-agent.md 28).
const ENGINE_STOP_SECONDS: i64 = 10;

/// What a container needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    /// It is as it should be.
    Nothing,
    /// Run it. `ended`: the dead container whose back-off the start counts against.
    Start {
        attempt: u32,
        leftover: Option<ContainerId>,
        ended: Option<ContainerId>,
    },
    /// It ended and rests.
    Rest {
        until: Mono,
        delay: Duration,
        id: ContainerId,
    },
    /// It runs and must not.
    Kill {
        id: ContainerId,
        message: String,
        grace: Duration,
    },
    /// The runtime is busy with it.
    Wait,
}

/// Whether anything runs or would run in a sandbox.
pub(super) fn any_to_run(draft: &Draft<'_>) -> bool {
    draft.pod.containers().iter().any(|container| {
        let runs = draft.seen.newest(&container.name).is_some_and(is_running);
        runs || wish(draft, container, None) != Wish::Nothing
    })
}

/// Whether the container is resting after an end, and how long that rest is in all. For the status.
pub(crate) fn resting(draft: &Draft<'_>, container: &Container) -> Option<Duration> {
    let sandbox = draft
        .seen
        .running_sandbox()
        .map(|sandbox| sandbox.id.clone());
    match wish(draft, container, sandbox.as_ref()) {
        Wish::Rest { delay, .. } => Some(delay),
        _ => None,
    }
}

/// The restart count of the next container of this name. Labels may be gone with the containers that carried them, so
/// it is never below what was reported.
fn next_attempt(draft: &Draft<'_>, name: &str) -> u32 {
    let memory = &draft.memory;
    let seen = draft
        .seen
        .containers
        .get(name)
        .into_iter()
        .flatten()
        .map(|c| attempt(c) + 1)
        .max();
    let vanished = memory.vanished.get(name).map(|gone| gone.attempt + 1);
    let reported = reported_attempt(memory, name).map(|count| count + 1);
    seen.or(vanished).max(reported).unwrap_or(0)
}

/// The last reported restart count, of a container that was ever made.
pub(super) fn reported_attempt(memory: &WorkerMemory, name: &str) -> Option<u32> {
    let statuses = memory
        .last
        .container_statuses
        .as_deref()
        .unwrap_or_default();
    let status = statuses.iter().find(|status| status.name == name)?;
    let was_made = status
        .container_id
        .as_deref()
        .is_some_and(|id| !id.is_empty());
    was_made.then(|| u32::try_from(status.restart_count).unwrap_or(0))
}

pub(super) fn wish(
    draft: &Draft<'_>,
    container: &Container,
    sandbox: Option<&ContainerId>,
) -> Wish {
    let name = &container.name;
    let policy = draft.pod.restart_policy();
    let Some(newest) = draft.seen.newest(name) else {
        let ended = draft
            .memory
            .vanished
            .get(name)
            .map(|gone| gone.terminated.exit_code);
        if ended.is_some_and(|code| !restarts::wanted(policy, code)) {
            return Wish::Nothing;
        }
        return Wish::Start {
            attempt: next_attempt(draft, name),
            leftover: None,
            ended: None,
        };
    };
    match &newest.state {
        ContainerState::Gone => Wish::Wait,
        ContainerState::Created => Wish::Start {
            attempt: attempt(newest),
            leftover: Some(newest.id.clone()),
            ended: None,
        },
        ContainerState::Running { .. } if is_changed(newest, container) => Wish::Kill {
            id: newest.id.clone(),
            message: format!("Container {name} definition changed, will be restarted"),
            grace: spec::own_grace(draft.pod),
        },
        ContainerState::Running { .. } => match probes::verdict(draft, container, &newest.id) {
            Some((message, grace)) => Wish::Kill {
                id: newest.id.clone(),
                message,
                grace,
            },
            None => Wish::Nothing,
        },
        ContainerState::StartFailed { .. } | ContainerState::Exited { .. } => {
            let (finished, exit_code) = end_of(newest).unwrap_or((newest.created_at, 0));
            let changed = is_changed(newest, container);
            if !changed && !restarts::wanted(policy, exit_code) {
                return Wish::Nothing;
            }
            let start = |ended| Wish::Start {
                attempt: next_attempt(draft, name),
                leftover: None,
                ended,
            };
            let with_engine = draft.seen.engine_stopped_at.is_some_and(|stopped| {
                (finished.as_second() - stopped.as_second()).abs() <= ENGINE_STOP_SECONDS
            });
            let former = newest
                .labels
                .get(labels::SANDBOX_ID)
                .filter(|id| !id.is_empty());
            let lost_its_sandbox =
                former.is_some_and(|former| sandbox.is_some_and(|now| now.0 != *former));
            if changed || with_engine || lost_its_sandbox {
                return start(None);
            }
            let died = draft
                .memory
                .deaths
                .get(&newest.id)
                .copied()
                .unwrap_or(draft.now.mono);
            let hash = spec::hash(container);
            let entry = draft.memory.backoff.get(name);
            match restarts::decide(
                entry,
                &hash,
                died,
                draft.pod.restart_max(),
                &draft.pod.host.timing,
                draft.now.mono,
            ) {
                Restart::Now(_) => start(Some(newest.id.clone())),
                Restart::Later { at, delay } => Wish::Rest {
                    until: at,
                    delay,
                    id: newest.id.clone(),
                },
            }
        }
    }
}

/// Whether the container is another than the spec wants. Only the image may change in place; an unknown labelling is
/// left as it is (spec/node-agent.md 9).
fn is_changed(seen: &ContainerView, wanted: &Container) -> bool {
    let label = |key: &str| seen.labels.get(key).map(String::as_str);
    label(labels::FORMAT) == Some(labels::FORMAT_VERSION)
        && label(labels::HASH).is_some_and(|hash| hash != spec::hash(wanted))
}

/// Sees to every container, in the order of the spec.
pub(super) fn plan(draft: &mut Draft<'_>, footing: &Footing) {
    let pod = draft.pod;
    let sandbox = match footing {
        Footing::Running(id) => Some(id.clone()),
        Footing::NotNeeded | Footing::Wait => None,
    };
    let mut may_start = draft.memory.kept
        && draft.memory.volumes.ready_at.is_some()
        && *footing != Footing::Wait
        && !draft
            .memory
            .in_flight
            .iter()
            .any(|work| matches!(work, Work::Start(_)));
    for container in pod.containers() {
        let name = &container.name;
        if draft.memory.in_flight.contains(&Work::Start(name.clone())) {
            continue;
        }
        match wish(draft, container, sandbox.as_ref()) {
            Wish::Nothing => {
                draft.memory.trouble.remove(name);
            }
            Wish::Wait => draft.wake(draft.now.mono.plus(Duration::from_secs(1))),
            Wish::Kill { id, message, grace } => draft.stop_container(name, &id, grace, message),
            Wish::Rest { until, id, .. } => {
                if draft.memory.backoff_told.insert(id) {
                    let message = format!(
                        "Back-off restarting failed container {name} in pod {}",
                        pod.full_name()
                    );
                    draft.event(EventNote::warning(Some(name), "BackOff", message));
                }
                draft.wake(until);
            }
            Wish::Start {
                attempt,
                leftover,
                ended,
            } => {
                if let Some(trouble) = draft.memory.trouble.get(name)
                    && draft.now.mono < trouble.retry_at
                {
                    draft.wake(trouble.retry_at);
                    continue;
                }
                let reference = container.image.clone().unwrap_or_default();
                let Some(image) = image_for(draft, container, &reference, attempt == 0) else {
                    continue;
                };
                if !may_start {
                    continue;
                }
                if let Some(id) = ended {
                    count_end(draft, container, &id);
                }
                let order = StartOrder {
                    container: name.clone(),
                    attempt,
                    leftover,
                    sandbox: sandbox.clone(),
                    pod_ip: draft.pod_ip(),
                    image,
                };
                draft.act(Action::Start(Box::new(order)));
                may_start = false;
            }
        }
    }
}

fn count_end(draft: &mut Draft<'_>, container: &Container, id: &ContainerId) {
    let died = draft
        .memory
        .deaths
        .get(id)
        .copied()
        .unwrap_or(draft.now.mono);
    let entry = draft.memory.backoff.get(&container.name);
    let (longest, hash) = (draft.pod.restart_max(), spec::hash(container));
    let decided = restarts::decide(
        entry,
        &hash,
        died,
        longest,
        &draft.pod.host.timing,
        draft.now.mono,
    );
    if let Restart::Now(next) = decided {
        draft.memory.backoff.insert(container.name.clone(), next);
    }
}

/// The image when it is here; otherwise asks for it, or waits out its back-off. `first`: of the first start in this pod.
fn image_for(
    draft: &mut Draft<'_>,
    container: &Container,
    reference: &str,
    first: bool,
) -> Option<crate::runtime::ImageView> {
    let image = draft.memory.images.entry(reference.to_owned()).or_default();
    if let Some(ready) = &image.ready {
        return Some(ready.clone());
    }
    let work = Work::Image(reference.to_owned());
    if draft.memory.in_flight.contains(&work) {
        return None;
    }
    if let Some(trouble) = &mut image.trouble {
        let retry_at = trouble.retry_at();
        if draft.now.mono < retry_at {
            let flip_at = trouble.at.plus(images::ERROR_SHOWN);
            if trouble.reason == images::ERR_IMAGE_PULL && draft.now.mono >= flip_at {
                if !trouble.told {
                    trouble.told = true;
                    let message = format!("Back-off pulling image \"{reference}\"");
                    draft.event(EventNote::normal(Some(&container.name), "BackOff", message));
                    draft.event(EventNote::warning(
                        Some(&container.name),
                        "Failed",
                        "Error: ImagePullBackOff",
                    ));
                }
            } else if trouble.reason == images::ERR_IMAGE_PULL {
                draft.wake(flip_at);
            }
            draft.wake(retry_at);
            return None;
        }
    }
    draft.act(Action::EnsureImage {
        container: container.name.clone(),
        reference: reference.to_owned(),
        policy: images::policy(container),
        first,
    });
    None
}
