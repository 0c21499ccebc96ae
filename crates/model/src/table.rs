//! The columns and cells that `get` shows for each kind (spec/daemonset.md 16.1, spec/kube-api.md 7).
//!
//! Pure, and the same for both doors: the REST API's `Table` and our own command line.

mod columns;
mod node;
mod pod;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::kind::Kind;
use crate::object::Object;
use crate::time::{self, Timestamp};

pub use columns::columns;

/// Shown for a value that does not exist.
pub const NONE: &str = "<none>";
/// Shown for a value that is not known.
pub const UNKNOWN: &str = "<unknown>";

/// One column of a kind's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// As a Table spells it, such as `Node Selector`; people see it in capitals.
    pub name: &'static str,
    /// `string`, `integer` or `boolean`.
    pub column_type: &'static str,
    /// `name` for the object's name, else empty.
    pub format: &'static str,
    /// 0: always shown; 1: only when asked for wide output.
    pub priority: i32,
    /// What it shows, one sentence.
    pub description: &'static str,
}

/// One cell. Serializes as the JSON value that a Table carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// True or false.
    Boolean(bool),
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Boolean(value) => write!(f, "{value}"),
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

/// The cells of one object, one for each of [`columns`].
pub fn row(kind: &Kind, object: &Object, now: Timestamp) -> Vec<Cell> {
    let tree = object.tree();
    let name = Cell::from(object.name());
    let age = Cell::from(age_at(&tree["metadata"]["creationTimestamp"], now));
    match kind.kind {
        "DaemonSet" => daemonset(tree, name, age),
        "Pod" => pod::row(object, name, age, now),
        "Node" => node::row(tree, name, age),
        "Event" => event(tree, name, now),
        "Namespace" => vec![name, text(&tree["status"]["phase"]).into(), age],
        "ControllerRevision" => vec![
            name,
            controller(object).into(),
            number(&tree["revision"]).into(),
            age,
        ],
        "ConfigMap" => vec![
            name,
            (entries(&tree["data"]) + entries(&tree["binaryData"])).into(),
            age,
        ],
        "Secret" => vec![
            name,
            text(&tree["type"]).into(),
            entries(&tree["data"]).into(),
            age,
        ],
        "ServiceAccount" => vec![name, entries(&tree["secrets"]).into(), age],
        "Lease" => vec![name, text(&tree["spec"]["holderIdentity"]).into(), age],
        "PriorityClass" => vec![
            name,
            number(&tree["value"]).into(),
            tree["globalDefault"].as_bool().unwrap_or_default().into(),
            age,
            tree["preemptionPolicy"]
                .as_str()
                .unwrap_or("PreemptLowerPriority")
                .into(),
        ],
        "DaemonSetPolicy" => {
            let spec = &tree["spec"];
            let checks = |level: &str| Cell::from(keys_with(&spec["checks"], level));
            vec![
                name,
                policy_namespaces(&spec["namespaces"]).into(),
                checks("Refuse"),
                checks("Ignore"),
                age,
                checks("Warn"),
            ]
        }
        _ => vec![name, age],
    }
}

fn daemonset(tree: &Value, name: Cell, age: Cell) -> Vec<Cell> {
    let status = &tree["status"];
    let pod = &tree["spec"]["template"]["spec"];
    let of_containers = |field: &str| -> Cell {
        let all = list(&pod["containers"]).map(|container| text(&container[field]));
        all.collect::<Vec<_>>().join(",").into()
    };
    vec![
        name,
        number(&status["desiredNumberScheduled"]).into(),
        number(&status["currentNumberScheduled"]).into(),
        number(&status["numberReady"]).into(),
        number(&status["updatedNumberScheduled"]).into(),
        number(&status["numberAvailable"]).into(),
        labels_text(&pod["nodeSelector"]).into(),
        age,
        of_containers("name"),
        of_containers("image"),
        selector_text(&tree["spec"]["selector"]).into(),
    ]
}

