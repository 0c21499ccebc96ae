//! The cluster: its server, its nodes, and ways to stop, kill and restart them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use muster_agent::runtime::Runtime;
use muster_agent::runtime::labels::Owner;
use muster_agent::runtime::memory::{MemoryEngine, MemoryRuntime};
use muster_agent::{DiskWork, Pace, Timing};
use muster_client::{
    ConnectOptions, Connection, Identity, Resources, ServerAddress, Trust, WriteOptions, Written,
};
use muster_model::kind::SECRET;
use muster_model::object::Object;
use muster_model::time::{SharedClock, SystemClock, Timestamp};
use muster_pki::{CertificateAuthority, JoinToken, issue};
use muster_server::auth::MASTERS;
use muster_server::controllers;
use muster_server::data_dir::{ADMIN, DataDir};
use muster_server::listen::{Listener, pipes};
use muster_server::registry::Registry;
use muster_server::{Config, RunningServer, Server, tokens};
use muster_store::{SledStore, Store};
use rand::SeedableRng;
use rand::rngs::StdRng;
use secrecy::ExposeSecret;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::clock::TokioClock;
use crate::network::{Endpoint, Gate, GatedListener, Link, Network};
use crate::node::{NodeOptions, NodeRuntime, NodeWorld, TestNode};
use crate::ports::free_port;
use crate::store::{Lasting, StoreControl};

/// How long a port or a directory that was just in use may take to be free.
const FREE_WITHIN: Duration = Duration::from_secs(10);

/// Where a cluster's objects are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoreKind {
    /// In memory; outlives a killed server all the same, as a disk does.
    #[default]
    Memory,
    /// sled in a temporary directory.
    Sled,
}

/// How to set a cluster up.
#[derive(Clone)]
pub struct ClusterOptions {
    /// What the bytes travel over.
    pub link: Link,
    /// Where objects are kept.
    pub store: StoreKind,
    /// Wall and monotonic time of everything.
    pub clock: SharedClock,
    /// Whether the controllers run.
    pub controllers: bool,
    /// Numbers of the controllers.
    pub server_timing: controllers::Timing,
    /// Beats of the agents.
    pub pace: Pace,
    /// Delays of pods.
    pub timing: Timing,
    /// Seed of uids, names, tokens and the agents' jitters, another one in each life of the server; `None`: from the
    /// operating system, as in production.
    pub seed: Option<u64>,
    /// Whether links in memory have [`Weather`](crate::Weather). Costs a task per direction of a connection.
    pub weather: bool,
    /// Where the agents' work on disk is done.
    pub disk: DiskWork,
    /// Directories are made below this one; `None`: where the system wants temporary files.
    pub directory: Option<PathBuf>,
}

impl Default for ClusterOptions {
    /// TCP, a memory store, the machine's clock, controllers on, and delays of seconds cut to fractions so that tests are
    /// quick. Graces for silent nodes are as in production: a busy machine must not make nodes sick.
    fn default() -> Self {
        let millis = Duration::from_millis;
        Self {
            link: Link::Tcp,
            store: StoreKind::Memory,
            clock: SystemClock::shared(),
            controllers: true,
            server_timing: controllers::Timing::default(),
            pace: Pace {
                heartbeat: millis(1_000),
                node_status: millis(1_000),
                redial: (millis(50), millis(500)),
                second_snapshot: millis(500),
                ..Pace::default()
            },
            timing: Timing {
                restart_first: millis(100),
                restart_max: millis(1_000),
                pull_first: millis(100),
                pull_max: millis(1_000),
                failed_sync: millis(200),
                volume_first: millis(50),
                volume_max: millis(500),
                ..Timing::default()
            },
            seed: None,
            weather: false,
            disk: DiskWork::default(),
            directory: None,
        }
    }
}

impl ClusterOptions {
    /// With objects on disk.
    #[must_use]
    pub fn on_disk(mut self) -> Self {
        self.store = StoreKind::Sled;
        self
    }

    /// For tests with tokio's clock paused: everything in memory, delays and graces as in production, a fixed seed. Hours
    /// pass as fast as the machine can compute them.
    pub fn paused() -> Self {
        Self {
            pace: Pace::default(),
            timing: Timing::default(),
            seed: Some(7),
            ..Self::default().in_memory(Arc::new(TokioClock::from_now()))
        }
    }

