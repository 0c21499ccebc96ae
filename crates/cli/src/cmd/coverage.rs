//! `muster coverage`: every DaemonSet on every node, with the reason and the age of each gap.

use std::time::Duration;

use clap::Args;
use muster_model::time::{self, Timestamp};
use muster_proto::v1;
use serde_json::{Value, json};

use crate::args::duration;
use crate::console::Console;
use crate::failure::{Failure, Outcome};
use crate::output::document;
use crate::output::table::Columns;
use crate::session::{Server, Session};

/// How many gaps the last line names before it counts the rest.
const GAPS_NAMED: usize = 5;
/// The exit code when a gap is older than allowed.
const TOO_OLD: u8 = 2;

/// Which part of the picture to show.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster coverage                              each DaemonSet: how many nodes; and each gap, why and since when
  muster coverage -n edge                      only the DaemonSets of that namespace
  muster coverage --nodes                      each node of each DaemonSet
  muster coverage -o wide                      the same with the rule that decided and what would help
  muster coverage --max-age 5m                 exit with 2 when a node has been without for longer

The age of a gap is the time that a node which should run a pod has had none that is available.")]
pub(crate) struct CoverageArgs {
    /// A row for each node
    #[arg(long)]
    nodes: bool,
    /// Exit with 2 when a node that should run a pod has had none available for longer than this, such as 5m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    max_age: Option<Duration>,
    /// wide, json or yaml
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    output: Option<Form>,
}

/// The forms of output besides the plain table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// Every node, with more columns
    Wide,
    /// Indented JSON
    Json,
    /// YAML
    Yaml,
}

impl CoverageArgs {
    /// Runs the command.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        let server = session.connect().await?;
        // A context's namespace is no wish to see less than all: only a namespace that was named is.
        let request = v1::CoverageRequest {
            namespace: if server.namespace_was_given {
                server.namespace.clone()
            } else {
                String::new()
            },
            ..v1::CoverageRequest::default()
        };
        let verdicts = Verdicts::ask(&server, request, session.clock.now()).await?;
        let console = &mut session.console;
        let out = &mut console.out;
        match self.output {
            Some(Form::Json) => verdicts.write(console, document::Format::Json)?,
            Some(Form::Yaml) => verdicts.write(console, document::Format::Yaml)?,
            _ if verdicts.rows.is_empty() && server.namespace_was_given => {
                let namespace = &server.namespace;
                console.note(format!(
                    "No DaemonSets in {namespace} namespace, or no nodes"
                ));
            }
            _ if verdicts.rows.is_empty() => console.note("No DaemonSets, or no nodes"),
            Some(Form::Wide) => Columns::new().write(out, "", &by_node(&verdicts, true))?,
            None if self.nodes => Columns::new().write(out, "", &by_node(&verdicts, false))?,
            None => {
                Columns::new().write(out, "", &by_daemonset(&verdicts))?;
                let gaps = gaps(&verdicts);
                if gaps.len() > 1 {
                    writeln!(out)?;
                    Columns::new().write(out, "", &gaps)?;
                }
            }
        }
        session.console.flush()?;
        match self.max_age.and_then(|most| too_old(&verdicts, most)) {
            Some(text) => Err(Failure {
                text,
                code: TOO_OLD,
            }),
            None => Ok(()),
        }
    }
}

/// What the server says of nodes, and its clock.
pub(super) struct Verdicts {
    pub(super) rows: Vec<v1::CoverageRow>,
    now: Timestamp,
}

impl Verdicts {
    /// Asks for one DaemonSet's, a namespace's, or everybody's. `now` is for a server that does not tell its time.
    pub(super) async fn ask(
        server: &Server,
        request: v1::CoverageRequest,
        now: Timestamp,
    ) -> Outcome<Self> {
        let request = server.connection.request(request);
        match server.connection.daemonsets().coverage(request).await {
            Ok(reply) => {
                let reply = reply.into_inner();
                Ok(Self {
                    rows: reply.rows,
                    now: time::parse(&reply.now).unwrap_or(now),
                })
            }
            Err(status) => Err(server.connection.fault(&status).into()),
        }
    }

    #[cfg(test)]
    pub(super) fn of(rows: Vec<v1::CoverageRow>, now: Timestamp) -> Self {
        Self { rows, now }
    }

    /// How long a gap has been open, in whole seconds by the server's clock; `None`: there is none.
    fn age_seconds(&self, row: &v1::CoverageRow) -> Option<i64> {
        let since = time::parse(&row.uncovered_since)?;
        Some((self.now.as_second() - since.as_second()).max(0))
    }

    /// The same as people read it; `-` without a gap.
    pub(super) fn age(&self, row: &v1::CoverageRow) -> String {
        self.age_seconds(row)
            .map_or_else(|| "-".to_owned(), time::age_text)
    }

