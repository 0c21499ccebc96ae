//! The command line: flags every command has, and the commands.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::cmd;

/// Muster: one daemon on every node that should have it, and plain words where it has not.
#[derive(Debug, Parser)]
#[command(
    name = "muster",
    version,
    propagate_version = false,
    max_term_width = 100,
    after_help = "`muster demo` shows what it is. Start with `muster server` (or `muster up` for a server and a node on this machine), then \
                  `muster apply -f daemon.yaml` and `muster explain ds/NAME`."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalFlags,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags that every command takes.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalFlags {
    /// Address of the server (host:port or https://host:port), instead of the kubeconfig's
    #[arg(
        long,
        short = 's',
        global = true,
        value_name = "ADDRESS",
        env = "MUSTER_SERVER"
    )]
    pub(crate) server: Option<String>,
    /// The kubeconfig file to use, instead of MUSTER_KUBECONFIG, KUBECONFIG and the usual places
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The kubeconfig context to use, instead of the current one
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The namespace to work in, instead of the context's
    #[arg(long, short = 'n', global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// How long one request may take (30s, 2m; 0: no limit)
    #[arg(long, global = true, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) request_timeout: Duration,
    /// Log more to standard error (-v: info, -vv: debug, -vvv: trace)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show objects, as a table or in full
    Get(cmd::get::GetArgs),
    /// Show one object with everything that is known about it
    Describe(cmd::describe::DescribeArgs),
    /// Say for every node whether it runs a DaemonSet's pod, and why or why not
    Explain(cmd::explain::ExplainArgs),
    /// Show which nodes every DaemonSet covers and which it misses
    Coverage(cmd::coverage::CoverageArgs),
    /// Make objects be as files say
    Apply(cmd::apply::ApplyArgs),
    /// Show what `apply` would change
    Diff(cmd::diff::DiffArgs),
    /// Delete objects
    Delete(cmd::delete::DeleteArgs),
    /// Watch, plan, list, undo, restart, pause, resume and promote rollouts of DaemonSets
    Rollout(cmd::rollout::RolloutArgs),
    /// Set the image or the environment of containers
    Set(cmd::set::SetArgs),
    /// Show what containers wrote
    Logs(cmd::logs::LogsArgs),
    /// Show what happened
    Events(cmd::events::EventsArgs),
    /// Set or remove labels
    Label(cmd::label::LabelArgs),
    /// Set or remove annotations
    Annotate(cmd::label::AnnotateArgs),
    /// Set or remove taints of nodes
    Taint(cmd::taint::TaintArgs),
    /// Mark nodes as not to be given new pods
    Cordon(cmd::cordon::CordonArgs),
    /// Take that mark off again
    Uncordon(cmd::cordon::CordonArgs),
    /// Run the server
    #[cfg(feature = "server")]
    Server(cmd::server::ServerArgs),
    /// Run a node: the agent that keeps its pods running
    #[cfg(feature = "agent")]
    Agent(Box<cmd::agent::AgentArgs>),
    /// Show all of it on this machine in half a minute, and clean up
    #[cfg(all(feature = "server", feature = "agent"))]
    Demo(cmd::demo::DemoArgs),
    /// Run a server and a node on this machine, in one process
    #[cfg(all(feature = "server", feature = "agent"))]
    Up(Box<cmd::up::UpArgs>),
    /// Check, save and restore a server's store while the server is stopped
    Store(cmd::store::StoreArgs),
    /// Make, list and delete the tokens that nodes join with
    Token(cmd::token::TokenArgs),
    /// Print the completion script of a shell
    Completion(cmd::completion::CompletionArgs),
    /// Print the versions of this program and of the server
    Version(cmd::version::VersionArgs),
}

/// `30s`, `1m30s`, `2h`, `500ms`, or a bare number of seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    muster_model::time::parse_duration(text).map_err(|error| error.to_string())
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

impl Command {
    /// How the command logs when nobody says otherwise: what runs for long tells what it does.
    pub(crate) fn logging(&self) -> (&'static str, LogFormat) {
        match self {
            #[cfg(feature = "server")]
            Self::Server(args) => ("info", args.log_format),
            #[cfg(feature = "agent")]
            Self::Agent(args) => ("info", args.log_format),
            #[cfg(all(feature = "server", feature = "agent"))]
            Self::Up(args) => ("info", args.log_format),
            _ => ("warn", LogFormat::Text),
        }
    }

    /// How many threads the command works with; `None`: one for each processor. An agent waits more than it works, and
    /// each thread costs it memory.
    pub(crate) fn threads(&self) -> Option<usize> {
        match self {
            #[cfg(feature = "agent")]
            Self::Agent(_) => Some(2),
            _ => None,
        }
    }
}

/// `-l`: which objects, by their labels.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LabelSelector {
    /// Only objects with these labels, such as app=web,tier in (a,b),!old
    #[arg(
        id = "selector",
        short = 'l',
        long = "selector",
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) text: String,
}

/// `--dry-run`, with or without a value.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct DryRunArg {
    /// Only try: none, client or server
    #[arg(
        id = "dry_run",
        long = "dry-run",
        value_enum,
        default_value_t,
        value_name = "WHO",
        num_args = 0..=1,
        default_missing_value = "client",
        require_equals = true
    )]
    pub(crate) mode: DryRun,
}

/// Whether a write is only tried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum DryRun {
    /// Do it
    #[default]
    None,
    /// Ask nothing of the server that writes
    Client,
    /// Let the server do everything but store
    Server,
}

impl DryRun {
    /// What is put behind the word that says what was done.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_help_text_with_examples() {
        fn check(command: &clap::Command, path: &str) {
            for sub in command
                .get_subcommands()
                .filter(|sub| sub.get_name() != "help")
            {
                let path = format!("{path} {}", sub.get_name());
                assert!(sub.get_about().is_some(), "{path} has no description");
                if sub.has_subcommands() {
                    check(sub, &path);
                } else {
                    let examples = sub
                        .get_after_help()
                        .map(ToString::to_string)
                        .unwrap_or_default();
                    assert!(examples.contains("Examples:"), "{path} has no examples");
                    assert!(
                        examples.contains("muster "),
                        "{path}: the examples do not start with `muster`"
                    );
                }
            }
        }
        check(&Cli::command(), "muster");
    }

    #[test]
    fn global_flags_go_before_and_after_the_command() {
        for line in [
            "muster -n web get ds",
            "muster get ds -n web",
            "muster get -n web ds",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(cli.global.namespace.as_deref(), Some("web"), "{line}");
        }
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, seconds) in [
            ("30s", 30.0),
            ("1m30s", 90.0),
            ("2h", 7200.0),
            ("500ms", 0.5),
            ("0", 0.0),
            ("7", 7.0),
            ("1.5h", 5400.0),
        ] {
            assert_eq!(duration(text).unwrap().as_secs_f64(), seconds, "{text}");
        }
        for text in ["", "s", "5x", "m5", "1h2", "-1s", "99999999999999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
