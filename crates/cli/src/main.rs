//! The `muster` binary: parses, dispatches, turns outcomes into exit codes.
//!
//! One command is one file in `cmd`; what it prints is made in `output`. Exit codes: 0, 1 for an error, 2 for
//! a command line that makes no sense; `diff` has 1 for differences and 2 for errors.

mod args;
mod cmd;
mod console;
#[cfg(all(feature = "server", feature = "agent"))]
mod demo;
mod failure;
mod follow;
mod manifests;
mod output;
mod select;
mod session;
#[cfg(any(feature = "server", feature = "agent"))]
mod signals;
mod targets;
#[cfg(all(test, feature = "server"))]
mod tests;

use std::process::ExitCode;

use clap::Parser;
use muster_client::Environment;
use muster_model::time::SystemClock;

use crate::args::{Cli, Command, LogFormat};
use crate::console::Console;
use crate::failure::{Failure, Outcome};
use crate::session::Session;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    start_logging(cli.global.verbose, cli.command.logging());
    let mut session = Session {
        console: Console::of_process(),
        flags: cli.global,
        environment: Environment::of_process(),
        clock: SystemClock::shared(),
    };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = cli.command.threads() {
        runtime.worker_threads(threads);
    }
    let outcome = match runtime.enable_all().build() {
        // Boxed: the futures of all commands in one are large.
        Ok(runtime) => runtime.block_on(Box::pin(run(cli.command, &mut session))),
        Err(error) => Err(Failure::new(format!("cannot start: {error}"))),
    };
    let flushed = session.console.flush().map_err(Failure::from);
    match outcome.and(flushed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.text.is_empty() {
                session.console.note(&failure.text);
            }
            ExitCode::from(failure.code)
        }
    }
}

/// Runs one command.
async fn run(command: Command, session: &mut Session) -> Outcome {
    match command {
        Command::Get(args) => Box::pin(args.run(session)).await,
        Command::Describe(args) => Box::pin(args.run(session)).await,
        Command::Explain(args) => Box::pin(args.run(session)).await,
        Command::Coverage(args) => Box::pin(args.run(session)).await,
        Command::Apply(args) => Box::pin(args.run(session)).await,
        Command::Diff(args) => Box::pin(args.run(session)).await,
        Command::Delete(args) => Box::pin(args.run(session)).await,
        Command::Rollout(args) => Box::pin(args.run(session)).await,
        Command::Set(args) => Box::pin(args.run(session)).await,
        Command::Logs(args) => Box::pin(args.run(session)).await,
        Command::Events(args) => Box::pin(args.run(session)).await,
        Command::Label(args) => Box::pin(args.run(session)).await,
        Command::Annotate(args) => Box::pin(args.run(session)).await,
        Command::Taint(args) => Box::pin(args.run(session)).await,
        Command::Cordon(args) => Box::pin(args.run(session, true)).await,
        Command::Uncordon(args) => Box::pin(args.run(session, false)).await,
        #[cfg(feature = "server")]
        Command::Server(args) => Box::pin(args.run(session)).await,
        #[cfg(feature = "agent")]
        Command::Agent(args) => Box::pin(args.run(session)).await,
        #[cfg(all(feature = "server", feature = "agent"))]
        Command::Demo(args) => Box::pin(args.run(session)).await,
        #[cfg(all(feature = "server", feature = "agent"))]
        Command::Up(args) => Box::pin(args.run(session)).await,
        Command::Store(args) => args.run(session),
        Command::Token(args) => Box::pin(args.run(session)).await,
        Command::Completion(args) => args.run(session),
        Command::Version(args) => Box::pin(args.run(session)).await,
    }
}

/// `-v` says more than the command does by itself. `RUST_LOG` has the last word, but for one thing: the Docker client
/// prints whole requests at its debug level, and with them the secrets in containers' environments.
fn start_logging(verbose: u8, (usual, format): (&'static str, LogFormat)) {
    let level = match verbose {
        0 => usual,
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level))
        .add_directive(
            "bollard=info"
                .parse()
                .expect("a fixed, well-formed directive"),
        );
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(console::is_colored(&std::io::stderr()))
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().init(),
    }
}
