//! Remembering why a server hung up.
//!
//! With TLS 1.3 a client's handshake is done before the server has judged its certificate: the refusal
//! arrives as an alert beneath the first calls, and the HTTP/2 layer tells those calls no more than
//! "connection closed". So the connection itself takes a note of the alert.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connect::ConnectError;

/// The note: shared by a channel's connections and those who call over it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refusal(Arc<Mutex<Option<ConnectError>>>);

impl Refusal {
    /// The reason of the last refusal; it stays, for other calls to find.
    pub(crate) fn reason(&self) -> Option<ConnectError> {
        self.0.lock().clone()
    }

    /// A new connection starts without a note.
    pub(crate) fn clear(&self) {
        *self.0.lock() = None;
    }
}

/// A TLS stream that takes note of an alert.
pub(crate) struct Noting<S> {
    inner: S,
    refusal: Refusal,
}

impl<S> Noting<S> {
    pub(crate) fn new(inner: S, refusal: Refusal) -> Self {
        Self { inner, refusal }
    }

    fn note(&self, error: &io::Error) {
        if let Some(reason) = ConnectError::alert_beneath(error) {
            *self.refusal.0.lock() = Some(reason);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Noting<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.inner).poll_read(context, buffer));
        if let Err(error) = &result {
            self.note(error);
        }
        Poll::Ready(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noting<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
