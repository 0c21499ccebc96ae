//! Whole commands against a server in this process: what a person types, what they read, the exit code.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod apply;
mod bad_input;
mod change;
mod look;
#[cfg(feature = "agent")]
mod node;
mod reflector;
mod rollout;
mod scenarios;
mod scripts;
mod set;
mod stage;
mod steering;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use muster_client::context::resolve;
use muster_client::{ContextFlags, Environment, Resources};
use muster_model::time::SystemClock;
use tokio_util::sync::CancellationToken;

use crate::args::Cli;
use crate::cmd::server::{LocalServer, ServerPlace, StoreEngine, start};
use crate::console::{Captured, Console};
use crate::session::Session;

/// How long a test waits for what must come, on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server without nodes, and its directory.
struct Lab {
    folder: tempfile::TempDir,
    server: Option<LocalServer>,
}

/// What a command did.
struct Ran {
    code: u8,
    out: String,
    err: String,
}

impl Lab {
    async fn start() -> Self {
        Self::start_on(StoreEngine::Memory).await
    }

    async fn start_on(store: StoreEngine) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = ServerPlace {
            data_dir: Some(folder.path().join("data")),
            listen: "127.0.0.1:0".parse().unwrap(),
            advertise: Vec::new(),
            store,
            cluster_name: "lab".to_owned(),
        };
        let server = start(
            &place,
            &Environment::default(),
            SystemClock::shared(),
            CancellationToken::new(),
        )
        .await
        .unwrap();
        Self {
            folder,
            server: Some(server),
        }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("data/admin.kubeconfig")
    }

    /// Its objects, as the administrator has them.
    async fn resources(&self) -> Resources {
        let flags = ContextFlags {
            kubeconfig: Some(self.kubeconfig()),
            ..ContextFlags::default()
        };
        let target = resolve(&flags, &Environment::default()).unwrap();
        target.connect().await.unwrap().resources()
    }

    /// Writes a file and returns its path.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Runs a command line, words split at blanks.
    async fn run(&self, line: &str) -> Ran {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.run_words(&words).await
    }

    /// Runs a command whose reader has left.
    async fn run_unread(&self, line: &str) -> Ran {
        let kubeconfig = self.kubeconfig().display().to_string();
        let mut words = vec!["muster", "--kubeconfig", &kubeconfig];
        words.extend(line.split_whitespace());
        let (mut console, out, err) = Console::captured();
        console.out = Box::new(Left);
        run_on(&words, console, &out, &err).await
    }

    async fn run_words(&self, words: &[&str]) -> Ran {
        let kubeconfig = self.kubeconfig().display().to_string();
        let mut all = vec!["muster", "--kubeconfig", &kubeconfig];
        all.extend(words);
        run(&all).await
    }

    /// Runs a command that must succeed, and returns what it printed.
    async fn ok(&self, line: &str) -> String {
        let ran = self.run(line).await;
        assert_eq!(ran.code, 0, "{line}\n{}{}", ran.out, ran.err);
        ran.out
    }

    async fn stop(mut self) {
        if let Some(server) = self.server.take() {
            server.running.stop().await;
        }
    }
}

/// A pipe that nobody reads.
struct Left;

impl io::Write for Left {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn run(words: &[&str]) -> Ran {
    let (console, out, err) = Console::captured();
    run_on(words, console, &out, &err).await
}

async fn run_on(words: &[&str], console: Console, out: &Captured, err: &Captured) -> Ran {
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            return Ran {
                code: 2,
                out: String::new(),
                err: error.to_string(),
            };
        }
    };
    let mut session = Session {
        console,
        flags: cli.global,
        environment: Environment::default(),
        clock: SystemClock::shared(),
    };
    let outcome = Box::pin(crate::run(cli.command, &mut session)).await;
    session.console.flush().unwrap();
    let (code, last) = match outcome {
        Ok(()) => (0, String::new()),
        Err(failure) => (failure.code, failure.text),
    };
    let mut err = err.text();
    if !last.is_empty() {
        err.push_str(&last);
        err.push('\n');
    }
    Ran {
        code,
        out: out.text(),
        err,
    }
}

const WEB: &str = "\
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: web
  labels: {app: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: nginx:1.27
";
