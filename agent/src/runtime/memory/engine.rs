//! The in-memory engine as tests see it: images, scripts, faults, and what a person could do to it.

use std::sync::Arc;
use std::time::Duration;

use muster_model::time::SharedClock;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::behaviour::{Behaviour, Call, PullScript, RecordedCall};
use super::state::{Container, EVENT_BACKLOG, State, with_default_tag};
use crate::runtime::{ContainerId, ContainerView, ImageView, RuntimeError};

/// An engine in memory that several [`MemoryRuntime`](super::MemoryRuntime)s may share, as agents share one Docker.
///
/// Nothing runs in the background: a scripted exit is settled when somebody looks or when its time comes
/// while an event stream or log follower waits. Delays are tokio's, so a paused clock drives them.
pub struct MemoryEngine {
    pub(super) clock: SharedClock,
    state: Mutex<State>,
}

impl MemoryEngine {
    /// An empty engine that is up.
    pub fn new(clock: SharedClock) -> Arc<Self> {
        Arc::new(Self {
            clock,
            state: Mutex::new(State::default()),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Makes an image local.
    pub fn add_image(&self, reference: &str) -> ImageView {
        self.lock().insert_image(reference)
    }

    /// Removes a local image, as a person would.
    pub fn remove_image(&self, reference: &str) {
        self.lock().images.remove(&with_default_tag(reference));
    }

    /// Lets an image be pulled, by this script.
    pub fn add_pullable(&self, reference: &str, script: PullScript) {
        self.lock()
            .pullable
            .insert(with_default_tag(reference), script);
    }

    /// Lets every image be pulled: for nodes that only pretend.
    pub fn pull_anything(&self) {
        self.lock().pulls_anything = true;
    }

    /// Scripts the containers of an image that are created from now on.
    pub fn set_behaviour(&self, reference: &str, behaviour: Behaviour) {
        let reference = with_default_tag(reference);
        let mut state = self.lock();
        if let Some(image) = state.images.get_mut(&reference) {
            image.user.clone_from(&behaviour.user);
        }
        state.behaviours.insert(reference, behaviour);
    }

    /// How long making a sandbox takes.
    pub fn set_sandbox_delay(&self, delay: Duration) {
        self.lock().sandbox_delay = delay;
    }

    /// The next such call of that node fails with this; several are taken in order.
    pub fn fail_next(&self, node: &str, call: Call, error: RuntimeError) {
        self.lock()
            .faults
            .entry((node.to_owned(), call))
            .or_default()
            .push_back(error);
    }

    /// Every such call of that node takes this much longer, until set to zero.
    pub fn delay_calls(&self, node: &str, call: Call, delay: Duration) {
        self.lock().delays.insert((node.to_owned(), call), delay);
    }

    /// Whether containers run through [`MemoryEngine::go_down`].
    pub fn set_live_restore(&self, on: bool) {
        self.lock().live_restore = on;
    }

    /// The engine stops: calls fail, event streams end, and without live-restore all containers are killed (137).
    pub fn go_down(&self) {
        let (at, wall) = (Instant::now(), self.clock.now());
        let mut state = self.lock();
        state.down = true;
        let live_restore = state.live_restore;
        for node in state.nodes.values_mut() {
            node.settle(at);
            if !live_restore {
                node.containers
                    .values_mut()
                    .for_each(|container| container.finish(wall, 137, false));
            }
            node.events = broadcast::channel(EVENT_BACKLOG).0;
            node.changes.send_modify(|count| *count += 1);
        }
    }

    /// The engine is back, with its containers as they are.
    pub fn come_up(&self) {
        self.lock().down = false;
    }

    /// [`MemoryEngine::go_down`], then [`MemoryEngine::come_up`].
    pub fn restart(&self) {
        self.go_down();
        self.come_up();
    }

    /// Ends a running container of any node with this code, as a crash would. False when it does not run.
    pub fn end(&self, id: &ContainerId, code: i32) -> bool {
        let wall = self.clock.now();
        self.touch(id, |container| {
            let ran = container.is_running();
            container.finish(wall, code, false);
            ran
        })
    }

    /// Removes a container of any node behind the agent's back, as `docker rm -f` would.
    pub fn remove_by_hand(&self, id: &ContainerId) {
        let mut state = self.lock();
        let owner = state
            .nodes
            .iter()
            .find(|(_, node)| node.containers.contains_key(id))
            .map(|(owner, _)| owner.clone());
        if let Some(owner) = owner {
            state.remove(&owner, id);
        }
    }

    /// Writes a line to a container's log. False when there is no such container.
    pub fn write_log(&self, id: &ContainerId, line: &str) -> bool {
        let wall = self.clock.now();
        self.touch(id, |container| {
            container.write(wall, line.to_owned());
            true
        })
    }

    fn touch(&self, id: &ContainerId, change: impl FnOnce(&mut Container) -> bool) -> bool {
        let mut state = self.lock();
        for node in state.nodes.values_mut() {
            if let Some(container) = node.containers.get_mut(id) {
                let done = change(container);
                let pod_uid = container.pod_uid();
                node.announce(pod_uid);
                return done;
            }
        }
        false
    }

    /// The recorded calls, oldest first: all but `version`, `list` and `list_pod`, at most the last 10 000.
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.lock().calls.iter().cloned().collect()
    }

    /// How often a call was made, by all nodes.
    pub fn count(&self, call: Call) -> u64 {
        self.lock().counts.get(&call).copied().unwrap_or(0)
    }

    /// Shows every container of all nodes, in no order that means anything: for checks that look often.
    pub fn inspect(&self, mut look: impl FnMut(&ContainerView)) {
        let now = Instant::now();
        let mut state = self.lock();
        for node in state.nodes.values_mut() {
            node.settle(now);
            node.containers
                .values()
                .for_each(|container| look(&container.view));
        }
    }

    /// The containers of all nodes, oldest first: what a person would see.
    pub fn all_containers(&self) -> Vec<ContainerView> {
        let now = Instant::now();
        let mut state = self.lock();
        let mut all: Vec<(u64, ContainerView)> = Vec::new();
        for node in state.nodes.values_mut() {
            node.settle(now);
            all.extend(
                node.containers
                    .values()
                    .map(|container| (container.sequence, container.view.clone())),
            );
        }
        all.sort_by_key(|(sequence, _)| *sequence);
        all.into_iter().map(|(_, view)| view).collect()
    }
}
