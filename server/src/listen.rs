//! The accept loop: TLS, peer identity and limits, before the first request is read.
//!
//! ```text
//! Listener --accept--> handshake (own task, deadline, cap) --> hyper (HTTP/1.1 or h2) --> router
//! ```
//!
//! A slow or hostile peer holds up nobody: each handshake is a task of its own with a deadline, and the
//! number of open connections is bounded. The [`Caller`] of a connection is put into the extensions of each of
//! its requests.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::auth::{self, Caller};

/// How long a peer may take for its TLS handshake.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// How long an HTTP/1.1 peer may take to send a request's head.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// How often a silent HTTP/2 peer is asked whether it still lives: NAT boxes forget quiet flows within minutes.
const PING_EVERY: Duration = Duration::from_secs(20);
/// How long it may take to answer.
const PONG_WITHIN: Duration = Duration::from_secs(15);
/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 512;
/// Bytes of request headers.
const HEADERS_BYTES: u32 = 64 * 1024;
/// How long to wait after `accept` failed for want of file descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How long open requests may go on after the server was told to stop.
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

/// Where connections come from. Tests pass in-memory pipes.
pub trait Listener: Send + 'static {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection and its peer's address, as text for logs. Must be cancel-safe.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, String)>> + Send;

    /// The address it listens on; `None` in memory.
    fn local_addr(&self) -> Option<SocketAddr>;
}

impl Listener for TcpListener {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, String)> {
        let (stream, peer) = Self::accept(self).await?;
        // Watch events and heartbeats are small: they must not wait for each other.
        stream.set_nodelay(true)?;
        Ok((stream, peer.to_string()))
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Self::local_addr(self).ok()
    }
}

/// A listener of in-memory pipes; its [`PipeConnector`] is the other side.
pub struct PipeListener {
    incoming: tokio::sync::mpsc::Receiver<tokio::io::DuplexStream>,
}

/// Dials a [`PipeListener`].
#[derive(Clone)]
pub struct PipeConnector {
    outgoing: tokio::sync::mpsc::Sender<tokio::io::DuplexStream>,
}

/// Bytes in flight in one direction of a pipe.
const PIPE_BYTES: usize = 256 * 1024;

/// A listener and its connector, in memory.
pub fn pipes() -> (PipeListener, PipeConnector) {
    // Full: dialling waits, as with a full backlog.
    let (outgoing, incoming) = tokio::sync::mpsc::channel(64);
    (PipeListener { incoming }, PipeConnector { outgoing })
}

impl PipeConnector {
    /// Opens a connection.
    pub async fn connect(&self) -> io::Result<tokio::io::DuplexStream> {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        self.outgoing
            .send(theirs)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::ConnectionRefused, "the server is gone"))?;
        Ok(ours)
    }
}

impl Listener for PipeListener {
    type Io = tokio::io::DuplexStream;

    async fn accept(&mut self) -> io::Result<(Self::Io, String)> {
        match self.incoming.recv().await {
            Some(stream) => Ok((stream, "pipe".to_owned())),
            // Every connector is gone: nobody will ever dial again.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        None
    }
}

/// Limits of the accept loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once. Further ones wait in the kernel's backlog.
    pub connections: usize,
    /// Handshakes at once: each costs a signature.
    pub handshakes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            handshakes: 128,
        }
    }
}

/// Serves connections until told to stop, then lets open requests end for a few seconds.
pub async fn serve<L: Listener>(
    mut listener: L,
    tls: Arc<rustls::ServerConfig>,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(tls);
    let connections = Arc::new(Semaphore::new(limits.connections));
    let handshakes = Arc::new(Semaphore::new(limits.handshakes));
    let tasks = TaskTracker::new();
    let cut = CancellationToken::new();
    loop {
        let next = async {
            let slot = Arc::clone(&connections).acquire_owned().await;
            (listener.accept().await, slot)
        };
        let (accepted, slot) = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            // Cancel-safe: a permit or an accept that is dropped takes no connection with it.
            next = next => next,
        };
        let Ok(slot) = slot else { break };
        match accepted {
            Ok((stream, peer)) => {
                let connection = Connection {
                    acceptor: acceptor.clone(),
                    handshakes: Arc::clone(&handshakes),
                    router: router.clone(),
                    peer,
                    stop: stop.clone(),
                    cut: cut.clone(),
                };
                tasks.spawn(connection.run(stream, slot));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
    tasks.close();
    if tokio::time::timeout(DRAIN_WITHIN, tasks.wait())
        .await
        .is_err()
    {
        cut.cancel();
        tasks.wait().await;
    }
}

struct Connection {
    acceptor: TlsAcceptor,
    handshakes: Arc<Semaphore>,
    router: Router,
    peer: String,
    stop: CancellationToken,
    cut: CancellationToken,
}

impl Connection {
    async fn run<Io>(self, stream: Io, _slot: OwnedSemaphorePermit)
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let handshake = async {
            let _turn = self.handshakes.acquire().await.ok()?;
            match self.acceptor.accept(stream).await {
                Ok(stream) => Some(stream),
                Err(error) => {
                    tracing::debug!(peer = self.peer, %error, "a TLS handshake failed");
                    None
                }
            }
        };
        let secured = tokio::select! {
            biased;
            () = self.stop.cancelled() => return,
            secured = tokio::time::timeout(HANDSHAKE_WITHIN, handshake) => secured,
        };
        let stream = match secured {
            Ok(Some(stream)) => stream,
            Ok(None) => return,
            Err(_) => {
                tracing::debug!(peer = self.peer, "a TLS handshake took too long");
                return;
            }
        };
        let certificate = stream
            .get_ref()
            .1
            .peer_certificates()
            .and_then(|chain| chain.first());
        let caller = match auth::from_peer_certificate(certificate) {
            Ok(mut caller) => {
                caller.peer.clone_from(&self.peer);
                caller
            }
            Err(error) => {
                tracing::warn!(peer = self.peer, %error, "a client certificate names nobody");
                return;
            }
        };
        self.serve_http(stream, caller).await;
    }

    async fn serve_http<Io>(self, stream: Io, caller: Caller)
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let router = self.router;
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(caller.clone());
            router.clone().oneshot(request.map(axum::body::Body::new))
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PONG_WITHIN)
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(HEADERS_BYTES)
            .adaptive_window(true);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let mut stopping = false;
        loop {
            // The connection is pinned outside: no arm loses what it has read.
            tokio::select! {
                biased;
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(peer = self.peer, %error, "a connection ended badly");
                    }
                    return;
                }
                () = self.cut.cancelled() => return,
                () = self.stop.cancelled(), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}
