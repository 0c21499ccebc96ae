//! The runtime in memory: for tests, the simulation and the scale benchmark.
//!
//! ```text
//! MemoryRuntime (one node's view) ──┐
//! MemoryRuntime (another's)  ───────┼──> MemoryEngine: containers, images, scripts, faults, call log
//! ```
//! It behaves as Docker does where an agent can tell: names conflict, a missing command fails the start and leaves
//! the container, joining a dead sandbox is refused, a restart of the engine kills everything.
//!
//! ```
//! use std::time::Duration;
//! use muster_agent::runtime::labels::Owner;
//! use muster_agent::runtime::memory::{Behaviour, MemoryEngine, MemoryRuntime};
//! use muster_model::time::SystemClock;
//!
//! let engine = MemoryEngine::new(SystemClock::shared());
//! engine.add_image("web:1");
//! engine.set_behaviour("web:1", Behaviour::crashing(Duration::from_secs(1), 3));
//! let runtime = MemoryRuntime::new(engine, Owner::new("node-1", ""));
//! # let _ = runtime;
//! ```

mod behaviour;
mod engine;
mod serve;
mod state;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use muster_client::dial::BoxedIo;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

pub use self::behaviour::{
    Behaviour, Call, ExecAnswer, Exit, HttpAnswer, PullScript, RecordedCall,
};
pub use self::engine::MemoryEngine;
use self::state::{End, NewContainer, SANDBOX_IMAGE, later, no_such_container};
use super::labels::{self, Owner};
use super::{
    ContainerId, ContainerSpec, ContainerView, ExecOutcome, ImageView, LogOptions, Runtime,
    RuntimeError, RuntimeEvent, RuntimeFuture, RuntimeVersion, SandboxSpec,
};

/// One node's view of a [`MemoryEngine`].
#[derive(Clone)]
pub struct MemoryRuntime {
    engine: Arc<MemoryEngine>,
    owner: Owner,
}

impl MemoryRuntime {
    /// The view of this owner.
    pub fn new(engine: Arc<MemoryEngine>, owner: Owner) -> Self {
        Self { engine, owner }
    }

    /// The engine behind it.
    pub fn engine(&self) -> &Arc<MemoryEngine> {
        &self.engine
    }

    /// The next such call of this node fails with this.
    pub fn fail_next(&self, call: Call, error: RuntimeError) {
        self.engine.fail_next(&self.owner.node, call, error);
    }

    /// Records the call, waits its ordered delay and answers whether it may go on.
    async fn enter(&self, call: Call, target: &str) -> Result<(), RuntimeError> {
        let delay = {
            let mut state = self.engine.lock();
            state.admit(&self.owner, call, target)?;
            state.delay_of(&self.owner, call)
        };
        self.pause(delay).await
    }

    /// Waits, and fails when the engine went down meanwhile.
    async fn pause(&self, delay: Duration) -> Result<(), RuntimeError> {
        if delay.is_zero() {
            return Ok(());
        }
        tokio::time::sleep(delay).await;
        self.engine.lock().reachable()
    }

    fn views(&self, keep: impl Fn(&ContainerView) -> bool) -> Vec<ContainerView> {
        let mut state = self.engine.lock();
        let node = state.node(&self.owner);
        node.settle(Instant::now());
        let mut shown: Vec<_> = node
            .containers
            .values()
            .filter(|container| keep(&container.view))
            .collect();
        shown.sort_by_key(|container| container.sequence);
        shown
            .into_iter()
            .map(|container| container.view.clone())
            .collect()
    }

    async fn make_sandbox(&self, spec: &SandboxSpec) -> Result<ContainerId, RuntimeError> {
        self.enter(Call::RunSandbox, &spec.name).await?;
        let delay = self.engine.lock().sandbox_delay;
        self.pause(delay).await?;
        let now = self.engine.clock.now();
        let new = NewContainer {
            name: &spec.name,
            labels: &spec.labels,
            image: SANDBOX_IMAGE,
            namespaces: [&spec.network, &spec.ipc, &spec.pid],
        };
        let mut state = self.engine.lock();
        let id = state.insert(&self.owner, &new, now)?;
        state.run(&self.owner, &id, now)?;
        Ok(id)
    }

    async fn make_container(&self, spec: &ContainerSpec) -> Result<ContainerId, RuntimeError> {
        self.enter(Call::Create, &spec.name).await?;
        let now = self.engine.clock.now();
        let new = NewContainer {
            name: &spec.name,
            labels: &spec.labels,
            image: &spec.image,
            namespaces: [&spec.network, &spec.ipc, &spec.pid],
        };
        self.engine.lock().insert(&self.owner, &new, now)
    }

