//! `muster rollout`: status, history, undo, restart, in kubectl's words (spec/daemonset.md 16.2).

use std::time::Duration;

use clap::{Args, Subcommand};
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use muster_model::kind::DAEMON_SET;
use muster_model::object::Object;
use muster_proto::v1;

use crate::args::{DryRun, duration};
use crate::failure::{Failure, Outcome};
use crate::output::describe::template;
use crate::output::table::Columns;
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
    Status(StatusArgs),
    /// Show the revisions of a DaemonSet
    History(HistoryArgs),
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
  muster rollout status ds/web                 waits until it is done
  muster rollout status ds/web --timeout=5m    or until five minutes have passed
  muster rollout status ds/web --watch=false   one look")]
struct StatusArgs {
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
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster rollout history ds/web                every revision
  muster rollout history ds/web --revision=2   what revision 2 runs")]
struct HistoryArgs {
    /// ds/NAME
    #[arg(value_name = "DAEMONSET", required = true, num_args = 1..=2)]
    target: Vec<String>,
    /// Show the pod template of this revision
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    revision: i64,
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
    /// none, client or server
    #[arg(long, value_enum, default_value_t, value_name = "WHO", num_args = 0..=1, default_missing_value = "client", require_equals = true)]
    dry_run: DryRun,
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
            RolloutCommand::Status(args) => Box::pin(status(args, session)).await,
            RolloutCommand::History(args) => Box::pin(history(args, session)).await,
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

async fn status(args: StatusArgs, session: &mut Session) -> Outcome {
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
    let work = Box::pin(follow(session, &server, target, args.watch));
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
    watch: bool,
) -> Outcome {
    let bar = (session.console.is_terminal && watch).then(progress);
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
            match &bar {
                Some(bar) => show(bar, &reply),
                None if reply.message != last => session.console.line(&reply.message)?,
                None => {}
            }
            session.console.flush()?;
            last.clone_from(&reply.message);
            if reply.done || !watch {
                if let Some(bar) = &bar {
                    bar.finish_and_clear();
                    session.console.line(&reply.message)?;
                }
                return Ok(());
            }
        }
        // The stream was cut: the next look tells where we are.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
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
    for sentence in reply.waiting.iter().take(8) {
        message.push_str("\n  ");
        message.push_str(sentence);
    }
    bar.set_message(message);
}

async fn entries(server: &Server, target: &v1::DaemonSetRef) -> Outcome<Vec<v1::HistoryEntry>> {
    let request = server.connection.request(v1::HistoryRequest {
        daemonset: Some(target.clone()),
    });
    match server.connection.daemonsets().history(request).await {
        Ok(reply) => {
            let mut entries = reply.into_inner().entries;
            entries.sort_by_key(|entry| entry.revision);
            Ok(entries)
        }
        Err(status) => Err(server.connection.fault(&status).into()),
    }
}

async fn history(args: HistoryArgs, session: &mut Session) -> Outcome {
    if args.revision < 0 {
        return Err(Failure::new(format!(
            "revision must be a positive integer: {}",
            args.revision
        )));
    }
    let server = session.connect().await?;
    let (target, _) = daemonset(&args.target, &server).await?;
    let entries = entries(&server, &target).await?;
    let text = history_text(&target.name, &entries, args.revision)?;
    session.console.out.write_all(text.as_bytes())?;
    Ok(())
}

/// kubectl's text, its trailing blank and empty line included.
fn history_text(name: &str, entries: &[v1::HistoryEntry], revision: i64) -> Outcome<String> {
    let title = format!("daemonset.apps/{name}");
    if revision > 0 {
        let Some(entry) = entries.iter().find(|entry| entry.revision == revision) else {
            return Err(Failure::new("unable to find the specified revision"));
        };
        let object =
            Object::from_bytes(&entry.object).map_err(|error| Failure::new(error.to_string()))?;
        let template = template::of_revision(&object.tree()["data"]["spec"]["template"]);
        return Ok(format!("{title} with revision #{revision}\n{template}"));
    }
    if entries.is_empty() {
        return Ok(format!("{title} \nNo rollout history found.\n"));
    }
    let mut rows = vec![vec!["REVISION".to_owned(), "CHANGE-CAUSE".to_owned()]];
    for entry in entries {
        let cause = if entry.change_cause.is_empty() {
            "<none>"
        } else {
            &entry.change_cause
        };
        rows.push(vec![entry.revision.to_string(), cause.to_owned()]);
    }
    let mut table = Vec::new();
    Columns::narrow().write(&mut table, "", &rows)?;
    Ok(format!("{title} \n{}\n", String::from_utf8_lossy(&table)))
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
    let suffix = args.dry_run.suffix();
    if args.dry_run == DryRun::Client {
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
        dry_run: args.dry_run == DryRun::Server,
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(revision: i64, cause: &str) -> v1::HistoryEntry {
        let object = json!({"data": {"spec": {"template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "nginx:1.27"}]}}}}});
        v1::HistoryEntry {
            revision,
            name: format!("web-{revision}"),
            change_cause: cause.to_owned(),
            object: object.to_string().into_bytes().into(),
            current: false,
        }
    }

    #[test]
    fn history_is_kubectls_to_the_blank() {
        let entries = [entry(1, ""), entry(2, "update to 1.27")];
        assert_eq!(
            history_text("web", &entries, 0).unwrap(),
            "daemonset.apps/web \nREVISION  CHANGE-CAUSE\n1         <none>\n2         update to 1.27\n\n"
        );
        assert_eq!(
            history_text("web", &[], 0).unwrap(),
            "daemonset.apps/web \nNo rollout history found.\n"
        );
    }

    #[test]
    fn a_revision_shows_its_template() {
        let entries = [entry(1, ""), entry(2, "")];
        let text = history_text("web", &entries, 2).unwrap();
        assert!(
            text.starts_with("daemonset.apps/web with revision #2\nPod Template:\n"),
            "{text}"
        );
        assert!(
            text.contains("    Image:\tnginx:1.27\n    Port:\t<none>\n"),
            "{text}"
        );
        assert_eq!(
            history_text("web", &entries, 7).unwrap_err().text,
            "error: unable to find the specified revision"
        );
    }
}
