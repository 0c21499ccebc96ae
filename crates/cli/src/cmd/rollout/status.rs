//! `muster rollout status`: how far a rollout is, until it is done.

use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use muster_proto::v1;
use serde_json::{Value, json};

use super::history::entries;
use super::states::States;
use super::{Targets, reference};
use crate::args::duration;
use crate::failure::{Failure, Outcome};
use crate::output::document::{self, FormatArg};
use crate::session::{Server, Session};
use crate::targets::Outcomes;

/// How many of the nodes that a rollout waits for are named below the bar.
const WAITING_SHOWN: usize = 8;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster rollout status ds/web                 waits until it is done
  muster rollout status ds/web --timeout=5m    or until five minutes have passed
  muster rollout status ds/web --watch=false   one look
  muster rollout status ds/web --revision=3    fails when another revision takes its place
  muster rollout status ds -l tier=edge        one after the other
  muster rollout status ds/web -o json         a document for each change, for scripts")]
pub(super) struct StatusArgs {
    #[command(flatten)]
    targets: Targets,
    /// Wait until it is done
    #[arg(short, long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    watch: bool,
    /// How long to wait at most; 0: as long as it takes
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    timeout: Duration,
    /// Fail as soon as another revision than this one is being rolled out
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    revision: i64,
    #[command(flatten)]
    output: FormatArg,
}

/// Runs the command: one DaemonSet after the other.
pub(super) async fn status(args: StatusArgs, session: &mut Session) -> Outcome {
    if args.revision < 0 {
        return Err(Failure::new(format!(
            "revision must be a positive integer: {}",
            args.revision
        )));
    }
    let server = session.connect().await?;
    let work = Box::pin(all(session, &server, &args));
    if args.timeout.is_zero() {
        return work.await;
    }
    match tokio::time::timeout(args.timeout, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::new("timed out waiting for the condition")),
    }
}

async fn all(session: &mut Session, server: &Server, args: &StatusArgs) -> Outcome {
    let mut outcomes = Outcomes::default();
    for object in args.targets.find(session, server, &mut outcomes).await? {
        let followed = if object.text_at("/spec/updateStrategy/type") == "OnDelete" {
            Err(Failure::new(
                "rollout status is only available for RollingUpdate strategy type",
            ))
        } else {
            follow(session, server, reference(&object), args).await
        };
        outcomes.add(&mut session.console, followed)?;
    }
    outcomes.end()
}

/// Fails when another revision than the one that `--revision` names is being rolled out.
fn pinned(entries: &[v1::HistoryEntry], revision: i64) -> Outcome {
    let latest = entries.last().map_or(0, |entry| entry.revision);
    if latest == revision {
        Ok(())
    } else {
        Err(Failure::new(format!(
            "desired revision ({revision}) is different from the running revision ({latest})"
        )))
    }
}

async fn follow(
    session: &mut Session,
    server: &Server,
    target: v1::DaemonSetRef,
    args: &StatusArgs,
) -> Outcome {
    let bar =
        (session.console.is_terminal && args.watch && args.output.format.is_none()).then(progress);
    let mut said = Said::default();
    let mut states = States::of(server, target.clone(), args.watch);
    loop {
        let reply = states.next().await?;
        // A template that the controller has not looked at yet has no revision that could be compared.
        let is_observed = reply.observed_generation >= reply.generation;
        if args.revision > 0 && (is_observed || !args.watch) {
            match entries(server, &target).await {
                Ok(entries) => pinned(&entries, args.revision)?,
                Err(error) => {
                    states.cut(error).await?;
                    continue;
                }
            }
        }
        match (&bar, args.output.format) {
            (Some(bar), _) => show(bar, &reply),
            (None, Some(format)) => {
                document::write(&mut session.console, format, &state(&target, &reply))?;
            }
            (None, None) => {
                for line in said.news(&reply) {
                    session.console.line(line)?;
                }
            }
        }
        session.console.flush()?;
        said.note(&reply);
        let has_failed = is_observed && failed(&reply);
        if reply.done || !args.watch || has_failed {
            if let Some(bar) = &bar {
                bar.finish_and_clear();
                session.console.line(&reply.message)?;
            }
            if has_failed {
                let (name, why) = (&target.name, &reply.failed);
                let text = format!("daemon set {name:?} rollout failed: {why}");
                return Err(Failure::new(text));
            }
            return Ok(());
        }
    }
}

/// A rollout that was stopped for good, or taken back and through with that. While it is being taken back it goes on.
fn failed(reply: &v1::RolloutStatusReply) -> bool {
    !reply.failed.is_empty() && (reply.done || !reply.hold.is_empty())
}

/// What was said last.
#[derive(Default)]
struct Said {
    message: String,
    hold: String,
}

impl Said {
    /// The lines that are new: kubectl's, and why the whole rollout is held.
    fn news<'r>(&self, reply: &'r v1::RolloutStatusReply) -> impl Iterator<Item = &'r str> {
        let message = (reply.message != self.message).then_some(reply.message.as_str());
        let is_held_anew = !reply.hold.is_empty() && reply.hold != self.hold;
        let hold = is_held_anew.then_some(reply.hold.as_str());
        message.into_iter().chain(hold)
    }

    fn note(&mut self, reply: &v1::RolloutStatusReply) {
        self.message.clone_from(&reply.message);
        self.hold.clone_from(&reply.hold);
    }
}

/// What a script is told of a rollout.
fn state(target: &v1::DaemonSetRef, reply: &v1::RolloutStatusReply) -> Value {
    json!({
        "namespace": target.namespace, "daemonset": target.name, "generation": reply.generation,
        "observedGeneration": reply.observed_generation, "desired": reply.desired, "updated": reply.updated,
        "available": reply.available, "done": reply.done, "message": reply.message, "waiting": reply.waiting,
        "wave": reply.wave, "waves": reply.waves, "failed": reply.failed, "hold": reply.hold,
    })
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
    if !reply.hold.is_empty() {
        message.push_str("\n  ");
        message.push_str(&reply.hold);
    }
    for sentence in reply.waiting.iter().take(WAITING_SHOWN) {
        message.push_str("\n  ");
        message.push_str(sentence);
    }
    bar.set_message(message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_said_once_and_the_reason_for_a_halt_behind_it() {
        let reply = |message: &str, hold: &str| v1::RolloutStatusReply {
            message: message.to_owned(),
            hold: hold.to_owned(),
            ..v1::RolloutStatusReply::default()
        };
        let mut said = Said::default();
        for (message, hold, news) in [
            ("1 out of 3", "", vec!["1 out of 3"]),
            ("1 out of 3", "paused", vec!["paused"]),
            ("1 out of 3", "paused", vec![]),
            ("2 out of 3", "paused", vec!["2 out of 3"]),
            ("2 out of 3", "", vec![]),
            ("3 out of 3", "failed", vec!["3 out of 3", "failed"]),
        ] {
            let reply = reply(message, hold);
            assert_eq!(said.news(&reply).collect::<Vec<_>>(), news);
            said.note(&reply);
        }
    }
}
