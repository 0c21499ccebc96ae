//! Making the byte connection under TLS: TCP, or whatever a test hands in.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::address::ServerAddress;

/// A connection of bytes in both directions.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// A boxed connection.
pub type BoxedIo = Box<dyn Io>;

/// Makes connections to one server: once at first, and again whenever the channel must reconnect.
pub trait Dial: Send + Sync + 'static {
    /// One attempt. The caller sets the deadline.
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedIo>>;
}

/// A closure makes connections too: tests hand in the ends of in-memory pipes.
impl<F> Dial for F
where
    F: Fn() -> BoxFuture<'static, io::Result<BoxedIo>> + Send + Sync + 'static,
{
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedIo>> {
        self()
    }
}

/// Dials TCP, trying every address the host name has.
#[derive(Debug, Clone)]
pub struct Tcp {
    address: ServerAddress,
}

impl Tcp {
    /// To this address.
    pub fn new(address: ServerAddress) -> Self {
        Self { address }
    }
}

impl Dial for Tcp {
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedIo>> {
        let address = self.address.clone();
        Box::pin(async move {
            let stream = TcpStream::connect((address.host(), address.port())).await?;
            // Calls are small and someone waits for each.
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxedIo)
        })
    }
}

/// How connections are made, and within what time.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) timeout: Duration,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
