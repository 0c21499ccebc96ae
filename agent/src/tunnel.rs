//! Work that the server asks of the agent, many pieces on one stream that the agent opens: today logs.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_client::{ClientError, Connection};
use muster_proto::v1::{
    self, TunnelReply, TunnelRequest, tunnel_reply::Reply, tunnel_request::Request,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::logs::{self, Piece};
use crate::shared::Shared;

/// Replies that wait for the link; when it is full, readers wait.
const ROOM: usize = 32;
/// Pieces of work at a time; more are refused.
const MOST: usize = 64;

/// Serves until the stream ends.
pub(crate) async fn serve(shared: Arc<Shared>, connection: Connection) -> Result<(), ClientError> {
    let fault = |status: tonic::Status| ClientError::from_status(&status, connection.deadline());
    let (sender, receiver) = mpsc::channel(ROOM);
    let mut nodes = connection.nodes();
    let opened = Box::pin(nodes.tunnel(ReceiverStream::new(receiver))).await;
    let mut requests = opened.map_err(fault)?.into_inner();
    let mut work = JoinSet::new();
    let mut running: BTreeMap<u64, CancellationToken> = BTreeMap::new();
    loop {
        let request = tokio::select! {
            biased;
            request = requests.message() => request.map_err(fault)?,
            Some(ended) = work.join_next(), if !work.is_empty() => {
                if let Ok(id) = ended {
                    running.remove(&id);
                }
                continue;
            }
        };
        let Some(TunnelRequest { id, request }) = request else {
            return Ok(());
        };
        match request {
            Some(Request::Logs(_)) if running.len() >= MOST => {
                let error = v1::TunnelError {
                    code: 429,
                    message: "too many log streams on this node".into(),
                };
                // A closed channel shows as the end of the stream.
                let _ = sender
                    .send(TunnelReply {
                        id,
                        reply: Some(Reply::Error(error)),
                    })
                    .await;
            }
            Some(Request::Logs(query)) => {
                let stop = CancellationToken::new();
                running.insert(id, stop.clone());
                let (shared, sender) = (Arc::clone(&shared), sender.clone());
                work.spawn(async move {
                    let send = |piece| {
                        let reply = match piece {
                            Piece::Data(data) => Reply::Data(data),
                            Piece::Done => Reply::Done(true),
                            Piece::Failed(error) => Reply::Error(error),
                        };
                        let sender = sender.clone();
                        async move {
                            sender
                                .send(TunnelReply {
                                    id,
                                    reply: Some(reply),
                                })
                                .await
                                .is_ok()
                        }
                    };
                    let _ = stop
                        .run_until_cancelled(logs::answer(&shared, &query, send))
                        .await;
                    id
                });
            }
            Some(Request::Cancel(_)) => {
                if let Some(stop) = running.remove(&id) {
                    stop.cancel();
                }
            }
            None => {
                let error = v1::TunnelError {
                    code: 400,
                    message: "this agent does not know that request".into(),
                };
                let _ = sender
                    .send(TunnelReply {
                        id,
                        reply: Some(Reply::Error(error)),
                    })
                    .await;
            }
        }
    }
}
