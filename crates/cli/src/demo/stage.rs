//! What the demo plays on: a server, nodes, a host log that grows, and the sweeping up afterwards.
//!
//! Everything lies in one temporary directory, and every container carries the demo's own cluster id, so that
//! nothing else on the machine is seen or touched.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use muster_agent::AgentConfig;
use muster_agent::runtime::docker::{
    DockerConfig, DockerEngine, DockerRuntime, demo_image, socket_path,
};
use muster_agent::runtime::labels::Owner;
use muster_agent::runtime::memory::{MemoryEngine, MemoryRuntime};
use muster_agent::runtime::{ContainerState, Runtime};
use muster_client::{ContextFlags, ServerAddress, context};
use muster_model::time::{SharedClock, to_seconds_text};
use secrecy::ExposeSecret;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::nodes::DemoNode;
use crate::cmd::agent::{self, RuntimeKind};
use crate::cmd::server::{self, LocalServer, ServerPlace, StoreEngine};
use crate::cmd::token;
use crate::failure::{Failure, Outcome};
use crate::session::{Server, Session};

/// The log agent's program: about two kilobytes, compiled by the build script.
const LOG_AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tail"));
/// The image of the first, and of the second version.
pub(crate) const IMAGES: [&str; 2] = ["muster-demo/log-agent:v1", "muster-demo/log-agent:v2"];
/// The file that stands for the host's log, in `/var/log` of the container.
const LOG_FILE: &str = "app.log";
/// Between two lines of the host's log.
const LINE_EVERY: Duration = Duration::from_millis(400);
/// The joining tokens of the demo are used at once.
const TOKEN_TTL: Duration = Duration::from_secs(3_600);
/// How long the sweeping up waits for the cluster to stop its pods by itself.
const PODS_GONE_WITHIN: Duration = Duration::from_secs(20);

/// A cluster for a demonstration.
pub(crate) struct Stage {
    root: TempDir,
    kind: RuntimeKind,
    engine: Arc<MemoryEngine>,
    clock: SharedClock,
    server: Option<LocalServer>,
    admin: Server,
    token: String,
    runtimes: BTreeMap<&'static str, Arc<dyn Runtime>>,
    agents: JoinSet<Outcome>,
    stop_agents: CancellationToken,
    helpers: JoinSet<()>,
    stop_helpers: CancellationToken,
}

/// Whether a Docker engine answers; why not, otherwise.
pub(crate) async fn docker_answers(clock: SharedClock) -> Result<String, String> {
    let runtime = docker_runtime("probe", "", clock).map_err(|failure| failure.text)?;
    match runtime.version().await {
        Ok(version) => Ok(version.text),
        Err(error) => Err(error.to_string()),
    }
}

fn docker_socket() -> Outcome<PathBuf> {
    let host = std::env::var("DOCKER_HOST").ok();
    socket_path(host.as_deref()).map_err(|error| Failure::new(error.to_string()))
}

fn docker_runtime(node: &str, cluster: &str, clock: SharedClock) -> Outcome<DockerRuntime> {
    let mut config = DockerConfig::new(Owner::new(node, cluster), clock);
    config.socket = docker_socket()?;
    Ok(DockerRuntime::new(config))
}

