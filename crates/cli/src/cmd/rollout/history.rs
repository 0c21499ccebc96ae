//! `muster rollout history`: the revisions of a DaemonSet.

use clap::Args;
use muster_model::kind::CONTROLLER_REVISION;
use muster_model::object::Object;
use muster_model::table::NONE;
use muster_proto::v1;

use super::daemonset;
use crate::console::Console;
use crate::failure::{Failure, Outcome};
use crate::output::describe::template;
use crate::output::structured::{self, Format};
use crate::output::table::Columns;
use crate::session::{Server, Session};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster rollout history ds/web                every revision
  muster rollout history ds/web --revision=2   what revision 2 runs
  muster rollout history ds/web -o json        the ControllerRevisions, oldest first")]
pub(super) struct HistoryArgs {
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
    /// json, yaml, name or jsonpath=TEMPLATE: print the ControllerRevisions
    #[arg(short, long, value_name = "FORMAT", default_value = "", hide_default_value = true, value_parser = Format::parse)]
    output: Format,
}

/// The revisions, oldest first.
pub(super) async fn entries(
    server: &Server,
    target: &v1::DaemonSetRef,
) -> Outcome<Vec<v1::HistoryEntry>> {
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

/// Runs the command.
pub(super) async fn history(args: HistoryArgs, session: &mut Session) -> Outcome {
    if args.revision < 0 {
        return Err(Failure::new(format!(
            "revision must be a positive integer: {}",
            args.revision
        )));
    }
    let server = session.connect().await?;
    let (target, _) = daemonset(&args.target, &server).await?;
    let entries = entries(&server, &target).await?;
    if !args.output.is_table() {
        return history_objects(&entries, &args, &mut session.console);
    }
    let text = history_text(&target.name, &entries, args.revision)?;
    session.console.out.write_all(text.as_bytes())?;
    Ok(())
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
            let mut object = revision_of(entry)?;
            object.set_kind(&CONTROLLER_REVISION);
            objects.push(object);
        }
    }
    if is_single && objects.is_empty() {
        return Err(no_revision());
    }
    structured::write(&mut console.out, &args.output, &objects, is_single)
}

fn revision_of(entry: &v1::HistoryEntry) -> Outcome<Object> {
    Object::from_bytes(&entry.object).map_err(|error| Failure::new(error.to_string()))
}

fn no_revision() -> Failure {
    Failure::new("unable to find the specified revision")
}

/// kubectl's text, its trailing blank and empty line included.
fn history_text(name: &str, entries: &[v1::HistoryEntry], revision: i64) -> Outcome<String> {
    let title = format!("daemonset.apps/{name}");
    if revision > 0 {
        let Some(entry) = entries.iter().find(|entry| entry.revision == revision) else {
            return Err(no_revision());
        };
        let object = revision_of(entry)?;
        let template = template::of_revision(&object.tree()["data"]["spec"]["template"]);
        return Ok(format!("{title} with revision #{revision}\n{template}"));
    }
    if entries.is_empty() {
        return Ok(format!("{title} \nNo rollout history found.\n"));
    }
    let mut rows = vec![vec!["REVISION".to_owned(), "CHANGE-CAUSE".to_owned()]];
    for entry in entries {
        let cause = if entry.change_cause.is_empty() {
            NONE
        } else {
            &entry.change_cause
        };
        rows.push(vec![entry.revision.to_string(), cause.to_owned()]);
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