    /// Writes one document of all rows.
    pub(super) fn write(&self, console: &mut Console, format: document::Format) -> Outcome {
        let rows: Vec<Value> = self.rows.iter().map(|row| self.document(row)).collect();
        document::write(console, format, &json!({"rows": rows}))
    }

    fn document(&self, row: &v1::CoverageRow) -> Value {
        let daemonset = row.daemonset.clone().unwrap_or_default();
        let since = Some(&row.uncovered_since).filter(|since| !since.is_empty());
        json!({
            "namespace": daemonset.namespace, "daemonset": daemonset.name, "node": row.node,
            "shouldRun": row.should_run, "pod": row.pod, "ready": row.ready, "available": row.available,
            "updated": row.updated, "rule": row.rule, "why": row.why, "fix": row.fix,
            "uncoveredSince": since, "uncoveredSeconds": self.age_seconds(row),
        })
    }
}

/// A word for scripts and tests of what runs there.
pub(super) fn state(row: &v1::CoverageRow) -> &'static str {
    match (row.pod.is_empty(), row.ready, row.available, row.updated) {
        (true, ..) => "-",
        (_, false, ..) => "not ready",
        (_, _, false, _) => "ready",
        (_, _, true, false) => "old",
        (_, _, true, true) => "available",
    }
}

pub(super) fn or_dash(text: &str) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text.to_owned()
    }
}

pub(super) fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

fn by_node(verdicts: &Verdicts, wide: bool) -> Vec<Vec<String>> {
    let mut titles = vec![
        "NAMESPACE",
        "DAEMONSET",
        "NODE",
        "SHOULD RUN",
        "POD",
        "STATE",
        "AGE",
    ];
    titles.extend(if wide {
        &["UPDATED", "RULE", "WHY", "WHAT WOULD HELP"][..]
    } else {
        &["WHY"]
    });
    let mut table = vec![titles.into_iter().map(str::to_owned).collect()];
    for row in &verdicts.rows {
        let daemonset = row.daemonset.clone().unwrap_or_default();
        let mut cells = vec![
            daemonset.namespace,
            daemonset.name,
            row.node.clone(),
            yes_no(row.should_run),
            or_dash(&row.pod),
            state(row).to_owned(),
            verdicts.age(row),
        ];
        if wide {
            cells.extend([
                yes_no(row.updated),
                row.rule.clone(),
                row.why.clone(),
                or_dash(&row.fix),
            ]);
        } else {
            cells.push(row.why.clone());
        }
        table.push(cells);
    }
    table
}

/// The nodes that should run a pod and have none that is available, the oldest gap of all DaemonSets first.
fn gaps(verdicts: &Verdicts) -> Vec<Vec<String>> {
    let titles = [
        "NAMESPACE",
        "DAEMONSET",
        "NODE",
        "POD",
        "STATE",
        "AGE",
        "WHY",
    ];
    let mut open: Vec<&v1::CoverageRow> = verdicts
        .rows
        .iter()
        .filter(|row| !row.uncovered_since.is_empty())
        .collect();
    // The sort keeps the order of those that are equally old: by namespace, DaemonSet, node.
    open.sort_by_key(|row| std::cmp::Reverse(verdicts.age_seconds(row)));
    let cells = |row: &v1::CoverageRow| {
        let daemonset = row.daemonset.clone().unwrap_or_default();
        vec![
            daemonset.namespace,
            daemonset.name,
            row.node.clone(),
            or_dash(&row.pod),
            state(row).to_owned(),
            verdicts.age(row),
            row.why.clone(),
        ]
    };
    std::iter::once(titles.map(str::to_owned).to_vec())
        .chain(open.into_iter().map(cells))
        .collect()
}

fn by_daemonset(verdicts: &Verdicts) -> Vec<Vec<String>> {
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
    for group in verdicts.rows.chunk_by(|a, b| a.daemonset == b.daemonset) {
        let daemonset = group[0].daemonset.clone().unwrap_or_default();
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
    }
    table
}

