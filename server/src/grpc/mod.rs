//! The gRPC door: one file per service of `proto/muster/v1`.

mod daemonset;
mod node;
mod pod;
mod preview;
mod resource;
mod rollout;

use muster_model::kind::{self, Kind};
use muster_proto::v1::ResourceRef;
use tokio::time::Instant;
use tonic::{Request, Status};

pub use daemonset::DaemonSets;
pub use node::Nodes;
pub use pod::Pods;
pub use resource::Resources;

use crate::auth::Caller;
use crate::metrics::Metrics;
use crate::status::ApiError;

/// Who sent this request. The accept loop puts it there; a request without is nobody's.
fn caller<T>(request: &Request<T>) -> Caller {
    request
        .extensions()
        .get::<Caller>()
        .cloned()
        .unwrap_or_else(Caller::anonymous)
}

/// The kind a reference means.
fn kind_of(reference: Option<&ResourceRef>) -> Result<&'static Kind, ApiError> {
    let reference =
        reference.ok_or_else(|| ApiError::bad_request("the request names no resource"))?;
    kind::by_resource(&reference.group, &reference.version, &reference.resource)
        .ok_or_else(ApiError::unknown_resource)
}

/// Counts a request, logs what only the log may say, and turns an error into a gRPC status.
fn answer<T>(
    metrics: &Metrics,
    verb: &'static str,
    kind: Option<&'static Kind>,
    since: Instant,
    result: Result<T, ApiError>,
) -> Result<T, Status> {
    let code = result
        .as_ref()
        .map_or_else(|error| error.reason().http_code(), |_| 200);
    metrics.request(verb, kind, code, since.elapsed());
    result.map_err(|error| {
        if !error.private().is_empty() {
            tracing::error!(verb, why = error.private(), "a request failed");
        }
        Status::from(error)
    })
}
