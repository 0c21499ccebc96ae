//! Defaults of pods and pod templates (spec/daemonset.md 3).

use serde_json::{Value, json};

use super::{
    Mapping, canonical_quantities, default_number, default_text, default_value, items, mapping,
    mapping_or_new,
};
use crate::image::is_latest;
use crate::object::Object;

const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Defaults of a real pod: the template's and those that only a real pod gets.
pub(super) fn apply(object: &mut Object) {
    let Some(spec) = mapping_or_new(object.tree_mut(), "spec") else {
        return;
    };
    apply_spec(spec);
    default_value(spec, "enableServiceLinks", true);
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["initContainers", "containers"] {
        for container in items(spec, list) {
            if let Some(resources) = mapping(container, "resources") {
                requests_from_limits(resources);
            }
            if host_network {
                for port in items(container, "ports") {
                    if let Some(number) =
                        port.get("containerPort").filter(|n| n.is_number()).cloned()
                    {
                        let free = port.get("hostPort").is_none_or(|p| p.is_null() || p == 0);
                        if free {
                            port.insert("hostPort".to_owned(), number);
                        }
                    }
                }
            }
        }
    }
}

/// Defaults that pods and pod templates share, on `spec`.
pub(super) fn apply_spec(spec: &mut Mapping) {
    default_text(spec, "restartPolicy", "Always");
    default_text(spec, "dnsPolicy", "ClusterFirst");
    default_text(spec, "schedulerName", "default-scheduler");
    default_value(spec, "securityContext", json!({}));
    default_value(spec, "terminationGracePeriodSeconds", 30);
    mirror(spec, "serviceAccountName", "serviceAccount");
    mirror(spec, "serviceAccount", "serviceAccountName");
    for list in CONTAINER_LISTS {
        items(spec, list).for_each(apply_container);
    }
    items(spec, "volumes").for_each(apply_volume);
    canonical_quantities(spec, "overhead");
}

fn mirror(spec: &mut Mapping, from: &str, to: &str) {
    if let Some(name) = spec
        .get(from)
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
    {
        let name = name.to_owned();
        default_text(spec, to, &name);
    }
}

fn apply_container(container: &mut Mapping) {
    let image = container
        .get("image")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let policy = if is_latest(image) {
        "Always"
    } else {
        "IfNotPresent"
    };
    default_text(container, "imagePullPolicy", policy);
    default_text(container, "terminationMessagePath", "/dev/termination-log");
    default_text(container, "terminationMessagePolicy", "File");
    if let Some(resources) = mapping_or_new(container, "resources") {
        canonical_quantities(resources, "limits");
        canonical_quantities(resources, "requests");
    }
    for port in items(container, "ports") {
        default_text(port, "protocol", "TCP");
    }
    for variable in items(container, "env") {
        if let Some(field) =
            mapping(variable, "valueFrom").and_then(|source| mapping(source, "fieldRef"))
        {
            default_text(field, "apiVersion", "v1");
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = mapping(container, probe) {
            apply_probe(probe);
        }
    }
    if let Some(lifecycle) = mapping(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = mapping(lifecycle, hook) {
                apply_http_get(hook);
            }
        }
    }
}

fn apply_probe(probe: &mut Mapping) {
    default_number(probe, "timeoutSeconds", 1);
    default_number(probe, "periodSeconds", 10);
    default_number(probe, "successThreshold", 1);
    default_number(probe, "failureThreshold", 3);
    apply_http_get(probe);
    if let Some(grpc) = mapping(probe, "grpc") {
        default_value(grpc, "service", "");
    }
}

fn apply_http_get(handler: &mut Mapping) {
    if let Some(get) = mapping(handler, "httpGet") {
        default_text(get, "path", "/");
        default_text(get, "scheme", "HTTP");
    }
}