    /// In memory altogether, by this clock: for tokio's paused time.
    #[must_use]
    pub fn in_memory(mut self, clock: SharedClock) -> Self {
        self.link = Link::Memory;
        self.clock = clock;
        self
    }
}

/// A cluster in this process. Dropping it ends everything without order; [`Cluster::stop`] ends it well.
pub struct Cluster {
    options: ClusterOptions,
    data: DataDir,
    ca: Arc<CertificateAuthority>,
    network: Arc<Network>,
    server_gate: Arc<Gate>,
    address: SocketAddr,
    store: Option<Arc<dyn Store>>,
    store_control: Arc<StoreControl>,
    server: Option<RunningServer>,
    admin: Connection,
    token: String,
    engine: Arc<MemoryEngine>,
    nodes: BTreeMap<String, TestNode>,
    made: usize,
    reboots: usize,
    lives: u64,
    tokens: AtomicU64,
    // Last: it is removed when all that uses it is gone.
    root: TempDir,
}

impl Cluster {
    /// A server and no nodes.
    pub async fn start(options: ClusterOptions) -> anyhow::Result<Self> {
        let root = match &options.directory {
            Some(parent) => tempfile::tempdir_in(parent)?,
            None => tempfile::tempdir()?,
        };
        let data = DataDir::open(root.path().join("server"))?;
        let now = options.clock.now();
        let ca = Arc::new(data.ca("testkit", now)?);
        let network = Arc::new(Network::default());
        let server_gate = Arc::new(Gate::default());
        let store_control = Arc::new(StoreControl::default());
        let store = open_store(&options, &data, &store_control).await?;
        let (server, address) = serve(
            &options,
            &ca,
            Arc::clone(&store),
            &network,
            &server_gate,
            SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())),
            0,
        )
        .await?;
        let admin = connection(
            &ca,
            &network,
            &Arc::new(Gate::default()),
            address,
            Some((ADMIN, &[MASTERS])),
            &options.clock,
        )
        .await?;
        let mut cluster = Self {
            engine: MemoryEngine::new(options.clock.clone()),
            options,
            data,
            ca,
            network,
            server_gate,
            address,
            store: Some(store),
            store_control,
            server: Some(server),
            admin,
            token: String::new(),
            nodes: BTreeMap::new(),
            made: 0,
            reboots: 0,
            lives: 0,
            tokens: AtomicU64::new(0),
            root,
        };
        if cluster.options.link == Link::Tcp {
            let url = format!("https://{address}");
            cluster
                .data
                .write_kubeconfig(&cluster.ca, "testkit", &url, now)?;
        }
        cluster.token = cluster.make_token(None).await?;
        Ok(cluster)
    }

    /// A cluster of plain nodes with these names, all Ready.
    pub async fn with_nodes(options: ClusterOptions, names: &[&str]) -> anyhow::Result<Self> {
        let mut cluster = Self::start(options).await?;
        for name in names {
            cluster.add_node(NodeOptions::new(*name)).await?;
        }
        cluster.until_nodes_ready().await;
        Ok(cluster)
    }

    /// The administrator's connection. It finds a restarted server by itself; calls meanwhile fail.
    pub fn admin(&self) -> &Connection {
        &self.admin
    }

    /// The administrator's calls on objects.
    pub fn resources(&self) -> Resources {
        self.admin.resources()
    }

    /// A connection as this user of these groups; `None`: without a certificate.
    pub async fn connect_as(
        &self,
        identity: Option<(&str, &[&str])>,
    ) -> anyhow::Result<Connection> {
        self.connect_through(&Arc::new(Gate::default()), identity)
            .await
    }

    /// The same through a gate of the caller's.
    pub async fn connect_through(
        &self,
        gate: &Arc<Gate>,
        identity: Option<(&str, &[&str])>,
    ) -> anyhow::Result<Connection> {
        let clock = &self.options.clock;
        connection(&self.ca, &self.network, gate, self.address, identity, clock).await
    }

    /// Creates an object through the client; it says its kind itself.
    pub async fn create(&self, object: &Object) -> anyhow::Result<Written> {
        let kind = object.kind().context("an object of no known kind")?;
        Ok(self
            .resources()
            .create(kind, object, &WriteOptions::default())
            .await?)
    }

    /// A join token's text. `expires`: `None` is never.
    pub async fn make_token(&self, expires: Option<Timestamp>) -> anyhow::Result<String> {
        let mut rng = match self.options.seed {
            Some(seed) => StdRng::seed_from_u64(seed + self.tokens.fetch_add(1, Ordering::Relaxed)),
            None => StdRng::from_os_rng(),
        };
        let token = JoinToken::generate(&mut rng, self.ca.hash());
        let secret = tokens::secret(&token, expires, "testkit");
        self.resources()
            .create(&SECRET, &secret, &WriteOptions::default())
            .await?;
        Ok(token.text().expose_secret().to_owned())
    }

    /// The server's registry.
    ///
    /// # Panics
    /// When the server is stopped.
    pub fn registry(&self) -> &Registry {
        self.running().registry()
    }

    /// The server.
    ///
    /// # Panics
    /// When it is stopped.
    pub fn running(&self) -> &RunningServer {
        match &self.server {
            Some(server) => server,
            None => panic!("the server is stopped: start it first"),
        }
    }

    /// Whether the server runs.
    pub fn has_server(&self) -> bool {
        self.server.is_some()
    }

    /// The store beneath the server; `None` while a cluster on disk has none open.
    pub fn store(&self) -> Option<&Arc<dyn Store>> {
        self.store.as_ref()
    }

    /// The hand on the memory store: faults to order, and an observer.
    pub fn store_control(&self) -> &Arc<StoreControl> {
        &self.store_control
    }

    /// The clock of everything.
    pub fn clock(&self) -> &SharedClock {
        &self.options.clock
    }

    /// The cluster's CA.
    pub fn ca(&self) -> &Arc<CertificateAuthority> {
        &self.ca
    }

    /// Where the server listens; of no use with pipes.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The administrator's kubeconfig, for the CLI. Only with TCP.
    pub fn kubeconfig(&self) -> PathBuf {
        self.data.kubeconfig()
    }

    /// A directory of the cluster's own, removed with it.
    pub fn directory(&self) -> &Path {
        self.root.path()
    }

    /// The engine of the nodes that have none of their own.
    pub fn engine(&self) -> &Arc<MemoryEngine> {
        &self.engine
    }

    /// The token that nodes join with.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Names of the nodes that were added, running or not.
    pub fn node_names(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
    }

    /// Starts a node's agent; it joins by itself. [`Cluster::until_nodes_ready`] waits for it.
    pub async fn add_node(&mut self, options: NodeOptions) -> anyhow::Result<()> {
        if self.nodes.contains_key(&options.name) {
            bail!("there is a node {} already", options.name);
        }
        let runtime: Arc<dyn Runtime> = match &options.runtime {
            NodeRuntime::Memory => memory(&self.engine, &options.name),
            NodeRuntime::Engine(engine) => memory(engine, &options.name),
            NodeRuntime::Own(runtime) => Arc::clone(runtime),
        };
        let clock = options.clock.as_ref().unwrap_or(&self.options.clock);
        let world = NodeWorld {
            clock: clock.clone(),
            disk: self.options.disk,
            seed: self.options.seed.unwrap_or_default(),
            pace: self.options.pace.clone(),
            timing: self.options.timing.clone(),
            address: server_address(self.address)?,
            token: self.token.clone(),
            directory: self.root.path().join("nodes"),
        };
        let gate = match self.options.weather {
            true => Gate::with_weather(world.seed.wrapping_add(self.made as u64)),
            false => Gate::default(),
        };
        let gate = Arc::new(gate);
        let dial = self.network.dialer(Arc::clone(&gate));
        let name = options.name.clone();
        let mut node = TestNode::new(options, self.made, &world, runtime, gate, dial)?;
        self.made += 1;
        node.start();
        self.nodes.insert(name, node);
        Ok(())
    }

    fn node(&mut self, name: &str) -> anyhow::Result<&mut TestNode> {
        self.nodes
            .get_mut(name)
            .with_context(|| format!("no node {name} was added"))
    }

    /// Stops a node's agent as SIGTERM does. Its containers run on.
    pub async fn stop_node(&mut self, name: &str) -> anyhow::Result<()> {
        self.node(name)?.stop().await
    }

    /// Kills a node's agent as SIGKILL does. Its containers run on.
    pub async fn kill_node(&mut self, name: &str) -> anyhow::Result<()> {
        self.node(name)?.kill().await;
        Ok(())
    }

    /// Starts a node's agent again; one that runs is killed first.
    pub async fn restart_node(&mut self, name: &str) -> anyhow::Result<()> {
        let node = self.node(name)?;
        node.kill().await;
        node.start();
        Ok(())
    }

    /// The machine goes down with its containers and comes back with another boot id.
    pub async fn reboot_node(&mut self, name: &str) -> anyhow::Result<()> {
        self.reboots += 1;
        let boot_id = format!("boot-{name}-again-{}", self.reboots);
        let shared = Arc::clone(&self.engine);
        let node = self.node(name)?;
        let engine = match &node.options.runtime {
            NodeRuntime::Engine(engine) => Arc::clone(engine),
            NodeRuntime::Memory | NodeRuntime::Own(_) => shared,
        };
        node.kill().await;
        for container in crate::check::containers_of(&engine, name) {
            engine.end(&container.id, 137);
        }
        node.set_boot_id(boot_id);
        node.start();
        Ok(())
    }

    /// Forgets a node: its agent is killed and its state is lost. Its Node object and containers stay.
    pub async fn lose_node(&mut self, name: &str) -> anyhow::Result<()> {
        let mut node = self
            .nodes
            .remove(name)
            .with_context(|| format!("no node {name} was added"))?;
        node.kill().await;
        match node.state_dir() {
            Some(directory) if directory.exists() => Ok(std::fs::remove_dir_all(directory)?),
            _ => Ok(()),
        }
    }

    /// The gate between a node and the server.
    pub fn gate(&self, node: &str) -> anyhow::Result<&Arc<Gate>> {
        self.nodes
            .get(node)
            .map(|node| &node.gate)
            .with_context(|| format!("no node {node} was added"))
    }

    /// Where a node keeps its state; `None` when it is hollow or was not added.
    pub fn node_state_dir(&self, node: &str) -> Option<&Path> {
        self.nodes.get(node)?.state_dir()
    }

    /// How a node's agent ended by itself, if it did.
    pub async fn node_ended(&mut self, name: &str) -> Option<anyhow::Error> {
        self.nodes.get_mut(name)?.ended().await
    }

    /// Cuts every node off from the server.
    pub fn partition_all(&self) {
        self.nodes.values().for_each(|node| node.gate.close());
    }

    /// Ends every partition.
    pub fn heal_all(&self) {
        self.nodes.values().for_each(|node| node.gate.open());
    }

    /// Stops the server in order.
    pub async fn stop_server(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop().await;
        }
        self.server_gate.close();
        self.network.set(None);
        if self.options.store == StoreKind::Sled {
            self.store = None;
        }
    }

    /// Ends the server at once, as SIGKILL does: connections break, nothing is finished, nothing is closed.
    pub async fn kill_server(&mut self) {
        self.server_gate.close();
        self.network.set(None);
        self.server = None;
        if self.options.store == StoreKind::Sled {
            self.store = None;
        }
    }

    /// Starts the server again, over the same store and on the same port.
    pub async fn start_server(&mut self) -> anyhow::Result<()> {
        if self.server.is_some() {
            bail!("the server runs");
        }
        let store = match &self.store {
            Some(store) => Arc::clone(store),
            None => open_store(&self.options, &self.data, &self.store_control).await?,
        };
        self.store = Some(Arc::clone(&store));
        self.server_gate.open();
        self.lives += 1;
        let (server, _) = serve(
            &self.options,
            &self.ca,
            store,
            &self.network,
            &self.server_gate,
            self.address,
            self.lives,
        )
        .await?;
        self.server = Some(server);
        Ok(())
    }

    /// The stopped server's data is lost: the next start is that of a new, empty server with the same CA. Only with a
    /// memory store.
    pub async fn lose_data(&mut self) -> anyhow::Result<()> {
        if self.server.is_some() || self.options.store != StoreKind::Memory {
            bail!("stop the server of a cluster in memory first");
        }
        self.store = Some(open_store(&self.options, &self.data, &self.store_control).await?);
        Ok(())
    }

    /// A dialer of the cluster's server, for connections of another making.
    pub fn dialer(&self) -> Arc<dyn muster_client::Dial> {
        self.network.dialer(Arc::new(Gate::default()))
    }

    /// The server's address as clients take it.
    pub fn server_address(&self) -> anyhow::Result<ServerAddress> {
        server_address(self.address)
    }

    /// Stops agents and server in order.
    pub async fn stop(mut self) {
        let nodes = std::mem::take(&mut self.nodes);
        let stopping = nodes.into_values().map(|mut node| async move {
            if let Err(error) = node.stop().await {
                tracing::warn!(%error, "an agent did not stop well");
            }
        });
        futures::future::join_all(stopping).await;
        if let Some(server) = self.server.take() {
            server.stop().await;
        }
    }
}

