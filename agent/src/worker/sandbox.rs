//! The part of the pure step that keeps one sandbox running (spec/node-agent.md 8 and 10).

use std::time::Duration;

use super::actions::{Action, EventNote, Work};
use super::step::Draft;
use super::view::{attempt, is_running};
use super::{containers, terminate};
use crate::runtime::{ContainerId, ContainerState};
use crate::spec;

/// How long a sandbox may be without an address.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(10);

/// What containers can join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Footing {
    /// The pod shares nothing, so it has no sandbox.
    NotNeeded,
    /// It runs.
    Running(ContainerId),
    /// Not yet.
    Wait,
}

/// Sees to it that the pod has the sandbox it needs.
pub(super) fn plan(draft: &mut Draft<'_>) -> Footing {
    let seen = draft.seen;
    if let Some(highest) = seen.sandboxes.iter().map(attempt).max() {
        let known = draft.memory.sandbox_attempt.get_or_insert(highest);
        *known = highest.max(*known);
    }
    if !spec::needs_sandbox(draft.pod) {
        return Footing::NotNeeded;
    }
    if draft.memory.in_flight.contains(&Work::Sandbox) {
        return Footing::Wait;
    }
    let running = seen
        .sandboxes
        .iter()
        .filter(|sandbox| is_running(sandbox))
        .count();
    if let (1, Some(sandbox)) = (running, seen.running_sandbox()) {
        if draft.pod.host_network() || sandbox.ip.as_deref().is_some_and(|ip| !ip.is_empty()) {
            return Footing::Running(sandbox.id.clone());
        }
        let ContainerState::Running { started_at, .. } = sandbox.state else {
            return Footing::Wait;
        };
        let given_up = draft
            .now
            .place(started_at, ADDRESS_PATIENCE)
            .plus(ADDRESS_PATIENCE);
        if draft.now.mono < given_up {
            draft.wake(
                draft
                    .now
                    .mono
                    .plus(Duration::from_millis(100))
                    .min(given_up),
            );
        } else {
            let message = "Failed to create pod sandbox: the engine gave it no address within 10s";
            draft.event(EventNote::warning(None, "FailedCreatePodSandBox", message));
            draft.stop(&sandbox.id, draft.pod.host.timing.sandbox_grace);
        }
        return Footing::Wait;
    }
    if !containers::any_to_run(draft) {
        return Footing::Wait;
    }
    // What still runs lives in a sandbox that is gone or doubled: it has lost its network.
    if terminate::stop_all(draft, spec::own_grace(draft.pod)) {
        return Footing::Wait;
    }
    if let Some((_, retry_at)) = draft.memory.sandbox_trouble
        && draft.now.mono < retry_at
    {
        draft.wake(retry_at);
        return Footing::Wait;
    }
    if !draft.memory.kept {
        return Footing::Wait;
    }
    let next = match draft.memory.sandbox_attempt {
        None => 0,
        // A sandbox that was never seen to run is the same attempt again.
        Some(last) if seen.sandboxes.is_empty() && draft.memory.sandbox_trouble.is_some() => last,
        Some(last) => last + 1,
    };
    if next > 0 && draft.memory.sandbox_attempt != Some(next) {
        let message = "Pod sandbox changed, it will be killed and re-created.";
        draft.event(EventNote::normal(None, "SandboxChanged", message));
    }
    draft.memory.sandbox_attempt = Some(next);
    draft.act(Action::RunSandbox { attempt: next });
    Footing::Wait
}
