//! `describe`: an object with everything that is known about it, in kubectl's layout (spec/daemonset.md 16.3).

mod allocated;
pub(crate) mod container;
pub(crate) mod daemonset;
pub(crate) mod events;
pub(crate) mod generic;
pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod tabs;
pub(crate) mod template;
pub(crate) mod volume;

use std::collections::BTreeMap;

use muster_model::apply::LAST_APPLIED;
use muster_model::object::Object;
use muster_model::table::NONE;
use serde_json::Value;

use self::tabs::Text;

/// Longer annotations go on lines of their own.
const LONGEST_ANNOTATION: usize = 140;

/// The text of a JSON scalar; empty when there is none.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The same, with a stand-in for nothing.
pub(crate) fn or(value: &Value, stand_in: &str) -> String {
    match text(value) {
        text if text.is_empty() => stand_in.to_owned(),
        text => text,
    }
}

/// The elements of a JSON list; none when it is no list.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// `True` or `False`.
pub(crate) fn title_case(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// `TITLE:  k=v`, one pair a line.
pub(crate) fn labels(out: &mut Text, title: &str, map: &Value) {
    let pairs: BTreeMap<&String, &Value> = map
        .as_object()
        .map(|map| map.iter().collect())
        .unwrap_or_default();
    let lines = pairs
        .into_iter()
        .map(|(key, value)| format!("{key}={}", text(value)));
    multiline(out, title, lines);
}

/// `TITLE:  first`, the others below it; `<none>` without any.
pub(crate) fn multiline(out: &mut Text, title: &str, lines: impl IntoIterator<Item = String>) {
    let mut label = format!("{title}:");
    let mut any = false;
    for line in lines {
        out.line(0, format!("{label}\t{line}"));
        any = true;
        label.clear();
    }
    if !any {
        out.line(0, format!("{label}\t{NONE}"));
    }
}

/// As [`labels`], without the record of the last apply; what is long goes below its key.
pub(crate) fn annotations(out: &mut Text, title: &str, map: &Value) {
    let pairs: BTreeMap<&String, &Value> = map
        .as_object()
        .map(|map| map.iter().collect())
        .unwrap_or_default();
    let mut lines = Vec::new();
    for (key, value) in pairs.into_iter().filter(|(key, _)| *key != LAST_APPLIED) {
        let value = text(value);
        let value = value.trim_end_matches('\n');
        if key.len() + value.len() + 2 > LONGEST_ANNOTATION || value.contains('\n') {
            lines.push(format!("{key}:"));
            lines.extend(value.lines().map(|line| format!("  {}", shortened(line))));
        } else {
            lines.push(format!("{key}: {value}"));
        }
    }
    multiline(out, title, lines);
}

fn shortened(line: &str) -> String {
    let most = LONGEST_ANNOTATION - 2;
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

/// Name, namespace: the first lines of everything.
pub(crate) fn head(out: &mut Text, object: &Object) {
    out.line(0, format!("Name:\t{}", object.name()));
    if !object.namespace().is_empty() {
        out.line(0, format!("Namespace:\t{}", object.namespace()));
    }
}
