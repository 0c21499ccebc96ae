//! What is not wrong but surprises: one line each, for a `Warning` header.

use std::collections::BTreeMap;

use super::view::View;
use crate::kind::{self, Kind};
use crate::quantity::Quantity;

pub(super) fn of(kind: &Kind, root: &View) -> Vec<String> {
    let mut lines = Vec::new();
    if *kind == kind::DAEMON_SET {
        of_pod(&root.down(&["spec", "template", "spec"]), &mut lines);
    } else if *kind == kind::POD {
        of_pod(&root.child("spec"), &mut lines);
    }
    lines
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
