//! The runtime over a local Docker engine (spec/node-agent.md 9 to 11, 16, 23, 28, 29).
//!
//! ```text
//! SandboxSpec, ContainerSpec ──create.rs──> body ──client.rs──> engine
//! ContainerView <──observe.rs── list + the few inspects it needs <──┘
//! ```
//! The client library's types stay inside this module. Nothing here ever prunes, and every list and every stream of
//! events carries the owner's labels, so containers of people and of other nodes are never seen.

mod client;
mod create;
mod exec;
mod images;
mod import;
mod logs;
mod observe;
mod pause;
mod version;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bollard::models::{ContainerCreateBody, EventMessage};
use bollard::query_parameters::{
    CreateContainerOptions, EventsOptions, RemoveContainerOptions, StopContainerOptions,
};
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use muster_model::time::SharedClock;

use self::client::Abilities;
pub use self::client::{CALL_DEADLINE, DEFAULT_SOCKET, DockerEngine, socket_path};
pub use self::import::{CONTENT_LABEL, LocalImage, demo_image};
use self::observe::{Observer, Scope};
use self::pause::PauseImage;
pub use self::pause::SANDBOX_IMAGE;
pub use self::version::{ApiVersion, NEWEST_API, OLDEST_API};
use super::labels::{self, NameConflict, Owner, resolve_name_conflict};
use super::{
    ContainerId, ContainerSpec, ContainerView, ExecOutcome, ImageView, Labels, LogOptions,
    Namespace, Runtime, RuntimeError, RuntimeEvent, RuntimeFuture, RuntimeVersion, SandboxSpec,
};

/// A pull that moves no byte for so long is cancelled (spec/node-agent.md 1).
pub const PULL_PATIENCE: Duration = Duration::from_secs(60);
/// What a stop call may take beyond its grace (spec/node-agent.md 18.2).
const STOP_MARGIN: Duration = Duration::from_secs(120);
/// How long a sandbox may take to get its address (spec/node-agent.md 10).
const ADDRESS_PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks for it.
const ADDRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Grace of a sandbox that is given up.
const SANDBOX_GRACE: Duration = Duration::from_secs(10);
/// Tries to make a container whose name is taken.
const NAME_ATTEMPTS: u32 = 10;
/// What a container's life consists of, as far as anybody needs to look again.
const WATCHED_ACTIONS: [&str; 6] = ["start", "die", "destroy", "oom", "pause", "unpause"];

/// How to reach the engine, and whose containers to see.
#[derive(Clone)]
pub struct DockerConfig {
    /// The engine's socket ([`socket_path`]).
    pub socket: PathBuf,
    /// Whose containers.
    pub owner: Owner,
    /// Wall clock, for where in the stream of events to begin.
    pub clock: SharedClock,
    /// Limit for short calls: [`CALL_DEADLINE`].
    pub call_deadline: Duration,
    /// Limit for silence while pulling: [`PULL_PATIENCE`].
    pub pull_patience: Duration,
    /// The engine's name of the network that pods are attached to: `bridge`.
    pub network: String,
    /// Name of the sandbox's image, under which it is looked for and imported: [`SANDBOX_IMAGE`].
    pub sandbox_image: String,
}

impl DockerConfig {
    /// The usual settings: the default socket, limits and names.
    pub fn new(owner: Owner, clock: SharedClock) -> Self {
        Self {
            socket: PathBuf::from(DEFAULT_SOCKET),
            owner,
            clock,
            call_deadline: CALL_DEADLINE,
            pull_patience: PULL_PATIENCE,
            network: "bridge".to_owned(),
            sandbox_image: SANDBOX_IMAGE.to_owned(),
        }
    }
}

/// One node's containers on a Docker engine.
pub struct DockerRuntime {
    engine: DockerEngine,
    config: DockerConfig,
    observer: Arc<Observer>,
    pause: PauseImage,
    overdue: exec::Overdue,
}

impl DockerRuntime {
    /// A runtime that connects when it is first used: the engine may be down, and may come back as another version.
    pub fn new(config: DockerConfig) -> Self {
        let engine = DockerEngine::with_deadline(config.socket.clone(), config.call_deadline);
        let pause = PauseImage::new(&config.sandbox_image);
        Self {
            engine,
            config,
            observer: Arc::default(),
            pause,
            overdue: exec::Overdue::default(),
        }
    }

    /// The engine behind it.
    pub fn engine(&self) -> &DockerEngine {
        &self.engine
    }

    async fn abilities(&self) -> Result<Abilities, RuntimeError> {
        self.engine
            .call("version", async |connection| Ok(connection.abilities))
            .await
    }

