//! `muster server`: the API server and its controllers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use muster_client::Environment;
use muster_model::time::SharedClock;
use muster_server::data_dir::DataDir;
use muster_server::{Config, RunningServer, Server};
use muster_store::{MemoryStore, Options, SledStore, Store};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::chain;
use crate::args::LogFormat;
use crate::failure::{Failure, Outcome};
use crate::session::Session;
use crate::signals;

/// What keeps the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum StoreEngine {
    /// On disk, in the data directory
    #[default]
    Sled,
    /// In memory: everything is gone when the server stops
    Memory,
}

/// How the server runs.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  muster server                                on this machine only, data in the usual place
  muster server --listen 0.0.0.0:7443 --advertise 192.0.2.10,muster.lan
                                               for other machines too
  muster server --store memory --data-dir /tmp/try

The server writes admin.kubeconfig into its data directory: muster finds it there by itself, kubectl with
KUBECONFIG=DIR/admin.kubeconfig.")]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    pub(crate) place: ServerPlace,
    /// text or json
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
}

/// Where it keeps its data and under which addresses it is found.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerPlace {
    /// Where CA, kubeconfig and objects are kept [default: /var/lib/muster as root, else ~/.local/share/muster]
    #[arg(long, value_name = "DIR", env = "MUSTER_DATA_DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The address to listen on; 0.0.0.0:7443 for every interface
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:7443",
        env = "MUSTER_LISTEN"
    )]
    pub(crate) listen: SocketAddr,
    /// Names and addresses of this machine, for the certificate; the first one goes into admin.kubeconfig
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) advertise: Vec<String>,
    /// What keeps the objects: sled or memory
    #[arg(long, value_enum, default_value_t, value_name = "ENGINE")]
    pub(crate) store: StoreEngine,
    /// The name of the cluster, in the CA and as the kubeconfig's context
    #[arg(long, value_name = "NAME", default_value = "muster")]
    pub(crate) cluster_name: String,
}

/// A server of this process.
pub(crate) struct LocalServer {
    pub(crate) running: RunningServer,
    pub(crate) url: String,
    pub(crate) kubeconfig: PathBuf,
}

impl ServerArgs {
    /// Runs the server until a signal.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        let stop = CancellationToken::new();
        let server = start(
            &self.place,
            &session.environment,
            session.clock.clone(),
            stop.clone(),
        )
        .await?;
        announce(session, &server)?;
        tokio::select! {
            () = stop.cancelled() => {}
            outcome = signals::watch(stop.clone()) => outcome?,
        }
        // The signals stay watched while it stops: the second one ends the process.
        tokio::select! {
            () = server.running.stop() => Ok(()),
            outcome = signals::watch(CancellationToken::new()) => outcome,
        }
    }
}

/// Starts a server. Nothing is left behind when it does not start.
pub(crate) async fn start(
    place: &ServerPlace,
    environment: &Environment,
    clock: SharedClock,
    stop: CancellationToken,
) -> Outcome<LocalServer> {
    let root = place
        .data_dir
        .clone()
        .unwrap_or_else(|| environment.data_dir());
    let directory =
        DataDir::open(&root).map_err(|error| chain("the data directory cannot be used", &error))?;
    let ca = directory
        .ca(&place.cluster_name, clock.now())
        .map_err(|error| chain("the data directory cannot be used", &error))?;
    let listener = TcpListener::bind(place.listen).await.map_err(|error| {
        Failure::new(format!(
            "cannot listen on {}: {error}: is a server running already? (--listen takes another address)",
            place.listen
        ))
    })?;
    let address = listener.local_addr()?;
    let store = open_store(place.store, &directory.store()).await?;
    let mut config = Config::new(Arc::new(ca));
    config.names.clone_from(&place.advertise);
    if !address.ip().is_unspecified() {
        config.names.push(address.ip().to_string());
    }
    let url = url(place, address);
    let kubeconfig = directory
        .write_kubeconfig(&config.ca, &place.cluster_name, &url, clock.now())
        .map_err(|error| chain("admin.kubeconfig cannot be written", &error))?;
    let running = Box::pin(Server::start(config, listener, store, clock, stop))
        .await
        .map_err(|error| chain("the server does not start", &error))?;
    Ok(LocalServer {
        running,
        url,
        kubeconfig,
    })
}

/// How clients of the kubeconfig reach it.
fn url(place: &ServerPlace, address: SocketAddr) -> String {
    let host = match place.advertise.first() {
        Some(name) => name.clone(),
        None if address.ip().is_unspecified() => Ipv4Addr::LOCALHOST.to_string(),
        None => address.ip().to_string(),
    };
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(host)) => format!("https://[{host}]:{}", address.port()),
        _ => format!("https://{host}:{}", address.port()),
    }
}

async fn open_store(engine: StoreEngine, directory: &Path) -> Outcome<Arc<dyn Store>> {
    if engine == StoreEngine::Memory {
        return Ok(Arc::new(MemoryStore::new()));
    }
    let directory = directory.to_owned();
    let opened =
        tokio::task::spawn_blocking(move || SledStore::open(&directory, Options::default())).await;
    match opened {
        Ok(Ok(store)) => Ok(Arc::new(store)),
        Ok(Err(error)) => Err(chain("the store cannot be opened", &error)),
        Err(error) => Err(Failure::new(format!("the store cannot be opened: {error}"))),
    }
}

pub(crate) fn announce(session: &mut Session, server: &LocalServer) -> Outcome {
    let console = &mut session.console;
    console.line(format!(
        "Muster {} is up at {}",
        env!("CARGO_PKG_VERSION"),
        server.url
    ))?;
    console.line(format!("  kubeconfig:  {}", server.kubeconfig.display()))?;
    console.line("  join a node: muster token create")?;
    console.flush()?;
    Ok(())
}
