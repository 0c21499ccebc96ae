//! Putting a server together, and taking it apart again in the right order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use muster_model::time::SharedClock;
use muster_pki::{Issued, PkiError, identity, issue};
use muster_proto::MAX_MESSAGE_BYTES;
use muster_proto::v1::daemon_set_service_server::DaemonSetServiceServer;
use muster_proto::v1::node_service_server::NodeServiceServer;
use muster_proto::v1::pod_service_server::PodServiceServer;
use muster_proto::v1::resource_service_server::ResourceServiceServer;
use muster_store::{CommitError, Store, WatchError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::auth;
use crate::cache::Cache;
use crate::config::Config;
use crate::controllers::{self, Troubles};
use crate::events::Recorder;
use crate::first_start;
use crate::grpc::{DaemonSets, Nodes, Pods, Resources};
use crate::health;
use crate::heartbeats::Heartbeats;
use crate::leases::Leases;
use crate::listen::{self, Listener};
use crate::machines;
use crate::metrics::Metrics;
use crate::node_feed::NodeFeeds;
use crate::registry::{Ids, Registry};
use crate::status::ApiError;
use crate::tls::{self, ServerIdentity, TlsError};
use crate::tunnel::Tunnels;

/// How often the server looks whether its certificate is due. A clock that was wrong at the start is soon right.
const RENEW_EVERY: Duration = Duration::from_secs(3_600);

/// The server.
#[derive(Debug)]
pub struct Server;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be read.
    #[error("could not read the store")]
    Load(#[from] WatchError),
    /// The store cannot be written.
    #[error("could not write to the store")]
    Write(#[from] CommitError),
    /// The initial objects cannot be made.
    #[error("could not make the initial namespaces and priority classes")]
    FirstStart(#[from] ApiError),
    /// The server's certificate cannot be made.
    #[error("could not make the server's certificate")]
    Pki(#[from] PkiError),
    /// TLS cannot be set up.
    #[error("could not set TLS up")]
    Tls(#[from] TlsError),
}

/// A server that runs. Dropping it stops it without order; [`RunningServer::stop`] stops it well.
pub struct RunningServer {
    registry: Registry,
    heartbeats: Heartbeats,
    events: Recorder,
    metrics: Metrics,
    cluster_id: String,
    local_addr: Option<SocketAddr>,
    store: Arc<dyn Store>,
    stop: CancellationToken,
    /// What takes requests and decides.
    workers: JoinSet<()>,
    /// What the workers lean on: stopped after them.
    foundations: JoinSet<()>,
    sink: CancellationToken,
}

impl Server {
    /// Starts a server over a store. It serves `listener` until `stop` is cancelled; then call
    /// [`RunningServer::stop`] (or [`RunningServer::wait`]) to let it end in order.
    pub async fn start<L: Listener>(
        config: Config,
        listener: L,
        store: Arc<dyn Store>,
        clock: SharedClock,
        stop: CancellationToken,
    ) -> Result<RunningServer, StartError> {
        let mut foundations = JoinSet::new();
        let mut workers = JoinSet::new();
        let sink = CancellationToken::new();
        let ids = config.seed.map_or_else(Ids::from_os, Ids::seeded);
        let (cache, feed) = Cache::load(Arc::clone(&store)).await?;
        for broken in cache.broken() {
            tracing::error!(
                key = broken.key,
                why = broken.why,
                "this object is left out until it is mended"
            );
        }
        foundations.spawn(feed.run(sink.clone()));
        let registry = Registry::new(Arc::clone(&store), cache.clone(), clock.clone(), ids);
        let cluster_id = first_start::cluster_id(&store, registry.ids().uid()).await?;
        first_start::objects(&registry).await?;
        machines::forget_unused(&registry).await?;
        let (events, scribe) = Recorder::new(registry.clone());
        foundations.spawn(scribe.run(sink.clone()));
        let metrics = Metrics::new();
        let heartbeats = Heartbeats::new(clock.clone());
        let troubles = if config.controllers {
            controllers::start(
                &mut workers,
                &registry,
                &heartbeats,
                &events,
                &metrics,
                &config.timing,
                &stop,
            )
        } else {
            Troubles::default()
        };
        let issued = issue::issue_server(&config.ca, &config.names, clock.now())?;
        let identity = ServerIdentity::new(&issued)?;
        let tls = tls::server_config(&config.ca, identity.clone(), clock.clone())?;
        let parts = Parts {
            registry: registry.clone(),
            heartbeats: heartbeats.clone(),
            events: events.clone(),
            metrics: metrics.clone(),
            leases: Leases::default(),
            feeds: NodeFeeds::default(),
            tunnels: Tunnels::default(),
            troubles,
            cluster_id: cluster_id.clone(),
            stop: stop.clone(),
        };
        workers.spawn(parts.leases.clone().run(registry.clone(), stop.clone()));
        workers.spawn(parts.feeds.clone().run(cache, stop.clone()));
        let local_addr = listener.local_addr();
        let router = parts.router(&config);
        workers.spawn(listen::serve(
            listener,
            tls,
            router,
            config.limits.clone(),
            stop.clone(),
        ));
        workers.spawn(renew(config, identity, issued, clock, stop.clone()));
        tracing::info!(address = ?local_addr, revision = registry.cache().revision().0, "the server is up");
        let running = RunningServer {
            registry,
            heartbeats,
            events,
            metrics,
            cluster_id,
            local_addr,
            store,
            stop,
            workers,
            foundations,
            sink,
        };
        Ok(running)
    }
}

/// What the services are made of.
struct Parts {
    registry: Registry,
    heartbeats: Heartbeats,
    events: Recorder,
    metrics: Metrics,
    leases: Leases,
    feeds: NodeFeeds,
    tunnels: Tunnels,
    troubles: Troubles,
    cluster_id: String,
    stop: CancellationToken,
}

impl Parts {
    fn router(self, config: &Config) -> Router {
        let cache = self.registry.cache().clone();
        let resources = Resources::new(
            self.registry.clone(),
            self.metrics.clone(),
            self.stop.clone(),
        );
        let daemonsets = DaemonSets {
            previews: DaemonSets::few_previews(),
            registry: self.registry.clone(),
            metrics: self.metrics.clone(),
            troubles: self.troubles,
            stop: self.stop.clone(),
        };
        let pods = Pods {
            registry: self.registry.clone(),
            metrics: self.metrics.clone(),
            tunnels: self.tunnels.clone(),
            heartbeats: self.heartbeats.clone(),
            stop: self.stop.clone(),
        };
        let nodes = Nodes {
            registry: self.registry,
            metrics: self.metrics.clone(),
            heartbeats: self.heartbeats,
            leases: self.leases,
            events: self.events,
            ca: Arc::clone(&config.ca),
            feeds: self.feeds,
            tunnels: self.tunnels,
            cluster_id: self.cluster_id,
            stop: self.stop.clone(),
        };
        let grpc = tonic::service::Routes::new(
            ResourceServiceServer::new(resources)
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(usize::MAX),
        )
        .add_service(DaemonSetServiceServer::new(daemonsets).max_encoding_message_size(usize::MAX))
        .add_service(
            NodeServiceServer::new(nodes)
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(usize::MAX),
        )
        .add_service(PodServiceServer::new(pods));
        // The REST door (`rest/`) is merged here, over the same registry; paths of the two never meet.
        grpc.prepare()
            .into_axum_router()
            .merge(health::router(cache, self.metrics, self.stop))
            .fallback(health::unknown)
            .layer(axum::middleware::from_fn(auth::authenticate::refuse_tokens))
    }
}

/// Makes a new server certificate when the present one has used up most of its life.
async fn renew(
    config: Config,
    identity: ServerIdentity,
    mut current: Issued,
    clock: SharedClock,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RENEW_EVERY) => {}
        }
        let due = match identity::identity_of_pem(&current.cert_pem) {
            Ok(peer) => identity::renew_at(peer.issued_at, peer.not_after, 0.5) <= clock.now(),
            Err(_) => true,
        };
        if !due {
            continue;
        }
        let next =
            issue::issue_server(&config.ca, &config.names, clock.now()).map_err(TlsError::from);
        match next.and_then(|issued| identity.replace(&issued).map(|()| issued)) {
            Ok(issued) => {
                tracing::info!("the server's certificate was renewed");
                current = issued;
            }
            Err(error) => tracing::error!(%error, "the server's certificate could not be renewed"),
        }
    }
}

impl RunningServer {
    /// Access to every object, as the server itself has it.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// When nodes were last heard.
    pub fn heartbeats(&self) -> &Heartbeats {
        &self.heartbeats
    }

    /// The event recorder.
    pub fn events(&self) -> &Recorder {
        &self.events
    }

    /// The server's metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Identity of the store's data.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// The address it serves; `None` in memory.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local_addr
    }

    /// Runs until the token given at the start is cancelled, then stops in order.
    pub async fn wait(self) {
        self.stop.cancelled().await;
        self.stop().await;
    }

    /// Stops in this order: no new connections, open requests and controllers end; then waiting events are
    /// written and the cache stops; then the store is closed.
    pub async fn stop(mut self) {
        self.stop.cancel();
        end(&mut self.workers).await;
        self.sink.cancel();
        end(&mut self.foundations).await;
        self.store.close().await;
        tracing::info!("the server has stopped");
    }
}

async fn end(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a task of the server panicked");
        }
    }
}
