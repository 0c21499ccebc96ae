//! What Muster costs: time from apply to running on many nodes, memory and processor of server and agent, and the
//! overhead over bare Docker calls. How to run it and what is measured: `bench/README.md`.
//!
//! ```text
//! muster-bench scale ──┬── muster-bench server   (its own process: TLS, store on disk)
//!                      └── muster-bench hollow   (its own process: N agents, each with its own TLS connection)
//! ```
//! The measured parts are this binary run again with another subcommand, or `muster` itself where it is given.

mod bare;
mod daemon;
mod docker;
mod figures;
mod idle;
mod part;
mod roles;
mod scale;
mod site;
mod store;
mod usage;
mod view;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::figures::Report;

/// Measures Muster on this machine.
#[derive(Debug, Parser)]
#[command(name = "muster-bench", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// How to print the figures
    #[arg(long, short, global = true, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For programs: one document.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Apply, update and delete a DaemonSet on hollow nodes
    Scale(scale::Args),
    /// Memory and processor time of a server and an agent that have nothing to do
    Idle(idle::Args),
    /// Pod bound to container running, against bare Docker calls in the same run
    Docker(docker::Args),
    /// Commits a second of the durable store
    Store(store::Args),
    /// A server, as the other commands start it
    #[command(hide = true)]
    Server(roles::ServerArgs),
    /// Hollow agents, as `scale` starts them
    #[command(hide = true)]
    Hollow(roles::HollowArgs),
    /// One agent over Docker, as `docker` and `idle` start it
    #[command(hide = true)]
    Agent(roles::AgentArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn")),
        )
        .with_writer(std::io::stderr)
        .init();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            figures::complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // An agent is at home on small hosts: its process has as few threads here as `muster agent` has.
    if matches!(cli.command, Command::Agent(_)) {
        runtime.worker_threads(2);
    }
    let runtime = runtime.enable_all().build()?;
    let output = cli.output;
    runtime.block_on(async move {
        match cli.command {
            Command::Scale(args) => show(output, &Box::pin(scale::run(args)).await?),
            Command::Idle(args) => show(output, &Box::pin(idle::run(args)).await?),
            Command::Docker(args) => show(output, &Box::pin(docker::run(args)).await?),
            Command::Store(args) => show(output, &Box::pin(store::run(args)).await?),
            Command::Server(args) => Box::pin(roles::server(args)).await,
            Command::Hollow(args) => Box::pin(roles::hollow(args)).await,
            Command::Agent(args) => Box::pin(roles::agent(args)).await,
        }
    })
}

fn show<R: Report + Serialize>(output: Output, report: &R) -> anyhow::Result<()> {
    let text = match output {
        Output::Table => report.text(),
        Output::Json => serde_json::to_string_pretty(report)?,
    };
    figures::print(&text)
}
