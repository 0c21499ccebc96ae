//! Which ConfigMaps, Secrets and service accounts a pod names.

use muster_model::kind::{CONFIG_MAP, Kind, SECRET, SERVICE_ACCOUNT};
use muster_model::object::Object;
use serde_json::Value;

/// Whether the pod names this object of its own namespace, so that its node needs it to run the pod.
pub(super) fn names(pod: &Object, kind: &Kind, name: &str) -> bool {
    let Some(spec) = pod.at("/spec") else {
        return false;
    };
    let at =
        |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_str) == Some(name);
    if *kind == SERVICE_ACCOUNT {
        let named = spec
            .get("serviceAccountName")
            .and_then(Value::as_str)
            .unwrap_or("default");
        return named == name;
    }
    // Where a volume, a projected source, a variable and a whole environment name the object.
    let (volume, projected, variable, environment) = if *kind == CONFIG_MAP {
        (
            "/configMap/name",
            "/configMap/name",
            "/valueFrom/configMapKeyRef/name",
            "/configMapRef/name",
        )
    } else if *kind == SECRET {
        (
            "/secret/secretName",
            "/secret/name",
            "/valueFrom/secretKeyRef/name",
            "/secretRef/name",
        )
    } else {
        return false;
    };
    let volumes = items(spec, "volumes").any(|v| {
        at(v, volume)
            || v.get("projected")
                .is_some_and(|source| items(source, "sources").any(|s| at(s, projected)))
    });
    let containers = ["containers", "initContainers", "ephemeralContainers"]
        .iter()
        .any(|list| {
            items(spec, list).any(|container| {
                items(container, "env").any(|v| at(v, variable))
                    || items(container, "envFrom").any(|source| at(source, environment))
            })
        });
    let pulls =
        *kind == SECRET && items(spec, "imagePullSecrets").any(|secret| at(secret, "/name"));
    volumes || containers || pulls
}

fn items<'a>(parent: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    parent
        .get(list)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_way_to_name_a_secret_or_config_map_is_seen() {
        let pod = Object::from_value(json!({"spec": {
            "serviceAccountName": "robot",
            "imagePullSecrets": [{"name": "pull"}],
            "volumes": [
                {"name": "a", "secret": {"secretName": "mounted"}},
                {"name": "b", "projected": {"sources": [{"secret": {"name": "projected"}}, {"configMap": {"name": "cm-projected"}}]}},
                {"name": "c", "configMap": {"name": "cm-mounted"}},
            ],
            "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "all"}}]}],
            "containers": [{"name": "c", "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "cm-one", "key": "k"}}},
            ]}],
        }}))
        .unwrap();
        for secret in ["pull", "mounted", "projected", "all", "one"] {
            assert!(names(&pod, &SECRET, secret), "{secret}");
            assert!(!names(&pod, &CONFIG_MAP, secret), "{secret}");
        }
        for map in ["cm-projected", "cm-mounted", "cm-one"] {
            assert!(names(&pod, &CONFIG_MAP, map), "{map}");
        }
        assert!(names(&pod, &SERVICE_ACCOUNT, "robot"));
        assert!(!names(&pod, &SERVICE_ACCOUNT, "default"));
        assert!(!names(&pod, &SECRET, "other"));
    }
}