    async fn start_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.enter(Call::Start, &id.0).await?;
        let delay = {
            let mut state = self.engine.lock();
            let container = state
                .node(&self.owner)
                .containers
                .get(id)
                .ok_or_else(|| no_such_container(id))?;
            if container.is_running() {
                return Ok(());
            }
            container.behaviour.start_delay
        };
        self.pause(delay).await?;
        let now = self.engine.clock.now();
        self.engine.lock().run(&self.owner, id, now)
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<(), RuntimeError> {
        self.enter(Call::Stop, &id.0).await?;
        let deadline = Instant::now() + grace;
        let term = {
            let (now, wall) = (Instant::now(), self.engine.clock.now());
            let mut state = self.engine.lock();
            let node = state.node(&self.owner);
            node.settle(now);
            let Some(container) = node
                .containers
                .get_mut(id)
                .filter(|container| container.is_running())
            else {
                return Ok(());
            };
            if !container.behaviour.ignore_term {
                let delay = container.behaviour.term_delay;
                let end = End {
                    at: now + delay,
                    finished_at: later(wall, delay),
                    code: container.behaviour.term_code,
                    oom_killed: false,
                };
                let sooner = container
                    .ends
                    .as_ref()
                    .is_none_or(|scripted| scripted.at > end.at);
                if sooner {
                    container.ends = Some(end);
                }
            }
            container.ends.as_ref().map(|end| end.at)
        };
        tokio::time::sleep_until(term.map_or(deadline, |at| at.min(deadline))).await;
        let wall = self.engine.clock.now();
        let mut state = self.engine.lock();
        state.reachable()?;
        let node = state.node(&self.owner);
        node.settle(Instant::now());
        if let Some(container) = node
            .containers
            .get_mut(id)
            .filter(|container| container.is_running())
        {
            container.finish(wall, 137, false);
            let pod_uid = container
                .view
                .labels
                .get(labels::POD_UID)
                .cloned()
                .unwrap_or_default();
            node.announce(pod_uid);
        }
        Ok(())
    }

    async fn pull_image(&self, reference: &str) -> Result<ImageView, RuntimeError> {
        self.enter(Call::Pull, reference).await?;
        let (delay, answer) = self.engine.lock().next_pull(reference);
        self.pause(delay).await?;
        answer?;
        Ok(self.engine.lock().insert_image(reference))
    }

    async fn run_command(
        &self,
        id: &ContainerId,
        command: &[String],
        limit: Duration,
    ) -> Result<ExecOutcome, RuntimeError> {
        self.enter(Call::Exec, &id.0).await?;
        let (takes, outcome) = {
            let mut state = self.engine.lock();
            let node = state.node(&self.owner);
            node.settle(Instant::now());
            let container = node
                .containers
                .get(id)
                .ok_or_else(|| no_such_container(id))?;
            if !container.is_running() {
                let message = format!("Container {} is not running", id.0);
                return Err(RuntimeError::Conflict(message));
            }
            container
                .behaviour
                .exec_answer(&command.join(" "), container.since.elapsed())
        };
        self.pause(takes.min(limit)).await?;
        Ok(match takes > limit {
            true => ExecOutcome {
                exit_code: None,
                ..outcome
            },
            false => outcome,
        })
    }

    async fn open_log(
        &self,
        id: &ContainerId,
        options: &LogOptions,
    ) -> Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError> {
        self.enter(Call::Logs, &id.0).await?;
        let (first, changes) = {
            let mut state = self.engine.lock();
            let node = state.node(&self.owner);
            let changes = node.changes.subscribe();
            let container = node
                .containers
                .get(id)
                .ok_or_else(|| no_such_container(id))?;
            let kept = options.tail_lines.map_or(container.log.len(), |lines| {
                container.log.len().min(usize::try_from(lines).unwrap_or(0))
            });
            (container.log_dropped + container.log.len() - kept, changes)
        };
        let reader = LogReader {
            runtime: self.clone(),
            id: id.clone(),
            options: options.clone(),
            next: first,
            changes,
        };
        Ok(stream::unfold(reader, |mut reader| async move {
            reader.next().await.map(|chunk| (Ok(chunk), reader))
        })
        .boxed())
    }

    async fn open_events(&self) -> Result<BoxStream<'static, RuntimeEvent>, RuntimeError> {
        self.enter(Call::Events, "").await?;
        let receiver = self.engine.lock().node(&self.owner).events.subscribe();
        let events = stream::unfold(
            (self.clone(), receiver),
            |(runtime, mut receiver)| async move {
                loop {
                    let next_end = {
                        let mut state = runtime.engine.lock();
                        let node = state.node(&runtime.owner);
                        node.settle(Instant::now());
                        node.next_end()
                    };
                    // Both arms are cancel-safe: a dropped `recv` takes no event.
                    tokio::select! {
                        biased;
                        event = receiver.recv() => match event {
                            Ok(event) => return Some((event, (runtime, receiver))),
                            Err(RecvError::Lagged(_)) => {}
                            Err(RecvError::Closed) => return None,
                        },
                        () = sleep_until(next_end) => {}
                    }
                }
            },
        );
        Ok(events.boxed())
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => futures::future::pending().await,
    }
}

