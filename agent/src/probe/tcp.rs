//! Whether a port takes connections.

use std::time::Duration;

use muster_model::k8s::api::core::v1::TCPSocketAction;

use super::{Reply, Target, dial, host_of, join, port_number};
use crate::runtime::Runtime;

/// The error is of a probe that cannot be carried out.
pub(super) async fn probe(
    runtime: &dyn Runtime,
    target: Target<'_>,
    action: &TCPSocketAction,
    limit: Duration,
) -> Result<Reply, String> {
    let host = host_of(action.host.as_deref(), target)?;
    let port = port_number(target.container, &action.port)?;
    Ok(
        match tokio::time::timeout(limit, dial(runtime, host, port)).await {
            Ok(Ok(_)) => Reply::Success,
            Ok(Err(text)) => Reply::Failure(text),
            Err(_) => Reply::Failure(format!("dial tcp {}: i/o timeout", join(host, port))),
        },
    )
}
