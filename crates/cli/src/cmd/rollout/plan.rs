//! `muster rollout plan`: what applying a manifest would do, node by node; nothing is changed.

use clap::Args;
use jiff::SignedDuration;
use muster_client::WriteOptions;
use muster_model::kind::DAEMON_SET;
use muster_model::object::Object;
use muster_proto::v1;
use serde_json::{Value, json};

use super::{Targets, reference, title};
use crate::args::DryRun;
use crate::cmd::apply::{FIELD_MANAGER, apply_one, explained};
use crate::console::Console;
use crate::failure::{Failure, Outcome};
use crate::manifests::{self, DefaultNamespace, Validate};
use crate::output::document::{self, FormatArg};
use crate::output::table::Columns;
use crate::session::{Server, Session};
use crate::targets::{Outcomes, nothing_found};

/// Nodes that a line names.
const NODES_NAMED: usize = 12;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster rollout plan -f web.yaml              what `muster apply -f web.yaml` would do, step by step
  muster rollout plan ds/web                   what is left of the rollout that is under way
  muster rollout plan -f web.yaml -o json      for scripts")]
pub(super) struct PlanArgs {
    #[command(flatten)]
    targets: Targets,
    /// What to do about fields that do not exist: strict, warn or ignore
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    validate: Validate,
    #[command(flatten)]
    output: FormatArg,
}

/// Runs the command.
pub(super) async fn plan(args: PlanArgs, session: &mut Session) -> Outcome {
    let server = session.connect().await?;
    let mut outcomes = Outcomes::default();
    let wanted = if args.targets.by.are_in_files(&args.targets.words)? {
        dry_runs(&args, session, &server, &mut outcomes).await?
    } else {
        let found = args.targets.find(session, &server, &mut outcomes).await?;
        found.into_iter().map(|object| (object, false)).collect()
    };
    for (object, from_manifest) in wanted {
        let shown = match ask(&server, &object, from_manifest).await {
            Ok(reply) => show(&args, &mut session.console, &object, &reply),
            Err(failure) => Err(failure),
        };
        outcomes.add(&mut session.console, shown)?;
    }
    outcomes.end()
}

/// The DaemonSets of the manifests as applying would leave them. Other objects have no rollouts.
async fn dry_runs(
    args: &PlanArgs,
    session: &mut Session,
    server: &Server,
    outcomes: &mut Outcomes,
) -> Outcome<Vec<(Object, bool)>> {
    let namespace = DefaultNamespace {
        name: &server.namespace,
        was_given: server.namespace_was_given,
    };
    let manifests = manifests::load(
        &args.targets.by.files,
        namespace,
        args.validate,
        &mut session.console,
    )?;
    let manifests = manifests::selected(manifests, &args.targets.by.selector)?;
    let options = WriteOptions {
        dry_run: true,
        field_manager: FIELD_MANAGER.to_owned(),
        field_validation: args.validate.for_server(),
    };
    let mut objects = Vec::new();
    for manifest in manifests.iter().filter(|one| *one.kind == DAEMON_SET) {
        match apply_one(server, manifest, DryRun::Server, &options).await {
            Ok(applied) => {
                let (object, warnings) = applied.into_object();
                session.console.warnings(&warnings);
                objects.push((object, true));
            }
            Err(error) => {
                outcomes.add(
                    &mut session.console,
                    Err(explained(&error, "planning", manifest)),
                )?;
            }
        }
    }
    if manifests.is_empty() {
        nothing_found(session, server);
    } else if objects.is_empty() && manifests.iter().all(|one| *one.kind != DAEMON_SET) {
        return Err(Failure::new(
            "no DaemonSet in the manifests: only they have rollouts",
        ));
    }
    Ok(objects)
}

async fn ask(
    server: &Server,
    object: &Object,
    from_manifest: bool,
) -> Outcome<v1::PreviewRolloutReply> {
    let object_json = if from_manifest {
        object.tree().to_string().into_bytes()
    } else {
        Vec::new()
    };
    let request = server.connection.request(v1::PreviewRolloutRequest {
        daemonset: Some(reference(object)),
        object: object_json.into(),
    });
    match server
        .connection
        .daemonsets()
        .preview_rollout(request)
        .await
    {
        Ok(reply) => Ok(reply.into_inner()),
        Err(status) => Err(server.connection.fault(&status).into()),
    }
}

