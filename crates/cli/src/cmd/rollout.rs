//! `muster rollout`: status, history, undo, restart, in kubectl's words (spec/daemonset.md 16.2).

mod history;
mod status;

use clap::{Args, Subcommand};
use muster_model::kind::DAEMON_SET;
use muster_model::object::Object;
use muster_proto::v1;

use self::history::entries;
use crate::args::{DryRun, DryRunArg};
use crate::failure::{Failure, Outcome};
use crate::select;
use crate::session::{Server, Session};

/// Rollouts of DaemonSets.
#[derive(Debug, Args)]
pub(crate) struct RolloutArgs {
    #[command(subcommand)]
    command: RolloutCommand,
}

#[derive(Debug, Subcommand)]
enum RolloutCommand {
    /// Show how far a rollout is, until it is done
    Status(status::StatusArgs),
    /// Show the revisions of a DaemonSet
    History(history::HistoryArgs),
    /// Go back to an earlier revision
    Undo(UndoArgs),
    /// Replace every pod, from the same template
    Restart(RestartArgs),
    /// Refused: DaemonSets cannot be paused
    Pause(PauseArgs),
    /// Refused: DaemonSets cannot be paused
    Resume(PauseArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster rollout undo ds/web                   the revision before the current one
  muster rollout undo ds/web --to-revision=3   that one")]
struct UndoArgs {
    /// ds/NAME
    #[arg(value_name = "DAEMONSET", required = true, num_args = 1..=2)]
    target: Vec<String>,
    /// The revision to go back to; 0: the one before the current
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    to_revision: i64,
    #[command(flatten)]
    dry_run: DryRunArg,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster rollout restart ds/web                node after node, within the update strategy's limits")]
struct RestartArgs {
    /// ds/NAME
    #[arg(value_name = "DAEMONSET", required = true, num_args = 1..=2)]
    target: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster rollout pause ds/web                  always refused; `OnDelete` is the strategy that waits for you")]
struct PauseArgs {
    /// ds/NAME
    #[arg(value_name = "DAEMONSET", required = true, num_args = 1..=2)]
    target: Vec<String>,
}

impl RolloutArgs {
    /// Runs the command.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        match self.command {
            RolloutCommand::Status(args) => Box::pin(status::status(args, session)).await,
            RolloutCommand::History(args) => Box::pin(history::history(args, session)).await,
            RolloutCommand::Undo(args) => Box::pin(undo(args, session)).await,
            RolloutCommand::Restart(args) => Box::pin(restart(args, session)).await,
            RolloutCommand::Pause(args) => refuse(&args, session, "pausing").await,
            RolloutCommand::Resume(args) => refuse(&args, session, "resuming").await,
        }
    }
}

/// The DaemonSet that is meant: it must exist.
async fn daemonset(words: &[String], server: &Server) -> Outcome<(v1::DaemonSetRef, Object)> {
    let (kind, name) = select::parse_one(words, None)?;
    if *kind != DAEMON_SET {
        return Err(Failure::new(format!(
            "only DaemonSets have rollouts, not {}",
            kind.plural
        )));
    }
    let object = server
        .resources()
        .get(kind, &server.named(kind, &name))
        .await?;
    Ok((
        v1::DaemonSetRef {
            namespace: server.namespace.clone(),
            name,
        },
        object,
    ))
}

async fn refuse(args: &PauseArgs, session: &Session, what: &str) -> Outcome {
    let server = session.connect().await?;
    let (target, _) = daemonset(&args.target, &server).await?;
    Err(Failure::new(format!(
        "daemonsets.apps {:?} {what} is not supported",
        target.name
    )))
}

async fn undo(args: UndoArgs, session: &mut Session) -> Outcome {
    if args.to_revision < 0 {
        return Err(Failure::new(format!(
            "revision must be a positive integer: {}",
            args.to_revision
        )));
    }
    let server = session.connect().await?;
    let (target, object) = daemonset(&args.target, &server).await?;
    let entries = entries(&server, &target).await?;
    if args.to_revision == 0 && entries.len() < 2 {
        return Err(Failure::new("no last revision to roll back to"));
    }
    if args.to_revision > 0
        && !entries
            .iter()
            .any(|entry| entry.revision == args.to_revision)
    {
        return Err(Failure::new(format!(
            "unable to find specified revision {} in history",
            args.to_revision
        )));
    }
    let title = format!("daemonset.apps/{}", target.name);
    let suffix = args.dry_run.mode.suffix();
    if args.dry_run.mode == DryRun::Client {
        return Ok(session
            .console
            .line(format!("{title} rolled back{suffix}"))?);
    }
    if object
        .annotation(muster_model::apply::LAST_APPLIED)
        .is_some()
    {
        session.console.warnings(&[format!(
            "{title} was made by `apply`: its manifest still says the newer template, and the next apply brings it back"
        )]);
    }
    let message = v1::UndoRequest {
        daemonset: Some(target),
        to_revision: args.to_revision,
        dry_run: args.dry_run.mode == DryRun::Server,
    };
    match server
        .connection
        .daemonsets()
        .undo(server.connection.request(message))
        .await
    {
        Err(status) => Err(server.connection.fault(&status).into()),
        Ok(reply) => {
            let reply = reply.into_inner();
            let done = if reply.skipped {
                format!(
                    "skipped rollback (current template already matches revision {})",
                    reply.revision
                )
            } else {
                "rolled back".to_owned()
            };
            Ok(session.console.line(format!("{title} {done}{suffix}"))?)
        }
    }
}

async fn restart(args: RestartArgs, session: &mut Session) -> Outcome {
    let server = session.connect().await?;
    let (target, _) = daemonset(&args.target, &server).await?;
    let title = format!("daemonset.apps/{}", target.name);
    let request = server.connection.request(v1::RestartRequest {
        daemonset: Some(target),
    });
    match server.connection.daemonsets().restart(request).await {
        Ok(_) => Ok(session.console.line(format!("{title} restarted"))?),
        Err(status) => {
            let error = server.connection.fault(&status);
            // The server's sentence is kubectl's own when restarts follow too closely.
            match error
                .api()
                .filter(|api| api.message.starts_with("failed to create patch"))
            {
                Some(api) => Err(Failure::new(&api.message)),
                None => Err(error.into()),
            }
        }
    }
}
