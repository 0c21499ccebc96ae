//! `muster rollout undo`: back to an earlier revision.

use clap::Args;
use muster_model::apply::LAST_APPLIED;
use muster_model::kind::DAEMON_SET;
use muster_model::object::Object;
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
    if args.dry_run.mode == DryRun::Client {
        let wanted = match args.to_revision {
            // What the server would choose.
            0 => ask(server, &target, 0, true).await?.revision,
            named => named,
        };
        let entries = entries(server, &target).await?;
        let entry = entries.iter().find(|entry| entry.revision == wanted);
        let entry = entry.ok_or_else(|| {
            Failure::new(format!(
                "unable to find specified revision {wanted} in history"
            ))
        })?;
        return preview(args, session, object, entry);
    }
    let is_dry = args.dry_run.mode == DryRun::Server;
    let reply = ask(server, &target, args.to_revision, is_dry).await?;
    if !reply.skipped && object.annotation(LAST_APPLIED).is_some() {
        session.console.warnings(&[format!(
            "{} was made by `apply`: its manifest still says the newer template, and the next apply brings it back",
            title(&object)
        )]);
    }
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

async fn ask(
    server: &Server,
    target: &v1::DaemonSetRef,
    to_revision: i64,
    dry_run: bool,
) -> Outcome<v1::UndoReply> {
    let request = server.connection.request(v1::UndoRequest {
        daemonset: Some(target.clone()),
        to_revision,
        dry_run,
    });
    let status = match server.connection.daemonsets().undo(request).await {
        Ok(reply) => return Ok(reply.into_inner()),
        Err(status) => status,
    };
    let error = server.connection.fault(&status);
    // kubectl says by itself what there is to go back to.
    let choice = error.api().filter(|_| error.has_reason("BadRequest"));
    Err(match choice {
        Some(api) => Failure::new(api.message.clone()),
        None => error.into(),
    })
}

/// What the DaemonSet would go back to.
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
