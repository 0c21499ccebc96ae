//! A node.

use muster_model::kind::NODE;
use muster_model::object::Object;
use muster_model::table;
use muster_model::time::Timestamp;

use super::tabs::Text;
use super::{allocated, annotations, events, head, labels, list, multiline, or, text};

/// `pods` are those bound to it; `lease` is its heartbeat, if there is one.
pub(crate) fn describe(
    node: &Object,
    pods: &[Object],
    lease: Option<&Object>,
    happened: &[Object],
    now: Timestamp,
) -> String {
    let mut out = Text::default();
    let tree = node.tree();
    let (spec, status) = (&tree["spec"], &tree["status"]);
    head(&mut out, node);
    // The same rule as the ROLES column.
    let roles = table::row(&NODE, node, now)
        .get(2)
        .map(ToString::to_string)
        .unwrap_or_default();
    out.line(0, format!("Roles:\t{roles}"));
    labels(&mut out, "Labels", &tree["metadata"]["labels"]);
    annotations(&mut out, "Annotations", &tree["metadata"]["annotations"]);
    out.line(
        0,
        format!(
            "CreationTimestamp:\t{}",
            text(&tree["metadata"]["creationTimestamp"])
        ),
    );
    let taints = list(&spec["taints"]).iter().map(|taint| {
        let value = match text(&taint["value"]) {
            value if value.is_empty() => String::new(),
            value => format!("={value}"),
        };
        format!("{}{value}:{}", text(&taint["key"]), text(&taint["effect"]))
    });
    multiline(&mut out, "Taints", taints);
    out.line(
        0,
        format!("Unschedulable:\t{}", spec["unschedulable"] == true),
    );
    if let Some(lease) = lease {
        out.line(0, "Lease:");
        for (title, field) in [
            ("HolderIdentity", "holderIdentity"),
            ("AcquireTime", "acquireTime"),
            ("RenewTime", "renewTime"),
        ] {
            out.line(
                1,
                format!("{title}:\t{}", or(&lease.tree()["spec"][field], "<unset>")),
            );
        }
    }
    if !list(&status["conditions"]).is_empty() {
        out.line(0, "Conditions:");
        out.line(
            1,
            "Type\tStatus\tLastHeartbeatTime\tLastTransitionTime\tReason\tMessage",
        );
        out.line(
            1,
            "----\t------\t-----------------\t------------------\t------\t-------",
        );
        for condition in list(&status["conditions"]) {
            let cells = [
                "type",
                "status",
                "lastHeartbeatTime",
                "lastTransitionTime",
                "reason",
                "message",
            ];
            let cells: Vec<String> = cells
                .iter()
                .map(|field| text(&condition[field]).replace('\n', " "))
                .collect();
            out.line(1, cells.join("\t"));
        }
    }
    out.line(0, "Addresses:");
    for address in list(&status["addresses"]) {
        out.line(
            1,
            format!("{}:\t{}", text(&address["type"]), text(&address["address"])),
        );
    }
    for (title, amounts) in [
        ("Capacity", &status["capacity"]),
        ("Allocatable", &status["allocatable"]),
    ] {
        if let Some(amounts) = amounts.as_object().filter(|amounts| !amounts.is_empty()) {
            out.line(0, format!("{title}:"));
            for (name, amount) in amounts {
                out.line(1, format!("{name}:\t{}", text(amount)));
            }
        }
    }
    out.line(0, "System Info:");
    for (title, field) in [
        ("Machine ID", "machineID"),
        ("System UUID", "systemUUID"),
        ("Boot ID", "bootID"),
        ("Kernel Version", "kernelVersion"),
        ("OS Image", "osImage"),
        ("Operating System", "operatingSystem"),
        ("Architecture", "architecture"),
        ("Container Runtime Version", "containerRuntimeVersion"),
        ("Kubelet Version", "kubeletVersion"),
    ] {
        out.line(1, format!("{title}:\t{}", text(&status["nodeInfo"][field])));
    }
    allocated::allocated(&mut out, status, pods, now);
    events::events(&mut out, happened, now);
    out.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_shows_its_taints_conditions_and_pods() {
        let mut node = Object::from_value(json!({
            "metadata": {"name": "pi-1", "labels": {"kubernetes.io/hostname": "pi-1", "node-role.kubernetes.io/edge": ""},
                         "creationTimestamp": "2026-01-31T09:00:00Z"},
            "spec": {"unschedulable": true, "taints": [{"key": "gpu", "value": "only", "effect": "NoSchedule"}, {"key": "x", "effect": "NoExecute"}]},
            "status": {
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "agent is ready",
                    "lastHeartbeatTime": "2026-01-31T10:00:00Z", "lastTransitionTime": "2026-01-31T09:00:05Z"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "capacity": {"cpu": "4", "memory": "1Gi", "pods": "110"},
                "nodeInfo": {"osImage": "Debian", "kubeletVersion": "v1.32.0"}},
        }))
        .unwrap();
        node.set_kind(&NODE);
        let pod = Object::from_value(json!({"metadata": {"name": "web-1", "namespace": "default", "creationTimestamp": "2026-01-31T10:00:00Z"},
            "status": {"phase": "Running"}}))
        .unwrap();
        let lease = Object::from_value(
            json!({"spec": {"holderIdentity": "pi-1", "renewTime": "2026-01-31T10:00:00.000000Z"}}),
        )
        .unwrap();
        let now = "2026-01-31T10:00:10Z".parse().unwrap();
        insta::assert_snapshot!(describe(&node, &[pod], Some(&lease), &[], now));
    }
}
