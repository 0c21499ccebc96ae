//! `muster explain` and `muster coverage`: the verdict of every node, in plain words.

use clap::Args;
use muster_model::kind::DAEMON_SET;
use muster_proto::v1;
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::document;
use crate::output::paint::{RED, YELLOW, painted};
use crate::output::table::Columns;
use crate::select;
use crate::session::{Server, Session};

/// How many nodes an advice names before it counts the rest.
const NODES_NAMED: usize = 5;

/// Which DaemonSet to explain.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster explain ds/web                        every node: should it run web, does it, why or why not
  muster explain web --gaps                    only nodes where something is missing
  muster explain ds/web -o json                for scripts")]
pub(crate) struct ExplainArgs {
    /// ds/NAME, or NAME
    #[arg(value_name = "DAEMONSET", required = true, num_args = 1..=2)]
    daemonset: Vec<String>,
    /// Only nodes where something is missing
    #[arg(long)]
    gaps: bool,
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

/// Which part of the picture to show.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster coverage                              each DaemonSet: how many nodes, and which it misses
  muster coverage --nodes                      each node of each DaemonSet")]
pub(crate) struct CoverageArgs {
    /// A row for each node
    #[arg(long)]
    nodes: bool,
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

impl ExplainArgs {
    /// Runs the command.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        let (kind, name) = select::parse_one(&self.daemonset, Some(&DAEMON_SET))?;
        if *kind != DAEMON_SET {
            return Err(Failure::new(format!(
                "only DaemonSets are explained node by node, not {}: try `muster describe {}/{name}`",
                kind.plural, kind.singular
            )));
        }
        let server = session.connect().await?;
        let daemonset = v1::DaemonSetRef {
            namespace: server.namespace.clone(),
            name: name.clone(),
        };
        let mut rows = coverage(&server, Some(daemonset)).await?;
        if self.gaps {
            rows.retain(|row| !is_covered(row));
        }
        if let Some(format) = self.output {
            return print_rows(session, &rows, format);
        }
        if rows.is_empty() {
            session.console.note(if self.gaps {
                "No gaps: every node that should run it does."
            } else {
                "There are no nodes yet: `muster token create` prints the command that joins one."
            });
            return Ok(());
        }
        let color = session.console.color;
        session
            .console
            .out
            .write_all(explained(&name, &rows, color)?.as_bytes())?;
        Ok(())
    }
}

impl CoverageArgs {
    /// Runs the command.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        let server = session.connect().await?;
        let rows = coverage(&server, None).await?;
        if let Some(format) = self.output {
            return print_rows(session, &rows, format);
        }
        if rows.is_empty() {
            session.console.note("No DaemonSets, or no nodes");
            return Ok(());
        }
        let table = if self.nodes {
            by_node(&rows)
        } else {
            by_daemonset(&rows)
        };
        Columns::new().write(&mut session.console.out, "", &table)?;
        Ok(())
    }
}

async fn coverage(
    server: &Server,
    daemonset: Option<v1::DaemonSetRef>,
) -> Outcome<Vec<v1::CoverageRow>> {
    let request = server.connection.request(v1::CoverageRequest { daemonset });
    match server.connection.daemonsets().coverage(request).await {
        Ok(reply) => Ok(reply.into_inner().rows),
        Err(status) => Err(server.connection.fault(&status).into()),
    }
}

/// Nothing is left to be done on this node.
fn is_covered(row: &v1::CoverageRow) -> bool {
    if row.should_run {
        row.ready && row.available && row.updated
    } else {
        row.pod.is_empty() && row.fix.is_empty()
    }
}

fn or_dash(text: &str) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text.to_owned()
    }
}

/// A word for scripts and tests of what runs there.
fn state(row: &v1::CoverageRow) -> &'static str {
    match (row.pod.is_empty(), row.ready, row.available, row.updated) {
        (true, ..) => "-",
        (_, false, ..) => "not ready",
        (_, _, false, _) => "ready",
        (_, _, true, false) => "old",
        (_, _, true, true) => "available",
    }
}

fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

/// The verdict table, what would close the gaps, and a last line that sums up.
fn explained(name: &str, rows: &[v1::CoverageRow], color: bool) -> Outcome<String> {
    let mut table = vec![
        ["NODE", "SHOULD RUN", "POD", "STATE", "WHY"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for row in rows {
        let paint = if row.should_run { RED } else { YELLOW };
        let why = painted(color && !is_covered(row), paint, &row.why);
        table.push(vec![
            row.node.clone(),
            yes_no(row.should_run),
            or_dash(&row.pod),
            state(row).to_owned(),
            why,
        ]);
    }
    let mut text = Vec::new();
    Columns::new().write(&mut text, "", &table)?;
    let mut text = String::from_utf8_lossy(&text).into_owned();
    let fixes = fixes(rows);
    if !fixes.is_empty() {
        text.push_str("\nWhat would change that:\n");
        for line in fixes {
            text.push_str(&format!("  {line}\n"));
        }
    }
    let should = rows.iter().filter(|row| row.should_run).count();
    let available = rows
        .iter()
        .filter(|row| row.should_run && row.available)
        .count();
    text.push_str(&format!(
        "\n{name} should run on {should} of {} nodes, and is available on {available}.\n",
        rows.len()
    ));
    Ok(text)
}

/// What would close the gaps, each advice once, with the nodes it is for.
fn fixes(rows: &[v1::CoverageRow]) -> Vec<String> {
    // The advice in words that hold for each of its nodes -> its rows.
    let mut groups: Vec<(String, Vec<&v1::CoverageRow>)> = Vec::new();
    for row in rows.iter().filter(|row| !row.fix.is_empty()) {
        let advice = row.fix.replace(&format!("node {}", row.node), "each node");
        match groups.iter_mut().find(|(known, _)| *known == advice) {
            Some((_, group)) => group.push(row),
            None => groups.push((advice, vec![row])),
        }
    }
    let line = |(advice, group): (String, Vec<&v1::CoverageRow>)| {
        if let [only] = group.as_slice() {
            return format!("{}: {}", only.node, only.fix);
        }
        let named: Vec<&str> = group
            .iter()
            .take(NODES_NAMED)
            .map(|row| row.node.as_str())
            .collect();
        let more = match group.len().saturating_sub(NODES_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{}{more}: {advice}", named.join(", "))
    };
    groups.into_iter().map(line).collect()
}

fn by_node(rows: &[v1::CoverageRow]) -> Vec<Vec<String>> {
    let mut table = vec![
        [
            "NAMESPACE",
            "DAEMONSET",
            "NODE",
            "SHOULD RUN",
            "POD",
            "STATE",
            "WHY",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for row in rows {
        let daemonset = row.daemonset.clone().unwrap_or_default();
        table.push(vec![
            daemonset.namespace,
            daemonset.name,
            row.node.clone(),
            yes_no(row.should_run),
            or_dash(&row.pod),
            state(row).to_owned(),
            row.why.clone(),
        ]);
    }
    table
}

fn by_daemonset(rows: &[v1::CoverageRow]) -> Vec<Vec<String>> {
    let mut table = vec![
        [
            "NAMESPACE",
            "DAEMONSET",
            "NODES",
            "SHOULD RUN",
            "AVAILABLE",
            "MISSING ON",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    let mut start = 0;
    while start < rows.len() {
        let daemonset = rows[start].daemonset.clone().unwrap_or_default();
        let same = rows[start..]
            .iter()
            .take_while(|row| row.daemonset == rows[start].daemonset)
            .count();
        let group = &rows[start..start + same];
        let should: Vec<_> = group.iter().filter(|row| row.should_run).collect();
        let missing: Vec<&str> = should
            .iter()
            .filter(|row| !row.available)
            .map(|row| row.node.as_str())
            .collect();
        table.push(vec![
            daemonset.namespace,
            daemonset.name,
            group.len().to_string(),
            should.len().to_string(),
            (should.len() - missing.len()).to_string(),
            or_dash(&missing.join(",")),
        ]);
        start += same;
    }
    table
}

fn print_rows(
    session: &mut Session,
    rows: &[v1::CoverageRow],
    format: document::Format,
) -> Outcome {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let daemonset = row.daemonset.clone().unwrap_or_default();
            json!({
                "namespace": daemonset.namespace, "daemonset": daemonset.name, "node": row.node,
                "shouldRun": row.should_run, "pod": row.pod, "ready": row.ready, "available": row.available,
                "updated": row.updated, "rule": row.rule, "why": row.why, "fix": row.fix,
            })
        })
        .collect();
    document::write(&mut session.console.out, format, &json!({"rows": rows}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(
        node: &str,
        should_run: bool,
        pod: &str,
        is_up: bool,
        why: &str,
        fix: &str,
    ) -> v1::CoverageRow {
        v1::CoverageRow {
            daemonset: Some(v1::DaemonSetRef {
                namespace: "default".into(),
                name: "web".into(),
            }),
            node: node.into(),
            should_run,
            pod: pod.into(),
            ready: is_up,
            available: is_up,
            updated: is_up,
            rule: String::new(),
            why: why.into(),
            fix: fix.into(),
        }
    }

    fn rows() -> Vec<v1::CoverageRow> {
        vec![
            row("pi-1", true, "web-x7k2p", true, "runs", ""),
            row(
                "pi-2",
                true,
                "web-p2k7x",
                false,
                "image \"nginx:1.72\" cannot be pulled",
                "correct the image",
            ),
            row(
                "pi-3",
                false,
                "",
                false,
                "taint gpu=only:NoSchedule is not tolerated",
                "add a toleration for gpu",
            ),
            row(
                "pi-4",
                false,
                "",
                false,
                "taint gpu=only:NoSchedule is not tolerated",
                "add a toleration for gpu",
            ),
        ]
    }

    #[test]
    fn every_no_is_explained() {
        insta::assert_snapshot!(explained("web", &rows(), false).unwrap(), @r#"
        NODE   SHOULD RUN   POD         STATE       WHY
        pi-1   yes          web-x7k2p   available   runs
        pi-2   yes          web-p2k7x   not ready   image "nginx:1.72" cannot be pulled
        pi-3   no           -           -           taint gpu=only:NoSchedule is not tolerated
        pi-4   no           -           -           taint gpu=only:NoSchedule is not tolerated

        What would change that:
          pi-2: correct the image
          pi-3, pi-4: add a toleration for gpu

        web should run on 2 of 4 nodes, and is available on 1.
        "#);
    }

    #[test]
    fn one_advice_for_many_nodes_is_one_line() {
        let far = |node: &str| {
            let fix = format!("label node {node} with disk=ssd");
            row(
                node,
                false,
                "",
                false,
                "node selector disk=ssd not matched",
                &fix,
            )
        };
        assert_eq!(
            fixes(&[far("pi-1")]),
            ["pi-1: label node pi-1 with disk=ssd"]
        );
        let many: Vec<_> = (1..=7).map(|n| far(&format!("pi-{n}"))).collect();
        assert_eq!(
            fixes(&many),
            ["pi-1, pi-2, pi-3, pi-4, pi-5 and 2 more: label each node with disk=ssd"]
        );
    }

    #[test]
    fn coverage_sums_up_each_daemonset() {
        let mut text = Vec::new();
        Columns::new()
            .write(&mut text, "", &by_daemonset(&rows()))
            .unwrap();
        insta::assert_snapshot!(String::from_utf8(text).unwrap(), @r"
        NAMESPACE   DAEMONSET   NODES   SHOULD RUN   AVAILABLE   MISSING ON
        default     web         4       2            1           pi-2
        ");
    }
}
