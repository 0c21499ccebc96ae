//! Containers with their ports, variables, mounts and resources.

use serde_json::{Value, json};

use super::{base, check};
use crate::kind::{DAEMON_SET, POD};
use crate::validate::tests::faults;

#[test]
fn a_plain_pod_is_fine() {
    check(&[("/spec/hostNetwork", json!(false), &[])]);
    let mut whole = base();
    whole["spec"]["containers"][0] = json!({
        "name": "c", "image": "i:1", "ports": [{"name": "http", "containerPort": 80}],
        "env": [
            {"name": "A", "value": "1"},
            {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app/x']"}}},
            {"name": "M", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}}
        ],
        "envFrom": [{"secretRef": {"name": "s"}, "prefix": "S_"}],
        "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a/b", "readOnly": true}],
        "resources": {"limits": {"cpu": "1", "example.com/gpu": 1}, "requests": {"cpu": "0.5", "example.com/gpu": 1}},
        "livenessProbe": {"httpGet": {"port": "http"}}, "readinessProbe": {"exec": {"command": ["true"]}},
        "startupProbe": {"tcpSocket": {"port": 80}}, "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
        "securityContext": {"runAsUser": 0, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}
    });
    whole["spec"]["initContainers"] = json!([
        {"name": "i", "image": "i:1"},
        {"name": "side", "image": "i:1", "restartPolicy": "Always", "readinessProbe": {"grpc": {"port": 9}}}
    ]);
    whole["spec"]["tolerations"] = json!([
        {"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 60},
        {"key": "n", "operator": "Gt", "value": "-5"}
    ]);
    whole["spec"]["hostAliases"] = json!([{"ip": "10.0.0.1", "hostnames": ["a.b"]}]);
    assert_eq!(faults(&POD, whole), [""; 0]);
}

