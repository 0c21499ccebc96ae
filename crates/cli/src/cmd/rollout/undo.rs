//! `muster rollout undo`: back to an earlier revision.

use clap::Args;
use muster_model::apply::LAST_APPLIED;
use muster_model::kind::DAEMON_SET;
use muster_model::object::Object;
use muster_model::reason::annotation;
use muster_proto::v1;
use serde_json::Value;

use super::history::{entries, revision_of};
use super::{OutputArg, Targets, object_of, reference, title};
use crate::args::{DryRun, DryRunArg};
use crate::failure::{Failure, Outcome};
use crate::output::describe::template;
use crate::session::{Server, Session};
use crate::targets::Outcomes;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster rollout undo ds/web                   the last revision before the current one that did not fail
  muster rollout undo ds/web --to-revision=3   that one
  muster rollout undo ds/web --dry-run=client  show what it would go back to
  muster rollout undo ds -l tier=edge          every DaemonSet with a label")]
pub(super) struct UndoArgs {
    #[command(flatten)]
    targets: Targets,
    /// The revision to go back to; 0: the last one before the current that did not fail
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    to_revision: i64,
    #[command(flatten)]
    dry_run: DryRunArg,
    #[command(flatten)]
    output: OutputArg,
}

/// Runs the command.
pub(super) async fn undo(args: UndoArgs, session: &mut Session) -> Outcome {
    let server = session.connect().await?;
    let mut outcomes = Outcomes::default();
    for object in args.targets.find(session, &server, &mut outcomes).await? {
        let undone = one(&args, session, &server, object).await;
        outcomes.add(&mut session.console, undone)?;
    }
    outcomes.end()
}

async fn one(args: &UndoArgs, session: &mut Session, server: &Server, object: Object) -> Outcome {
    let target = reference(&object);
    let entries = entries(server, &target).await?;
    let entry = match args.to_revision {
        0 => earlier(&entries)?,
        wanted => entries
            .iter()
            .find(|entry| entry.revision == wanted)
            .ok_or_else(|| {
                Failure::new(format!(
                    "unable to find specified revision {wanted} in history"
                ))
            })?,
    };
    if args.dry_run.mode == DryRun::Client {
        return preview(args, session, object, entry);
    }
    if object.annotation(LAST_APPLIED).is_some() {
        session.console.warnings(&[format!(
            "{} was made by `apply`: its manifest still says the newer template, and the next apply brings it back",
            title(&object)
        )]);
    }
    let message = v1::UndoRequest {
        daemonset: Some(target),
        to_revision: args.to_revision,
        dry_run: args.dry_run.mode == DryRun::Server,
    };
    let request = server.connection.request(message);
    let reply = match server.connection.daemonsets().undo(request).await {
        Err(status) => return Err(server.connection.fault(&status).into()),
        Ok(reply) => reply.into_inner(),
    };
    let done = if reply.skipped {
        format!(
            "skipped rollback (current template already matches revision {})",
            reply.revision
        )
    } else {
        "rolled back".to_owned()
    };
    let done = format!("{done}{}", args.dry_run.mode.suffix());
    let changed = object_of(&reply.object, &DAEMON_SET)?;
    args.output.tell(&mut session.console, changed, &done)
}

/// The newest revision besides the present one that has not failed, as the server chooses it: what has failed is gone
/// back to only by its number. Right after a change no revision is the present one.
fn earlier(entries: &[v1::HistoryEntry]) -> Outcome<&v1::HistoryEntry> {
    let mut failed = None;
    for entry in entries.iter().rev().filter(|entry| !entry.current) {
        if revision_of(entry)?.annotation(annotation::FAILED).is_none() {
            return Ok(entry);
        }
        failed.get_or_insert(entry.revision);
    }
    Err(match failed {
        Some(failed) => Failure::new(format!(
            "the last revision, {failed}, failed: name the one to roll back to with --to-revision"
        )),
        None => Failure::new("no last revision to roll back to"),
    })
}

/// What the DaemonSet would go back to, without asking the server.
fn preview(
    args: &UndoArgs,
    session: &mut Session,
    mut object: Object,
    entry: &v1::HistoryEntry,
) -> Outcome {
    let revision = revision_of(entry)?;
    let mut template = revision.tree()["data"]["spec"]["template"].clone();
    if let Some(fields) = template.as_object_mut() {
        fields.remove("$patch");
    }
    let text = format!(
        "will roll back to {}{}",
        template::of_revision(&template),
        args.dry_run.mode.suffix()
    );
    let spec = object.tree_mut().get_mut("spec");
    if let Some(spec) = spec.and_then(Value::as_object_mut) {
        spec.insert("template".to_owned(), template);
    }
    args.output.tell(&mut session.console, object, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(revision: i64, current: bool, failed: bool) -> v1::HistoryEntry {
        let annotations = if failed {
            json!({annotation::FAILED: "why"})
        } else {
            json!({})
        };
        let object = json!({"metadata": {"annotations": annotations}}).to_string();
        v1::HistoryEntry {
            revision,
            current,
            object: object.into_bytes().into(),
            ..v1::HistoryEntry::default()
        }
    }

    #[test]
    fn the_newest_revision_that_is_neither_current_nor_failed_is_gone_back_to() {
        let (old, current) = (|number| entry(number, false, false), entry(3, true, false));
        let number = |entries: &[v1::HistoryEntry]| earlier(entries).map(|entry| entry.revision);
        assert_eq!(number(&[old(1), old(2), current.clone()]).unwrap(), 2);
        assert_eq!(
            number(&[old(1), entry(2, false, true), current]).unwrap(),
            1
        );
        // The template has just been changed.
        assert_eq!(number(&[old(1), old(2)]).unwrap(), 2);
        let failed = number(&[entry(2, false, true), entry(3, true, false)]);
        let text = failed.unwrap_err().text;
        assert!(text.contains("the last revision, 2, failed"), "{text}");
    }
}
