//! The part about volumes.

use serde_json::Value;

use super::tabs::Text;
use super::{list, or, text};
use muster_model::table::NONE;

/// `indent` is two blanks inside a template, nothing in a pod.
pub(crate) fn volumes(out: &mut Text, volumes: &Value, indent: &str) {
    if list(volumes).is_empty() {
        out.line(0, format!("{indent}Volumes:\t{NONE}"));
        return;
    }
    out.line(0, format!("{indent}Volumes:"));
    for volume in list(volumes) {
        let name_indent = if indent.is_empty() { "" } else { " " };
        out.line(1, format!("{name_indent}{}:", text(&volume["name"])));
        for (label, value) in describe(volume) {
            out.line(2, format!("{label}:\t{value}"));
        }
    }
}

fn describe(volume: &Value) -> Vec<(&'static str, String)> {
    let of = |field: &str| Some(&volume[field]).filter(|source| source.is_object());
    let optional = |source: &Value| (source["optional"] == true).to_string();
    if let Some(source) = of("hostPath") {
        vec![
            ("Type", "HostPath (bare host directory volume)".to_owned()),
            ("Path", text(&source["path"])),
            ("HostPathType", text(&source["type"])),
        ]
    } else if let Some(source) = of("emptyDir") {
        vec![
            (
                "Type",
                "EmptyDir (a temporary directory that shares a pod's lifetime)".to_owned(),
            ),
            ("Medium", text(&source["medium"])),
            ("SizeLimit", or(&source["sizeLimit"], "<unset>")),
        ]
    } else if let Some(source) = of("secret") {
        vec![
            ("Type", "Secret (a volume populated by a Secret)".to_owned()),
            ("SecretName", text(&source["secretName"])),
            ("Optional", optional(source)),
        ]
    } else if let Some(source) = of("configMap") {
        vec![
            (
                "Type",
                "ConfigMap (a volume populated by a ConfigMap)".to_owned(),
            ),
            ("Name", text(&source["name"])),
            ("Optional", optional(source)),
        ]
    } else if let Some(source) = of("downwardAPI") {
        let items = list(&source["items"]).iter().map(|item| {
            let from = match text(&item["fieldRef"]["fieldPath"]) {
                path if path.is_empty() => text(&item["resourceFieldRef"]["resource"]),
                path => path,
            };
            format!("{from} -> {}", text(&item["path"]))
        });
        vec![
            (
                "Type",
                "DownwardAPI (a volume populated by information about the pod)".to_owned(),
            ),
            ("Items", items.collect::<Vec<_>>().join(", ")),
        ]
    } else if let Some(source) = of("projected") {
        let mut lines = vec![(
            "Type",
            "Projected (a volume that contains injected data from multiple sources)".to_owned(),
        )];
        for part in list(&source["sources"]) {
            if part["configMap"].is_object() {
                lines.push(("ConfigMapName", text(&part["configMap"]["name"])));
            } else if part["secret"].is_object() {
                lines.push(("SecretName", text(&part["secret"]["name"])));
            } else if part["downwardAPI"].is_object() {
                lines.push(("DownwardAPI", "true".to_owned()));
            } else if part["serviceAccountToken"].is_object() {
                lines.push((
                    "TokenExpirationSeconds",
                    or(&part["serviceAccountToken"]["expirationSeconds"], "3600"),
                ));
            }
        }
        lines
    } else {
        vec![("Type", "<unknown>".to_owned())]
    }
}