#[test]
fn containers() {
    check(&[
        (
            "/spec/containers",
            json!([]),
            &["containers: Required value"],
        ),
        (
            "/spec/containers",
            json!([{"image": "i"}]),
            &["containers[0].name: Required value"],
        ),
        (
            "/spec/containers",
            json!([{"name": "c"}]),
            &["containers[0].image: Required value"],
        ),
        (
            "/spec/containers",
            json!([{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]),
            &["containers[1].name: Duplicate value: \"c\""],
        ),
        (
            "/spec/initContainers",
            json!([{"name": "c", "image": "i"}]),
            &["initContainers[0].name: Duplicate value: \"c\""],
        ),
        (
            "/spec/containers/0/name",
            json!("C"),
            &[
                "containers[0].name: Invalid value: \"C\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            ],
        ),
        (
            "/spec/containers/0/image",
            json!(" i"),
            &[
                "containers[0].image: Invalid value: \" i\": must not have leading or trailing whitespace",
            ],
        ),
        (
            "/spec/containers/0/imagePullPolicy",
            json!("Sometimes"),
            &[
                "containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
            ],
        ),
        (
            "/spec/containers/0/restartPolicy",
            json!("Always"),
            &["containers[0].restartPolicy: Forbidden: may not be set for non-init containers"],
        ),
        (
            "/spec/initContainers",
            json!([{"name": "i", "image": "i", "readinessProbe": {"exec": {"command": ["a"]}}, "restartPolicy": "Never"}]),
            &[
                "initContainers[0].restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
                "initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
            ],
        ),
    ]);
}

#[test]
fn ports() {
    check(&[
        (
            "/spec/containers/0/ports",
            json!([{}]),
            &["containers[0].ports[0].containerPort: Required value"],
        ),
        (
            "/spec/containers/0/ports",
            json!([{"containerPort": 65536, "hostPort": -1, "protocol": "ICMP"}]),
            &[
                "containers[0].ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
                "containers[0].ports[0].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive",
                "containers[0].ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            ],
        ),
        (
            "/spec/containers/0/ports",
            json!([{"name": "a", "containerPort": 1}, {"name": "a", "containerPort": 2}]),
            &["containers[0].ports[1].name: Duplicate value: \"a\""],
        ),
        (
            "/spec/containers/0/ports",
            json!([{"containerPort": 1, "hostPort": 80}, {"containerPort": 2, "hostPort": 80}, {"containerPort": 2, "hostPort": 80, "protocol": "UDP"}]),
            &["containers[0].ports[1].hostPort: Duplicate value: \"TCP//80\""],
        ),
    ]);
    let mut shared = base();
    shared["spec"]["hostNetwork"] = json!(true);
    shared["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 81}]);
    assert_eq!(
        faults(&POD, shared),
        [
            "spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true"
        ]
    );
    let template = json!({
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "hostNetwork": true, "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]
        }}}
    });
    assert_eq!(
        faults(&DAEMON_SET, template),
        [""; 0],
        "a template may leave the host port to the pod"
    );
}

#[test]
fn environment() {
    check(&[
        (
            "/spec/containers/0/env",
            json!([{"value": "x"}]),
            &["containers[0].env[0].name: Required value"],
        ),
        (
            "/spec/containers/0/env",
            json!([{"name": "a=b"}]),
            &[
                "containers[0].env[0].name: Invalid value: \"a=b\": a valid environment variable name must consist only of printable ASCII characters other than '='",
            ],
        ),
        (
            "/spec/containers/0/env",
            json!([{"name": "a", "valueFrom": {}}]),
            &[
                "containers[0].env[0].valueFrom: Invalid value: \"\": must specify one of: `configMapKeyRef`, `fieldRef`, `fileKeyRef`, `resourceFieldRef` or `secretKeyRef`",
            ],
        ),
        (
            "/spec/containers/0/env",
            json!([{"name": "a", "value": "x", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
            &[
                "containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
            ],
        ),
        (
            "/spec/containers/0/env",
            json!([{"name": "a", "valueFrom": {"secretKeyRef": {}, "fieldRef": {"fieldPath": "spec.x"}}}]),
            &[
                "containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \"spec.x\": supported values: \"metadata.name\", \"metadata.namespace\", \"metadata.uid\", \"spec.nodeName\", \"spec.serviceAccountName\", \"status.hostIP\", \"status.hostIPs\", \"status.podIP\", \"status.podIPs\"",
                "containers[0].env[0].valueFrom.secretKeyRef.name: Required value",
                "containers[0].env[0].valueFrom.secretKeyRef.key: Required value",
                "containers[0].env[0].valueFrom: Invalid value: \"\": may not have more than one field specified at a time",
            ],
        ),
        (
            "/spec/containers/0/env",
            json!([{"name": "a", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "3"}}}]),
            &[
                "containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: \"3\": only divisor's values 1m, 1 are supported with the cpu resource",
            ],
        ),
        (
            "/spec/containers/0/envFrom",
            json!([{}]),
            &[
                "containers[0].envFrom[0]: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`",
            ],
        ),
    ]);
}

#[test]
fn mounts_and_volumes() {
    check(&[
        (
            "/spec/containers/0/volumeMounts",
            json!([{"name": "x", "mountPath": "/x"}, {"name": "v"}, {"name": "v", "mountPath": "/x"}]),
            &[
                "containers[0].volumeMounts[0].name: Not found: \"x\"",
                "containers[0].volumeMounts[1].mountPath: Required value",
                "containers[0].volumeMounts[2].mountPath: Invalid value: \"/x\": must be unique",
            ],
        ),
        (
            "/spec/containers/0/volumeMounts",
            json!([{"name": "v", "mountPath": "/x", "subPath": "../y", "mountPropagation": "Bidirectional"}]),
            &[
                "containers[0].volumeMounts[0].subPath: Invalid value: \"../y\": must not contain '..'",
                "containers[0].volumeMounts[0].mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers",
            ],
        ),
        (
            "/spec/volumes",
            json!([{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]),
            &["volumes[1].name: Duplicate value: \"a\""],
        ),
        (
            "/spec/volumes",
            json!([{"emptyDir": {}, "hostPath": {"path": "/"}}]),
            &[
                "volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
                "volumes[0].name: Required value",
            ],
        ),
        (
            "/spec/volumes/0/hostPath",
            json!({}),
            &["volumes[0].hostPath.path: Required value"],
        ),
        (
            "/spec/volumes/0/hostPath",
            json!({"path": "/a/../b", "type": "Dir"}),
            &[
                "volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
                "volumes[0].hostPath.type: Unsupported value: \"Dir\": supported values: \"\", \"BlockDevice\", \"CharDevice\", \"Directory\", \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \"Socket\"",
            ],
        ),
        (
            "/spec/volumes/0",
            json!({"name": "v", "configMap": {}}),
            &["volumes[0].configMap.name: Required value"],
        ),
        (
            "/spec/volumes/0",
            json!({"name": "v", "secret": {"defaultMode": 512, "items": [{"key": "k", "path": "/p"}]}}),
            &[
                "volumes[0].secret.secretName: Required value",
                "volumes[0].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
                "volumes[0].secret.items[0].path: Invalid value: \"/p\": must be a relative path",
            ],
        ),
        (
            "/spec/volumes/0",
            json!({"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "..t", "expirationSeconds": 5}}]}}),
            &[
                "volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes",
                "volumes[0].projected.sources[0].serviceAccountToken.path: Invalid value: \"..t\": must not start with '..'",
            ],
        ),
        (
            "/spec/volumes/0",
            json!({"name": "v", "downwardAPI": {"items": [{"path": "l"}]}}),
            &[
                "volumes[0].downwardAPI.items[0]: Required value: one of fieldRef and resourceFieldRef is required",
            ],
        ),
        (
            "/spec/volumes/0",
            json!({"name": "v", "emptyDir": {"medium": "Disk", "sizeLimit": "-1"}}),
            &[
                "volumes[0].emptyDir.medium: Unsupported value: \"Disk\": supported values: \"\", \"Memory\", \"HugePages\"",
                "volumes[0].emptyDir.sizeLimit: Invalid value: \"-1\": must be greater than or equal to 0",
            ],
        ),
    ]);
}

#[test]
fn resources() {
    let resources =
        |limits: Value, requests: Value| json!({"limits": limits, "requests": requests});
    check(&[
        (
            "/spec/containers/0/resources",
            resources(json!({"cpu": "100m"}), json!({"cpu": "0.2"})),
            &[
                "containers[0].resources.requests: Invalid value: \"200m\": must be less than or equal to cpu limit of 100m",
            ],
        ),
        (
            "/spec/containers/0/resources",
            resources(json!({"memory": "64mb"}), json!({})),
            &[
                "containers[0].resources.limits[memory]: Invalid value: \"64mb\": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
                "containers[0].resources.requests[memory]: Invalid value: \"64mb\": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ],
        ),
        (
            "/spec/containers/0/resources",
            resources(json!({}), json!({"cpu": "-1", "disk": "1"})),
            &[
                "containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
                "containers[0].resources.requests[disk]: Invalid value: \"disk\": must be a standard resource for containers",
            ],
        ),
        (
            "/spec/containers/0/resources",
            resources(json!({}), json!({"a.b/gpu": "1"})),
            &[
                "containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
            ],
        ),
        (
            "/spec/containers/0/resources",
            resources(json!({"a.b/gpu": "2"}), json!({"a.b/gpu": "1"})),
            &[
                "containers[0].resources.requests: Invalid value: \"1\": must be equal to a.b/gpu limit of 2",
            ],
        ),
        (
            "/spec/containers/0/resources",
            resources(json!({"hugepages-2Mi": "2Mi"}), json!({})),
            &["containers[0].resources: Forbidden: HugePages require cpu or memory"],
        ),
    ]);
}
