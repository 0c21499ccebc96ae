//! The measured processes: a server, many hollow agents, one agent over Docker.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::FutureExt;
use futures::future::BoxFuture;
use muster_agent::runtime::Runtime;
use muster_agent::runtime::docker::{DockerConfig, DockerRuntime, socket_path};
use muster_agent::runtime::labels::Owner;
use muster_agent::runtime::memory::{Behaviour, MemoryEngine, MemoryRuntime};
use muster_agent::{Agent, AgentConfig, Connect, DialError};
use muster_client::{ConnectOptions, Connection};
use muster_server::data_dir::DataDir;
use muster_server::{Config, Server};
use muster_store::{MemoryStore, Options, SledStore, Store};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::daemon;
use crate::figures;
use crate::part::end_of_input;
use crate::site::{Site, StoreKind};

/// The label of hollow nodes by which one of them is picked.
pub(crate) const INDEX: &str = "bench.muster.dev/index";
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[derive(Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// The directory with the CA
    #[arg(long)]
    dir: PathBuf,
    /// Where to keep objects
    #[arg(long, value_enum)]
    store: StoreKind,
}

#[derive(Debug, clap::Args)]
pub(crate) struct HollowArgs {
    /// The directory with the CA
    #[arg(long)]
    dir: PathBuf,
    /// The server
    #[arg(long)]
    server: String,
    /// How many agents
    #[arg(long)]
    nodes: usize,
    /// How long a container takes to start, in milliseconds
    #[arg(long, default_value_t = 0)]
    start_ms: u64,
    /// How long it takes to stop, in milliseconds
    #[arg(long, default_value_t = 0)]
    stop_ms: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AgentArgs {
    /// The directory with the CA
    #[arg(long)]
    dir: PathBuf,
    /// The server
    #[arg(long)]
    server: String,
    /// The node's name
    #[arg(long)]
    node: String,
}

/// Runs a server until the input ends; says its address.
pub(crate) async fn server(args: ServerArgs) -> anyhow::Result<()> {
    let stop = end_of_input();
    raise_file_limit();
    let site = Site::open(&args.dir)?;
    let store: Arc<dyn Store> = match args.store {
        StoreKind::Memory => Arc::new(MemoryStore::new()),
        StoreKind::Sled => {
            let directory = DataDir::open(&args.dir)?.store();
            Arc::new(SledStore::open(&directory, Options::default())?)
        }
    };
    let listener = TcpListener::bind(SocketAddr::new(LOOPBACK, 0)).await?;
    let config = Config::new(site.ca);
    let running = Server::start(config, listener, store, site.clock, stop).await?;
    let address = running.local_addr().context("no address")?;
    figures::print(&address.to_string())?;
    running.wait().await;
    Ok(())
}

/// Runs hollow agents until the input ends; says so when they have all begun.
pub(crate) async fn hollow(args: HollowArgs) -> anyhow::Result<()> {
    let stop = end_of_input();
    raise_file_limit();
    let site = Site::open(&args.dir)?;
    let mut agents = JoinSet::new();
    for index in 0..args.nodes {
        let name = daemon::node_name(index);
        let mut config = AgentConfig::new(&name, None);
        // Each is a machine of its own to the server.
        config.machine.machine_id = format!("bench-{index}");
        config.machine.host_name.clone_from(&name);
        config.node_ip = Some(LOOPBACK);
        config.allow_loopback_node_ip = true;
        config.labels.insert(INDEX.to_owned(), index.to_string());
        let engine = MemoryEngine::new(site.clock.clone());
        for image in daemon::IMAGES {
            engine.add_image(image);
            let behaviour = Behaviour {
                start_delay: Duration::from_millis(args.start_ms),
                term_delay: Duration::from_millis(args.stop_ms),
                ..Behaviour::default()
            };
            engine.set_behaviour(image, behaviour);
        }
        let runtime: Arc<dyn Runtime> = Arc::new(MemoryRuntime::new(engine, Owner::new(&name, "")));
        let connect = connector(site.node(&args.server, &name)?);
        let (clock, stop) = (site.clock.clone(), stop.clone());
        agents.spawn(
            async move { Box::pin(Agent::run(config, runtime, clock, connect, stop)).await },
        );
    }
    figures::print("up")?;
    while let Some(ended) = agents.join_next().await {
        ended??;
    }
    Ok(())
}

/// Runs one agent over the local Docker until the input ends; says so at once.
pub(crate) async fn agent(args: AgentArgs) -> anyhow::Result<()> {
    let stop = end_of_input();
    let site = Site::open(&args.dir)?;
    let mut config = AgentConfig::new(&args.node, Some(args.dir.join("agent")));
    config.node_ip = Some(LOOPBACK);
    config.allow_loopback_node_ip = true;
    let docker = DockerConfig {
        socket: socket_path(std::env::var("DOCKER_HOST").ok().as_deref())?,
        ..DockerConfig::new(Owner::new(&args.node, ""), site.clock.clone())
    };
    let connect = connector(site.node(&args.server, &args.node)?);
    figures::print("up")?;
    let runtime = Arc::new(DockerRuntime::new(docker));
    Box::pin(Agent::run(config, runtime, site.clock, connect, stop)).await?;
    Ok(())
}

fn connector(options: ConnectOptions) -> Arc<dyn Connect> {
    Arc::new(
        move || -> BoxFuture<'static, Result<Connection, DialError>> {
            let options = options.clone();
            async move { Ok(Connection::open(&options).await?) }.boxed()
        },
    )
}

/// Each node is a connection: as many files as may be had. Where none may be had, connecting will say so.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wished = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let _ = setrlimit(Resource::Nofile, wished);
}
