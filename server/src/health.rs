//! `/healthz`, `/livez`, `/readyz`, `/version`, `/metrics`: for everybody but the last. And what is at no path.

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use tokio_util::sync::CancellationToken;

use crate::auth::Caller;
use crate::cache::Cache;
use crate::metrics::Metrics;
use crate::status::{ApiError, Reason};

#[derive(Clone)]
struct Health {
    cache: Cache,
    metrics: Metrics,
    stop: CancellationToken,
}

/// The paths. `ready` turns to 503 when the server begins to stop, so that nobody new is sent here.
pub(crate) fn router(cache: Cache, metrics: Metrics, stop: CancellationToken) -> Router {
    Router::new()
        .route("/healthz", get(ready))
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/version", get(version))
        .route("/metrics", get(show_metrics))
        .with_state(Health {
            cache,
            metrics,
            stop,
        })
}

/// Which Kubernetes level the API follows, and which Muster this is (spec/kube-api.md 5).
async fn version() -> Response {
    let level = muster_model::KUBERNETES_LEVEL.trim_start_matches('v');
    let mut numbers = level.split('.');
    let (major, minor) = (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    );
    axum::Json(serde_json::json!({
        "major": major, "minor": minor, "gitVersion": muster_model::version_text(), "gitCommit": "",
        "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    }))
    .into_response()
}

/// In the names that Kubernetes' tools know.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

async fn ready(State(health): State<Health>) -> Response {
    if health.stop.is_cancelled() {
        ApiError::unavailable("the server is shutting down").into_response()
    } else {
        "ok".into_response()
    }
}

/// What is served nowhere: each door's own words for it.
pub(crate) async fn unknown(headers: HeaderMap) -> Response {
    let is_grpc = headers
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
    if is_grpc {
        tonic::Status::unimplemented("this server has no such call: is it older than its caller?")
            .into_http::<axum::body::Body>()
    } else {
        ApiError::unknown_resource().into_response()
    }
}

async fn show_metrics(State(health): State<Health>, caller: Option<Extension<Caller>>) -> Response {
    // Names of kinds and counts say something about the cluster: not for strangers.
    if caller.is_none_or(|Extension(caller)| caller.is_anonymous()) {
        return ApiError::new(Reason::Unauthorized, "Unauthorized").into_response();
    }
    let text = health.metrics.text(&health.cache);
    (
        [(
            CONTENT_TYPE,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        )],
        text,
    )
        .into_response()
}
