//! A measured part: a process that says one line when it is up, and ends when its standard input does.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio_util::sync::CancellationToken;

use crate::usage::Usage;

/// How long a part may take until it is up.
const UP_WITHIN: Duration = Duration::from_secs(60);
/// How long it may take to end.
const END_WITHIN: Duration = Duration::from_secs(20);

/// A running part. Dropped, it is killed.
pub(crate) struct Part {
    name: String,
    child: Child,
    input: ChildStdin,
    pid: u32,
}

impl Part {
    /// Runs this program again with these arguments; answers what it said when it was up.
    pub(crate) async fn start(arguments: &[OsString]) -> anyhow::Result<(Self, String)> {
        let program = std::env::current_exe()?;
        let name = arguments
            .first()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start the {name} process"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output), Some(pid)) = (input, output, child.id()) else {
            bail!("the {name} process ended at once");
        };
        let mut lines = BufReader::new(output).lines();
        let line = tokio::time::timeout(UP_WITHIN, lines.next_line())
            .await
            .with_context(|| format!("the {name} process is not up after {UP_WITHIN:?}"))??;
        let Some(line) = line else {
            bail!("the {name} process ended before it was up");
        };
        let part = Self {
            name,
            child,
            input,
            pid,
        };
        Ok((part, line))
    }

    /// What it uses now.
    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        Usage::of(self.pid)
    }

    /// Ends it in order.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.input);
        let name = &self.name;
        let status = tokio::time::timeout(END_WITHIN, self.child.wait())
            .await
            .with_context(|| format!("the {name} process did not end in {END_WITHIN:?}"))??;
        if !status.success() {
            bail!("the {name} process ended with {status}");
        }
        Ok(())
    }
}

/// The other side: cancelled when whoever started this process closes its standard input, or is gone.
pub(crate) fn end_of_input() -> CancellationToken {
    let ended = CancellationToken::new();
    let notice = ended.clone();
    // A thread of its own, left behind at the end: a read of standard input cannot be given up.
    std::thread::spawn(move || {
        let _notice = notice.drop_guard();
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    });
    ended
}
