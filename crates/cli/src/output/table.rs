//! Aligned columns, as kubectl aligns them: each as wide as its widest cell and three blanks.

use std::io::{self, Write};

use muster_model::kind::Kind;
use muster_model::object::Object;
use muster_model::table::{self, Column};
use muster_model::time::Timestamp;

/// Blanks between columns.
const PADDING: usize = 3;
/// No column is narrower, its blanks included.
const MIN_WIDTH: usize = 6;

/// Writes rows with widths that only grow, so that what a watch adds stays in line.
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    widths: Vec<usize>,
    padding: usize,
    minimum: usize,
}

impl Columns {
    /// kubectl's look.
    pub(crate) fn new() -> Self {
        Self {
            widths: Vec::new(),
            padding: PADDING,
            minimum: MIN_WIDTH,
        }
    }

    /// Two blanks and no least width: the look of `rollout history` and of nested tables.
    pub(crate) fn narrow() -> Self {
        Self {
            widths: Vec::new(),
            padding: 2,
            minimum: 0,
        }
    }

    /// Writes rows. All of them are measured before the first is written.
    pub(crate) fn write(
        &mut self,
        out: &mut dyn Write,
        indent: &str,
        rows: &[Vec<String>],
    ) -> io::Result<()> {
        for row in rows {
            // The last cell is followed by nothing, so it widens no column.
            for (index, cell) in row.iter().take(row.len().saturating_sub(1)).enumerate() {
                let width = (cell.chars().count() + self.padding).max(self.minimum);
                match self.widths.get_mut(index) {
                    Some(widest) => *widest = (*widest).max(width),
                    None => self.widths.push(width),
                }
            }
        }
        for row in rows {
            out.write_all(indent.as_bytes())?;
            for (index, cell) in row.iter().enumerate() {
                if index + 1 == row.len() {
                    writeln!(out, "{cell}")?;
                } else {
                    write!(out, "{cell:<width$}", width = self.widths[index])?;
                }
            }
            if row.is_empty() {
                writeln!(out)?;
            }
        }
        Ok(())
    }
}

/// What `get` shows of a kind.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// Columns of priority 1 too.
    pub(crate) wide: bool,
    /// A leading NAMESPACE column.
    pub(crate) namespace: bool,
    /// `kind.group/name` instead of the bare name.
    pub(crate) with_kind: bool,
    /// A trailing LABELS column.
    pub(crate) labels: bool,
    /// A column for each of these labels.
    pub(crate) label_columns: Vec<String>,
}

impl View {
    fn shown(&self, kind: &Kind) -> impl Iterator<Item = (usize, &'static Column)> {
        let wide = self.wide;
        table::columns(kind)
            .iter()
            .enumerate()
            .filter(move |(_, column)| wide || column.priority == 0)
    }

    /// The header.
    pub(crate) fn header(&self, kind: &Kind) -> Vec<String> {
        let mut cells = Vec::new();
        if self.namespace {
            cells.push("NAMESPACE".to_owned());
        }
        cells.extend(
            self.shown(kind)
                .map(|(_, column)| column.name.to_uppercase()),
        );
        for label in &self.label_columns {
            let short = label.rsplit('/').next().unwrap_or(label);
            cells.push(short.to_uppercase());
        }
        if self.labels {
            cells.push("LABELS".to_owned());
        }
        cells
    }

    /// One row.
    pub(crate) fn row(&self, kind: &Kind, object: &Object, now: Timestamp) -> Vec<String> {
        let mut cells = Vec::new();
        if self.namespace {
            cells.push(object.namespace().to_owned());
        }
        let all = table::row(kind, object, now);
        for (index, column) in self.shown(kind) {
            let text = all.get(index).map(ToString::to_string).unwrap_or_default();
            let text = one_line(&text);
            cells.push(if column.format == "name" && self.with_kind {
                format!("{}/{text}", kind.qualified_singular())
            } else {
                text
            });
        }
        for label in &self.label_columns {
            cells.push(object.label(label).unwrap_or_default().to_owned());
        }
        if self.labels {
            cells.push(table::labels_text(&object.tree()["metadata"]["labels"]));
        }
        cells
    }
}

/// A cell never breaks its row.
fn one_line(text: &str) -> String {
    match text.find(['\n', '\r']) {
        Some(end) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::kind::{DAEMON_SET, EVENT};
    use serde_json::json;

    fn view() -> View {
        View {
            wide: false,
            namespace: false,
            with_kind: false,
            labels: false,
            label_columns: Vec::new(),
        }
    }

    fn render(view: &View, kind: &Kind, objects: &[Object]) -> String {
        let now = "2026-01-31T10:05:00Z".parse().unwrap();
        let mut rows = vec![view.header(kind)];
        rows.extend(objects.iter().map(|object| view.row(kind, object, now)));
        let mut out = Vec::new();
        Columns::new().write(&mut out, "", &rows).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn web() -> Object {
        Object::from_value(json!({
            "metadata": {"name": "web", "namespace": "default", "creationTimestamp": "2026-01-31T10:00:00Z",
                         "labels": {"app": "web", "a/tier": "front"}},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {
                "nodeSelector": {"disk": "ssd"}, "containers": [{"name": "web", "image": "nginx:1.27"}]}}},
            "status": {"desiredNumberScheduled": 3, "currentNumberScheduled": 3, "numberReady": 3,
                       "updatedNumberScheduled": 3, "numberAvailable": 3},
        }))
        .unwrap()
    }

    #[test]
    fn ds_114_a_wide_table_is_kubectls_to_the_blank() {
        insta::assert_snapshot!(render(&View { wide: true, ..view() }, &DAEMON_SET, &[web()]), @r"
        NAME   DESIRED   CURRENT   READY   UP-TO-DATE   AVAILABLE   NODE SELECTOR   AGE   CONTAINERS   IMAGES       SELECTOR
        web    3         3         3       3            3           disk=ssd        5m    web          nginx:1.27   app=web
        ");
    }

    #[test]
    fn namespaces_kinds_and_labels_are_added_around() {
        let view = View {
            namespace: true,
            with_kind: true,
            labels: true,
            label_columns: vec!["a/tier".into(), "none".into()],
            ..view()
        };
        insta::assert_snapshot!(render(&view, &DAEMON_SET, &[web()]), @r"
        NAMESPACE   NAME                 DESIRED   CURRENT   READY   UP-TO-DATE   AVAILABLE   NODE SELECTOR   AGE   TIER    NONE   LABELS
        default     daemonset.apps/web   3         3         3       3            3           disk=ssd        5m    front          a/tier=front,app=web
        ");
    }

    #[test]
    fn a_message_of_several_lines_keeps_to_its_row() {
        let event = Object::from_value(json!({"type": "Normal", "reason": "R", "message": "first\nsecond",
            "involvedObject": {"kind": "Pod", "name": "p"}, "lastTimestamp": "2026-01-31T10:00:00Z"}))
        .unwrap();
        insta::assert_snapshot!(render(&view(), &EVENT, &[event]), @r"
        LAST SEEN   TYPE     REASON   OBJECT   MESSAGE
        5m          Normal   R        pod/p    first...
        ");
    }
}