impl Stage {
    /// Starts a server and lets the host's log grow. Nodes are added by [`Stage::add_node`].
    pub(crate) async fn set_up(session: &Session, kind: RuntimeKind) -> Outcome<Self> {
        let root = tempfile::Builder::new().prefix("muster-demo-").tempdir()?;
        fs::create_dir(root.path().join("host-log"))?;
        let clock = session.clock.clone();
        let engine = MemoryEngine::new(clock.clone());
        for image in IMAGES {
            match kind {
                RuntimeKind::Docker => {
                    let engine = DockerEngine::new(docker_socket()?);
                    let image = demo_image(image, LOG_AGENT, &[&format!("/var/log/{LOG_FILE}")]);
                    image.ensure(&engine).await.map_err(|error| {
                        Failure::new(format!("the demo's image cannot be built: {error}"))
                    })?;
                }
                RuntimeKind::Memory => drop(engine.add_image(image)),
            }
        }
        let place = ServerPlace {
            data_dir: Some(root.path().join("server")),
            listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0),
            advertise: Vec::new(),
            store: StoreEngine::Sled,
            cluster_name: "muster-demo".to_owned(),
        };
        let stop = CancellationToken::new();
        let local = server::start(&place, &session.environment, clock.clone(), stop).await?;
        let admin = connect(session, &local.kubeconfig).await?;
        let (token, _) = token::make(&admin, clock.now(), TOKEN_TTL, "muster demo").await?;
        let mut stage = Self {
            root,
            kind,
            engine,
            clock,
            admin,
            token: token.text().expose_secret().to_owned(),
            server: Some(local),
            runtimes: BTreeMap::new(),
            agents: JoinSet::new(),
            stop_agents: CancellationToken::new(),
            helpers: JoinSet::new(),
            stop_helpers: CancellationToken::new(),
        };
        stage.let_the_log_grow();
        Ok(stage)
    }

    /// Starts a node's agent; it joins by itself.
    pub(crate) fn add_node(&mut self, node: &DemoNode) -> Outcome {
        let local = self
            .server
            .as_ref()
            .ok_or_else(|| Failure::new("the demo's server has stopped"))?;
        let address: ServerAddress = local
            .url
            .parse()
            .map_err(|error: muster_client::AddressError| Failure::new(error.to_string()))?;
        let runtime: Arc<dyn Runtime> = match self.kind {
            RuntimeKind::Docker => Arc::new(docker_runtime(
                node.name,
                local.running.cluster_id(),
                self.clock.clone(),
            )?),
            RuntimeKind::Memory => {
                let owner = Owner::new(node.name, local.running.cluster_id());
                Arc::new(MemoryRuntime::new(Arc::clone(&self.engine), owner))
            }
        };
        let mut config = AgentConfig::new(
            node.name,
            Some(self.root.path().join("nodes").join(node.name)),
        );
        // One machine plays them all: each says it is another one, and all live on loopback.
        config.machine.machine_id = format!("{}-{}", config.machine.machine_id, node.name);
        config.machine.host_name = node.name.to_owned();
        config.labels = node.labels().collect();
        config.taints = node.taints();
        config.node_ip = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        config.allow_loopback_node_ip = true;
        config.secrets_on_disk = true;
        self.runtimes.insert(node.name, Arc::clone(&runtime));
        let (token, clock) = (Some(self.token.clone()), self.clock.clone());
        self.agents.spawn(agent::run(
            config,
            runtime,
            vec![address],
            token,
            clock,
            self.stop_agents.clone(),
        ));
        Ok(())
    }

    /// Where the demo lies.
    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    /// The directory that stands for the host's `/var/log`.
    pub(crate) fn log_directory(&self) -> PathBuf {
        self.root.path().join("host-log")
    }

    /// Lines in the host's log so far.
    pub(crate) fn log_lines(&self) -> usize {
        fs::read_to_string(self.log_directory().join(LOG_FILE))
            .map_or(0, |text| text.lines().count())
    }

    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.server
            .as_ref()
            .map(|local| local.kubeconfig.clone())
            .unwrap_or_default()
    }

    /// Identity of the demo's cluster: every container carries it in a label.
    pub(crate) fn cluster_id(&self) -> String {
        self.server
            .as_ref()
            .map(|local| local.running.cluster_id().to_owned())
            .unwrap_or_default()
    }

    /// The administrator's connection.
    pub(crate) fn admin(&self) -> &Server {
        &self.admin
    }

    /// Kills the running container of the image on a node, as a crash would.
    pub(crate) async fn crash(&self, node: &str) -> Outcome {
        let Some(runtime) = self.runtimes.get(node) else {
            return Err(Failure::new(format!("the demo has no node {node}")));
        };
        let containers = runtime
            .list()
            .await
            .map_err(|error| Failure::new(error.to_string()))?;
        let running = containers.iter().find(|container| {
            container.name.contains("_log-agent_")
                && matches!(container.state, ContainerState::Running { .. })
        });
        let Some(container) = running else {
            return Err(Failure::new(format!(
                "nothing runs on {node} that could crash"
            )));
        };
        if self.kind == RuntimeKind::Memory {
            self.engine.end(&container.id, 137);
            return Ok(());
        }
        runtime
            .stop(&container.id, Duration::ZERO)
            .await
            .map_err(|error| Failure::new(error.to_string()))
    }

    /// Appends a line to the host's log every now and then. Pretended containers read nothing: theirs are
    /// written into their logs directly.
    fn let_the_log_grow(&mut self) {
        let (path, clock, stop) = (
            self.log_directory().join(LOG_FILE),
            self.clock.clone(),
            self.stop_helpers.clone(),
        );
        let engine = (self.kind == RuntimeKind::Memory).then(|| Arc::clone(&self.engine));
        self.helpers.spawn(async move {
            let mut ticks = tokio::time::interval(LINE_EVERY);
            for number in 1_u64.. {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = ticks.tick() => {}
                }
                let line = format!(
                    "{} host: session {number} opened",
                    to_seconds_text(clock.now())
                );
                if append(&path, &line).is_err() {
                    return;
                }
                for container in engine.iter().flat_map(|engine| engine.all_containers()) {
                    if let (Some(engine), ContainerState::Running { .. }) =
                        (&engine, &container.state)
                    {
                        engine.write_log(&container.id, &line);
                    }
                }
            }
        });
    }

    /// Takes everything away again: pods by the cluster's own means first, then whatever is left of them, then
    /// agents, server and files.
    pub(crate) async fn clean_up(mut self) -> Outcome {
        if let Err(error) = self.remove_daemonsets().await {
            tracing::debug!(error = error.text, "the demo's DaemonSets were not deleted");
        }
        self.stop_agents.cancel();
        while self.agents.join_next().await.is_some() {}
        self.stop_helpers.cancel();
        while self.helpers.join_next().await.is_some() {}
        let mut left = Vec::new();
        for (node, runtime) in &self.runtimes {
            for container in runtime.list().await.unwrap_or_default() {
                if let Err(error) = runtime.remove(&container.id).await {
                    left.push(format!("container {} of {node}: {error}", container.name));
                }
            }
        }
        if self.kind == RuntimeKind::Docker {
            let engine = DockerEngine::new(docker_socket()?);
            for image in IMAGES {
                // Somebody else's demo may still use it.
                if let Err(error) = engine.remove_image(image).await {
                    tracing::debug!(%error, "the demo's image stays");
                }
            }
        }
        if let Some(local) = self.server.take() {
            local.running.stop().await;
        }
        if let Err(error) = self.root.close() {
            left.push(format!("its directory: {error}"));
        }
        if left.is_empty() {
            Ok(())
        } else {
            Err(Failure::new(format!(
                "the demo could not remove everything: {}",
                left.join("; ")
            )))
        }
    }

    async fn remove_daemonsets(&self) -> Outcome {
        use muster_client::{DeleteOptions, ListOptions};
        use muster_model::kind::{DAEMON_SET, POD};
        let resources = self.admin.resources();
        for daemon in resources
            .list(&DAEMON_SET, "", &ListOptions::default())
            .await?
            .items
        {
            resources
                .delete(
                    &DAEMON_SET,
                    &daemon.namespaced_name(),
                    &DeleteOptions::default(),
                )
                .await?;
        }
        let gone = async {
            loop {
                match resources.list(&POD, "", &ListOptions::default()).await {
                    Ok(pods) if pods.items.is_empty() => return,
                    Ok(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                    Err(_) => return,
                }
            }
        };
        let _ = tokio::time::timeout(PODS_GONE_WITHIN, gone).await;
        Ok(())
    }
}

async fn connect(session: &Session, kubeconfig: &Path) -> Outcome<Server> {
    let flags = ContextFlags {
        kubeconfig: Some(kubeconfig.to_owned()),
        ..ContextFlags::default()
    };
    let target = context::resolve(&flags, &session.environment)?;
    let connection = target.connect().await?;
    Ok(Server {
        connection,
        target,
        namespace: "default".to_owned(),
        namespace_was_given: false,
    })
}

fn append(path: &Path, line: &str) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?;
    writeln!(file, "{line}")
}
