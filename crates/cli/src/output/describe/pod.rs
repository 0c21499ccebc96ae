//! A pod.

use muster_model::object::Object;
use muster_model::table::NONE;
use muster_model::time::{Timestamp, age_of, parse};
use serde_json::Value;

use super::container::containers;
use super::tabs::Text;
use super::template::tolerations;
use super::volume::volumes;
use super::{annotations, events, head, labels, list, or, text};

/// The description of a pod.
pub(crate) fn describe(pod: &Object, happened: &[Object], now: Timestamp) -> String {
    let mut out = Text::default();
    let tree = pod.tree();
    let (spec, status) = (&tree["spec"], &tree["status"]);
    head(&mut out, pod);
    out.line(0, format!("Priority:\t{}", or(&spec["priority"], "0")));
    optional(&mut out, "Priority Class Name", &spec["priorityClassName"]);
    out.line(
        0,
        format!(
            "Service Account:\t{}",
            or(&spec["serviceAccountName"], "default")
        ),
    );
    let node = match (text(&spec["nodeName"]), text(&status["hostIP"])) {
        (node, _) if node.is_empty() => NONE.to_owned(),
        (node, address) => format!("{node}/{address}"),
    };
    out.line(0, format!("Node:\t{node}"));
    optional(&mut out, "Start Time", &status["startTime"]);
    labels(&mut out, "Labels", &tree["metadata"]["labels"]);
    annotations(&mut out, "Annotations", &tree["metadata"]["annotations"]);
    match pod.deletion_timestamp() {
        Some(time) => {
            out.line(
                0,
                format!("Status:\tTerminating (lasts {})", age_of(parse(time), now)),
            );
            let grace = or(&tree["metadata"]["deletionGracePeriodSeconds"], "0");
            out.line(0, format!("Termination Grace Period:\t{grace}s"));
        }
        None => out.line(0, format!("Status:\t{}", text(&status["phase"]))),
    }
    optional(&mut out, "Reason", &status["reason"]);
    optional(&mut out, "Message", &status["message"]);
    out.line(0, format!("IP:\t{}", text(&status["podIP"])));
    if list(&status["podIPs"]).is_empty() {
        out.line(0, format!("IPs:\t{NONE}"));
    } else {
        out.line(0, "IPs:");
        for address in list(&status["podIPs"]) {
            out.line(1, format!("IP:\t{}", text(&address["ip"])));
        }
    }
    if let Some(owner) = pod.controller() {
        out.line(0, format!("Controlled By:\t{}/{}", owner.kind, owner.name));
    }
    if !list(&spec["initContainers"]).is_empty() {
        containers(
            &mut out,
            "Init Containers",
            &spec["initContainers"],
            &status["initContainerStatuses"],
            "",
        );
    }
    containers(
        &mut out,
        "Containers",
        &spec["containers"],
        &status["containerStatuses"],
        "",
    );
    conditions(&mut out, &status["conditions"]);
    volumes(&mut out, &spec["volumes"], "");
    out.line(
        0,
        format!("QoS Class:\t{}", or(&status["qosClass"], "BestEffort")),
    );
    labels(&mut out, "Node-Selectors", &spec["nodeSelector"]);
    tolerations(&mut out, "Tolerations", &spec["tolerations"]);
    events::events(&mut out, happened, now);
    out.render()
}

fn optional(out: &mut Text, title: &str, value: &Value) {
    let value = text(value);
    if !value.is_empty() {
        out.line(0, format!("{title}:\t{}", value.replace('\n', " ")));
    }
}

fn conditions(out: &mut Text, conditions: &Value) {
    if list(conditions).is_empty() {
        return;
    }
    out.line(0, "Conditions:");
    out.line(1, "Type\tStatus");
    for condition in list(conditions) {
        // kubectl leaves the reason out; it is what one looks for.
        let reason = match text(&condition["reason"]) {
            reason if reason.is_empty() || condition["status"] == "True" => String::new(),
            reason => format!(" ({reason})"),
        };
        out.line(
            1,
            format!(
                "{}\t{}{reason}",
                text(&condition["type"]),
                text(&condition["status"])
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::kind::POD;
    use serde_json::json;

    #[test]
    fn a_pod_in_trouble_shows_what_its_trouble_is() {
        let mut pod = Object::from_value(json!({
            "metadata": {"name": "web-x7k2p", "namespace": "default", "labels": {"app": "web"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web", "uid": "u", "controller": true}]},
            "spec": {"nodeName": "pi-1", "containers": [{"name": "web", "image": "nginx:1.27"}],
                "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]},
            "status": {"phase": "Running", "hostIP": "10.0.0.1", "podIP": "172.17.0.5", "podIPs": [{"ip": "172.17.0.5"}],
                "startTime": "2026-01-31T10:00:00Z", "qosClass": "BestEffort",
                "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}, {"type": "PodScheduled", "status": "True"}],
                "containerStatuses": [{"name": "web", "containerID": "docker://abc", "imageID": "sha256:1", "ready": false, "restartCount": 4,
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}},
                    "lastState": {"terminated": {"reason": "Error", "exitCode": 1, "startedAt": "2026-01-31T10:01:00Z", "finishedAt": "2026-01-31T10:01:02Z"}}}]},
        }))
        .unwrap();
        pod.set_kind(&POD);
        let event = Object::from_value(json!({"type": "Warning", "reason": "BackOff", "count": 4,
            "source": {"component": "muster-agent", "host": "pi-1"}, "message": "Back-off restarting failed container",
            "firstTimestamp": "2026-01-31T10:00:00Z", "lastTimestamp": "2026-01-31T10:15:00Z"}))
        .unwrap();
        insta::assert_snapshot!(describe(
            &pod,
            &[event],
            "2026-01-31T10:20:00Z".parse().unwrap()
        ));
    }
}
