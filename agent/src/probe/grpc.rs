//! gRPC's own health check.

use std::time::Duration;

use hyper_util::rt::TokioIo;
use muster_model::k8s::api::core::v1::GRPCAction;
use muster_model::k8s::apimachinery::pkg::util::intstr::IntOrString;
use muster_proto::health::HealthCheckRequest;
use muster_proto::health::health_check_response::ServingStatus;
use muster_proto::health::health_client::HealthClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::{Reply, Target, USER_AGENT, dial, host_of, join, port_number};
use crate::moment::go_duration;
use crate::runtime::Runtime;

/// The error is of a probe that cannot be carried out.
pub(super) async fn probe(
    runtime: &dyn Runtime,
    target: Target<'_>,
    action: &GRPCAction,
    limit: Duration,
) -> Result<Reply, String> {
    let host = host_of(None, target)?;
    let port = port_number(target.container, &IntOrString::Int(action.port))?;
    let place = join(host, port);
    let unconnected = |why: &str| {
        let limit = go_duration(limit);
        Reply::Failure(format!(
            "timeout: failed to connect service \"{place}\" within {limit}: {why}"
        ))
    };
    let deadline = tokio::time::Instant::now() + limit;
    let channel = match tokio::time::timeout_at(deadline, connect(runtime, host, port)).await {
        Ok(Ok(channel)) => channel,
        Ok(Err(text)) => return Ok(unconnected(&text)),
        Err(_) => return Ok(unconnected("context deadline exceeded")),
    };
    let request = HealthCheckRequest {
        service: action.service.clone().unwrap_or_default(),
    };
    let mut client = HealthClient::new(channel);
    let asked = tokio::time::timeout_at(deadline, client.check(request)).await;
    Ok(match asked {
        Ok(Ok(response)) => match response.get_ref().status() {
            ServingStatus::Serving => Reply::Success,
            other => Reply::Failure(format!(
                "service unhealthy (responded with \"{}\")",
                other.as_str_name()
            )),
        },
        Ok(Err(status)) => Reply::Failure(refusal(&status)),
        Err(_) => Reply::Failure(format!(
            "timeout: health rpc did not complete within {}",
            go_duration(limit)
        )),
    })
}

fn refusal(status: &Status) -> String {
    let words = format!("{:?}: {}", status.code(), status.message());
    match status.code() {
        Code::Unimplemented => format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
            status.message()
        ),
        _ => format!("error: health rpc failed: {words}"),
    }
}

/// A channel over one connection, made now.
async fn connect(runtime: &dyn Runtime, host: &str, port: u16) -> Result<Channel, String> {
    let mut io = Some(dial(runtime, host, port).await?);
    let connector = tower::service_fn(move |_| {
        // A second connection would be asked for after the first one broke: the probe has failed by then.
        let io = io.take().map(TokioIo::new);
        std::future::ready(io.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::BrokenPipe)))
    });
    let place = join(host, port);
    let endpoint = Endpoint::from_shared(format!("http://{place}"))
        .and_then(|endpoint| endpoint.user_agent(USER_AGENT))
        .map_err(|error| error.to_string())?;
    endpoint
        .connect_with_connector(connector)
        .await
        .map_err(|error| error.to_string())
}
