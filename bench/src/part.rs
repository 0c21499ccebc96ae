//! A measured part: a process that says one line when it is up, and ends when its standard input does.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio_util::sync::CancellationToken;

use crate::usage::Usage;

/// How long a part may take until it is up.
const UP_WITHIN: Duration = Duration::from_secs(60);
/// How long it may take to end.
const END_WITHIN: Duration = Duration::from_secs(20);

/// How a part is told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// By the end of its standard input: this program's own roles.
    Input,
    /// By a signal: `muster`.
    Signal,
}

/// A running part. Dropped, it is killed.
pub(crate) struct Part {
    name: String,
    child: Child,
    /// Held open.
    input: Option<ChildStdin>,
    /// Held open, so that it can go on writing.
    output: Option<Lines<BufReader<ChildStdout>>>,
    pid: u32,
    end: End,
}

impl Part {
    /// Runs this program again with these arguments; answers what it said when it was up.
    pub(crate) async fn start(arguments: &[OsString]) -> anyhow::Result<(Self, String)> {
        let mut part = Self::begin(&std::env::current_exe()?, arguments, End::Input)?;
        let line = part.first_line().await?;
        Ok((part, line))
    }

    /// Runs `muster server` with these arguments; answers the address it says.
    pub(crate) async fn start_server(
        muster: &Path,
        arguments: &[OsString],
    ) -> anyhow::Result<(Self, String)> {
        let mut part = Self::begin(muster, arguments, End::Signal)?;
        let line = part.first_line().await?;
        let url = line.split_whitespace().last().unwrap_or_default();
        Ok((part, url.to_owned()))
    }

    /// Runs `muster agent` with these arguments. It says nothing.
    pub(crate) fn start_agent(muster: &Path, arguments: &[OsString]) -> anyhow::Result<Self> {
        Self::begin(muster, arguments, End::Signal)
    }

    fn begin(program: &Path, arguments: &[OsString], end: End) -> anyhow::Result<Self> {
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
            .with_context(|| format!("cannot start {} {name}", program.display()))?;
        let pid = child
            .id()
            .with_context(|| format!("the {name} process ended at once"))?;
        Ok(Self {
            name,
            input: child.stdin.take(),
            output: child.stdout.take().map(|out| BufReader::new(out).lines()),
            child,
            pid,
            end,
        })
    }

    async fn first_line(&mut self) -> anyhow::Result<String> {
        let name = &self.name;
        let output = self.output.as_mut().context("no output")?;
        let line = tokio::time::timeout(UP_WITHIN, output.next_line())
            .await
            .with_context(|| format!("the {name} process is not up after {UP_WITHIN:?}"))??;
        line.with_context(|| format!("the {name} process ended before it was up"))
    }

    /// What it uses now.
    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        Usage::of(self.pid)
    }

    /// Ends it in order.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        match self.end {
            End::Input => drop(self.input.take()),
            End::Signal => {
                let pid = Pid::from_raw(i32::try_from(self.pid)?).context("no such process")?;
                kill_process(pid, Signal::TERM)?;
            }
        }
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