    async fn list_where(&self, pod_uid: Option<&str>) -> Result<Vec<ContainerView>, RuntimeError> {
        let mut filters = self.config.owner.filters();
        filters.extend(pod_uid.map(|uid| format!("{}={uid}", labels::POD_UID)));
        let scope = match pod_uid {
            None => Scope::All,
            Some(_) => Scope::Pod {
                now: self.config.clock.now(),
            },
        };
        self.observer.list(&self.engine, filters, scope).await
    }

    async fn make_sandbox(&self, spec: &SandboxSpec) -> Result<ContainerId, RuntimeError> {
        let engine = self.abilities().await?;
        let labels = self.config.owner.stamp(&spec.labels);
        let network = &self.config.network;
        let body = |image: &str| create::sandbox_body(spec, labels.clone(), image, engine, network);
        let image = self.pause.id(&self.engine).await?;
        let id = match self
            .create_named(&spec.name, &spec.labels, &body(&image))
            .await
        {
            // Somebody removed the image: it is made again from the bytes at hand.
            Err(RuntimeError::NotFound(_)) => {
                self.pause.forget(&image);
                let image = self.pause.id(&self.engine).await?;
                self.create_named(&spec.name, &spec.labels, &body(&image))
                    .await?
            }
            made => made?,
        };
        let ready = match self.start_container(&id).await {
            Ok(()) if spec.network != Namespace::Host => self.await_address(&id).await,
            started => started,
        };
        match ready {
            Ok(()) => Ok(id),
            Err(error) => {
                if let Err(left) = self.remove_container(&id).await {
                    tracing::warn!(container = id.0, error = %left, "cannot remove a sandbox that failed to start");
                }
                Err(error)
            }
        }
    }

    async fn await_address(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let deadline = tokio::time::Instant::now() + ADDRESS_PATIENCE;
        loop {
            let found = self
                .engine
                .call("inspect container", async |connection| {
                    connection.docker.inspect_container(&id.0, None).await
                })
                .await?;
            let networks = found
                .network_settings
                .and_then(|settings| settings.networks)
                .unwrap_or_default();
            if observe::address(&networks).is_some() {
                return Ok(());
            }
            if found.state.and_then(|state| state.running) != Some(true) {
                let message = "the sandbox ended before it had an address".to_owned();
                return Err(RuntimeError::Refused { status: 0, message });
            }
            if tokio::time::Instant::now() >= deadline {
                self.stop_container(id, SANDBOX_GRACE).await?;
                let message = format!(
                    "the sandbox had no address after {} s",
                    ADDRESS_PATIENCE.as_secs()
                );
                return Err(RuntimeError::Refused { status: 0, message });
            }
            tokio::time::sleep(ADDRESS_INTERVAL).await;
        }
    }

    async fn make_container(&self, spec: &ContainerSpec) -> Result<ContainerId, RuntimeError> {
        let engine = self.abilities().await?;
        let labels = self.config.owner.stamp(&spec.labels);
        let body = create::container_body(spec, labels, engine, &self.config.network);
        self.create_named(&spec.name, &spec.labels, &body).await
    }

