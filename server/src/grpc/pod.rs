//! `PodService`: what a person asks of a running pod, carried to its node.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use muster_model::kind::POD;
use muster_model::object::{NamespacedName, Object};
use muster_model::time;
use muster_proto::v1;
use muster_proto::v1::pod_service_server::PodService;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::{answer, caller};
use crate::auth::{Ask, Caller, Verb, authorize};
use crate::heartbeats::Heartbeats;
use crate::metrics::Metrics;
use crate::registry::Registry;
use crate::status::ApiError;
use crate::tunnel::{Answer, Tunnels, unreachable};

/// How long a node may take to say anything, when it has not been heard otherwise (spec/node-agent.md 23: 5 s).
const ANSWER_WITHIN: Duration = Duration::from_millis(4_500);
/// A node that beat this lately is alive: a followed log may stay silent. Beats come every 10 s.
const BEATEN_WITHIN: Duration = Duration::from_secs(12);

/// The service.
pub struct Pods {
    pub(crate) registry: Registry,
    pub(crate) metrics: Metrics,
    pub(crate) tunnels: Tunnels,
    pub(crate) heartbeats: Heartbeats,
    pub(crate) stop: CancellationToken,
}

type Chunks = BoxStream<'static, Result<v1::LogsChunk, Status>>;

impl Pods {
    async fn open_logs(
        &self,
        caller: &Caller,
        mut query: v1::LogsQuery,
    ) -> Result<Chunks, ApiError> {
        let ask = Ask::object(Verb::Get, &POD, &query.namespace, &query.pod).of("log");
        authorize(caller, &ask, self.registry.cache())?;
        check_query(&query)?;
        let key = NamespacedName::new(query.namespace.clone(), query.pod.clone());
        let pod = self.registry.get(caller, &POD, &key)?;
        if !query.pod_uid.is_empty() && query.pod_uid != pod.uid() {
            return Err(ApiError::not_found(&POD, &query.pod));
        }
        query.pod_uid = pod.uid().to_owned();
        query.container = container(pod.object(), &query.container)?;
        let node = pod.object().text_at("/spec/nodeName").to_owned();
        if node.is_empty() {
            return Err(ApiError::bad_request(format!(
                "pod {} does not have a host assigned",
                query.pod
            )));
        }
        let mut answer = self.tunnels.logs(&node, query).await?;
        let first = self.first_piece(&node, &mut answer).await?;
        let rest = stream::unfold(answer, |mut answer| async move {
            let piece = answer.next().await?;
            Some((piece, answer))
        });
        let pieces = stream::iter(first)
            .chain(rest)
            .take_until(self.stop.clone().cancelled_owned());
        Ok(pieces
            .map(|piece| {
                piece
                    .map(|data| v1::LogsChunk { data })
                    .map_err(Status::from)
            })
            .boxed())
    }

    /// Waits for the node to say anything, so that an error is the call's answer and a dead node is no silence.
    async fn first_piece(
        &self,
        node: &str,
        answer: &mut Answer,
    ) -> Result<Option<Result<bytes::Bytes, ApiError>>, ApiError> {
        match tokio::time::timeout(ANSWER_WITHIN, answer.next()).await {
            Ok(Some(Err(error))) => Err(error),
            Ok(piece) => Ok(piece),
            Err(_) if self.heartbeats.heard_within(node, BEATEN_WITHIN) => Ok(None),
            Err(_) => Err(unreachable(node)),
        }
    }
}

fn check_query(query: &v1::LogsQuery) -> Result<(), ApiError> {
    if query.since_seconds.is_some() && !query.since_time.is_empty() {
        return Err(ApiError::bad_request(
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        ));
    }
    if !query.since_time.is_empty() && time::parse(&query.since_time).is_none() {
        return Err(ApiError::bad_request(format!(
            "sinceTime: \"{}\" is no RFC 3339 time",
            query.since_time
        )));
    }
    for (name, value, least) in [
        ("tailLines", query.tail_lines, 0),
        ("sinceSeconds", query.since_seconds, 1),
        ("limitBytes", query.limit_bytes, 1),
    ] {
        if value.is_some_and(|value| value < least) {
            return Err(ApiError::bad_request(format!(
                "{name} must be greater than or equal to {least}"
            )));
        }
    }
    Ok(())
}

/// Which container is meant (spec/node-agent.md 23).
fn container(pod: &Object, asked: &str) -> Result<String, ApiError> {
    let names = |list: &str| -> Vec<String> {
        let items = pod
            .at("/spec")
            .and_then(|spec| spec.get(list))
            .and_then(Value::as_array);
        let name = |item: &Value| item.get("name").and_then(Value::as_str).map(str::to_owned);
        items.into_iter().flatten().filter_map(name).collect()
    };
    let (regular, init, ephemeral) = (
        names("containers"),
        names("initContainers"),
        names("ephemeralContainers"),
    );
    if !asked.is_empty() {
        return if regular
            .iter()
            .chain(&init)
            .chain(&ephemeral)
            .any(|name| name == asked)
        {
            Ok(asked.to_owned())
        } else {
            Err(ApiError::bad_request(format!(
                "container {asked} is not valid for pod {}",
                pod.name()
            )))
        };
    }
    if let [only] = regular.as_slice() {
        return Ok(only.clone());
    }
    let mut message = format!(
        "a container name must be specified for pod {}, choose one of: [{}]",
        pod.name(),
        regular.join(" ")
    );
    if !init.is_empty() {
        message.push_str(&format!(
            " or one of the init containers: [{}]",
            init.join(" ")
        ));
    }
    Err(ApiError::bad_request(message))
}

#[tonic::async_trait]
impl PodService for Pods {
    type LogsStream = Chunks;

    async fn logs(&self, request: Request<v1::LogsQuery>) -> Result<Response<Chunks>, Status> {
        let since = Instant::now();
        let caller = caller(&request);
        let stream = self.open_logs(&caller, request.into_inner()).await;
        answer(&self.metrics, "LOGS", Some(&POD), since, stream).map(Response::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_container_is_the_only_one_or_must_be_named() {
        let one = Object::from_value(json!({"metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "a"}], "initContainers": [{"name": "i"}]}}))
        .unwrap();
        assert_eq!(container(&one, "").unwrap(), "a");
        assert_eq!(container(&one, "i").unwrap(), "i");
        assert_eq!(
            container(&one, "x").unwrap_err().message(),
            "container x is not valid for pod p"
        );
        let two = Object::from_value(json!({"metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}}))
        .unwrap();
        assert_eq!(
            container(&two, "").unwrap_err().message(),
            "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]"
        );
    }
}
