//! The `muster` binary as child processes, which can be killed as no task can.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// The binary to test instead of one that is built.
const BINARY: &str = "MUSTER_BINARY";
/// How long a process may take to end after SIGTERM before it is killed.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long one command may take.
const COMMAND_WITHIN: Duration = Duration::from_secs(300);

/// The `muster` binary: `$MUSTER_BINARY`, or one built by cargo with the profile of this very program, once for each
/// process, and once for all processes of a nextest run.
///
/// # Errors
/// When it cannot be built.
pub fn binary() -> anyhow::Result<&'static Path> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| match std::env::var_os(BINARY) {
        Some(path) => Ok(PathBuf::from(path)),
        None => build().map_err(|error| format!("{error:#}")),
    });
    match found {
        Ok(path) => Ok(path),
        Err(error) => bail!("{error}"),
    }
}

fn build() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    // TARGET/PROFILE/deps/NAME
    let profile = own
        .parent()
        .and_then(Path::parent)
        .context("a test program lies in TARGET/PROFILE/deps")?;
    let target = profile.parent().context("no target directory")?;
    let path = profile.join("muster");
    let run = std::env::var("NEXTEST_RUN_ID").unwrap_or_default();
    let mut marker = OpenOptions::new()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .open(profile.join("muster-of-run"))?;
    marker.lock()?;
    let mut built_by = String::new();
    marker.read_to_string(&mut built_by)?;
    if !run.is_empty() && built_by == run && path.exists() {
        return Ok(path);
    }
    let name = match profile.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let mut cargo = Command::new(env!("CARGO"));
    // What cargo tells a test of its package makes build scripts that listen to it (ring's) run again, here and at the
    // next build from a shell.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&*name);
        }
    }
    let built = cargo
        // Of the whole workspace: its dependencies then have the features the tests were built with.
        .args(["build", "--workspace", "--bin", "muster"])
        .args(["--profile", name, "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .context("cannot run cargo")?;
    if !built.status.success() {
        bail!(
            "the muster binary cannot be built:\n{}",
            String::from_utf8_lossy(&built.stderr)
        );
    }
    marker.set_len(0)?;
    write!(&marker, "{run}")?;
    Ok(path)
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// The exit code; -1 after a signal.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// A running `muster`. Dropping it kills it.
#[derive(Debug)]
pub struct MusterProcess {
    child: Child,
    log: PathBuf,
}

impl MusterProcess {
    /// Starts `muster ARGS`. What it prints and logs is appended to `log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start<S: AsRef<str>>(arguments: &[S], log: &Path) -> anyhow::Result<Self> {
        let file = File::options().create(true).append(true).open(log)?;
        let child = command(arguments)?
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("cannot start muster")?;
        Ok(Self {
            child,
            log: log.to_owned(),
        })
    }

    /// Runs `muster ARGS` to its end.
    ///
    /// # Errors
    /// When it cannot be started, or does not end.
    pub async fn cli<S: AsRef<str>>(arguments: &[S]) -> anyhow::Result<Ran> {
        let mut command = tokio::process::Command::from(command(arguments)?);
        let output = tokio::time::timeout(COMMAND_WITHIN, command.kill_on_drop(true).output());
        let output = output.await.context("muster does not end")??;
        Ok(Ran {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to stop with SIGTERM, and returns its exit code; -1 when it had to be killed.
    pub async fn stop(&mut self) -> i32 {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let give_up = Instant::now() + ENDS_WITHIN;
        while Instant::now() < give_up {
            if let Ok(Some(status)) = self.child.try_wait() {
                return status.code().unwrap_or(-1);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.kill();
        -1
    }

    /// Whether it runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// What it has printed and logged.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for MusterProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The binary without what the surroundings would tell it.
fn command<S: AsRef<str>>(arguments: &[S]) -> anyhow::Result<Command> {
    let mut command = Command::new(binary()?);
    command
        .args(arguments.iter().map(AsRef::as_ref))
        .stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("MUSTER_") || name == "KUBECONFIG" || name == "RUST_LOG" {
            command.env_remove(&*name);
        }
    }
    Ok(command)
}

/// Takes away what killed processes had mounted below a directory, without which it cannot be removed.
pub fn unmount_below(root: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let below = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|target| Path::new(target).starts_with(root));
    for target in below {
        let _ = std::process::Command::new("umount")
            .args(["--lazy", target])
            .status();
    }
}
