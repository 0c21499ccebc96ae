//! A DaemonSet.

use muster_model::object::Object;
use muster_model::table::{labels_text, selector_text};
use muster_model::time::Timestamp;

use super::tabs::Text;
use super::{annotations, events, head, labels, or, template};

/// `pods` are those that the selector finds; only those under its control are counted.
pub(crate) fn describe(
    daemonset: &Object,
    pods: &[Object],
    happened: &[Object],
    now: Timestamp,
) -> String {
    let mut out = Text::default();
    let tree = daemonset.tree();
    let (spec, status) = (&tree["spec"], &tree["status"]);
    head(&mut out, daemonset);
    out.line(
        0,
        format!("Selector:\t{}", selector_text(&spec["selector"])),
    );
    out.line(
        0,
        format!(
            "Node-Selector:\t{}",
            labels_text(&spec["template"]["spec"]["nodeSelector"])
        ),
    );
    labels(&mut out, "Labels", &tree["metadata"]["labels"]);
    annotations(&mut out, "Annotations", &tree["metadata"]["annotations"]);
    for (title, field) in [
        (
            "Desired Number of Nodes Scheduled",
            "desiredNumberScheduled",
        ),
        (
            "Current Number of Nodes Scheduled",
            "currentNumberScheduled",
        ),
        (
            "Number of Nodes Scheduled with Up-to-date Pods",
            "updatedNumberScheduled",
        ),
        (
            "Number of Nodes Scheduled with Available Pods",
            "numberAvailable",
        ),
        ("Number of Nodes Misscheduled", "numberMisscheduled"),
    ] {
        out.line(0, format!("{title}: {}", or(&status[field], "0")));
    }
    let own = pods
        .iter()
        .filter(|pod| pod.controller().is_some_and(|by| by.uid == daemonset.uid()));
    let phases: Vec<&str> = own.map(|pod| pod.text_at("/status/phase")).collect();
    let count = |phase: &str| phases.iter().filter(|found| **found == phase).count();
    out.line(
        0,
        format!(
            "Pods Status:\t{} Running / {} Waiting / {} Succeeded / {} Failed",
            count("Running"),
            count("Pending"),
            count("Succeeded"),
            count("Failed")
        ),
    );
    template::template(&mut out, &spec["template"]);
    events::events(&mut out, happened, now);
    out.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::kind::DAEMON_SET;
    use serde_json::json;

    #[test]
    fn ds_114_describe_is_laid_out_as_kubectl_does() {
        let mut web = Object::from_value(json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "u1", "labels": {"app": "web"}, "annotations": {
                "deprecated.daemonset.template.generation": "1",
                "kubectl.kubernetes.io/last-applied-configuration": "{}"}},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "web", "image": "nginx:1.27"}]}}},
            "status": {"desiredNumberScheduled": 3, "currentNumberScheduled": 3, "updatedNumberScheduled": 3,
                       "numberAvailable": 3, "numberMisscheduled": 0},
        }))
        .unwrap();
        web.set_kind(&DAEMON_SET);
        let pod = |phase: &str, owner: &str| {
            Object::from_value(json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet",
                "name": "web", "uid": owner, "controller": true}]}, "status": {"phase": phase}}))
            .unwrap()
        };
        let pods = [
            pod("Running", "u1"),
            pod("Running", "u1"),
            pod("Running", "u1"),
            pod("Failed", "other"),
            pod("Unknown", "u1"),
        ];
        let event = Object::from_value(
            json!({"type": "Normal", "reason": "SuccessfulCreate", "count": 1,
            "source": {"component": "daemonset-controller"}, "message": "Created pod: web-5vx2k",
            "firstTimestamp": "2026-01-31T10:00:00Z", "lastTimestamp": "2026-01-31T10:00:00Z"}),
        )
        .unwrap();
        let now = "2026-01-31T10:00:10Z".parse().unwrap();
        // The text of spec/daemonset.md 16.3, letter for letter.
        let expected = "\
Name:           web
Namespace:      default
Selector:       app=web
Node-Selector:  disk=ssd
Labels:         app=web
Annotations:    deprecated.daemonset.template.generation: 1
Desired Number of Nodes Scheduled: 3
Current Number of Nodes Scheduled: 3
Number of Nodes Scheduled with Up-to-date Pods: 3
Number of Nodes Scheduled with Available Pods: 3
Number of Nodes Misscheduled: 0
Pods Status:  3 Running / 0 Waiting / 0 Succeeded / 0 Failed
Pod Template:
  Labels:  app=web
  Containers:
   web:
    Image:         nginx:1.27
    Port:          <none>
    Host Port:     <none>
    Environment:   <none>
    Mounts:        <none>
  Volumes:         <none>
  Node-Selectors:  disk=ssd
  Tolerations:     <none>
Events:
  Type    Reason            Age   From                  Message
  ----    ------            ----  ----                  -------
  Normal  SuccessfulCreate  10s   daemonset-controller  Created pod: web-5vx2k
";
        assert_eq!(describe(&web, &pods, &[event], now), expected);
    }

    #[test]
    fn a_full_template_shows_everything_it_has() {
        let mut web = Object::from_value(json!({
            "metadata": {"name": "web", "namespace": "default", "labels": {"a": "1", "b": "2"}, "annotations": {"note": "two\nlines"}},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"x": "y"}},
                "spec": {
                    "serviceAccountName": "robot", "priorityClassName": "system-node-critical",
                    "initContainers": [{"name": "init", "image": "busybox", "command": ["sh", "-c", "true"]}],
                    "containers": [{
                        "name": "web", "image": "nginx:1.27", "args": ["-q"],
                        "ports": [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 53, "protocol": "UDP"}],
                        "resources": {"limits": {"memory": "64Mi", "cpu": "100m"}, "requests": {"cpu": "50m"}},
                        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 80}, "periodSeconds": 5},
                        "readinessProbe": {"exec": {"command": ["cat", "/ready"]}},
                        "envFrom": [{"configMapRef": {"name": "settings"}}],
                        "env": [{"name": "A", "value": "b"},
                                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                                {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                        "volumeMounts": [{"name": "logs", "mountPath": "/var/log", "readOnly": true}, {"name": "tmp", "mountPath": "/tmp"}],
                    }],
                    "volumes": [{"name": "logs", "hostPath": {"path": "/var/log", "type": ""}}, {"name": "tmp", "emptyDir": {}}],
                    "tolerations": [{"operator": "Exists"}, {"key": "gpu", "value": "only", "effect": "NoSchedule"}],
                }}},
        }))
        .unwrap();
        web.set_kind(&DAEMON_SET);
        let now = "2026-01-31T10:00:10Z".parse().unwrap();
        insta::assert_snapshot!(describe(&web, &[], &[], now));
    }
}