fn memory(engine: &Arc<MemoryEngine>, node: &str) -> Arc<dyn Runtime> {
    Arc::new(MemoryRuntime::new(Arc::clone(engine), Owner::new(node, "")))
}

fn server_address(address: SocketAddr) -> anyhow::Result<ServerAddress> {
    Ok(address.to_string().parse()?)
}

async fn connection(
    ca: &CertificateAuthority,
    network: &Arc<Network>,
    gate: &Arc<Gate>,
    address: SocketAddr,
    identity: Option<(&str, &[&str])>,
    clock: &SharedClock,
) -> anyhow::Result<Connection> {
    let now = clock.now();
    let trust = Trust::Ca(ca.cert_pem().to_owned());
    let mut options = ConnectOptions::new(server_address(address)?, trust)
        .with_dialer(network.dialer(Arc::clone(gate)))
        .with_clock(clock.clone());
    if let Some((user, groups)) = identity {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        let issued = issue::issue_client(ca, user, &groups, now, issue::CLIENT_VALIDITY)?;
        options = options.with_identity(Identity {
            cert_pem: issued.cert_pem,
            key_pem: issued.key_pem.expose_secret().to_owned(),
        });
    }
    Ok(Connection::open(&options).await?)
}

/// A killed server's last tasks may hold the directory for a moment.
async fn open_store(
    options: &ClusterOptions,
    data: &DataDir,
    control: &Arc<StoreControl>,
) -> anyhow::Result<Arc<dyn Store>> {
    if options.store == StoreKind::Memory {
        return Ok(Arc::new(Lasting::new(Arc::clone(control))));
    }
    let give_up = tokio::time::Instant::now() + FREE_WITHIN;
    loop {
        let directory = data.store();
        let opened = tokio::task::spawn_blocking(move || {
            SledStore::open(&directory, muster_store::Options::default())
        });
        match opened.await? {
            Ok(store) => return Ok(Arc::new(store)),
            Err(error) if tokio::time::Instant::now() >= give_up => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Starts a server; with port 0 the system chooses one.
async fn serve(
    options: &ClusterOptions,
    ca: &Arc<CertificateAuthority>,
    store: Arc<dyn Store>,
    network: &Arc<Network>,
    gate: &Arc<Gate>,
    address: SocketAddr,
    life: u64,
) -> anyhow::Result<(RunningServer, SocketAddr)> {
    let config = Config {
        controllers: options.controllers,
        timing: options.server_timing.clone(),
        // The same seed again would give out the same uids again.
        seed: options.seed.map(|seed| seed.wrapping_add(life << 32)),
        ..Config::new(Arc::clone(ca))
    };
    let gate = Arc::clone(gate);
    let clock = options.clock.clone();
    match options.link {
        Link::Tcp => {
            let listener = bind(address).await?;
            let listener = GatedListener { listener, gate };
            let address = listener
                .local_addr()
                .context("a TCP listener without address")?;
            let server =
                Server::start(config, listener, store, clock, CancellationToken::new()).await?;
            network.set(Some(Endpoint::Tcp(address)));
            Ok((server, address))
        }
        Link::Memory => {
            let (listener, connector) = pipes();
            let listener = GatedListener { listener, gate };
            let server =
                Server::start(config, listener, store, clock, CancellationToken::new()).await?;
            network.set(Some(Endpoint::Pipe(connector)));
            // Serves messages only: nothing listens there.
            Ok((server, SocketAddr::from((Ipv4Addr::LOCALHOST, 7443))))
        }
    }
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let give_up = tokio::time::Instant::now() + FREE_WITHIN;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) if tokio::time::Instant::now() >= give_up => {
                return Err(error).context(format!("could not listen on {address} again"));
            }
            // The killed server's listener is about to go.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
