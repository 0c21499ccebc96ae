//! The cells of a node.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Cell, NONE, UNKNOWN, list, text};
use crate::reason::{condition, label};

/// An older way to name one role.
const ROLE_LABEL: &str = "kubernetes.io/role";

pub(super) fn row(tree: &Value, name: Cell, age: Cell) -> Vec<Cell> {
    let info = &tree["status"]["nodeInfo"];
    let known = |field: &str| -> Cell {
        match text(&info[field]) {
            "" => UNKNOWN.into(),
            value => value.into(),
        }
    };
    vec![
        name,
        status(tree).into(),
        roles(tree).into(),
        age,
        text(&info["kubeletVersion"]).into(),
        address(tree, "InternalIP").into(),
        address(tree, "ExternalIP").into(),
        known("osImage"),
        known("kernelVersion"),
        known("containerRuntimeVersion"),
    ]
}

fn status(tree: &Value) -> String {
    let ready = list(&tree["status"]["conditions"])
        .find(|condition| text(&condition["type"]) == condition::READY);
    let mut status = match ready.map(|condition| text(&condition["status"])) {
        None => "Unknown",
        Some("True") => "Ready",
        Some(_) => "NotReady",
    }
    .to_owned();
    if tree["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn roles(tree: &Value) -> String {
    let mut roles = BTreeSet::new();
    if let Some(labels) = tree["metadata"]["labels"].as_object() {
        for (key, value) in labels {
            match key.strip_prefix(label::NODE_ROLE_PREFIX) {
                Some(role) if !role.is_empty() => roles.insert(role),
                _ if key == ROLE_LABEL && !text(value).is_empty() => roles.insert(text(value)),
                _ => false,
            };
        }
    }
    if roles.is_empty() {
        NONE.to_owned()
    } else {
        roles.into_iter().collect::<Vec<_>>().join(",")
    }
}

fn address<'a>(tree: &'a Value, address_type: &str) -> &'a str {
    list(&tree["status"]["addresses"])
        .find(|address| text(&address["type"]) == address_type)
        .map_or(NONE, |address| text(&address["address"]))
}
