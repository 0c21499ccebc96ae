//! `muster rollout history`: the revisions of a DaemonSet.

use clap::Args;
use muster_client::ClientError;
use muster_model::kind::CONTROLLER_REVISION;
use muster_model::object::Object;
use muster_model::reason::annotation;
use muster_model::table::NONE;
use muster_proto::v1;

use super::{Targets, object_of, reference, title};
use crate::console::Console;
use crate::failure::{Failure, Outcome};
use crate::output::describe::template;
use crate::output::structured::{self, Format};
use crate::output::table::Columns;
use crate::session::{Server, Session};
use crate::targets::Outcomes;

/// How much of the reason for a failure the table shows, in characters.
const WHY_SHOWN: usize = 60;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster rollout history ds/web                every revision
  muster rollout history ds/web --revision=2   what revision 2 runs
  muster rollout history ds/web -o json        the ControllerRevisions, oldest first
  muster rollout history ds                    of every DaemonSet of the namespace")]
pub(super) struct HistoryArgs {
    #[command(flatten)]
    targets: Targets,
    /// Show the pod template of this revision
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    revision: i64,
    /// json, yaml, name or jsonpath=TEMPLATE: print the ControllerRevisions
    #[arg(short, long, value_name = "FORMAT", default_value = "", hide_default_value = true, value_parser = Format::parse)]
    output: Format,
}

/// The revisions, oldest first.
pub(super) async fn entries(
    server: &Server,
    target: &v1::DaemonSetRef,
) -> Result<Vec<v1::HistoryEntry>, ClientError> {
    let request = server.connection.request(v1::HistoryRequest {
        daemonset: Some(target.clone()),
    });
    match server.connection.daemonsets().history(request).await {
        Ok(reply) => {
            let mut entries = reply.into_inner().entries;
            entries.sort_by_key(|entry| entry.revision);
            Ok(entries)
        }
        Err(status) => Err(server.connection.fault(&status)),
    }
}

/// Runs the command.
pub(super) async fn history(args: HistoryArgs, session: &mut Session) -> Outcome {
    if args.revision < 0 {
        return Err(Failure::new(format!(
            "revision must be a positive integer: {}",
            args.revision
        )));
    }
    let server = session.connect().await?;
    let mut outcomes = Outcomes::default();
    for object in args.targets.find(session, &server, &mut outcomes).await? {
        let shown = match entries(&server, &reference(&object)).await {
            Ok(entries) => show(&object, &entries, &args, &mut session.console),
            Err(error) => Err(error.into()),
        };
        outcomes.add(&mut session.console, shown)?;
    }
    outcomes.end()
}

fn show(
    object: &Object,
    entries: &[v1::HistoryEntry],
    args: &HistoryArgs,
    console: &mut Console,
) -> Outcome {
    if !args.output.is_table() {
        return history_objects(entries, args, console);
    }
    let text = history_text(&title(object), entries, args.revision)?;
    Ok(console.out.write_all(text.as_bytes())?)
}

/// The ControllerRevisions themselves: one, or a list of all.
fn history_objects(
    entries: &[v1::HistoryEntry],
    args: &HistoryArgs,
    console: &mut Console,
) -> Outcome {
    let is_single = args.revision > 0;
    let mut objects = Vec::new();
    for entry in entries {
        if !is_single || entry.revision == args.revision {
            objects.push(revision_of(entry)?);
        }
    }
    if is_single && objects.is_empty() {
        return Err(no_revision());
    }
    structured::write(console, &args.output, &objects, is_single)
}

/// The ControllerRevision of an entry.
pub(super) fn revision_of(entry: &v1::HistoryEntry) -> Outcome<Object> {
    object_of(&entry.object, &CONTROLLER_REVISION)
}

/// The ControllerRevision of the present template; none right after the template has changed.
pub(super) fn current(entries: &[v1::HistoryEntry]) -> Outcome<Option<Object>> {
    let current = entries.iter().find(|entry| entry.current);
    current.map(revision_of).transpose()
}

