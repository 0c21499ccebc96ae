//! A node under test: its disk, its engine in memory, its agent.

use std::sync::Arc;

use muster_agent::runtime::ContainerView;
use muster_agent::runtime::labels::{self, Owner};
use muster_agent::runtime::memory::{MemoryEngine, MemoryRuntime};
use muster_agent::{Agent, AgentConfig, AgentError, Amounts, Machine};
use muster_model::time::SharedClock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::clock::TestClock;
use super::server::Fake;

/// A node: its disk, its engine, and the agent that runs or does not.
pub(crate) struct Node {
    pub(crate) server: Fake,
    pub(crate) engine: Arc<MemoryEngine>,
    pub(crate) clock: SharedClock,
    pub(crate) config: AgentConfig,
    running: Option<(CancellationToken, JoinHandle<Result<(), AgentError>>)>,
    _disk: tempfile::TempDir,
}

impl Node {
    /// `n1` with 2 CPU and 4 GiB, not yet running.
    pub(crate) fn new() -> Self {
        let disk = tempfile::tempdir().unwrap();
        let clock = TestClock::shared();
        let mut config = AgentConfig::new("n1", Some(disk.path().join("state")));
        config.machine = Machine {
            host_name: "n1".into(),
            machine_id: "machine-1".into(),
            boot_id: "boot-1".into(),
            architecture: "amd64".into(),
            capacity: Amounts::parse("cpu=2,memory=4Gi").unwrap(),
            addresses: vec!["10.0.0.1".parse().unwrap()],
            ..Machine::default()
        };
        config.seed = 1;
        config.secrets_on_disk = true;
        let engine = MemoryEngine::new(Arc::clone(&clock));
        engine.add_image("t:1");
        Self {
            server: Fake::start(),
            engine,
            clock,
            config,
            running: None,
            _disk: disk,
        }
    }

    pub(crate) fn start(&mut self) {
        let stop = CancellationToken::new();
        let runtime = MemoryRuntime::new(Arc::clone(&self.engine), Owner::new("n1", ""));
        let run = Agent::run(
            self.config.clone(),
            Arc::new(runtime),
            Arc::clone(&self.clock),
            Arc::new(self.server.clone()),
            stop.clone(),
        );
        self.running = Some((stop, tokio::spawn(run)));
    }

    /// Stops the agent politely.
    pub(crate) async fn stop(&mut self) {
        let (stop, task) = self.running.take().unwrap();
        stop.cancel();
        task.await.unwrap().unwrap();
    }

    /// Waits for the agent to end by itself.
    pub(crate) async fn ended(&mut self) -> Result<(), AgentError> {
        self.running.take().unwrap().1.await.unwrap()
    }

    pub(crate) fn containers(&self) -> Vec<ContainerView> {
        self.engine.all_containers()
    }

    /// The containers with this name, in order of their making.
    pub(crate) fn named(&self, name: &str) -> Vec<ContainerView> {
        let is = |c: &ContainerView| {
            c.labels.get(labels::CONTAINER_NAME).map(String::as_str) == Some(name)
        };
        self.containers().into_iter().filter(is).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some((stop, _)) = &self.running {
            stop.cancel();
        }
    }
}
