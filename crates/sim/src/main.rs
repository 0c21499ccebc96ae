//! `muster-sim`: plays seeds, or one of them in full.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that talks to people"
)]

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use muster_sim::{Farm, Report, Scenario, Size, Verdict, play, shrink};
use serde_json::json;

/// Lines of a failing seed's trace that are shown.
const TAIL: usize = 60;

/// Simulates whole clusters with seeds of faults, and checks what must always hold.
#[derive(Debug, Parser)]
#[command(
    name = "muster-sim",
    after_help = "Examples:
  cargo run --release -p muster-sim -- --seeds 10000      ten thousand clusters
  cargo run --release -p muster-sim -- --seed 4711        one of them, with all that happened
  cargo run --release -p muster-sim -- --seed 4711 --shrink   with as few steps as still break something

Exit code: 0 when nothing was broken, 1 otherwise."
)]
struct Arguments {
    /// How many seeds to play
    #[arg(long, value_name = "COUNT", default_value_t = 1_000)]
    seeds: u64,
    /// The first of them
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Play this seed alone, and show its trace
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// With --seed: drop steps as long as something is still broken
    #[arg(long, requires = "seed")]
    shrink: bool,
    /// Steps of each scenario
    #[arg(long, value_name = "COUNT", default_value_t = Size::default().steps)]
    steps: usize,
    /// Most nodes at the beginning
    #[arg(long, value_name = "COUNT", default_value_t = Size::default().nodes)]
    nodes: usize,
    /// Threads; 0: one per processor
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    jobs: usize,
    /// Begin no further seed after so many seconds
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u64>,
    /// Begin no further seed after one that breaks something
    #[arg(long)]
    stop_at_first: bool,
    /// With --seed: also print the program's own log, at this level (such as debug)
    #[arg(long, value_name = "LEVEL", requires = "seed")]
    log: Option<String>,
    /// What to print
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// One document
    Json,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let broken = match arguments.seed {
        Some(seed) => one(&arguments, seed),
        None => many(&arguments),
    };
    if broken {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

impl Arguments {
    fn size(&self) -> Size {
        Size {
            nodes: self.nodes,
            steps: self.steps,
        }
    }

    /// The command that plays a seed of this run again.
    fn replay(&self, seed: u64) -> String {
        let mut command = format!("cargo run --release -p muster-sim -- --seed {seed}");
        let usual = Size::default();
        if self.steps != usual.steps {
            command.push_str(&format!(" --steps {}", self.steps));
        }
        if self.nodes != usual.nodes {
            command.push_str(&format!(" --nodes {}", self.nodes));
        }
        command
    }
}

fn one(arguments: &Arguments, seed: u64) -> bool {
    if let Some(level) = &arguments.log {
        tracing_subscriber::fmt()
            .with_env_filter(level.as_str())
            .without_time()
            .with_writer(std::io::stderr)
            .init();
    }
    let scenario = Scenario::from_seed(seed, arguments.size());
    let outcome = if arguments.shrink {
        let (smaller, outcome) = shrink(&scenario, |left| eprintln!("{left} steps left"));
        if arguments.output == Output::Text {
            for step in &smaller.steps {
                println!("step {:?}, then {:?}", step.act, step.pass);
            }
        }
        outcome
    } else {
        play(&scenario)
    };
    match arguments.output {
        Output::Json => println!(
            "{}",
            json!({
                "seed": seed,
                "broken": outcome.faults,
                "simulatedSeconds": outcome.simulated.as_secs(),
                "trace": outcome.trace,
            })
        ),
        Output::Text => {
            outcome.trace.iter().for_each(|line| println!("{line}"));
            for fault in &outcome.faults {
                println!("broken: {fault}");
            }
            if outcome.faults.is_empty() {
                println!(
                    "seed {seed}: nothing was broken in {} simulated seconds",
                    outcome.simulated.as_secs()
                );
            }
        }
    }
    !outcome.faults.is_empty()
}

fn many(arguments: &Arguments) -> bool {
    let jobs = match arguments.jobs {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        jobs => jobs,
    };
    let farm = Farm {
        seeds: arguments.from..arguments.from.saturating_add(arguments.seeds),
        size: arguments.size(),
        jobs,
        time_limit: arguments.time_limit.map(Duration::from_secs),
        stop_at_first: arguments.stop_at_first,
    };
    let text = arguments.output == Output::Text;
    let progress = if text && std::io::stderr().is_terminal() {
        ProgressBar::new(arguments.seeds)
    } else {
        ProgressBar::hidden()
    };
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {msg}{eta} left") {
        progress.set_style(style);
    }
    let mut broken = 0;
    let report = farm.run(|verdict| {
        progress.inc(1);
        if !verdict.faults.is_empty() {
            broken += 1;
            progress.set_message(format!("{broken} broken, "));
            if text {
                progress.suspend(|| show(arguments, verdict));
            }
        }
    });
    progress.finish_and_clear();
    if text {
        println!(
            "{} seeds, {} broken, {} simulated hours, {:.1} s",
            report.run,
            report.broken.len(),
            report.simulated.as_secs() / 3_600,
            report.took.as_secs_f64(),
        );
    } else {
        println!("{}", document(arguments, &report));
    }
    !report.broken.is_empty()
}

fn show(arguments: &Arguments, verdict: &Verdict) {
    let from = verdict.trace.len().saturating_sub(TAIL);
    println!("seed {} is broken; the end of its trace:", verdict.seed);
    verdict.trace[from..]
        .iter()
        .for_each(|line| println!("  {line}"));
    verdict
        .faults
        .iter()
        .for_each(|fault| println!("broken: {fault}"));
    println!("again: {}", arguments.replay(verdict.seed));
}

fn document(arguments: &Arguments, report: &Report) -> serde_json::Value {
    let broken = report.broken.iter().map(|verdict| {
        json!({
            "seed": verdict.seed,
            "faults": verdict.faults,
            "again": arguments.replay(verdict.seed),
        })
    });
    json!({
        "seeds": report.run,
        "broken": broken.collect::<Vec<_>>(),
        "simulatedSeconds": report.simulated.as_secs(),
        "seconds": report.took.as_secs_f64(),
    })
}
