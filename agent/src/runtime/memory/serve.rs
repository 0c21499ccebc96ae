//! What listens in the in-memory containers: HTTP/1 and, on the same ports, the health check of gRPC.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use http::{Request, Response, StatusCode, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use muster_client::dial::BoxedIo;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::behaviour::Behaviour;
use super::state::State;
use crate::runtime::labels::Owner;

/// Bytes on their way in one direction.
const PIPE: usize = 16 * 1024;

/// Connects to a port of the node's pods, as far as something there listens.
pub(super) fn connect(
    state: &mut State,
    owner: &Owner,
    address: SocketAddr,
) -> io::Result<BoxedIo> {
    state
        .reachable()
        .map_err(|error| io::Error::new(io::ErrorKind::HostUnreachable, error))?;
    let ip = address.ip().to_string();
    let node = state.node(owner);
    node.settle(Instant::now());
    let listens = node.containers.values().find(|container| {
        let sandbox = container
            .joins
            .iter()
            .find_map(|joined| node.containers.get(joined)?.view.ip.as_ref());
        let is_process = !container.joins.is_empty() || !container.own_network;
        is_process
            && container.is_running()
            && sandbox.is_none_or(|sandbox| *sandbox == ip)
            && !container.behaviour.closed_ports.contains(&address.port())
    });
    let Some(container) = listens else {
        return Err(io::ErrorKind::ConnectionRefused.into());
    };
    let (client, server) = tokio::io::duplex(PIPE);
    let (behaviour, since) = (container.behaviour.clone(), container.since);
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let service = service_fn(move |request: Request<Incoming>| {
            let answer = answer(&behaviour, since, address.port(), &request);
            std::future::ready(Ok::<_, Infallible>(answer))
        });
        // The client's going away is no failure of ours.
        let _ = auto::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(server), service)
            .await;
    });
    Ok(Box::new(Served {
        io: client,
        _serving: serving,
    }))
}

fn answer(
    behaviour: &Behaviour,
    since: Instant,
    port: u16,
    request: &Request<Incoming>,
) -> Response<BoxBody<Bytes, Infallible>> {
    let age = since.elapsed();
    if request.version() == Version::HTTP_2 {
        return grpc_health(behaviour.grpc_health);
    }
    let scripted = behaviour.http.iter().rfind(|answer| {
        answer.port == port && answer.path == request.uri().path() && answer.after <= age
    });
    let mut response = Response::new(Full::new(Bytes::new()).boxed());
    if let Some(scripted) = scripted {
        *response.status_mut() =
            StatusCode::from_u16(scripted.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if let Ok(location) = HeaderValue::from_str(&scripted.location)
            && !location.is_empty()
        {
            response.headers_mut().insert(LOCATION, location);
        }
    }
    response
}

/// A `HealthCheckResponse` with this status: one length-prefixed message of one field, and the trailers of success.
fn grpc_health(status: u8) -> Response<BoxBody<Bytes, Infallible>> {
    const FIELD_1: u8 = 0x08;
    let message = Bytes::copy_from_slice(&[0, 0, 0, 0, 2, FIELD_1, status]);
    let trailers = HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]);
    let body = Full::new(message).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = Response::new(body.boxed());
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// The client's end; the server goes with it.
struct Served {
    io: DuplexStream,
    _serving: JoinSet<()>,
}

impl AsyncRead for Served {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Served {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
