//! What is not wrong but surprises: one line each, for a `Warning` header.

use std::collections::BTreeMap;

use super::view::View;
use crate::kind::{self, Kind};
use crate::quantity::Quantity;

pub(super) fn of(kind: &Kind, root: &View) -> Vec<String> {
    let mut lines = Vec::new();
    if *kind == kind::DAEMON_SET {
        let spec = root.child("spec");
        let pod = spec.down(&["template", "spec"]);
        surge_with_host_ports(&spec, &pod, &mut lines);
        of_pod(&pod, &mut lines);
    } else if *kind == kind::POD {
        of_pod(&root.child("spec"), &mut lines);
    }
    lines
}

/// Two pods on one node can't hold one port: a surging update of such a DaemonSet can't move on.
fn surge_with_host_ports(spec: &View, pod: &View, lines: &mut Vec<String>) {
    let strategy = spec.child("updateStrategy");
    let surge = strategy.down(&["rollingUpdate", "maxSurge"]);
    let written = surge.shown().to_string();
    let surges = strategy.child("type").text() == "RollingUpdate"
        && surge.is_present()
        && !matches!(written.trim_matches('"'), "0" | "0%");
    if !surges {
        return;
    }
    let host_network = pod.child("hostNetwork").is_true();
    for list in ["containers", "initContainers"] {
        for container in pod.child(list).items() {
            for port in container.child("ports").items() {
                let field = if host_network {
                    port.child("containerPort")
                } else {
                    port.child("hostPort")
                };
                let Some(number) = field.number().filter(|number| *number != 0) else {
                    continue;
                };
                lines.push(format!(
                    "{}: port {number} of a node can be held by one pod at a time, so with {} {written} a new pod cannot start beside the old one: updates will not progress",
                    field.path(),
                    surge.path(),
                ));
            }
        }
    }
}

fn of_pod(spec: &View, lines: &mut Vec<String>) {
    for list in ["initContainers", "containers"] {
        for container in spec.child(list).items() {
            repeated_variables(&container, lines);
            repeated_ports(&container, lines);
            fractional_bytes(&container, lines);
        }
    }
}

fn repeated_variables(container: &View, lines: &mut Vec<String>) {
    let mut first = BTreeMap::new();
    for variable in container.child("env").items() {
        let name = variable.child("name").text();
        if name.is_empty() {
            continue;
        }
        // A later value may refer to the earlier one of the same name: that is an idiom, not a slip.
        let extends = variable
            .child("value")
            .text()
            .contains(&format!("$({name})"));
        if let Some(earlier) = first.insert(name, variable.path())
            && !extends
        {
            lines.push(format!(
                "{}: hides previous definition of \"{name}\" ({earlier}), which may be dropped when using apply",
                variable.path()
            ));
        }
    }
}

fn repeated_ports(container: &View, lines: &mut Vec<String>) {
    let mut first = BTreeMap::new();
    for port in container.child("ports").items() {
        let Some(number) = port.child("containerPort").number() else {
            continue;
        };
        let same = (
            number,
            port.child("protocol").text(),
            port.child("hostPort").number().unwrap_or(0),
        );
        if let Some(earlier) = first.get(&same) {
            lines.push(format!(
                "{}: duplicate port definition with {earlier}",
                port.path()
            ));
        } else {
            first.insert(same, port.path());
        }
    }
}

fn fractional_bytes(container: &View, lines: &mut Vec<String>) {
    for list in ["limits", "requests"] {
        for (name, amount) in container.down(&["resources", list]).entries() {
            let fractional =
                Quantity::from_json(amount.shown()).is_ok_and(|quantity| !quantity.is_whole());
            if matches!(name, "memory" | "ephemeral-storage") && fractional {
                lines.push(format!(
                    "{}: fractional byte value {} is invalid, must be an integer",
                    amount.path(),
                    amount.shown()
                ));
            }
        }
    }
}
