//! The pure step of a pod worker: from the pod, what the runtime shows, what is remembered and the time, to what to do
//! next. It acts on nothing and assumes nothing done: what it asked for is 'in flight' until it is told the outcome,
//! and the next look at the runtime is the truth.
//!
//! **Invariants.** No action is begun while one of the same identity is in flight. Only containers of this pod are
//! named. A pod seen to end is never started again. Asked again with nothing changed, it wants nothing new.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_model::k8s::api::core::v1::{Container, ContainerStateTerminated, PodStatus};

use super::actions::{Action, EventNote, Work};
use super::memory::{Vanished, WorkerMemory};
use super::view::{PodView, attempt, end_of};
use super::{containers, pre_pull, probes, restarts, sandbox, terminate};
use crate::facts::{Life, PodFacts};
use crate::moment::{Moment, Mono, whole_seconds};
use crate::runtime::ContainerState;
use crate::runtime::labels;
use crate::{spec, status};

/// How long after a change of status its checkpoint is written: a burst is written once. What probes came to is written
/// at once: nothing else can tell it to an agent that was killed.
const KEEP_DELAY: Duration = Duration::from_secs(1);

/// What a step comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What to do now. Each is in flight from here on.
    pub actions: Vec<Action>,
    /// What to record on the pod.
    pub events: Vec<EventNote>,
    /// The pod's status.
    pub status: PodStatus,
    /// What to hand to the next step.
    pub memory: WorkerMemory,
    /// When to step again though nothing happened.
    pub wake_at: Mono,
    /// Nothing of the pod is left: the worker may go.
    pub over: bool,
}

/// A step being made.
pub(crate) struct Draft<'a> {
    pub(crate) pod: &'a PodFacts,
    pub(crate) seen: &'a PodView,
    pub(crate) now: Moment,
    pub(crate) memory: WorkerMemory,
    pub(super) actions: Vec<Action>,
    pub(super) events: Vec<EventNote>,
    wake_at: Option<Mono>,
}

impl<'a> Draft<'a> {
    /// A draft that wants nothing yet.
    pub(crate) fn new(
        pod: &'a PodFacts,
        seen: &'a PodView,
        memory: &WorkerMemory,
        now: Moment,
    ) -> Self {
        let memory = memory.clone();
        Self {
            pod,
            seen,
            now,
            memory,
            actions: Vec::new(),
            events: Vec::new(),
            wake_at: None,
        }
    }

    /// Asks for an action unless it is in flight.
    pub(super) fn act(&mut self, action: Action) {
        if let Some(work) = action.work()
            && !self.memory.in_flight.insert(work)
        {
            return;
        }
        self.actions.push(action);
    }

    /// As [`Draft::act`], but rests after a failure.
    pub(super) fn act_after_trouble(&mut self, action: Action) {
        match self.memory.trouble_until {
            Some(retry_at) if self.now.mono < retry_at => self.wake(retry_at),
            _ => self.act(action),
        }
    }

    /// Breaks off what is in flight and such; it is forgotten at once.
    pub(super) fn cancel(&mut self, such: impl Fn(&Work) -> bool) {
        let in_flight = std::mem::take(&mut self.memory.in_flight);
        let (cancelled, kept) = in_flight.into_iter().partition(such);
        self.memory.in_flight = kept;
        self.actions
            .extend(BTreeSet::into_iter(cancelled).map(Action::Cancel));
    }

    pub(super) fn event(&mut self, note: EventNote) {
        self.events.push(note);
    }

    pub(super) fn wake(&mut self, at: Mono) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// The pod's address; empty when there is none (yet).
    pub(crate) fn pod_ip(&self) -> String {
        if self.pod.host_network() {
            return self.pod.host.ip().to_owned();
        }
        self.seen
            .running_sandbox()
            .and_then(|sandbox| sandbox.ip.clone())
            .unwrap_or_default()
    }
}

/// Decides what a pod needs next.
pub fn step(pod: &PodFacts, seen: &PodView, memory: &WorkerMemory, now: Moment) -> Step {
    let mut draft = Draft::new(pod, seen, memory, now);
    draft
        .memory
        .start_time
        .get_or_insert(whole_seconds(now.wall));
    observe(&mut draft);
    probes::observe(&mut draft);
    let mut over = false;
    match stage(&draft) {
        Stage::Ending => over = terminate::plan(&mut draft),
        Stage::Finished => {
            terminate::stop_all(&mut draft, spec::own_grace(pod));
        }
        Stage::Running => run(&mut draft),
    }
    probes::plan(&mut draft);
    pre_pull::plan(&mut draft);
    let status = status::pod_status(&draft);
    keep(&mut draft, &status);
    if stage(&draft) == Stage::Running
        && matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
    {
        // It has just ended: what it leaves running is stopped now.
        draft.wake(now.mono);
    }
    let wake_at = draft
        .wake_at
        .unwrap_or(Mono(i64::MAX))
        .min(now.mono.plus(resync(pod)));
    draft.memory.last = status.clone();
    Step {
        actions: draft.actions,
        events: draft.events,
        status,
        memory: draft.memory,
        wake_at,
        over,
    }
}