/// The last line when gaps are older than allowed; `None` when none is.
fn too_old(verdicts: &Verdicts, most: Duration) -> Option<String> {
    let most_seconds = most.as_secs_f64();
    let old: Vec<String> = verdicts
        .rows
        .iter()
        .filter(|row| {
            verdicts
                .age_seconds(row)
                .is_some_and(|age| age as f64 > most_seconds)
        })
        .map(|row| {
            let daemonset = row.daemonset.clone().unwrap_or_default();
            let (namespace, name) = (daemonset.namespace, daemonset.name);
            format!("{namespace}/{name} on {} ({})", row.node, verdicts.age(row))
        })
        .collect();
    if old.is_empty() {
        return None;
    }
    let (gaps, are) = match old.len() {
        1 => ("gap", "is"),
        _ => ("gaps", "are"),
    };
    let more = match old.len().saturating_sub(GAPS_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named: Vec<&str> = old.iter().take(GAPS_NAMED).map(String::as_str).collect();
    Some(format!(
        "{} {gaps} {are} older than {}: {}{more}",
        old.len(),
        time::age_text(i64::try_from(most.as_secs()).unwrap_or(i64::MAX)),
        named.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(daemonset: &str, node: &str, should_run: bool, since: &str) -> v1::CoverageRow {
        let runs = should_run && since.is_empty();
        v1::CoverageRow {
            daemonset: Some(v1::DaemonSetRef {
                namespace: "default".into(),
                name: daemonset.into(),
            }),
            node: node.into(),
            should_run,
            pod: if should_run {
                format!("{daemonset}-1")
            } else {
                String::new()
            },
            ready: runs,
            available: runs,
            updated: runs,
            rule: if runs {
                "Runs"
            } else if should_run {
                "NotReady"
            } else {
                "UntoleratedTaint"
            }
            .into(),
            why: if runs {
                "runs"
            } else if should_run {
                "no disk"
            } else {
                "taint"
            }
            .into(),
            fix: if should_run {
                String::new()
            } else {
                "tolerate it".into()
            },
            uncovered_since: since.into(),
        }
    }

    fn verdicts() -> Verdicts {
        Verdicts::of(
            vec![
                row("log", "pi-1", true, ""),
                row("log", "pi-2", false, ""),
                row("web", "pi-1", true, "2026-01-31T09:58:30Z"),
                row("web", "pi-2", true, "2026-01-31T08:00:00Z"),
            ],
            "2026-01-31T10:00:00Z".parse().unwrap(),
        )
    }

    fn text(table: &[Vec<String>]) -> String {
        let mut text = Vec::new();
        Columns::new().write(&mut text, "", table).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn coverage_sums_up_each_daemonset_and_lists_its_gaps() {
        insta::assert_snapshot!(text(&by_daemonset(&verdicts())), @r"
        NAMESPACE   DAEMONSET   NODES   SHOULD RUN   AVAILABLE   MISSING ON
        default     log         2       1            1           -
        default     web         2       2            0           pi-1,pi-2
        ");
        insta::assert_snapshot!(text(&gaps(&verdicts())), @r"
        NAMESPACE   DAEMONSET   NODE   POD     STATE       AGE    WHY
        default     web         pi-2   web-1   not ready   120m   no disk
        default     web         pi-1   web-1   not ready   90s    no disk
        ");
    }

    #[test]
    fn every_node_has_a_row_of_every_daemonset() {
        insta::assert_snapshot!(text(&by_node(&verdicts(), false)), @r"
        NAMESPACE   DAEMONSET   NODE   SHOULD RUN   POD     STATE       AGE    WHY
        default     log         pi-1   yes          log-1   available   -      runs
        default     log         pi-2   no           -       -           -      taint
        default     web         pi-1   yes          web-1   not ready   90s    no disk
        default     web         pi-2   yes          web-1   not ready   120m   no disk
        ");
        insta::assert_snapshot!(text(&by_node(&verdicts(), true)), @r"
        NAMESPACE   DAEMONSET   NODE   SHOULD RUN   POD     STATE       AGE    UPDATED   RULE               WHY       WHAT WOULD HELP
        default     log         pi-1   yes          log-1   available   -      yes       Runs               runs      -
        default     log         pi-2   no           -       -           -      no        UntoleratedTaint   taint     tolerate it
        default     web         pi-1   yes          web-1   not ready   90s    no        NotReady           no disk   -
        default     web         pi-2   yes          web-1   not ready   120m   no        NotReady           no disk   -
        ");
    }

    #[test]
    fn gaps_that_are_older_than_allowed_are_named() {
        let told = |seconds| too_old(&verdicts(), Duration::from_secs(seconds));
        assert_eq!(told(7_200), None, "not longer, as long");
        assert_eq!(
            told(7_199).as_deref(),
            Some("1 gap is older than 119m: default/web on pi-2 (120m)")
        );
        assert_eq!(
            told(60).as_deref(),
            Some(
                "2 gaps are older than 60s: default/web on pi-1 (90s), default/web on pi-2 (120m)"
            )
        );
        let many = (1..=7).map(|n| row("web", &format!("n{n}"), true, "2026-01-31T08:00:00Z"));
        let many = Verdicts::of(many.collect(), verdicts().now);
        let told = too_old(&many, Duration::ZERO).unwrap();
        assert!(told.ends_with(" on n5 (120m) and 2 more"), "{told}");
    }

    #[test]
    fn a_document_tells_since_when_and_for_how_long() {
        let all = verdicts();
        let first = all.document(&all.rows[0]);
        assert_eq!(
            (&first["uncoveredSince"], &first["uncoveredSeconds"]),
            (&Value::Null, &Value::Null)
        );
        let gap = all.document(&all.rows[2]);
        assert_eq!(gap["uncoveredSince"], "2026-01-31T09:58:30Z");
        assert_eq!(gap["uncoveredSeconds"], 90);
    }
}
