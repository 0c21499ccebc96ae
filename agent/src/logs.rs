//! Container logs that the server asks for (spec/node-agent.md 23).

use bytes::Bytes;
use futures::StreamExt;
use muster_model::k8s::api::core::v1::PodStatus;
use muster_model::time::{self, Timestamp};
use muster_proto::v1::{LogsQuery, TunnelError};

use crate::images;
use crate::runtime::{ContainerId, ContainerState, LogOptions, RuntimeError};
use crate::shared::Shared;
use crate::worker::view::{PodView, is_dead};

/// Largest piece of a log in one message.
const PIECE: usize = 64 * 1024;

/// What has to be told about one query.
pub(crate) enum Piece {
    /// Some of the log.
    Data(Bytes),
    /// The end.
    Done,
    /// It cannot be.
    Failed(TunnelError),
}

fn bad(message: impl Into<String>) -> TunnelError {
    TunnelError {
        code: 400,
        message: message.into(),
    }
}

fn trouble(error: &RuntimeError) -> TunnelError {
    TunnelError {
        code: 500,
        message: error.to_string(),
    }
}

/// Answers a query; `send` returns false when nobody listens any more.
pub(crate) async fn answer<S, F>(shared: &Shared, query: &LogsQuery, mut send: S)
where
    S: FnMut(Piece) -> F,
    F: Future<Output = bool>,
{
    let end = match stream(shared, query, &mut send).await {
        Ok(true) => Piece::Done,
        Ok(false) => return,
        Err(error) => Piece::Failed(error),
    };
    // The end reaches a listener or nobody.
    let _ = send(end).await;
}

async fn stream<S, F>(shared: &Shared, query: &LogsQuery, send: &mut S) -> Result<bool, TunnelError>
where
    S: FnMut(Piece) -> F,
    F: Future<Output = bool>,
{
    let options = options(query, shared.clock.now())?;
    let listed = shared
        .runtime
        .list_pod(&query.pod_uid)
        .await
        .map_err(|error| trouble(&error))?;
    let view = PodView::of(&query.pod_uid, listed);
    let status = shared.outbox.status(&query.pod_uid).unwrap_or_default();
    let names: Vec<String> = {
        let directory = shared.directory.lock();
        let facts = directory
            .get(&query.pod_uid)
            .map(|(_, facts)| facts.borrow().clone());
        facts
            .map(|f| f.containers().iter().map(|c| c.name.clone()).collect())
            .unwrap_or_default()
    };
    let id = select(&view, &status, &names, query)?;
    if options.tail_lines == Some(0) && !options.follow {
        return Ok(true);
    }
    let mut left = query
        .limit_bytes
        .map(|limit| usize::try_from(limit).unwrap_or(0));
    let mut log = shared
        .runtime
        .logs(&id, &options)
        .await
        .map_err(|error| trouble(&error))?;
    while let Some(chunk) = log.next().await {
        let mut chunk = chunk.map_err(|error| trouble(&error))?;
        if let Some(left) = &mut left {
            chunk.truncate(*left);
            *left -= chunk.len();
        }
        while !chunk.is_empty() {
            let piece = chunk.split_to(chunk.len().min(PIECE));
            if !send(Piece::Data(piece)).await {
                return Ok(false);
            }
        }
        if left == Some(0) {
            break;
        }
    }
    Ok(true)
}

fn options(query: &LogsQuery, now: Timestamp) -> Result<LogOptions, TunnelError> {
    let since = match (query.since_seconds, query.since_time.as_str()) {
        (Some(_), text) if !text.is_empty() => {
            return Err(bad(
                "at most one of `sinceTime` or `sinceSeconds` may be specified",
            ));
        }
        (Some(seconds), _) => Timestamp::from_second(now.as_second().saturating_sub(seconds)).ok(),
        (None, "") => None,
        (None, text) => Some(
            time::parse(text)
                .ok_or_else(|| bad(format!("sinceTime \"{text}\" is not RFC 3339")))?,
        ),
    };
    Ok(LogOptions {
        follow: query.follow,
        tail_lines: query.tail_lines,
        since,
        timestamps: query.timestamps,
    })
}

/// Which container's log is meant.
fn select(
    view: &PodView,
    status: &PodStatus,
    names: &[String],
    query: &LogsQuery,
) -> Result<ContainerId, TunnelError> {
    let name = match (query.container.as_str(), names) {
        ("", [only]) => only.as_str(),
        ("", _) => {
            return Err(bad(format!(
                "a container name must be specified for pod {}, choose one of: [{}]",
                query.pod,
                names.join(" ")
            )));
        }
        (name, _) => name,
    };
    let mut found = view.containers.get(name).into_iter().flatten();
    if query.previous {
        let dead = found.skip(1).find(|container| is_dead(container));
        return dead.map(|container| container.id.clone()).ok_or_else(|| {
            bad(format!(
                "previous terminated container \"{name}\" in pod \"{}\" not found",
                query.pod
            ))
        });
    }
    let started = found.find(|container| {
        is_dead(container) || matches!(container.state, ContainerState::Running { .. })
    });
    if let Some(container) = started {
        return Ok(container.id.clone());
    }
    if !names.iter().any(|known| known == name) {
        return Err(bad(format!(
            "container {name} is not valid for pod {}",
            query.pod
        )));
    }
    let waiting = status
        .container_statuses
        .iter()
        .flatten()
        .find(|s| s.name == name);
    let reason = waiting.and_then(|s| s.state.as_ref()?.waiting.as_ref()?.reason.clone());
    let reason = reason.unwrap_or_else(|| "ContainerCreating".into());
    let why = match reason.as_str() {
        images::ERR_IMAGE_PULL | images::IMAGE_PULL_BACK_OFF => "trying and failing to pull image",
        other => other,
    };
    Err(bad(format!(
        "container \"{name}\" in pod \"{}\" is waiting to start: {why}",
        query.pod
    )))
}

#[cfg(test)]
#[path = "logs_tests.rs"]
mod tests;
