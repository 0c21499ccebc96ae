//! Work for agents, on the streams they opened: the server never dials a node (design.md, the API server).
//!
//! One tunnel a node; requests on it are told apart by id. A reader that does not read slows its own node's
//! tunnel down, and is cut off after a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use muster_proto::v1::{LogsQuery, TunnelReply, TunnelRequest, tunnel_reply, tunnel_request};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use crate::status::{ApiError, Reason};

/// Requests waiting for one agent at most; further ones wait for room.
const REQUESTS: usize = 64;
/// Pieces of one answer waiting for its reader at most.
const PIECES: usize = 64;
/// How long a reader may leave its answer standing.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// How long to wait for an agent that is not there: it may be dialling again.
const AGENT_WITHIN: Duration = Duration::from_secs(4);

type Piece = Result<Bytes, ApiError>;

/// The tunnels of all nodes. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Tunnels {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    open: Mutex<HashMap<String, Arc<Tunnel>>>,
    ids: AtomicU64,
    opened: watch::Sender<u64>,
}

struct Tunnel {
    requests: mpsc::Sender<TunnelRequest>,
    answers: Mutex<HashMap<u64, mpsc::Sender<Piece>>>,
}

/// The server's end of one agent's tunnel.
pub(crate) struct Open {
    tunnels: Tunnels,
    node: String,
    tunnel: Arc<Tunnel>,
}

/// An answer on its way. Dropping it tells the agent to stop.
pub(crate) struct Answer {
    id: u64,
    tunnel: Arc<Tunnel>,
    pieces: mpsc::Receiver<Piece>,
    done: bool,
}

impl Tunnels {
    /// An agent opened its tunnel; an older one of the same node is closed. The receiver is what to send it.
    pub(crate) fn open(&self, node: &str) -> (Open, mpsc::Receiver<TunnelRequest>) {
        let (requests, outgoing) = mpsc::channel(REQUESTS);
        let tunnel = Arc::new(Tunnel {
            requests,
            answers: Mutex::default(),
        });
        self.inner
            .open
            .lock()
            .insert(node.to_owned(), Arc::clone(&tunnel));
        self.inner.opened.send_modify(|count| *count += 1);
        (
            Open {
                tunnels: self.clone(),
                node: node.to_owned(),
                tunnel,
            },
            outgoing,
        )
    }

    /// Asks a node for a container's log.
    pub(crate) async fn logs(&self, node: &str, query: LogsQuery) -> Result<Answer, ApiError> {
        let tunnel = self.find(node).await?;
        let id = self.inner.ids.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, pieces) = mpsc::channel(PIECES);
        tunnel.answers.lock().insert(id, sender);
        let answer = Answer {
            id,
            tunnel: Arc::clone(&tunnel),
            pieces,
            done: false,
        };
        let request = TunnelRequest {
            id,
            request: Some(tunnel_request::Request::Logs(query)),
        };
        match tokio::time::timeout(AGENT_WITHIN, tunnel.requests.send(request)).await {
            Ok(Ok(())) => Ok(answer),
            _ => Err(unreachable(node)),
        }
    }

    async fn find(&self, node: &str) -> Result<Arc<Tunnel>, ApiError> {
        let mut opened = self.inner.opened.subscribe();
        let wait = async {
            loop {
                opened.borrow_and_update();
                if let Some(tunnel) = self.inner.open.lock().get(node) {
                    return Some(Arc::clone(tunnel));
                }
                opened.changed().await.ok()?;
            }
        };
        tokio::time::timeout(AGENT_WITHIN, wait)
            .await
            .ok()
            .flatten()
            .ok_or_else(|| unreachable(node))
    }
}

/// The answer when a node cannot be asked.
pub(crate) fn unreachable(node: &str) -> ApiError {
    ApiError::unavailable(format!(
        "node \"{node}\" cannot be reached: its agent has no connection to the server"
    ))
}

impl Open {
    /// Hands a piece of an answer to its reader.
    pub(crate) async fn deliver(&self, reply: TunnelReply) {
        let Some(reader) = self.tunnel.answers.lock().get(&reply.id).cloned() else {
            return;
        };
        let (piece, last) = match reply.reply {
            Some(tunnel_reply::Reply::Data(data)) => (Some(Ok(data)), false),
            Some(tunnel_reply::Reply::Done(_)) | None => (None, true),
            Some(tunnel_reply::Reply::Error(error)) => {
                (Some(Err(api_error(error.code, error.message))), true)
            }
        };
        let taken = match piece {
            Some(piece) => matches!(
                tokio::time::timeout(READ_WITHIN, reader.send(piece)).await,
                Ok(Ok(()))
            ),
            None => true,
        };
        if last || !taken {
            self.tunnel.answers.lock().remove(&reply.id);
        }
        if !taken {
            self.tunnel.cancel(reply.id);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut open = self.tunnels.inner.open.lock();
        if open
            .get(&self.node)
            .is_some_and(|current| Arc::ptr_eq(current, &self.tunnel))
        {
            open.remove(&self.node);
        }
        drop(open);
        for (_, reader) in self.tunnel.answers.lock().drain() {
            // A reader that is full learns of the end by the closed channel.
            let _ = reader.try_send(Err(unreachable(&self.node)));
        }
    }
}

impl Tunnel {
    /// Tells the agent that nobody reads any more. A full queue means that the agent does not listen anyway.
    fn cancel(&self, id: u64) {
        let _ = self.requests.try_send(TunnelRequest {
            id,
            request: Some(tunnel_request::Request::Cancel(true)),
        });
    }
}

impl Answer {
    /// The next piece; `None`: that was all.
    pub(crate) async fn next(&mut self) -> Option<Piece> {
        let piece = self.pieces.recv().await;
        self.done = !matches!(piece, Some(Ok(_)));
        piece
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let unfinished = self.tunnel.answers.lock().remove(&self.id).is_some();
        if unfinished && !self.done {
            self.tunnel.cancel(self.id);
        }
    }
}

fn api_error(code: i32, message: String) -> ApiError {
    let reason = match code {
        400 => Reason::BadRequest,
        404 => Reason::NotFound,
        429 => Reason::TooManyRequests,
        503 => Reason::ServiceUnavailable,
        504 => Reason::Timeout,
        _ => Reason::InternalError,
    };
    ApiError::new(reason, message)
}