fn event(tree: &Value, name: Cell, now: Timestamp) -> Vec<Cell> {
    let seen = |fields: &[&Value]| -> String {
        let set = fields.iter().find(|time| !text(time).is_empty());
        set.map_or_else(|| UNKNOWN.to_owned(), |time| age_at(time, now))
    };
    let (first, last, instant) = (
        &tree["firstTimestamp"],
        &tree["lastTimestamp"],
        &tree["eventTime"],
    );
    let series = &tree["series"];
    let last_seen = seen(&[&series["lastObservedTime"], last, first, instant]);
    let count = [&series["count"], &tree["count"]]
        .into_iter()
        .map(number)
        .find(|count| *count > 0);
    let object = &tree["involvedObject"];
    vec![
        last_seen.into(),
        text(&tree["type"]).into(),
        text(&tree["reason"]).into(),
        format!(
            "{}/{}",
            text(&object["kind"]).to_lowercase(),
            text(&object["name"])
        )
        .into(),
        text(&object["fieldPath"]).into(),
        event_source(tree).into(),
        text(&tree["message"]).trim().into(),
        seen(&[first, instant]).into(),
        count.unwrap_or(1).into(),
        name,
    ]
}

/// Who reported an event: component, and the host when there is one.
pub fn event_source(event: &Value) -> String {
    let source = &event["source"];
    let (mut component, mut host) = (text(&source["component"]), text(&source["host"]));
    if component.is_empty() {
        component = text(&event["reportingComponent"]);
        host = text(&event["reportingInstance"]);
    }
    if host.is_empty() {
        component.to_owned()
    } else {
        format!("{component}, {host}")
    }
}

fn controller(object: &Object) -> String {
    match object.controller() {
        None => NONE.to_owned(),
        Some(owner) => {
            let kind = owner.kind.to_lowercase();
            match owner.api_version.split_once('/') {
                Some((group, _)) => format!("{kind}.{group}/{}", owner.name),
                None => format!("{kind}/{}", owner.name),
            }
        }
    }
}

/// `k=v,k2=v2` sorted by key, or `<none>`.
pub fn labels_text(labels: &Value) -> String {
    let sorted: BTreeMap<&str, &str> = match labels.as_object() {
        Some(map) => map.iter().map(|(k, v)| (k.as_str(), text(v))).collect(),
        None => BTreeMap::new(),
    };
    or_none(sorted.iter().map(|(k, v)| format!("{k}={v}")).collect())
}

/// A label selector as people write it: `app=web,tier in (a,b),!x`, sorted by key; `<none>` when empty.
pub fn selector_text(selector: &Value) -> String {
    let mut terms: Vec<(&str, String)> = Vec::new();
    if let Some(labels) = selector["matchLabels"].as_object() {
        terms.extend(
            labels
                .iter()
                .map(|(k, v)| (k.as_str(), format!("{k}={}", text(v)))),
        );
    }
    for expression in list(&selector["matchExpressions"]) {
        let key = text(&expression["key"]);
        let mut values: Vec<&str> = list(&expression["values"]).map(text).collect();
        values.sort_unstable();
        let values = values.join(",");
        let term = match text(&expression["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        terms.push((key, term));
    }
    terms.sort_by_key(|(key, _)| *key);
    or_none(terms.into_iter().map(|(_, term)| term).collect())
}

/// The keys of a map that have this value.
fn keys_with(map: &Value, value: &str) -> String {
    let keys = map.as_object().into_iter().flatten();
    let chosen = keys.filter(|(_, found)| text(found) == value);
    or_none(chosen.map(|(key, _)| key.clone()).collect())
}

/// Names first, then the selector; `<all>` when the policy says nothing of namespaces.
fn policy_namespaces(namespaces: &Value) -> String {
    if namespaces.is_null() {
        return "<all>".to_owned();
    }
    let mut parts: Vec<String> = list(&namespaces["names"])
        .map(|name| text(name).to_owned())
        .collect();
    match &namespaces["selector"] {
        Value::Null => {}
        selector => match selector_text(selector).as_str() {
            NONE => parts.push("<all>".to_owned()),
            chosen => parts.push(chosen.to_owned()),
        },
    }
    or_none(parts)
}

fn or_none(parts: Vec<String>) -> String {
    if parts.is_empty() {
        NONE.to_owned()
    } else {
        parts.join(",")
    }
}

fn age_at(time: &Value, now: Timestamp) -> String {
    time::age_of(time::parse(text(time)), now)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

fn list(value: &Value) -> impl DoubleEndedIterator<Item = &Value> + ExactSizeIterator {
    value
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
}

fn entries(value: &Value) -> i64 {
    let count = match value {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    };
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
