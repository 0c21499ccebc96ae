//! One node of a test cluster: a real agent that joins with a real token.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use futures::future::BoxFuture;
use muster_agent::config::parse_taint;
use muster_agent::runtime::Runtime;
use muster_agent::runtime::memory::MemoryEngine;
use muster_agent::{
    Agent, AgentConfig, AgentError, Amounts, Connect, DialError, DiskWork, Machine, Pace,
    ServerConnector, Timing,
};
use muster_client::join::{JoinOptions, NodeCredentials, join};
use muster_client::{ConnectOptions, Connection, Dial, ServerAddress};
use muster_model::time::SharedClock;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::network::Gate;

/// What runs a node's containers.
#[derive(Clone, Default)]
pub enum NodeRuntime {
    /// The cluster's shared in-memory engine.
    #[default]
    Memory,
    /// An in-memory engine of its own, with a clock of its own.
    Engine(Arc<MemoryEngine>),
    /// This one, such as Docker.
    Own(Arc<dyn Runtime>),
}

/// A node to be.
#[derive(Clone)]
pub struct NodeOptions {
    /// Its name.
    pub name: String,
    /// Labels of its command line.
    pub labels: BTreeMap<String, String>,
    /// Taints of its command line, as `key=value:Effect`.
    pub taints: Vec<String>,
    /// What the machine has, as `cpu=4,memory=8Gi`; empty: that, and nothing else.
    pub capacity: String,
    /// Keeps nothing on disk, and so loses its pods' bookkeeping with its agent.
    pub hollow: bool,
    /// What runs its containers.
    pub runtime: NodeRuntime,
    /// A token of its own instead of the cluster's.
    pub token: Option<String>,
    /// A clock of its own instead of the cluster's.
    pub clock: Option<SharedClock>,
}

impl NodeOptions {
    /// A plain node.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            capacity: String::new(),
            hollow: false,
            runtime: NodeRuntime::Memory,
            token: None,
            clock: None,
        }
    }

    /// With this label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// With this taint (`key=value:Effect`).
    #[must_use]
    pub fn taint(mut self, taint: &str) -> Self {
        self.taints.push(taint.to_owned());
        self
    }

    /// With this capacity (`cpu=4,memory=8Gi`).
    #[must_use]
    pub fn capacity(mut self, capacity: &str) -> Self {
        capacity.clone_into(&mut self.capacity);
        self
    }

    /// Without a state directory.
    #[must_use]
    pub fn hollow(mut self) -> Self {
        self.hollow = true;
        self
    }

    /// With this runtime.
    #[must_use]
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = NodeRuntime::Own(runtime);
        self
    }

    /// With a clock of its own.
    #[must_use]
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// With this join token.
    #[must_use]
    pub fn token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }
}

/// What every node of a cluster shares.
pub(crate) struct NodeWorld {
    pub(crate) clock: SharedClock,
    pub(crate) disk: DiskWork,
    pub(crate) seed: u64,
    pub(crate) pace: Pace,
    pub(crate) timing: Timing,
    pub(crate) address: ServerAddress,
    pub(crate) token: String,
    pub(crate) directory: PathBuf,
}

/// A node whose agent runs, or did.
pub(crate) struct TestNode {
    pub(crate) options: NodeOptions,
    pub(crate) gate: Arc<Gate>,
    runtime: Arc<dyn Runtime>,
    config: AgentConfig,
    connector: Arc<dyn Connect>,
    clock: SharedClock,
    running: Option<(JoinHandle<Result<(), AgentError>>, CancellationToken)>,
}

impl TestNode {
    pub(crate) fn new(
        options: NodeOptions,
        index: usize,
        world: &NodeWorld,
        runtime: Arc<dyn Runtime>,
        gate: Arc<Gate>,
        dial: Arc<dyn Dial>,
    ) -> anyhow::Result<Self> {
        let state_dir = (!options.hollow).then(|| world.directory.join(&options.name));
        let config = config(&options, index, world, state_dir.clone())?;
        let token = options.token.clone().unwrap_or_else(|| world.token.clone());
        let connector: Arc<dyn Connect> = match &state_dir {
            Some(directory) => Arc::new(
                ServerConnector::new(
                    vec![world.address.clone()],
                    Some(token),
                    &options.name,
                    &config.machine.machine_id,
                    directory,
                    world.clock.clone(),
                )
                .with_dialer(dial),
            ),
            None => Arc::new(HollowConnector {
                address: world.address.clone(),
                token,
                node_name: options.name.clone(),
                machine_id: config.machine.machine_id.clone(),
                dial,
                clock: world.clock.clone(),
                credentials: Mutex::new(None),
            }),
        };
        Ok(Self {
            options,
            gate,
            runtime,
            config,
            connector,
            clock: world.clock.clone(),
            running: None,
        })
    }

