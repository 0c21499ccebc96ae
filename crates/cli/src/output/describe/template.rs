//! The part about a pod template: in a DaemonSet, and alone in `rollout history --revision`.

use serde_json::Value;

use super::container::containers;
use super::tabs::Text;
use super::volume::volumes;
use super::{annotations, labels, list, multiline, text};

/// Inside a larger description.
pub(crate) fn template(out: &mut Text, template: &Value) {
    out.line(0, "Pod Template:");
    let spec = &template["spec"];
    labels(out, "  Labels", &template["metadata"]["labels"]);
    if template["metadata"]["annotations"]
        .as_object()
        .is_some_and(|map| !map.is_empty())
    {
        annotations(out, "  Annotations", &template["metadata"]["annotations"]);
    }
    let account = text(&spec["serviceAccountName"]);
    if !account.is_empty() {
        out.line(1, format!("Service Account:\t{account}"));
    }
    if !list(&spec["initContainers"]).is_empty() {
        containers(
            out,
            "Init Containers",
            &spec["initContainers"],
            &Value::Null,
            "  ",
        );
    }
    containers(out, "Containers", &spec["containers"], &Value::Null, "  ");
    volumes(out, &spec["volumes"], "  ");
    let spread = list(&spec["topologySpreadConstraints"]);
    if !spread.is_empty() {
        let line = |constraint: &Value| {
            format!(
                "{}:{} when max skew {} is exceeded",
                text(&constraint["topologyKey"]),
                text(&constraint["whenUnsatisfiable"]),
                text(&constraint["maxSkew"])
            )
        };
        multiline(
            out,
            "  Topology Spread Constraints",
            spread.iter().map(line),
        );
    }
    let class = text(&spec["priorityClassName"]);
    if !class.is_empty() {
        out.line(1, format!("Priority Class Name:\t{class}"));
    }
    labels(out, "  Node-Selectors", &spec["nodeSelector"]);
    tolerations(out, "  Tolerations", &spec["tolerations"]);
}

/// Alone, with plain tabs, as kubectl prints a revision.
pub(crate) fn of_revision(tree: &Value) -> String {
    let mut out = Text::default();
    template(&mut out, tree);
    out.raw()
}

/// `key=value:effect op=Exists for 30s`, one a line.
pub(crate) fn tolerations(out: &mut Text, title: &str, tolerations: &Value) {
    let line = |toleration: &Value| {
        let mut line = text(&toleration["key"]);
        let value = text(&toleration["value"]);
        if !value.is_empty() {
            line.push_str(&format!("={value}"));
        }
        let effect = text(&toleration["effect"]);
        if !effect.is_empty() {
            line.push_str(&format!(":{effect}"));
        }
        if toleration["operator"] == "Exists" && value.is_empty() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str("op=Exists");
        }
        if let Some(seconds) = toleration["tolerationSeconds"].as_i64() {
            line.push_str(&format!(" for {seconds}s"));
        }
        line
    };
    let mut lines: Vec<String> = list(tolerations).iter().map(line).collect();
    lines.sort();
    multiline(out, title, lines);
}
