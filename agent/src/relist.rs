//! Looks at all containers of the node at once, and wakes the workers of those that changed. The engine's events only
//! make it quicker; a missed one is found here (spec/node-agent.md 8, 22, 28).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::gc;
use crate::moment::Mono;
use crate::pods::PodInput;
use crate::runtime::{ContainerState, ContainerView, labels};
use crate::shared::Shared;
use crate::worker::actions::EventNote;

/// After a failure the runtime is asked again after this, rising to ten times as much.
const RETRY: Duration = Duration::from_secs(1);

/// Relists until the agent stops.
pub(crate) async fn run(
    shared: Arc<Shared>,
    pods: mpsc::Sender<PodInput>,
    stop: CancellationToken,
) {
    let mut state = State::default();
    let mut failures: u32 = 0;
    loop {
        let pause = match failures {
            0 => shared.config.pace.relist,
            _ => RETRY
                .saturating_mul(failures.min(10))
                .max(shared.config.pace.relist),
        };
        let wanted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = shared.look_for_strangers.notified() => true,
            () = tokio::time::sleep(pause) => false,
        };
        // With no pods there is nothing to see.
        if !wanted && shared.directory.lock().is_empty() {
            continue;
        }
        let listed = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            listed = shared.runtime.list() => listed,
        };
        shared.health.note(&listed, shared.now());
        match listed {
            Ok(listed) => {
                failures = 0;
                state.compare(&shared, &listed);
                if let Some(strangers) = strangers(&shared, &listed)
                    && pods.send(PodInput::Strangers(strangers)).await.is_err()
                {
                    return;
                }
                collect(&shared, &mut state, &listed).await;
            }
            Err(_) => failures = failures.saturating_add(1),
        }
    }
}

/// Listens to the engine's events until the agent stops.
pub(crate) async fn listen(shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        let events = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            events = shared.runtime.events() => events,
        };
        if let Ok(mut events) = events {
            loop {
                let event = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    event = events.next() => event,
                };
                let Some(event) = event else { break };
                wake(&shared, &event.pod_uid);
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

fn wake(shared: &Shared, uid: &str) {
    if let Some((look, _)) = shared.directory.lock().get(uid) {
        look.notify_one();
    }
}

#[derive(Default)]
struct State {
    seen: BTreeMap<String, u64>,
    collected: Option<Mono>,
}

impl State {
    fn compare(&mut self, shared: &Shared, listed: &[ContainerView]) {
        let mut now: BTreeMap<String, u64> = BTreeMap::new();
        for container in listed {
            let uid = container
                .labels
                .get(labels::POD_UID)
                .cloned()
                .unwrap_or_default();
            // Independent of the order in which the engine lists.
            let entry = now.entry(uid).or_default();
            *entry = entry.wrapping_add(signature(container));
        }
        let uids: BTreeSet<&String> = now.keys().chain(self.seen.keys()).collect();
        for uid in uids {
            if now.get(uid) != self.seen.get(uid) {
                wake(shared, uid);
            }
        }
        self.seen = now;
    }
}

fn signature(container: &ContainerView) -> u64 {
    let mut hasher = DefaultHasher::new();
    container.id.hash(&mut hasher);
    container.ip.hash(&mut hasher);
    match &container.state {
        ContainerState::Created => 0_u8.hash(&mut hasher),
        ContainerState::StartFailed { exit_code, .. } => (1_u8, exit_code).hash(&mut hasher),
        ContainerState::Running { started_at, .. } => (2_u8, started_at).hash(&mut hasher),
        ContainerState::Exited { finished_at, .. } => (3_u8, finished_at).hash(&mut hasher),
        ContainerState::Gone => 4_u8.hash(&mut hasher),
    }
    hasher.finish()
}

fn strangers(shared: &Shared, listed: &[ContainerView]) -> Option<Vec<ContainerView>> {
    let directory = shared.directory.lock();
    let unknown = |container: &&ContainerView| {
        container
            .labels
            .get(labels::POD_UID)
            .is_some_and(|uid| !directory.contains_key(uid))
    };
    let strangers: Vec<ContainerView> = listed.iter().filter(unknown).cloned().collect();
    (!strangers.is_empty()).then_some(strangers)
}

async fn collect(shared: &Shared, state: &mut State, listed: &[ContainerView]) {
    let now = shared.now().mono;
    let due = state
        .collected
        .is_none_or(|at| now.since(at) >= shared.config.pace.container_gc);
    if !due {
        return;
    }
    state.collected = Some(now);
    let pods: BTreeSet<String> = shared.directory.lock().keys().cloned().collect();
    for id in gc::garbage(listed, &pods) {
        if let Err(error) = shared.runtime.remove(&id).await {
            let note = EventNote::warning(None, "ContainerGCFailed", error.to_string());
            shared
                .outbox
                .node_event(&shared.config.node_name, &note, shared.now());
        }
    }
}