/// Where a pod stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is to run.
    Running,
    /// It ended, was rejected or ran out of time; the object stays.
    Finished,
    /// It is to go.
    Ending,
}

/// The stage, never going backwards.
pub(crate) fn stage(draft: &Draft<'_>) -> Stage {
    let memory = &draft.memory;
    let ended = matches!(memory.last.phase.as_deref(), Some("Succeeded" | "Failed"));
    if draft.pod.life != Life::Wanted || memory.ending_since.is_some() {
        Stage::Ending
    } else if ended || memory.rejection.is_some() || memory.deadline_exceeded {
        Stage::Finished
    } else {
        Stage::Running
    }
}

fn run(draft: &mut Draft<'_>) {
    if !draft.memory.kept {
        match draft.memory.keep_at {
            Some(at) if draft.now.mono < at => draft.wake(at),
            _ => draft.act(Action::Keep),
        }
    }
    volumes(draft);
    let footing = sandbox::plan(draft);
    containers::plan(draft, &footing);
}

fn volumes(draft: &mut Draft<'_>) {
    let timing = &draft.pod.host.timing;
    let volumes = &draft.memory.volumes;
    let refresh_at = volumes
        .ready_at
        .filter(|_| spec::has_live_volumes(draft.pod))
        .map(|at| at.plus(timing.resync));
    let due = match (&volumes.trouble, volumes.ready_at) {
        _ if volumes.stale => draft.now.mono,
        (Some((_, retry_at)), _) => *retry_at,
        (None, None) => draft.now.mono,
        (None, Some(_)) => match refresh_at {
            Some(at) => at,
            None => return,
        },
    };
    if draft.now.mono >= due {
        draft.act(Action::Prepare);
        if draft.memory.in_flight.contains(&Work::Prepare) {
            draft.memory.volumes.stale = false;
        }
    } else {
        draft.wake(due);
    }
    let overdue = draft
        .memory
        .volumes
        .failing_since
        .map(|since| since.plus(timing.volume_patience));
    if let Some(at) = overdue
        && draft.memory.volumes.ready_at.is_none()
        && !draft.memory.volumes.told
    {
        if draft.now.mono < at {
            return draft.wake(at);
        }
        draft.memory.volumes.told = true;
        let names: Vec<&str> = draft
            .pod
            .spec()
            .volumes
            .iter()
            .flatten()
            .map(|volume| volume.name.as_str())
            .collect();
        let message = format!(
            "Unable to attach or mount volumes: unmounted volumes=[{}], unattached volumes=[], failed to process \
             volumes=[]: timed out waiting for the condition",
            names.join(" ")
        );
        draft.event(EventNote::warning(None, "FailedMount", message));
    }
}

fn out_of_memory(container: &Container) -> String {
    let name = &container.name;
    let resources = container.resources.as_ref();
    let limit = resources
        .and_then(|resources| resources.limits.as_ref())
        .and_then(|limits| limits.get("memory"));
    match limit {
        Some(limit) => format!(
            "Container {name} was killed: it went over its memory limit of {}",
            limit.0
        ),
        None => format!("Container {name} was killed: there was no memory left"),
    }
}

