//! A command inside the container.

use std::time::Duration;

use muster_model::k8s::api::core::v1::ExecAction;

use super::Reply;
use crate::moment::go_duration;
use crate::runtime::{ContainerId, Runtime, RuntimeError};

pub(super) async fn probe(
    runtime: &dyn Runtime,
    id: &ContainerId,
    action: &ExecAction,
    limit: Duration,
) -> Reply {
    let command = action.command.as_deref().unwrap_or_default();
    match runtime.exec(id, command, limit).await {
        Ok(ended) => match ended.exit_code {
            Some(0) => Reply::Success,
            Some(_) => Reply::Failure(ended.output),
            None => {
                let (command, limit) = (command.join(" "), go_duration(limit));
                Reply::Failure(format!(
                    "command timed out: \"{command}\" timed out after {limit}"
                ))
            }
        },
        // Somebody froze it: nothing inside answers any more (spec/node-agent.md 28).
        Err(RuntimeError::Conflict(text)) if text.contains("is paused") => Reply::Failure(text),
        Err(error) => Reply::Error(error.to_string()),
    }
}
