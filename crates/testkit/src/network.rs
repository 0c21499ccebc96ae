//! The network between clients and the server: TCP on loopback or pipes in memory, with gates that cut it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use muster_client::{BoxedIo, Dial};
use muster_server::listen::{Listener, PipeConnector};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::wire::{self, Sky, Weather};

/// What the bytes travel over. TLS runs on top of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Link {
    /// TCP on 127.0.0.1: other processes can reach the server too.
    #[default]
    Tcp,
    /// Pipes in memory: works with tokio's paused clock.
    Memory,
}

/// Where the server is now.
#[derive(Clone)]
pub(crate) enum Endpoint {
    Tcp(SocketAddr),
    Pipe(PipeConnector),
}

/// The way to the server as it is at this moment; a restarted server is found again.
#[derive(Default)]
pub(crate) struct Network {
    endpoint: Mutex<Option<Endpoint>>,
    /// What carries the bytes of links with weather. Ends with the network.
    carriers: Mutex<JoinSet<()>>,
}

impl Network {
    pub(crate) fn set(&self, endpoint: Option<Endpoint>) {
        *self.endpoint.lock() = endpoint;
    }

    /// A dialer through a gate.
    pub(crate) fn dialer(self: &Arc<Self>, gate: Arc<Gate>) -> Arc<dyn Dial> {
        let network = Arc::clone(self);
        Arc::new(move || -> BoxFuture<'static, io::Result<BoxedIo>> {
            let (network, gate) = (Arc::clone(&network), Arc::clone(&gate));
            Box::pin(async move {
                let endpoint = network.endpoint.lock().clone();
                let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
                let cut = gate.pass().ok_or_else(refused)?;
                match endpoint.ok_or_else(refused)? {
                    Endpoint::Tcp(address) => {
                        let stream = TcpStream::connect(address).await?;
                        stream.set_nodelay(true)?;
                        Ok(Box::new(Gated::new(stream, cut)) as BoxedIo)
                    }
                    Endpoint::Pipe(pipe) => {
                        let mut stream = pipe.connect().await?;
                        if let Some(sky) = &gate.sky {
                            stream = wire::lay(stream, sky, &cut, &mut network.carriers.lock());
                        }
                        Ok(Box::new(Gated::new(stream, cut)) as BoxedIo)
                    }
                }
            })
        })
    }
}

/// A place where the network can be cut: open connections break, and while it is closed new ones are refused.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<GateState>,
    /// Of a link with weather.
    sky: Option<Arc<Sky>>,
}

#[derive(Debug)]
struct GateState {
    open: bool,
    /// Cancelled when the connections of this opening are cut.
    cut: CancellationToken,
}

impl Default for Gate {
    /// Open.
    fn default() -> Self {
        Self {
            state: Mutex::new(GateState {
                open: true,
                cut: CancellationToken::new(),
            }),
            sky: None,
        }
    }
}

impl Gate {
    /// A gate before a link in memory that has weather, by this seed.
    pub(crate) fn with_weather(seed: u64) -> Self {
        Self {
            sky: Some(Arc::new(Sky::new(seed))),
            ..Self::default()
        }
    }

    /// How the link carries from now on. Without effect on a link without weather.
    pub fn set_weather(&self, weather: Weather) {
        if let Some(sky) = &self.sky {
            sky.set(weather);
        }
    }

    /// Breaks what is open and refuses what is new: a partition.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.open = false;
        state.cut.cancel();
    }

    /// Lets connections through again.
    pub fn open(&self) {
        let mut state = self.state.lock();
        if !state.open {
            state.open = true;
            state.cut = CancellationToken::new();
        }
    }

    /// Breaks what is open; new connections pass.
    pub fn cut(&self) {
        self.close();
        self.open();
    }

    fn pass(&self) -> Option<CancellationToken> {
        let state = self.state.lock();
        state.open.then(|| state.cut.clone())
    }
}

/// A connection that breaks when its gate is cut.
pub(crate) struct Gated<Io> {
    io: Io,
    token: CancellationToken,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<Io> Gated<Io> {
    fn new(io: Io, token: CancellationToken) -> Self {
        Self {
            io,
            cut: Box::pin(token.clone().cancelled_owned()),
            token,
        }
    }

    fn check(&self) -> io::Result<()> {
        if self.token.is_cancelled() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Gated<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A reader always waits, so this is what notices the cut.
        if self.token.is_cancelled() || self.cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Gated<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// The server's side of the gate.
pub(crate) struct GatedListener<L> {
    pub(crate) listener: L,
    pub(crate) gate: Arc<Gate>,
}

impl<L: Listener> Listener for GatedListener<L> {
    type Io = Gated<L::Io>;

    async fn accept(&mut self) -> io::Result<(Self::Io, String)> {
        loop {
            let (stream, peer) = self.listener.accept().await?;
            // Refused by dropping it.
            if let Some(cut) = self.gate.pass() {
                return Ok((Gated::new(stream, cut), peer));
            }
        }
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.listener.local_addr()
    }
}