    pub(crate) fn state_dir(&self) -> Option<&Path> {
        self.config.state_dir.as_deref()
    }

    pub(crate) fn start(&mut self) {
        let stop = CancellationToken::new();
        let agent = Agent::run(
            self.config.clone(),
            Arc::clone(&self.runtime),
            self.clock.clone(),
            Arc::clone(&self.connector),
            stop.clone(),
        );
        self.running = Some((tokio::spawn(agent), stop));
    }

    /// As SIGTERM: in order.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        let Some((task, stop)) = self.running.take() else {
            return Ok(());
        };
        stop.cancel();
        task.await
            .with_context(|| format!("the agent of {} panicked", self.options.name))??;
        Ok(())
    }

    /// As SIGKILL: nothing more is said or done; containers run on.
    pub(crate) async fn kill(&mut self) {
        let Some((task, _)) = self.running.take() else {
            return;
        };
        self.gate.cut();
        task.abort();
        // Cancelled, or ended before: either way it is gone.
        let _ = task.await;
    }

    /// As a reboot of the machine: another boot id at the next start.
    pub(crate) fn set_boot_id(&mut self, boot_id: String) {
        self.config.machine.boot_id = boot_id;
    }

    /// How the agent ended, if it did by itself.
    pub(crate) async fn ended(&mut self) -> Option<anyhow::Error> {
        let finished = self
            .running
            .as_ref()
            .is_some_and(|(task, _)| task.is_finished());
        if !finished {
            return None;
        }
        let (task, _) = self.running.take()?;
        match task.await {
            Ok(Ok(())) => Some(anyhow::anyhow!("it stopped")),
            Ok(Err(error)) => Some(error.into()),
            Err(error) => Some(error.into()),
        }
    }
}

fn config(
    options: &NodeOptions,
    index: usize,
    world: &NodeWorld,
    state_dir: Option<PathBuf>,
) -> anyhow::Result<AgentConfig> {
    let capacity = match options.capacity.as_str() {
        "" => "cpu=4,memory=8Gi,ephemeral-storage=100Gi",
        text => text,
    };
    let capacity = Amounts::parse(capacity)?;
    let mut config = AgentConfig::new(&options.name, state_dir);
    config.machine = Machine {
        host_name: options.name.clone(),
        machine_id: format!("machine-{}", options.name),
        system_uuid: format!("machine-{}", options.name),
        boot_id: format!("boot-{}-1", options.name),
        kernel_version: "6.0.0".to_owned(),
        os_image: "Testkit".to_owned(),
        architecture: "amd64".to_owned(),
        capacity: capacity.clone(),
        addresses: Vec::new(),
    };
    config.capacity = capacity;
    config.labels = options.labels.clone();
    for text in &options.taints {
        let taint = parse_taint(text).with_context(|| format!("{text:?} is no taint"))?;
        config.taints.push(taint);
    }
    let [_, _, high, low] = u32::try_from(index + 1)?.to_be_bytes();
    config.node_ip = Some(IpAddr::V4(Ipv4Addr::new(10, 99, high, low)));
    config.secrets_on_disk = true;
    config.seed = world.seed.wrapping_add(u64::try_from(index)?);
    config.disk = world.disk;
    config.pace = world.pace.clone();
    config.timing = world.timing.clone();
    Ok(config)
}

/// Joins as any agent does, but keeps the credentials in memory.
struct HollowConnector {
    address: ServerAddress,
    token: String,
    node_name: String,
    machine_id: String,
    dial: Arc<dyn Dial>,
    clock: SharedClock,
    credentials: Mutex<Option<NodeCredentials>>,
}

impl HollowConnector {
    async fn open(&self) -> Result<Connection, DialError> {
        let known = self.credentials.lock().clone();
        let credentials = match known {
            Some(credentials) => credentials,
            None => {
                let mut options = JoinOptions::new(
                    self.address.clone(),
                    &self.token,
                    &self.node_name,
                    &self.machine_id,
                )
                .map_err(|error| DialError::Token(error.to_string()))?;
                options.connect = options
                    .connect
                    .with_dialer(Arc::clone(&self.dial))
                    .with_clock(self.clock.clone());
                let credentials = join(&options).await?;
                *self.credentials.lock() = Some(credentials.clone());
                credentials
            }
        };
        let options = ConnectOptions::new(self.address.clone(), credentials.trust())
            .with_identity(credentials.identity())
            .with_dialer(Arc::clone(&self.dial))
            .with_clock(self.clock.clone());
        Ok(Connection::open(&options).await?)
    }
}

impl Connect for HollowConnector {
    fn connect(&self) -> BoxFuture<'_, Result<Connection, DialError>> {
        Box::pin(self.open())
    }
}