fn show(
    args: &PlanArgs,
    console: &mut Console,
    object: &Object,
    reply: &v1::PreviewRolloutReply,
) -> Outcome {
    if let Some(format) = args.output.format {
        return document::write(console, format, &as_document(object, reply));
    }
    console.line(headline(object, reply))?;
    if !reply.steps.is_empty() {
        let mut rows = vec![["AFTER", "DO", "NODES"].map(str::to_owned).to_vec()];
        rows.extend(reply.steps.iter().map(|step| {
            let what = if step.what == "wait" {
                &step.why
            } else {
                &step.what
            };
            let nodes = if step.what == "wait" {
                "-".to_owned()
            } else {
                names(&step.nodes)
            };
            vec![span(step.after_seconds), what.clone(), nodes]
        }));
        Columns::new().write(&mut console.out, "", &rows)?;
        console.line(summary(reply))?;
    }
    for left in &reply.left {
        console.line(format!("stays as it is: {}: {}", left.node, left.why))?;
    }
    if reply.cut_off {
        console.line("It goes on for longer than a month: the rest is not shown.")?;
    }
    Ok(())
}

fn headline(object: &Object, reply: &v1::PreviewRolloutReply) -> String {
    let title = title(object);
    let revision = reply.revision;
    let changed: usize = reply
        .steps
        .iter()
        .filter(|step| step.what != "wait")
        .map(|step| step.nodes.len())
        .sum();
    match (changed, reply.is_new) {
        (0, true) => {
            format!("{title}: a new revision {revision}, of which nothing is rolled out now")
        }
        (0, false) => format!("{title}: nothing to do, revision {revision} is where it should be"),
        (1, is_new) => format!("{title}: {}revision {revision} on 1 node", new(is_new)),
        (nodes, is_new) => format!(
            "{title}: {}revision {revision} on {nodes} nodes",
            new(is_new)
        ),
    }
}

fn new(is_new: bool) -> &'static str {
    if is_new { "new " } else { "" }
}

fn summary(reply: &v1::PreviewRolloutReply) -> String {
    let outage = if reply.longest_out_node.is_empty() {
        "no node is without the daemon".to_owned()
    } else {
        format!(
            "no node is without the daemon for longer than {} ({}), at most {} at once",
            span(reply.longest_out_seconds),
            reply.longest_out_node,
            reply.most_out
        )
    };
    let start = if reply.start_is_known {
        "as the slowest of its pods was"
    } else {
        "a guess, no pod of it was seen yet"
    };
    format!(
        "Takes {}; {outage}. Nothing was changed.\nThat is when a pod stops within {} and is ready within {} ({start}).",
        span(reply.takes_seconds),
        span(reply.stop_seconds),
        span(reply.start_seconds),
    )
}

fn names(nodes: &[String]) -> String {
    match nodes.len().checked_sub(NODES_NAMED) {
        None | Some(0) => nodes.join(", "),
        Some(more) => format!("{} and {more} more", nodes[..NODES_NAMED].join(", ")),
    }
}

fn span(seconds: i64) -> String {
    format!("{:#}", SignedDuration::from_secs(seconds))
}

fn as_document(object: &Object, reply: &v1::PreviewRolloutReply) -> Value {
    let steps: Vec<Value> = reply
        .steps
        .iter()
        .map(|step| {
            json!({
                "afterSeconds": step.after_seconds, "do": step.what, "why": step.why, "nodes": step.nodes,
            })
        })
        .collect();
    let left: Vec<Value> = reply
        .left
        .iter()
        .map(|left| json!({"node": left.node, "why": left.why}))
        .collect();
    json!({
        "namespace": object.namespace(), "daemonset": object.name(), "revision": reply.revision,
        "newRevision": reply.is_new, "steps": steps, "takesSeconds": reply.takes_seconds,
        "longestOut": {"node": reply.longest_out_node, "seconds": reply.longest_out_seconds},
        "mostOut": reply.most_out, "left": left, "cutOff": reply.cut_off,
        "assumes": {
            "stopSeconds": reply.stop_seconds, "startSeconds": reply.start_seconds,
            "startIsKnown": reply.start_is_known,
        },
    })
}