struct LogReader {
    runtime: MemoryRuntime,
    id: ContainerId,
    options: LogOptions,
    next: usize,
    changes: tokio::sync::watch::Receiver<u64>,
}

impl LogReader {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            self.changes.mark_unchanged();
            let next_end = {
                let mut state = self.runtime.engine.lock();
                let node = state.node(&self.runtime.owner);
                node.settle(Instant::now());
                let container = node.containers.get(&self.id)?;
                let mut text = String::new();
                for (at, line) in container
                    .log
                    .iter()
                    .skip(self.next.saturating_sub(container.log_dropped))
                {
                    if self.options.since.is_some_and(|since| *at < since) {
                        continue;
                    }
                    if self.options.timestamps {
                        text.push_str(&at.strftime("%Y-%m-%dT%H:%M:%S.%9fZ ").to_string());
                    }
                    text.push_str(line);
                    text.push('\n');
                }
                self.next = container.log_dropped + container.log.len();
                if !text.is_empty() {
                    return Some(Bytes::from(text));
                }
                if !self.options.follow || !container.is_running() {
                    return None;
                }
                node.next_end()
            };
            tokio::select! {
                biased;
                changed = self.changes.changed() => changed.ok()?,
                () = sleep_until(next_end) => {}
            }
        }
    }
}

impl Runtime for MemoryRuntime {
    fn version(&self) -> RuntimeFuture<'_, RuntimeVersion> {
        Box::pin(async move {
            self.enter(Call::Version, "").await?;
            Ok(RuntimeVersion {
                text: "memory://1".to_owned(),
                api_version: "1.41".to_owned(),
            })
        })
    }

    fn list(&self) -> RuntimeFuture<'_, Vec<ContainerView>> {
        Box::pin(async move {
            self.enter(Call::List, "").await?;
            Ok(self.views(|_| true))
        })
    }

    fn list_pod<'a>(&'a self, pod_uid: &'a str) -> RuntimeFuture<'a, Vec<ContainerView>> {
        Box::pin(async move {
            self.enter(Call::ListPod, pod_uid).await?;
            Ok(self.views(|view| {
                view.labels
                    .get(labels::POD_UID)
                    .is_some_and(|uid| uid == pod_uid)
            }))
        })
    }

    fn run_sandbox<'a>(&'a self, spec: &'a SandboxSpec) -> RuntimeFuture<'a, ContainerId> {
        Box::pin(self.make_sandbox(spec))
    }

    fn create<'a>(&'a self, spec: &'a ContainerSpec) -> RuntimeFuture<'a, ContainerId> {
        Box::pin(self.make_container(spec))
    }

    fn start<'a>(&'a self, id: &'a ContainerId) -> RuntimeFuture<'a, ()> {
        Box::pin(self.start_container(id))
    }

    fn stop<'a>(&'a self, id: &'a ContainerId, grace: Duration) -> RuntimeFuture<'a, ()> {
        Box::pin(self.stop_container(id, grace))
    }

    fn remove<'a>(&'a self, id: &'a ContainerId) -> RuntimeFuture<'a, ()> {
        Box::pin(async move {
            self.enter(Call::Remove, &id.0).await?;
            self.engine.lock().remove(&self.owner, id);
            Ok(())
        })
    }

    fn image<'a>(&'a self, reference: &'a str) -> RuntimeFuture<'a, Option<ImageView>> {
        Box::pin(async move {
            self.enter(Call::Image, reference).await?;
            Ok(self.engine.lock().find_image(reference))
        })
    }

    fn pull<'a>(&'a self, reference: &'a str, _auth: &'a str) -> RuntimeFuture<'a, ImageView> {
        Box::pin(self.pull_image(reference))
    }

    fn logs<'a>(
        &'a self,
        id: &'a ContainerId,
        options: &'a LogOptions,
    ) -> RuntimeFuture<'a, BoxStream<'static, Result<Bytes, RuntimeError>>> {
        Box::pin(self.open_log(id, options))
    }

    fn exec<'a>(
        &'a self,
        id: &'a ContainerId,
        command: &'a [String],
        limit: Duration,
    ) -> RuntimeFuture<'a, ExecOutcome> {
        Box::pin(self.run_command(id, command, limit))
    }

    fn dial(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<BoxedIo>> {
        let dialled = serve::connect(&mut self.engine.lock(), &self.owner, address);
        Box::pin(std::future::ready(dialled))
    }

    fn events(&self) -> RuntimeFuture<'_, BoxStream<'static, RuntimeEvent>> {
        Box::pin(self.open_events())
    }
}

#[cfg(test)]
mod tests;