/// Takes in what the look shows beside the newest states: deaths, containers without a trace, the deadline.
fn observe(draft: &mut Draft<'_>) {
    let (pod, seen, now) = (draft.pod, draft.seen, draft.now);
    let timing = &pod.host.timing;
    let known: BTreeSet<_> = seen.ids().cloned().collect();
    draft.memory.deaths.retain(|id, _| known.contains(id));
    draft.memory.killing.retain(|id| known.contains(id));
    draft.memory.backoff_told.retain(|id| known.contains(id));
    for container in pod.containers() {
        let Some(newest) = seen.newest(&container.name) else {
            notice_vanished(draft, &container.name);
            continue;
        };
        if let Some(gone) = draft.memory.vanished.get(&container.name)
            && attempt(newest) <= gone.attempt
        {
            draft.memory.vanished.remove(&container.name);
        }
        let Some((finished, _)) = end_of(newest) else {
            continue;
        };
        if draft.memory.deaths.contains_key(&newest.id) {
            continue;
        }
        let died = now.place(finished, timing.restart_forget);
        draft.memory.deaths.insert(newest.id.clone(), died);
        if let ContainerState::Exited {
            oom_killed: true, ..
        } = newest.state
        {
            draft.event(EventNote::warning(
                Some(&container.name),
                "OOMKilled",
                out_of_memory(container),
            ));
        }
        // An adopted dead container of an agent that lost its memory: the back-off goes on.
        if let ContainerState::Exited { started_at, .. } = newest.state
            && !draft.memory.backoff.contains_key(&container.name)
            && seen.engine_stopped_at.is_none()
        {
            let ran = finished
                .as_millisecond()
                .saturating_sub(started_at.as_millisecond())
                .max(0);
            let started = Mono(died.0.saturating_sub(ran));
            let hash = newest.labels.get(labels::HASH).cloned().unwrap_or_default();
            if let Some(entry) =
                restarts::rebuild(attempt(newest), &hash, started, pod.restart_max(), timing)
            {
                draft.memory.backoff.insert(container.name.clone(), entry);
            }
        }
    }
    if let (Some(limit), Some(start), Life::Wanted) = (
        pod.spec().active_deadline_seconds,
        draft.memory.start_time,
        pod.life,
    ) && !draft.memory.deadline_exceeded
        && stage(draft) == Stage::Running
    {
        let left = limit.saturating_sub(now.wall.as_second() - start.as_second());
        if left > 0 {
            draft.wake(
                now.mono
                    .plus(Duration::from_secs(u64::try_from(left).unwrap_or(0))),
            );
        } else {
            draft.memory.deadline_exceeded = true;
            draft.event(EventNote::normal(
                None,
                "DeadlineExceeded",
                status::DEADLINE_MESSAGE,
            ));
        }
    }
}

fn notice_vanished(draft: &mut Draft<'_>, name: &str) {
    if draft.memory.vanished.contains_key(name)
        || draft
            .memory
            .in_flight
            .contains(&Work::Start(name.to_owned()))
    {
        return;
    }
    let Some(attempt) = containers::reported_attempt(&draft.memory, name) else {
        return;
    };
    let statuses = draft
        .memory
        .last
        .container_statuses
        .as_deref()
        .unwrap_or_default();
    let Some(last) = statuses.iter().find(|status| status.name == name) else {
        return;
    };
    let state = last.state.as_ref();
    let terminated = match state.and_then(|s| s.terminated.clone()) {
        Some(terminated) => terminated,
        None if state.is_some_and(|s| s.waiting.is_some()) => {
            match last.last_state.as_ref().and_then(|s| s.terminated.clone()) {
                Some(terminated) => terminated,
                None => return,
            }
        }
        None => ContainerStateTerminated {
            container_id: last.container_id.clone(),
            exit_code: 137,
            reason: Some("ContainerStatusUnknown".into()),
            message: Some(status::LOST_MESSAGE.into()),
            ..ContainerStateTerminated::default()
        },
    };
    draft.memory.vanished.insert(
        name.to_owned(),
        Vanished {
            terminated,
            attempt,
        },
    );
}

/// Has a changed status written down soon, once for a burst.
fn keep(draft: &mut Draft<'_>, status: &PodStatus) {
    if !draft.memory.kept || stage(draft) == Stage::Ending && draft.memory.confirmed {
        return;
    }
    let (memory, now) = (&mut draft.memory, draft.now.mono);
    if *status != memory.last {
        let soon = match probes::told_otherwise(draft.pod, &memory.last, status) {
            true => now,
            false => now.plus(KEEP_DELAY),
        };
        memory.keep_at = Some(memory.keep_at.map_or(soon, |at| at.min(soon)));
    }
    // What is being written is older than this change. The end of that work brings the next step.
    if memory.in_flight.contains(&Work::Keep) {
        return;
    }
    match memory.keep_at {
        Some(at) if draft.now.mono < at => draft.wake(at),
        Some(_) => {
            draft.memory.keep_at = None;
            draft.act(Action::Keep);
        }
        None => {}
    }
}

/// The resync interval of this pod: up to half as long again, differently for each pod and always the same.
fn resync(pod: &PodFacts) -> Duration {
    let base = pod.host.timing.resync;
    base.saturating_add(base.saturating_mul(spec::fnv32(pod.uid.as_bytes()) % 512) / 1024)
}

#[cfg(test)]
#[path = "step_tests/mod.rs"]
mod tests;
