//! `muster rollout`: status, history, undo, restart, pause, resume, promote; in kubectl's words where it has them
//! (spec/daemonset.md 16.2).

mod history;
mod pause;
mod plan;
mod promote;
mod restart;
mod states;
mod status;
mod undo;

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use muster_client::{ClientError, PatchType, WriteOptions, Written};
use muster_model::kind::{DAEMON_SET, Kind};
use muster_model::object::{NamespacedName, Object};
use muster_proto::v1;
use serde_json::json;

use crate::console::Console;
use crate::failure::{Failure, Outcome};
use crate::output::structured::{self, Format};
use crate::session::{Server, Session};
use crate::targets::{KindAlone, Outcomes, TargetArgs};

/// The name under which these commands write.
const FIELD_MANAGER: &str = "muster-rollout";

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
    /// Show what applying a manifest would do, node by node, and change nothing
    Plan(plan::PlanArgs),
    /// Go back to an earlier revision
    Undo(undo::UndoArgs),
    /// Replace every pod, from the same template
    Restart(restart::RestartArgs),
    /// Stop a rollout where it is
    Pause(pause::PauseArgs),
    /// Let a paused rollout go on, and a failed one try again
    Resume(pause::ResumeArgs),
    /// Let a rollout pass the canary, or the wave, that it waits in
    Promote(promote::PromoteArgs),
}

impl RolloutArgs {
    /// Runs the command.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        match self.command {
            RolloutCommand::Status(args) => Box::pin(status::status(args, session)).await,
            RolloutCommand::History(args) => Box::pin(history::history(args, session)).await,
            RolloutCommand::Plan(args) => Box::pin(plan::plan(args, session)).await,
            RolloutCommand::Undo(args) => Box::pin(undo::undo(args, session)).await,
            RolloutCommand::Restart(args) => Box::pin(restart::restart(args, session)).await,
            RolloutCommand::Pause(args) => Box::pin(pause::pause(args, session)).await,
            RolloutCommand::Resume(args) => Box::pin(pause::resume(args, session)).await,
            RolloutCommand::Promote(args) => Box::pin(promote::promote(args, session)).await,
        }
    }
}

/// Which DaemonSets.
#[derive(Debug, Args)]
struct Targets {
    /// ds/NAME..., ds NAME..., or only ds: all of them
    #[arg(value_name = "DAEMONSET")]
    words: Vec<String>,
    #[command(flatten)]
    by: TargetArgs,
}

impl Targets {
    /// The DaemonSets that are meant, as the server has them.
    async fn find(
        &self,
        session: &mut Session,
        server: &Server,
        outcomes: &mut Outcomes,
    ) -> Outcome<Vec<Object>> {
        let alone = KindAlone::MeansAll;
        let finding = self.by.find(&self.words, alone, session, server, outcomes);
        let mut found = Vec::new();
        for (kind, object) in finding.await? {
            if *kind == DAEMON_SET {
                found.push(object);
            } else {
                let failure = format!("only DaemonSets have rollouts, not {}", kind.plural);
                outcomes.add(&mut session.console, Err(Failure::new(failure)))?;
            }
        }
        Ok(found)
    }
}

/// `-o`: the objects instead of a line about each.
#[derive(Debug, Args)]
struct OutputArg {
    /// json, yaml, name or jsonpath=TEMPLATE: print the changed objects
    #[arg(short, long, value_name = "FORMAT", default_value = "", hide_default_value = true, value_parser = Format::parse)]
    output: Format,
}

impl OutputArg {
    /// Says what was done to an object, or prints it.
    fn tell(&self, console: &mut Console, object: Object, done: &str) -> Outcome {
        if self.output.is_table() {
            Ok(console.line(format!("{} {done}", title(&object)))?)
        } else {
            structured::write(console, &self.output, &[object], true)
        }
    }
}

/// How requests name a DaemonSet.
fn reference(object: &Object) -> v1::DaemonSetRef {
    v1::DaemonSetRef {
        namespace: object.namespace().to_owned(),
        name: object.name().to_owned(),
    }
}

/// How output names a DaemonSet.
fn title(object: &Object) -> String {
    format!("daemonset.apps/{}", object.name())
}

/// What cannot be done to a DaemonSet, in kubectl's form.
fn refused(object: &Object, why: &str) -> Failure {
    Failure::new(format!("daemonsets.apps {:?} {why}", object.name()))
}

/// An object of a reply.
fn object_of(bytes: &[u8], kind: &Kind) -> Outcome<Object> {
    let mut object = Object::from_bytes(bytes).map_err(|error| Failure::new(error.to_string()))?;
    object.set_kind(kind);
    Ok(object)
}

/// Sets annotations in one write, or removes those without a value.
async fn annotate(
    server: &Server,
    kind: &Kind,
    name: &NamespacedName,
    annotations: &[(&str, Option<&str>)],
) -> Result<Written, ClientError> {
    let options = WriteOptions {
        field_manager: FIELD_MANAGER.to_owned(),
        ..WriteOptions::default()
    };
    let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
    let patch = json!({"metadata": {"annotations": annotations}}).to_string();
    server
        .resources()
        .patch(kind, name, PatchType::Merge, patch.as_bytes(), &options)
        .await
}
