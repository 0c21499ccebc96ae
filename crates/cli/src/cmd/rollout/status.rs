//! `muster rollout status`: how far a rollout is, until it is done.

use std::time::Duration;

use clap::Args;
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use muster_proto::v1;
use serde_json::{Value, json};

use super::daemonset;
use super::history::entries;
use crate::args::duration;
use crate::failure::{Failure, Outcome};
use crate::output::document;
use crate::session::{Server, Session};

/// How many of the nodes that a rollout waits for are named below the bar.
const WAITING_SHOWN: usize = 8;
/// How long to wait before a stream that was cut is opened again.
const REOPEN_AFTER: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster rollout status ds/web                 waits until it is done
  muster rollout status ds/web --timeout=5m    or until five minutes have passed
  muster rollout status ds/web --watch=false   one look
  muster rollout status ds/web -o json         a document for each change, for scripts")]
pub(super) struct StatusArgs {
    /// ds/NAME
    #[arg(value_name = "DAEMONSET", required = true, num_args = 1..=2)]
    target: Vec<String>,
    /// Wait until it is done
    #[arg(short, long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    watch: bool,
    /// How long to wait at most; 0: as long as it takes
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    timeout: Duration,
    /// Fail when another revision than this one is being rolled out
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    revision: i64,
    /// json or yaml
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    output: Option<document::Format>,
}

/// Runs the command.
pub(super) async fn status(args: StatusArgs, session: &mut Session) -> Outcome {
    let server = session.connect().await?;
    let (target, object) = daemonset(&args.target, &server).await?;
    if object.text_at("/spec/updateStrategy/type") == "OnDelete" {
        return Err(Failure::new(
            "rollout status is only available for RollingUpdate strategy type",
        ));
    }
    if args.revision > 0 {
        let entries = entries(&server, &target).await?;
        let latest = entries
            .iter()
            .map(|entry| entry.revision)
            .max()
            .unwrap_or_default();
        if latest != args.revision {
            return Err(Failure::new(format!(
                "desired revision ({}) is different from the running revision ({latest})",
                args.revision
            )));
        }
    }
    let work = Box::pin(follow(session, &server, target, &args));
    if args.timeout.is_zero() {
        return work.await;
    }
    match tokio::time::timeout(args.timeout, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::new("timed out waiting for the condition")),
    }
}

async fn follow(
    session: &mut Session,
    server: &Server,
    target: v1::DaemonSetRef,
    args: &StatusArgs,
) -> Outcome {
    let bar = (session.console.is_terminal && args.watch && args.output.is_none()).then(progress);
    let is_yaml = args.output == Some(document::Format::Yaml);
    let mut last = String::new();
    loop {
        let request = v1::RolloutStatusRequest {
            daemonset: Some(target.clone()),
        };
        let mut replies = match server.connection.daemonsets().rollout_status(request).await {
            Ok(replies) => replies.into_inner(),
            Err(status) => return Err(deleted(server, &status)),
        };
        while let Some(reply) = replies.next().await {
            let reply = match reply {
                Ok(reply) => reply,
                Err(status) => {
                    let error = server.connection.fault(&status);
                    if !error.is_retryable() {
                        return Err(deleted(server, &status));
                    }
                    break;
                }
            };
            match (&bar, args.output) {
                (Some(bar), _) => show(bar, &reply),
                (None, Some(format)) => {
                    if is_yaml && !last.is_empty() {
                        session.console.line("---")?;
                    }
                    document::write(&mut session.console.out, format, &state(&target, &reply))?;
                }
                (None, None) if reply.message != last => session.console.line(&reply.message)?,
                (None, None) => {}
            }
            session.console.flush()?;
            last.clone_from(&reply.message);
            if reply.done || !args.watch {
                if let Some(bar) = &bar {
                    bar.finish_and_clear();
                    session.console.line(&reply.message)?;
                }
                return Ok(());
            }
        }
        // The stream was cut: the next look tells where we are.
        tokio::time::sleep(REOPEN_AFTER).await;
    }
}

/// What a script is told of a rollout.
fn state(target: &v1::DaemonSetRef, reply: &v1::RolloutStatusReply) -> Value {
    json!({
        "namespace": target.namespace, "daemonset": target.name, "generation": reply.generation,
        "observedGeneration": reply.observed_generation, "desired": reply.desired, "updated": reply.updated,
        "available": reply.available, "done": reply.done, "message": reply.message, "waiting": reply.waiting,
    })
}

fn deleted(server: &Server, status: &tonic::Status) -> Failure {
    let error = server.connection.fault(status);
    if error.is_not_found() {
        Failure::new("object has been deleted")
    } else {
        error.into()
    }
}

fn progress() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:30.green} {pos}/{len} updated, {msg}") {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, reply: &v1::RolloutStatusReply) {
    bar.set_length(u64::try_from(reply.desired).unwrap_or_default());
    bar.set_position(u64::try_from(reply.updated).unwrap_or_default());
    let mut message = format!("{} available", reply.available);
    for sentence in reply.waiting.iter().take(WAITING_SHOWN) {
        message.push_str("\n  ");
        message.push_str(sentence);
    }
    bar.set_message(message);
}
