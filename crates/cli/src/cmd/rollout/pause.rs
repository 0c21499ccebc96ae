//! `muster rollout pause` and `resume`: a rollout is stopped where it is, and goes on.
//!
//! kubectl refuses both for DaemonSets. Here they set and remove an annotation, so that spec, generation and template
//! stay as they are.

use clap::Args;
use muster_model::kind::{CONTROLLER_REVISION, DAEMON_SET};
use muster_model::object::{NamespacedName, Object};
use muster_model::reason::annotation;

use super::history::{current, entries};
use super::{OutputArg, Targets, annotate, reference, refused};
use crate::failure::Outcome;
use crate::session::{Server, Session};
use crate::targets::Outcomes;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster rollout pause ds/web                  no further pod is replaced; those that are missing are still made
  muster rollout pause ds                      every DaemonSet of the namespace")]
pub(super) struct PauseArgs {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    output: OutputArg,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster rollout resume ds/web                 goes on after `pause`, or tries again after a failure
  muster rollout resume ds -l tier=edge        every DaemonSet with a label")]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    output: OutputArg,
}

/// Runs `pause`.
pub(super) async fn pause(args: PauseArgs, session: &mut Session) -> Outcome {
    let server = session.connect().await?;
    let mut outcomes = Outcomes::default();
    for object in args.targets.find(session, &server, &mut outcomes).await? {
        let paused = match pause_one(&server, &object).await {
            Ok(changed) => args.output.tell(&mut session.console, changed, "paused"),
            Err(failure) => Err(failure),
        };
        outcomes.add(&mut session.console, paused)?;
    }
    outcomes.end()
}

/// Runs `resume`.
pub(super) async fn resume(args: ResumeArgs, session: &mut Session) -> Outcome {
    let server = session.connect().await?;
    let mut outcomes = Outcomes::default();
    for object in args.targets.find(session, &server, &mut outcomes).await? {
        let resumed = match resume_one(&server, object).await {
            Ok(changed) => args.output.tell(&mut session.console, changed, "resumed"),
            Err(failure) => Err(failure),
        };
        outcomes.add(&mut session.console, resumed)?;
    }
    outcomes.end()
}

fn is_paused(object: &Object) -> bool {
    object.annotation(annotation::PAUSED) == Some("true")
}

async fn pause_one(server: &Server, object: &Object) -> Outcome<Object> {
    if is_paused(object) {
        return Err(refused(object, "is already paused"));
    }
    let name = object.namespaced_name();
    let written = annotate(
        server,
        &DAEMON_SET,
        &name,
        &[(annotation::PAUSED, Some("true"))],
    )
    .await?;
    Ok(written.object)
}

async fn resume_one(server: &Server, object: Object) -> Outcome<Object> {
    let entries = entries(server, &reference(&object)).await?;
    let current = current(&entries)?;
    let failed = current.filter(|revision| revision.annotation(annotation::FAILED).is_some());
    let was_paused = is_paused(&object);
    if failed.is_none() && !was_paused {
        return Err(refused(&object, "is not paused"));
    }
    // First the failure: a rollout that goes on must not find it.
    if let Some(revision) = failed {
        let name = NamespacedName::new(object.namespace(), revision.name());
        // With another try its pods are judged anew, not by what they showed in the last one.
        let tried = revision.annotation(annotation::TRY);
        let again = tried
            .and_then(|tried| tried.parse::<u32>().ok())
            .unwrap_or(0)
            + 1;
        let again = again.to_string();
        let notes = [(annotation::FAILED, None), (annotation::TRY, Some(&*again))];
        annotate(server, &CONTROLLER_REVISION, &name, &notes).await?;
    }
    if !was_paused {
        return Ok(object);
    }
    let name = object.namespaced_name();
    let written = annotate(server, &DAEMON_SET, &name, &[(annotation::PAUSED, None)]).await?;
    Ok(written.object)
}