    /// Makes a container under this name, or under another where the name is rightly taken (spec/node-agent.md 9).
    async fn create_named(
        &self,
        name: &str,
        wanted: &Labels,
        body: &ContainerCreateBody,
    ) -> Result<ContainerId, RuntimeError> {
        let mut tried = name.to_owned();
        let mut attempt = 0;
        loop {
            let options = CreateContainerOptions {
                name: Some(tried.clone()),
                platform: String::new(),
            };
            let made = self
                .engine
                .call("create container", async |connection| {
                    connection
                        .docker
                        .create_container(Some(options), body.clone())
                        .await
                })
                .await;
            match made {
                Ok(made) => return Ok(ContainerId(made.id)),
                Err(RuntimeError::Conflict(_)) if attempt < NAME_ATTEMPTS => {
                    if let Some(other) = self.make_room(name, &tried, wanted, attempt).await? {
                        tried = other;
                    }
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Deals with the holder of a name; answers the name to take instead, or none to try the same again.
    async fn make_room(
        &self,
        name: &str,
        taken: &str,
        wanted: &Labels,
        attempt: u32,
    ) -> Result<Option<String>, RuntimeError> {
        let holder = self
            .engine
            .call("inspect container", async |connection| {
                connection.docker.inspect_container(taken, None).await
            })
            .await;
        let holder = match holder {
            Ok(holder) => holder,
            // It is just being removed.
            Err(RuntimeError::NotFound(_)) => {
                tokio::time::sleep(ADDRESS_INTERVAL).await;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let id = ContainerId(holder.id.unwrap_or_default());
        let labels: Labels = holder
            .config
            .and_then(|config| config.labels)
            .unwrap_or_default()
            .into_iter()
            .collect();
        let runs = holder
            .state
            .and_then(|state| state.running)
            .unwrap_or_default();
        match resolve_name_conflict(
            &self.config.owner,
            name,
            wanted,
            &id.0,
            &labels,
            runs,
            attempt,
        ) {
            NameConflict::RemoveHolder => {
                self.remove_container(&id).await?;
                Ok(None)
            }
            NameConflict::Rename(other) => Ok(Some(other)),
        }
    }

    async fn start_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.engine
            .call("start container", async |connection| {
                connection.docker.start_container(&id.0, None).await
            })
            .await
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<(), RuntimeError> {
        self.observer.note_stop(id);
        let seconds = grace.as_secs() + u64::from(grace.subsec_nanos() > 0);
        let options = StopContainerOptions {
            signal: None,
            t: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
        };
        let stopped = self
            .engine
            .call_within(
                "stop container",
                grace.saturating_add(STOP_MARGIN),
                async move |connection| {
                    connection.docker.stop_container(&id.0, Some(options)).await
                },
            )
            .await;
        match stopped {
            Err(RuntimeError::NotFound(_)) => Ok(()),
            other => other,
        }
    }

    async fn remove_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let options = RemoveContainerOptions {
            v: true,
            force: true,
            link: false,
        };
        let removed = self
            .engine
            .call("remove container", async move |connection| {
                connection
                    .docker
                    .remove_container(&id.0, Some(options))
                    .await
            })
            .await;
        match removed {
            // A conflict means that it is being removed already.
            Err(RuntimeError::NotFound(_) | RuntimeError::Conflict(_)) => Ok(()),
            other => other,
        }
    }

    async fn open_events(&self) -> Result<BoxStream<'static, RuntimeEvent>, RuntimeError> {
        let connection = self
            .engine
            .call("version", async |connection| Ok(connection))
            .await?;
        let to_strings = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let filters = HashMap::from([
            ("type".to_owned(), to_strings(&["container"])),
            ("event".to_owned(), to_strings(&WATCHED_ACTIONS)),
            ("label".to_owned(), self.config.owner.filters()),
        ]);
        // From now on, though the request goes out when the stream is first read: nothing between is missed.
        let since = self.config.clock.now().as_second().to_string();
        let options = EventsOptions {
            since: Some(since),
            until: None,
            filters: Some(filters),
        };
        let events = connection.docker.events(Some(options));
        let observer = self.observer.clone();
        let hints = events
            .take_while(|event| std::future::ready(event.is_ok()))
            .filter_map(move |event| {
                std::future::ready(event.ok().and_then(|event| hint(&observer, event)))
            });
        Ok(hints.boxed())
    }
}

/// What an event tells: of which pod, and, beside that, what the engine's inspect may never show.
fn hint(observer: &Observer, event: EventMessage) -> Option<RuntimeEvent> {
    let actor = event.actor?;
    let pod_uid = actor.attributes?.remove(labels::POD_UID)?;
    if event.action.as_deref() == Some("oom") {
        observer.note_out_of_memory(ContainerId(actor.id?));
    }
    Some(RuntimeEvent { pod_uid })
}

impl Runtime for DockerRuntime {
    fn version(&self) -> RuntimeFuture<'_, RuntimeVersion> {
        Box::pin(async move {
            let (engine, api) = self.engine.ask_version().await?;
            Ok(RuntimeVersion {
                text: format!("docker://{engine}"),
                api_version: api.to_string(),
            })
        })
    }

    fn list(&self) -> RuntimeFuture<'_, Vec<ContainerView>> {
        Box::pin(self.list_where(None))
    }

    fn list_pod<'a>(&'a self, pod_uid: &'a str) -> RuntimeFuture<'a, Vec<ContainerView>> {
        Box::pin(self.list_where(Some(pod_uid)))
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
        Box::pin(self.remove_container(id))
    }

    fn image<'a>(&'a self, reference: &'a str) -> RuntimeFuture<'a, Option<ImageView>> {
        Box::pin(async move {
            Ok(images::inspect(&self.engine, reference)
                .await?
                .map(|(image, _)| image))
        })
    }

    fn pull<'a>(&'a self, reference: &'a str, auth: &'a str) -> RuntimeFuture<'a, ImageView> {
        Box::pin(images::pull(
            &self.engine,
            reference,
            auth,
            self.config.pull_patience,
        ))
    }

    fn logs<'a>(
        &'a self,
        id: &'a ContainerId,
        options: &'a LogOptions,
    ) -> RuntimeFuture<'a, BoxStream<'static, Result<Bytes, RuntimeError>>> {
        Box::pin(logs::open(&self.engine, id, options))
    }

    fn exec<'a>(
        &'a self,
        id: &'a ContainerId,
        command: &'a [String],
        limit: Duration,
    ) -> RuntimeFuture<'a, ExecOutcome> {
        Box::pin(exec::run(&self.engine, &self.overdue, id, command, limit))
    }

    fn events(&self) -> RuntimeFuture<'_, BoxStream<'static, RuntimeEvent>> {
        Box::pin(self.open_events())
    }
}
