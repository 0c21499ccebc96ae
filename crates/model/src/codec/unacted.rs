//! Fields that Kubernetes knows and Muster keeps without acting on them.
//!
//! The author is told once, when the object is applied. A feature that comes deletes its row here.

use serde_json::Value;

use crate::kind::{self, Kind};
use crate::object::Object;

/// Fields of a pod's spec. `[]` stands for every element of a list; the shortest path that is enough is given.
const POD_FIELDS: &[&str] = &[
    // Not in this version.
    "initContainers",
    "ephemeralContainers",
    "containers[].lifecycle",
    // There is no scheduler: the DaemonSet names the node.
    "affinity.podAffinity",
    "affinity.podAntiAffinity",
    "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
    "topologySpreadConstraints",
    "preemptionPolicy",
    "schedulingGates",
    "resourceClaims",
    // The engine has no counterpart.
    "hostUsers",
    "overhead",
    "runtimeClassName",
    "readinessGates",
    "containers[].resizePolicy",
    "containers[].resources.claims",
    "containers[].volumeDevices",
    "containers[].securityContext.windowsOptions",
    "securityContext.windowsOptions",
    "volumes[].persistentVolumeClaim",
    "volumes[].ephemeral",
    "volumes[].csi",
    "volumes[].nfs",
    "volumes[].iscsi",
    "volumes[].image",
];

/// How many characters of paths go into one sentence: with the rest of it, a warning of about 200.
const MOST_PATHS: usize = 150;

/// The scheduler that a manifest may name without being told that there is none.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// What is kept and has no effect, named by its path, in as few sentences as stay readable.
pub fn unacted_fields(kind: &Kind, object: &Object) -> Vec<String> {
    let prefix = if *kind == kind::DAEMON_SET {
        "spec.template.spec"
    } else if *kind == kind::POD {
        "spec"
    } else {
        return Vec::new();
    };
    let Some(spec) = object.at(&format!("/{}", prefix.replace('.', "/"))) else {
        return Vec::new();
    };
    let mut paths = Vec::new();
    for field in POD_FIELDS {
        find(spec, field, prefix.to_owned(), &mut paths);
    }
    let scheduler = spec
        .get("schedulerName")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !scheduler.is_empty() && scheduler != DEFAULT_SCHEDULER {
        paths.push(format!("{prefix}.schedulerName"));
    }
    lines(&paths)
}

/// One sentence for as many paths as a line holds.
fn lines(paths: &[String]) -> Vec<String> {
    let mut lines: Vec<(String, bool)> = Vec::new();
    for path in paths {
        match lines.last_mut() {
            Some((line, is_many)) if line.len() + path.len() <= MOST_PATHS => {
                line.push_str(", ");
                line.push_str(path);
                *is_many = true;
            }
            _ => lines.push((path.clone(), false)),
        }
    }
    let sentence = |(paths, is_many): (String, bool)| {
        let (is, has) = if is_many {
            ("are", "have")
        } else {
            ("is", "has")
        };
        format!("{paths} {is} kept but {has} no effect in this version of Muster")
    };
    lines.into_iter().map(sentence).collect()
}

/// Adds the path of every non-empty value that the pattern leads to.
fn find(value: &Value, pattern: &str, path: String, found: &mut Vec<String>) {
    let (segment, rest) = pattern.split_once('.').unwrap_or((pattern, ""));
    let (name, is_list) = match segment.strip_suffix("[]") {
        Some(name) => (name, true),
        None => (segment, false),
    };
    let Some(below) = value.get(name) else { return };
    let path = format!("{path}.{name}");
    if is_list {
        for (index, element) in below.as_array().into_iter().flatten().enumerate() {
            find(element, rest, format!("{path}[{index}]"), found);
        }
    } else if !rest.is_empty() {
        find(below, rest, path, found);
    } else if !is_empty(below) {
        found.push(path);
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_field_without_effect_is_named_by_its_path() {
        let daemon = Object::from_value(json!({"spec": {"template": {"spec": {
            "schedulerName": "mine",
            "affinity": {"podAffinity": {"x": 1}, "nodeAffinity": {}},
            "containers": [{"name": "a"}, {"name": "b", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}],
            "initContainers": [],
        }}}}))
        .unwrap();
        assert_eq!(
            unacted_fields(&kind::DAEMON_SET, &daemon),
            [
                "spec.template.spec.containers[1].lifecycle, spec.template.spec.affinity.podAffinity, \
                 spec.template.spec.schedulerName are kept but have no effect in this version of Muster",
            ]
        );
        let many: Vec<String> = (0..20).map(|n| format!("spec.volumes[{n}].csi")).collect();
        let told = lines(&many);
        assert_eq!(told.len(), 3, "{told:#?}");
        assert!(told.iter().all(|line| line.len() <= 210), "{told:#?}");
        let pod =
            Object::from_value(json!({"spec": {"schedulerName": "default-scheduler"}})).unwrap();
        assert!(unacted_fields(&kind::POD, &pod).is_empty());
        assert!(unacted_fields(&kind::NODE, &daemon).is_empty());
    }
}
