//! Commands inside running containers (spec/node-agent.md 19, 29).

use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::exec::StartExecResults;
use bollard::models::{ExecConfig, ExecInspectResponse};
use futures::StreamExt;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::task::JoinSet;

use super::client::DockerEngine;
use crate::runtime::{ContainerId, ExecOutcome, MAX_EXEC_OUTPUT, RuntimeError};

/// The engine may need a moment after the output's end to know the exit code: the first pause between two looks for it.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest one: a command may close its output long before it ends.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long to look for the process of a command that took too long: a busy engine starts it late. Where one container
/// hangs, this may, too.
const END_WITHIN: Duration = Duration::from_secs(10);

/// Commands that took too long and are being ended, while nobody waits for it. They are left alone when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Overdue(Mutex<JoinSet<()>>);

impl Overdue {
    fn end(&self, docker: Docker, id: ContainerId, exec: String) {
        let mut ending = self.0.lock();
        while ending.try_join_next().is_some() {}
        ending.spawn(end(docker, id, exec));
    }
}

/// Runs a command, at most this long. All of it counts, since an engine that cannot reach the container answers nothing
/// at all: whoever waits for the command learns in time that it did not pass.
pub(super) async fn run(
    engine: &DockerEngine,
    overdue: &Overdue,
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
        let created = docker.create_exec(&id.0, config).await?.id;
        let (docker, exec) = exec.insert((docker.clone(), created));
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
            if let Some((docker, exec)) = exec {
                overdue.end(docker, id.clone(), exec);
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
    look(docker, exec, |found| {
        let code = ended(found)?;
        Some(i32::try_from(code).unwrap_or(-1))
    })
    .await
}

/// The process of a command, which the engine may be about to start; none when the command has ended.
async fn process(docker: &Docker, exec: &str) -> Option<Pid> {
    let pid = |found: &ExecInspectResponse| {
        let pid = found.pid.filter(|_| found.running == Some(true))?;
        Pid::from_raw(i32::try_from(pid).ok()?)
    };
    let found = look(docker, exec, |found| match ended(found) {
        Some(_) => Some(None),
        None => pid(found).map(Some),
    });
    found.await.ok().flatten()
}

fn ended(found: &ExecInspectResponse) -> Option<i64> {
    found.exit_code.filter(|_| found.running == Some(false))
}

/// Looks at a command again and again until it shows what is asked for.
async fn look<T>(
    docker: &Docker,
    exec: &str,
    wanted: impl Fn(&ExecInspectResponse) -> Option<T>,
) -> Result<T, Error> {
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(shown) = wanted(&docker.inspect_exec(exec).await?) {
            return Ok(shown);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Ends a command that took too long. The engine has no call for it, so its process is looked for on this host: where the
/// agent does not see the engine's processes, the command ends when it will.
async fn end(docker: Docker, id: ContainerId, exec: String) {
    let found = tokio::time::timeout(END_WITHIN, process(&docker, &exec)).await;
    let Ok(Some(pid)) = found else { return };
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
