//! Commands inside running containers (spec/node-agent.md 19, 29).

use std::time::Duration;

use bollard::exec::StartExecResults;
use bollard::models::ExecConfig;
use futures::StreamExt;
use rustix::process::{Pid, Signal, kill_process_group};

use super::client::DockerEngine;
use crate::runtime::{ContainerId, ExecOutcome, MAX_EXEC_OUTPUT, RuntimeError};

/// The engine may need a moment after the output's end to know the exit code.
const CODE_TRIES: usize = 50;
/// Between two looks for it.
const CODE_INTERVAL: Duration = Duration::from_millis(20);

/// Runs a command, at most this long.
pub(super) async fn run(
    engine: &DockerEngine,
    id: &ContainerId,
    command: &[String],
    limit: Duration,
) -> Result<ExecOutcome, RuntimeError> {
    let config = ExecConfig {
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        cmd: Some(command.to_vec()),
        ..ExecConfig::default()
    };
    let exec = engine
        .call("create exec", async |connection| {
            connection.docker.create_exec(&id.0, config).await
        })
        .await?
        .id;
    let mut output = Vec::new();
    let collected = engine.call_within("exec", limit, async |connection| {
        let started = connection.docker.start_exec(&exec, None).await?;
        if let StartExecResults::Attached {
            output: mut pieces, ..
        } = started
        {
            // Read to its end even when there is too much, lest the command hang on a full pipe.
            while let Some(piece) = pieces.next().await {
                let piece = piece?.into_bytes();
                let room = MAX_EXEC_OUTPUT.saturating_sub(output.len());
                output.extend_from_slice(&piece[..piece.len().min(room)]);
            }
        }
        Ok(())
    });
    let exit_code = match collected.await {
        Ok(()) => Some(exit_code(engine, &exec).await?),
        Err(RuntimeError::TimedOut { .. }) => {
            end(engine, id, &exec).await;
            None
        }
        Err(error) => return Err(error),
    };
    Ok(ExecOutcome {
        exit_code,
        output: String::from_utf8_lossy(&output).into_owned(),
    })
}

async fn exit_code(engine: &DockerEngine, exec: &str) -> Result<i32, RuntimeError> {
    for _ in 0..CODE_TRIES {
        let found = engine
            .call("inspect exec", async |connection| {
                connection.docker.inspect_exec(exec).await
            })
            .await?;
        if let (Some(code), Some(false)) = (found.exit_code, found.running) {
            return Ok(i32::try_from(code).unwrap_or(-1));
        }
        tokio::time::sleep(CODE_INTERVAL).await;
    }
    Err(RuntimeError::Refused {
        status: 0,
        message: "the command's exit code is not known".to_owned(),
    })
}

/// Ends a command that took too long. The engine has no call for it, so its process is looked for on this host: where the
/// agent does not see the engine's processes, the command ends when it will.
async fn end(engine: &DockerEngine, id: &ContainerId, exec: &str) {
    let found = engine
        .call("inspect exec", async |connection| {
            connection.docker.inspect_exec(exec).await
        })
        .await;
    let pid = found
        .ok()
        .filter(|exec| exec.running == Some(true))
        .and_then(|exec| i32::try_from(exec.pid?).ok())
        .and_then(Pid::from_raw);
    let Some(pid) = pid else { return };
    let path = format!("/proc/{}/cgroup", pid.as_raw_nonzero());
    let groups = tokio::fs::read_to_string(path).await.unwrap_or_default();
    // The number may mean another process here, or none: only one of this very container is touched.
    if !groups.contains(&id.0) {
        tracing::debug!(container = id.0, %exec, "a command that took too long is left to end by itself");
        return;
    }
    // The engine starts each command as the leader of a session, so its group is all that it started in the foreground.
    if let Err(error) = kill_process_group(pid, Signal::KILL) {
        tracing::debug!(container = id.0, %exec, %error, "a command that took too long cannot be ended");
    }
}
