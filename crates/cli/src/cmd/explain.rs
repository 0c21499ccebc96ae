//! `muster explain`: the verdict of every node, in plain words.

use clap::Args;
use muster_model::kind::DAEMON_SET;
use muster_proto::v1;

use super::coverage::{Verdicts, or_dash, state, yes_no};
use crate::failure::{Failure, Outcome};
use crate::output::document::FormatArg;
use crate::output::paint::{RED, YELLOW, painted};
use crate::output::table::Columns;
use crate::select;
use crate::session::Session;

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
    #[command(flatten)]
    output: FormatArg,
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
        let request = v1::CoverageRequest {
            daemonset: Some(v1::DaemonSetRef {
                namespace: server.namespace.clone(),
                name: name.clone(),
            }),
            ..v1::CoverageRequest::default()
        };
        let now = session.clock.now();
        let mut verdicts = Verdicts::ask(&server, request, now).await?;
        if self.gaps {
            verdicts.rows.retain(|row| !is_covered(row));
        }
        if let Some(format) = self.output.format {
            return verdicts.write(&mut session.console, format);
        }
        if verdicts.rows.is_empty() {
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
            .write_all(explained(&name, &verdicts, color)?.as_bytes())?;
        Ok(())
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

/// The verdict table, what would close the gaps, and a last line that sums up.
fn explained(name: &str, verdicts: &Verdicts, color: bool) -> Outcome<String> {
    let rows = &verdicts.rows;
    let mut table = vec![
        ["NODE", "SHOULD RUN", "POD", "STATE", "AGE", "WHY"]
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
            verdicts.age(row),
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
            uncovered_since: if should_run && !is_up {
                "2026-01-31T09:58:30Z".into()
            } else {
                String::new()
            },
        }
    }

    fn verdicts() -> Verdicts {
        let rows = vec![
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
        ];
        Verdicts::of(rows, "2026-01-31T10:00:00Z".parse().unwrap())
    }

    #[test]
    fn every_no_is_explained() {
        insta::assert_snapshot!(explained("web", &verdicts(), false).unwrap(), @r#"
        NODE   SHOULD RUN   POD         STATE       AGE   WHY
        pi-1   yes          web-x7k2p   available   -     runs
        pi-2   yes          web-p2k7x   not ready   90s   image "nginx:1.72" cannot be pulled
        pi-3   no           -           -           -     taint gpu=only:NoSchedule is not tolerated
        pi-4   no           -           -           -     taint gpu=only:NoSchedule is not tolerated

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
}