fn apply_volume(volume: &mut Mapping) {
    if volume.keys().all(|key| key == "name") {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    if let Some(host_path) = mapping(volume, "hostPath") {
        default_value(host_path, "type", "");
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = mapping(volume, source) {
            default_value(source, "defaultMode", 0o644);
        }
    }
    if let Some(downward) = mapping(volume, "downwardAPI") {
        apply_downward_items(downward);
    }
    if let Some(projected) = mapping(volume, "projected") {
        for source in items(projected, "sources") {
            if let Some(token) = mapping(source, "serviceAccountToken") {
                default_value(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = mapping(source, "downwardAPI") {
                apply_downward_items(downward);
            }
        }
    }
}

fn apply_downward_items(downward: &mut Mapping) {
    for item in items(downward, "items") {
        if let Some(field) = mapping(item, "fieldRef") {
            default_text(field, "apiVersion", "v1");
        }
    }
}

fn requests_from_limits(resources: &mut Mapping) {
    let Some(limits) = mapping(resources, "limits").cloned() else {
        return;
    };
    if limits.is_empty() {
        return;
    }
    let Some(requests) = mapping_or_new(resources, "requests") else {
        return;
    };
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defaults;
    use crate::kind;

    fn pod(spec: Value) -> Object {
        let mut object =
            Object::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        defaults::apply(&kind::POD, &mut object);
        object
    }

    #[test]
    fn case_b87_the_pull_policy_follows_the_tag() {
        let cases = [
            ("img", "Always"),
            ("img:latest", "Always"),
            ("img:1", "IfNotPresent"),
            ("img@sha256:0123", "IfNotPresent"),
            ("img:latest@sha256:0123", "Always"),
            ("registry:5000/img", "Always"),
            ("registry:5000/img:1", "IfNotPresent"),
            ("", "IfNotPresent"),
        ];
        for (image, policy) in cases {
            let object = pod(json!({"containers": [{"name": "c", "image": image}]}));
            assert_eq!(
                object.text_at("/spec/containers/0/imagePullPolicy"),
                policy,
                "{image}"
            );
        }
        let object = pod(json!({"containers": [{"image": "img", "imagePullPolicy": "Never"}]}));
        assert_eq!(
            object.text_at("/spec/containers/0/imagePullPolicy"),
            "Never"
        );
    }

    #[test]
    fn a_real_pod_gets_more_than_a_template() {
        let object = pod(json!({
            "hostNetwork": true,
            "containers": [{"name": "c", "image": "i:1", "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}],
                "resources": {"limits": {"cpu": "0.5", "memory": "64Mi"}, "requests": {"cpu": "100m"}}}]
        }));
        assert_eq!(object.at("/spec/enableServiceLinks"), Some(&json!(true)));
        assert_eq!(
            object.at("/spec/containers/0/ports"),
            Some(&json!([
                {"containerPort": 80, "hostPort": 80, "protocol": "TCP"},
                {"containerPort": 81, "hostPort": 81, "protocol": "TCP"}
            ]))
        );
        assert_eq!(
            object.at("/spec/containers/0/resources"),
            Some(&json!({
                "limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}
            }))
        );
    }

    #[test]
    fn volumes_probes_and_hooks_have_defaults() {
        let object = pod(json!({
            "serviceAccountName": "robot",
            "containers": [{
                "name": "c", "image": "i:1",
                "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                "livenessProbe": {"httpGet": {"port": 80}, "timeoutSeconds": 0},
                "startupProbe": {"grpc": {"port": 81}, "failureThreshold": 9},
                "lifecycle": {"preStop": {"httpGet": {"port": 80, "path": "/bye"}}}
            }],
            "volumes": [
                {"name": "e"}, {"name": "h", "hostPath": {"path": "/x"}}, {"name": "s", "secret": {"secretName": "s"}},
                {"name": "p", "projected": {"sources": [
                    {"serviceAccountToken": {"path": "t"}},
                    {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}}
                ]}}
            ]
        }));
        assert_eq!(object.text_at("/spec/serviceAccount"), "robot");
        assert_eq!(
            object.text_at("/spec/containers/0/env/0/valueFrom/fieldRef/apiVersion"),
            "v1"
        );
        assert_eq!(
            object.at("/spec/containers/0/livenessProbe"),
            Some(&json!({
                "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
                "successThreshold": 1, "failureThreshold": 3
            }))
        );
        assert_eq!(
            object.at("/spec/containers/0/startupProbe"),
            Some(&json!({
                "grpc": {"port": 81, "service": ""}, "timeoutSeconds": 1, "periodSeconds": 10,
                "successThreshold": 1, "failureThreshold": 9
            }))
        );
        assert_eq!(
            object.at("/spec/containers/0/lifecycle/preStop/httpGet"),
            Some(&json!({"port": 80, "path": "/bye", "scheme": "HTTP"}))
        );
        assert_eq!(
            object.at("/spec/volumes"),
            Some(&json!([
                {"name": "e", "emptyDir": {}},
                {"name": "h", "hostPath": {"path": "/x", "type": ""}},
                {"name": "s", "secret": {"secretName": "s", "defaultMode": 420}},
                {"name": "p", "projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                    {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels", "apiVersion": "v1"}}]}}
                ]}}
            ]))
        );
    }

    #[test]
    fn case_b61_a_host_path_without_type_is_shown_with_an_empty_one() {
        let object = pod(json!({"volumes": [{"name": "v", "hostPath": {"path": "/tmp/mu/none"}}]}));
        assert_eq!(object.at("/spec/volumes/0/hostPath/type"), Some(&json!("")));
    }
}
