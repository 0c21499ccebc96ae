//! The cells of a pod, of which STATUS is the one people act on.

use serde_json::Value;

use super::{Cell, NONE, list, number, text};
use crate::object::Object;
use crate::reason::condition;
use crate::time::{self, Timestamp};

/// What the rules find out about a pod in one pass over its containers.
struct Summary {
    status: String,
    ready: usize,
    total: usize,
    restarts: Restarts,
}

#[derive(Default, Clone, Copy)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += number(&container["restartCount"]);
        let ended = time::parse(text(&container["lastState"]["terminated"]["finishedAt"]));
        self.last = self.last.max(ended);
    }

    fn text(self, now: Timestamp) -> String {
        match self.last {
            Some(last) if self.count != 0 => {
                format!("{} ({} ago)", self.count, time::age_of(Some(last), now))
            }
            _ => self.count.to_string(),
        }
    }
}

pub(super) fn row(object: &Object, name: Cell, age: Cell, now: Timestamp) -> Vec<Cell> {
    let summary = summary(object);
    let tree = object.tree();
    let or_none = |value: &Value| -> Cell {
        match text(value) {
            "" => NONE.into(),
            value => value.into(),
        }
    };
    let address = match text(&tree["status"]["podIP"]) {
        "" => &tree["status"]["podIPs"][0]["ip"],
        _ => &tree["status"]["podIP"],
    };
    vec![
        name,
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.status.into(),
        summary.restarts.text(now).into(),
        age,
        or_none(address),
        or_none(&tree["spec"]["nodeName"]),
        or_none(&tree["status"]["nominatedNodeName"]),
        gates(tree).into(),
    ]
}

fn summary(object: &Object) -> Summary {
    let tree = object.tree();
    let (spec, status) = (&tree["spec"], &tree["status"]);
    let restartable: Vec<&str> = list(&spec["initContainers"])
        .filter(|container| text(&container["restartPolicy"]) == "Always")
        .map(|container| text(&container["name"]))
        .collect();
    let mut summary = Summary {
        status: first_set(&[&status["reason"], &status["phase"]]).to_owned(),
        ready: 0,
        total: list(&spec["containers"]).len() + restartable.len(),
        restarts: Restarts::default(),
    };
    let mut sidecar_restarts = Restarts::default();
    let mut initializing = false;
    for (index, container) in list(&status["initContainerStatuses"]).enumerate() {
        let is_sidecar = restartable.contains(&text(&container["name"]));
        summary.restarts.add(container);
        if is_sidecar {
            sidecar_restarts.add(container);
        }
        let (ended, waiting) = (
            &container["state"]["terminated"],
            &container["state"]["waiting"],
        );
        if ended.is_object() && number(&ended["exitCode"]) == 0 {
            continue;
        }
        if is_sidecar && container["started"] == true {
            summary.ready += usize::from(container["ready"] == true);
            continue;
        }
        summary.status = if ended.is_object() {
            format!("Init:{}", how_it_ended(ended))
        } else {
            match text(&waiting["reason"]) {
                "" | "PodInitializing" => {
                    format!("Init:{index}/{}", list(&spec["initContainers"]).len())
                }
                reason => format!("Init:{reason}"),
            }
        };
        initializing = true;
        break;
    }
    if !initializing || is_condition_true(status, condition::INITIALIZED) {
        summary.restarts = sidecar_restarts;
        containers(status, &mut summary);
    }
    let phase = text(&status["phase"]);
    if object.is_terminating() {
        if text(&status["reason"]) == "NodeLost" {
            summary.status = "Unknown".to_owned();
        } else if phase != "Succeeded" && phase != "Failed" {
            summary.status = "Terminating".to_owned();
        }
    }
    summary
}

/// From the last container to the first, so that the first one's trouble is what is shown.
fn containers(status: &Value, summary: &mut Summary) {
    let mut running = false;
    for container in list(&status["containerStatuses"]).rev() {
        summary.restarts.add(container);
        let state = &container["state"];
        let (ended, waiting) = (&state["terminated"], text(&state["waiting"]["reason"]));
        if !waiting.is_empty() {
            waiting.clone_into(&mut summary.status);
        } else if ended.is_object() {
            summary.status = how_it_ended(ended);
        } else if container["ready"] == true && state["running"].is_object() {
            running = true;
            summary.ready += 1;
        }
    }
    if running && summary.status == "Completed" {
        let ready = is_condition_true(status, condition::READY);
        summary.status = if ready { "Running" } else { "NotReady" }.to_owned();
    }
}

fn how_it_ended(ended: &Value) -> String {
    match (text(&ended["reason"]), number(&ended["signal"])) {
        ("", 0) => format!("ExitCode:{}", number(&ended["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn gates(tree: &Value) -> String {
    let gates = list(&tree["spec"]["readinessGates"]);
    let total = gates.len();
    if total == 0 {
        return NONE.to_owned();
    }
    let holding = gates
        .filter(|gate| is_condition_true(&tree["status"], text(&gate["conditionType"])))
        .count();
    format!("{holding}/{total}")
}

fn is_condition_true(status: &Value, condition_type: &str) -> bool {
    list(&status["conditions"]).any(|condition| {
        text(&condition["type"]) == condition_type && text(&condition["status"]) == "True"
    })
}

fn first_set<'a>(values: &[&'a Value]) -> &'a str {
    values
        .iter()
        .map(|value| text(value))
        .find(|value| !value.is_empty())
        .unwrap_or_default()
}