/// How the rollout of a revision ended, when it ended badly.
fn outcome(entry: &v1::HistoryEntry) -> Outcome<Option<String>> {
    let revision = revision_of(entry)?;
    let why = revision.annotation(annotation::FAILED);
    Ok(why.map(|why| format!("failed: {}", shortened(why))))
}

/// The first line of a text, cut where a table would get too wide.
fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(WHY_SHOWN) {
        Some((end, _)) => format!("{}...", line[..end].trim_end()),
        None => line.to_owned(),
    }
}

fn no_revision() -> Failure {
    Failure::new("unable to find the specified revision")
}

/// kubectl's text, its trailing blank and empty line included. When a revision has failed there is a column more.
fn history_text(title: &str, entries: &[v1::HistoryEntry], revision: i64) -> Outcome<String> {
    if revision > 0 {
        let Some(entry) = entries.iter().find(|entry| entry.revision == revision) else {
            return Err(no_revision());
        };
        let object = revision_of(entry)?;
        let template = template::of_revision(&object.tree()["data"]["spec"]["template"]);
        return Ok(format!("{title} with revision #{revision}\n{template}\n"));
    }
    if entries.is_empty() {
        return Ok(format!("{title} \nNo rollout history found.\n"));
    }
    let outcomes: Vec<Option<String>> = entries.iter().map(outcome).collect::<Outcome<_>>()?;
    let has_outcomes = outcomes.iter().any(Option::is_some);
    let mut rows = vec![vec!["REVISION".to_owned(), "CHANGE-CAUSE".to_owned()]];
    for entry in entries {
        let cause = if entry.change_cause.is_empty() {
            NONE
        } else {
            &entry.change_cause
        };
        rows.push(vec![entry.revision.to_string(), cause.to_owned()]);
    }
    if has_outcomes {
        let cells = outcomes
            .into_iter()
            .map(|outcome| outcome.unwrap_or_else(|| NONE.to_owned()));
        let column = std::iter::once("OUTCOME".to_owned()).chain(cells);
        for (row, cell) in rows.iter_mut().zip(column) {
            row.push(cell);
        }
    }
    let mut table = Vec::new();
    Columns::narrow().write(&mut table, "", &rows)?;
    Ok(format!("{title} \n{}\n", String::from_utf8_lossy(&table)))
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
            history_text("daemonset.apps/web", &entries, 0).unwrap(),
            "daemonset.apps/web \nREVISION  CHANGE-CAUSE\n1         <none>\n2         update to 1.27\n\n"
        );
        assert_eq!(
            history_text("daemonset.apps/web", &[], 0).unwrap(),
            "daemonset.apps/web \nNo rollout history found.\n"
        );
    }

    #[test]
    fn a_failed_revision_adds_a_column() {
        let mut failed = entry(2, "");
        let why = "2 of 5 nodes: container web is in CrashLoopBackOff, and that for longer than 10 minutes";
        let object = json!({"metadata": {"annotations": {"muster.dev/failed": why}}});
        failed.object = object.to_string().into_bytes().into();
        assert_eq!(
            history_text("daemonset.apps/web", &[entry(1, "first"), failed], 0).unwrap(),
            "daemonset.apps/web \n\
             REVISION  CHANGE-CAUSE  OUTCOME\n\
             1         first         <none>\n\
             2         <none>        failed: 2 of 5 nodes: container web is in CrashLoopBackOff, and that...\n\n"
        );
    }

    #[test]
    fn a_revision_shows_its_template() {
        let entries = [entry(1, ""), entry(2, "")];
        let text = history_text("daemonset.apps/web", &entries, 2).unwrap();
        assert!(
            text.starts_with("daemonset.apps/web with revision #2\nPod Template:\n"),
            "{text}"
        );
        assert!(
            text.contains("    Image:\tnginx:1.27\n    Port:\t<none>\n"),
            "{text}"
        );
        assert_eq!(
            history_text("daemonset.apps/web", &entries, 7)
                .unwrap_err()
                .text,
            "error: unable to find the specified revision"
        );
    }
}
