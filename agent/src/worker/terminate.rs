//! The part of the pure step that ends a pod: containers, then the sandbox, then its directory, then the
//! confirmation, then the dead containers (spec/node-agent.md 18).

use std::time::Duration;

use super::actions::{Action, EventNote, Work};
use super::step::Draft;
use super::view::is_running;
use crate::facts::Life;
use crate::runtime::ContainerId;

/// Stops everything that runs, regular containers first, then sandboxes. True while something runs still.
pub(super) fn stop_all(draft: &mut Draft<'_>, total: Duration) -> bool {
    let seen = draft.seen;
    let running: Vec<(String, ContainerId)> = seen
        .running()
        .map(|(name, container)| (name.to_owned(), container.id.clone()))
        .collect();
    let starting = draft
        .memory
        .in_flight
        .iter()
        .any(|work| matches!(work, Work::Start(_)));
    for (name, id) in &running {
        draft.stop_container(name, id, total, format!("Stopping container {name}"));
    }
    if !running.is_empty() || starting {
        return true;
    }
    let sandboxes: Vec<ContainerId> = seen
        .sandboxes
        .iter()
        .filter(|s| is_running(s))
        .map(|s| s.id.clone())
        .collect();
    for id in &sandboxes {
        draft.stop(id, draft.pod.host.timing.sandbox_grace);
    }
    !sandboxes.is_empty() || draft.memory.in_flight.contains(&Work::Sandbox)
}

/// The grace of the pod's end (18.1): never below 1 s.
pub(super) fn total_grace(draft: &Draft<'_>) -> Duration {
    let seconds = match draft.pod.life {
        Life::Deleted { grace_seconds } => grace_seconds,
        Life::Wanted | Life::Removed => draft.pod.grace_seconds(),
    };
    Duration::from_secs(u64::try_from(seconds.max(1)).unwrap_or(1))
}

/// Ends the pod. True when nothing is left to do at all.
pub(super) fn plan(draft: &mut Draft<'_>) -> bool {
    draft.memory.ending_since.get_or_insert(draft.now.mono);
    draft.cancel(|work| matches!(work, Work::Image(_) | Work::PrePull(_)));
    if stop_all(draft, total_grace(draft)) || draft.memory.in_flight.contains(&Work::Prepare) {
        return false;
    }
    if !draft.memory.released {
        draft.act_after_trouble(Action::Release);
        return false;
    }
    if matches!(draft.pod.life, Life::Deleted { .. }) && !draft.memory.confirmed {
        draft.act_after_trouble(Action::Confirm);
        return false;
    }
    let left: Vec<ContainerId> = draft.seen.ids().cloned().collect();
    for id in &left {
        draft.act_after_trouble(Action::Remove { id: id.clone() });
    }
    // A probe that is under way dies with the worker.
    let mut in_flight = draft.memory.in_flight.iter();
    left.is_empty() && in_flight.all(|work| matches!(work, Work::Probe(..)))
}

impl Draft<'_> {
    /// Stops a regular container, and says so once.
    pub(super) fn stop_container(
        &mut self,
        name: &str,
        id: &ContainerId,
        total: Duration,
        message: String,
    ) {
        if self.memory.killing.insert(id.clone()) {
            self.event(EventNote::normal(Some(name), "Killing", message));
        }
        self.stop(id, total);
    }

    /// Stops a container, unless it is being stopped with no longer grace already. `total` counts from the start of the
    /// pod's end, when it has begun; what is left is never below the smallest stop.
    pub(super) fn stop(&mut self, id: &ContainerId, total: Duration) {
        let stopping = |work: &Work| matches!(work, Work::Stop(other, grace) if other == id && *grace <= total);
        if self.memory.in_flight.iter().any(stopping) {
            return;
        }
        if let Some(retry_at) = self.memory.trouble_until
            && self.now.mono < retry_at
        {
            return self.wake(retry_at);
        }
        let spent = self
            .memory
            .ending_since
            .map_or(Duration::ZERO, |since| self.now.mono.since(since));
        let grace = total
            .saturating_sub(spent)
            .max(self.pod.host.timing.smallest_stop);
        self.act(Action::Stop {
            id: id.clone(),
            grace,
            total,
        });
    }
}
