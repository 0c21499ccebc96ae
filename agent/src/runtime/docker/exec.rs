//! Commands inside running containers (spec/node-agent.md 19, 29).

use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::exec::StartExecResults;
use bollard::models::ExecConfig;
use futures::StreamExt;
use rustix::process::{Pid, Signal, kill_process_group};

use super::client::DockerEngine;
use crate::runtime::{ContainerId, ExecOutcome, MAX_EXEC_OUTPUT, RuntimeError};

/// The engine may need a moment after the output's end to know the exit code: the first pause between two looks for it.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest one: a command may close its output long before it ends.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long to look for the process of a command that took too long. Where one container hangs, this may, too.
const END_WITHIN: Duration = Duration::from_secs(1);

/// Runs a command, at most this long. All of it counts, since an engine that cannot reach the container answers nothing
/// at all: whoever waits for the command learns in time that it did not pass.
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
    let (mut exec, mut output) = (None, Vec::new());
    let ended = engine.call_within("exec", limit, async |connection| {
        let docker = &connection.docker;
        let exec = exec.insert(docker.create_exec(&id.0, config).await?.id);
        let started = docker.start_exec(exec, None).await?;
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
        exit_code(docker, exec).await
    });
    let exit_code = match ended.await {
        Ok(code) => Some(code),
        Err(RuntimeError::TimedOut { .. }) => {
            if let Some(exec) = &exec {
                end(engine, id, exec).await;
            }
            None
        }
        Err(error) => return Err(error),
    };
    Ok(ExecOutcome {
        exit_code,
        output: String::from_utf8_lossy(&output).into_owned(),
    })
}

async fn exit_code(docker: &Docker, exec: &str) -> Result<i32, Error> {
    let mut pause = FIRST_PAUSE;
    loop {
        let found = docker.inspect_exec(exec).await?;
        if let (Some(code), Some(false)) = (found.exit_code, found.running) {
            return Ok(i32::try_from(code).unwrap_or(-1));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Ends a command that took too long. The engine has no call for it, so its process is looked for on this host: where the
/// agent does not see the engine's processes, the command ends when it will.
async fn end(engine: &DockerEngine, id: &ContainerId, exec: &str) {
    let found = engine
        .call_within("inspect exec", END_WITHIN, async |connection| {
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
