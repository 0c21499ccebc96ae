//! The pod rules, one table a part.

use serde_json::{Value, json};

use super::super::tests::{defaulted, faults, update_faults, with};
use crate::kind::{DAEMON_SET, POD};
use crate::validate::warnings;

fn base() -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "containers": [{"name": "c", "image": "i:1"}],
            "volumes": [{"name": "v", "hostPath": {"path": "/var/lib"}}]
        }
    })
}

/// Each row: pointer, value, and the faults without `spec.`.
fn check(rows: &[(&str, Value, &[&str])]) {
    for (pointer, value, expected) in rows {
        let found = faults(&POD, with(base(), pointer, value.clone()));
        let expected: Vec<String> = expected
            .iter()
            .map(|fault| format!("spec.{fault}"))
            .collect();
        assert_eq!(found, expected, "{pointer} {value}");
    }
}

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

#[test]
fn probes_and_hooks() {
    check(&[
        (
            "/spec/containers/0/livenessProbe",
            json!({}),
            &["containers[0].livenessProbe: Required value: must specify a handler type"],
        ),
        (
            "/spec/containers/0/livenessProbe",
            json!({"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}, "periodSeconds": -1, "successThreshold": 2}),
            &[
                "containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
                "containers[0].livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
                "containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
            ],
        ),
        (
            "/spec/containers/0/readinessProbe",
            json!({"httpGet": {"port": 0, "scheme": "FTP"}, "successThreshold": 2, "terminationGracePeriodSeconds": 1}),
            &[
                "containers[0].readinessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "containers[0].readinessProbe.httpGet.scheme: Unsupported value: \"FTP\": supported values: \"HTTP\", \"HTTPS\"",
                "containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: must not be set for readinessProbes",
            ],
        ),
        (
            "/spec/containers/0/lifecycle",
            json!({"postStart": {"exec": {}}, "preStop": {"sleep": {"seconds": 31}}}),
            &[
                "containers[0].lifecycle.postStart.exec.command: Required value",
                "containers[0].lifecycle.preStop.sleep.seconds: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
            ],
        ),
    ]);
}

#[test]
fn security() {
    check(&[
        (
            "/spec/securityContext",
            json!({"runAsUser": -1, "supplementalGroups": [1, 2_147_483_648_i64], "sysctls": [{"name": "a..b"}, {"name": "net.x"}, {"name": "net/x"}]}),
            &[
                "securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                "securityContext.supplementalGroups[1]: Invalid value: 2147483648: must be between 0 and 2147483647, inclusive",
                "securityContext.sysctls[0].name: Invalid value: \"a..b\": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
                "securityContext.sysctls[2].name: Duplicate value: \"net/x\"",
            ],
        ),
        (
            "/spec/containers/0/securityContext",
            json!({"privileged": true, "allowPrivilegeEscalation": false}),
            &[
                "containers[0].securityContext: Invalid value: {\"allowPrivilegeEscalation\":false,\"privileged\":true}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            ],
        ),
        (
            "/spec/containers/0/securityContext",
            json!({"seccompProfile": {"type": "Localhost"}}),
            &[
                "containers[0].securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
            ],
        ),
    ]);
    let mut both = base();
    both["spec"]["hostPID"] = json!(true);
    both["spec"]["shareProcessNamespace"] = json!(true);
    assert_eq!(
        faults(&POD, both),
        [
            "spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled"
        ]
    );
}

#[test]
fn tolerations() {
    check(&[
        (
            "/spec/tolerations",
            json!([{"effect": "NoSchedule"}]),
            &[
                "tolerations[0].operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            ],
        ),
        (
            "/spec/tolerations",
            json!([{"key": "a", "operator": "Exists", "tolerationSeconds": 5, "value": "x"}]),
            &[
                "tolerations[0].effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set",
                "tolerations[0].value: Invalid value: \"x\": value must be empty when `operator` is 'Exists'",
            ],
        ),
        (
            "/spec/tolerations",
            json!([{"key": "a", "operator": "Like"}, {"key": "a", "operator": "Gt", "value": "1.5"}, {"key": "a", "effect": "No"}]),
            &[
                "tolerations[0].operator: Unsupported value: \"Like\": supported values: \"Equal\", \"Exists\", \"Lt\", \"Gt\"",
                "tolerations[1].value: Invalid value: \"1.5\": must be a 64-bit decimal integer when `operator` is 'Gt' or 'Lt'",
                "tolerations[2].effect: Unsupported value: \"No\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
            ],
        ),
    ]);
}

#[test]
fn node_affinity() {
    let required = |term: Value| json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
    const TERM: &str =
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let rows: [(Value, Vec<String>); 3] = [
        (
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}),
            vec![format!(
                "spec.{TERM}: Required value: must have at least one node selector term"
            )],
        ),
        (
            required(json!({"matchExpressions": [
                {"key": "a", "operator": "In"}, {"key": "a", "operator": "Exists", "values": ["x"]},
                {"key": "a", "operator": "Gt", "values": ["1", "2"]}, {"key": "a", "operator": "X"}
            ]})),
            vec![
                format!(
                    "spec.{TERM}[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
                ),
                format!(
                    "spec.{TERM}[0].matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                ),
                format!(
                    "spec.{TERM}[0].matchExpressions[2].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'"
                ),
                format!(
                    "spec.{TERM}[0].matchExpressions[3].operator: Invalid value: \"X\": not a valid selector operator"
                ),
            ],
        ),
        (
            required(json!({"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["a", "b"]},
                {"key": "metadata.uid", "operator": "Exists"}
            ]})),
            vec![
                format!(
                    "spec.{TERM}[0].matchFields[0].values: Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
                ),
                format!(
                    "spec.{TERM}[0].matchFields[1].operator: Invalid value: \"Exists\": not a valid selector operator"
                ),
                format!(
                    "spec.{TERM}[0].matchFields[1].key: Invalid value: \"metadata.uid\": not a valid field selector key"
                ),
            ],
        ),
    ];
    for (affinity, expected) in rows {
        assert_eq!(
            faults(&POD, with(base(), "/spec/affinity", affinity)),
            expected
        );
    }
    let preferred = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0, "preference": {}}]}});
    assert_eq!(
        faults(&POD, with(base(), "/spec/affinity", preferred)),
        [
            "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100"
        ]
    );
}

#[test]
fn the_rest_of_the_spec() {
    check(&[
        (
            "/spec/restartPolicy",
            json!("Sometimes"),
            &[
                "restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
            ],
        ),
        (
            "/spec/dnsPolicy",
            json!("X"),
            &[
                "dnsPolicy: Unsupported value: \"X\": supported values: \"ClusterFirstWithHostNet\", \"ClusterFirst\", \"Default\", \"None\"",
            ],
        ),
        (
            "/spec/dnsPolicy",
            json!("None"),
            &[
                "dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None",
            ],
        ),
        (
            "/spec/terminationGracePeriodSeconds",
            json!(-1),
            &[
                "terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
        (
            "/spec/activeDeadlineSeconds",
            json!(0),
            &[
                "activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
            ],
        ),
        (
            "/spec/hostAliases",
            json!([{"ip": "300.1.1.1", "hostnames": ["a"]}]),
            &[
                "hostAliases[0].ip: Invalid value: \"300.1.1.1\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ],
        ),
        (
            "/spec/imagePullSecrets",
            json!([{}]),
            &["imagePullSecrets[0].name: Required value"],
        ),
    ]);
    for (field, bad) in [
        ("serviceAccountName", "A"),
        ("nodeName", "_"),
        ("hostname", "a.b"),
        ("subdomain", "-"),
    ] {
        let found = faults(&POD, with(base(), &format!("/spec/{field}"), json!(bad)));
        assert_eq!(found.len(), 1, "{field} {found:?}");
        assert!(
            found[0].starts_with(&format!("spec.{field}: Invalid value: \"{bad}\": ")),
            "{found:?}"
        );
    }
    let found = faults(
        &POD,
        with(base(), "/spec/nodeSelector", json!({"a b": "c"})),
    );
    assert!(
        found[0].starts_with("spec.nodeSelector: Invalid value: \"a b\": name part must"),
        "{found:?}"
    );
}

#[test]
fn little_of_a_pod_may_change() {
    let mut new = base();
    new["spec"]["containers"][0]["image"] = json!("i:2");
    new["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    new["spec"]["activeDeadlineSeconds"] = json!(60);
    assert_eq!(update_faults(&POD, new.clone(), base()), [""; 0]);
    assert_eq!(
        update_faults(
            &POD,
            with(new.clone(), "/spec/activeDeadlineSeconds", json!(61)),
            new.clone()
        ),
        [
            "spec.activeDeadlineSeconds: Invalid value: 61: must be less than or equal to previous value"
        ]
    );
    assert_eq!(
        update_faults(&POD, with(new.clone(), "/spec/tolerations", json!([])), new),
        [
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
        ]
    );
    let mut changed = base();
    changed["spec"]["containers"][0]["args"] = json!(["x"]);
    changed["spec"]["nodeName"] = json!("n");
    let found = update_faults(&POD, changed, base());
    assert_eq!(
        found,
        [
            "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\nchanged: spec.containers, spec.nodeName"
        ]
    );
    let more = with(
        base(),
        "/spec/containers",
        json!([{"name": "c", "image": "i:1"}, {"name": "d", "image": "i:1"}]),
    );
    assert_eq!(
        update_faults(&POD, more, base()),
        ["spec.containers: Forbidden: pod updates may not add or remove containers"]
    );
}

#[test]
fn surprises_are_warned_about() {
    let mut tree = base();
    tree["spec"]["containers"][0] = json!({
        "name": "c", "image": "i",
        "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "A", "value": "$(A)3"}],
        "ports": [{"containerPort": 80}, {"containerPort": 80}],
        "resources": {"requests": {"memory": "100m"}}
    });
    tree["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    tree["spec"]["affinity"] = json!({"podAntiAffinity": {"x": []}});
    assert_eq!(
        warnings(&POD, &defaulted(&POD, tree)),
        [
            "spec.containers[0].env[1]: hides previous definition of \"A\" (spec.containers[0].env[0]), which may be dropped when using apply",
            "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
            "spec.containers[0].resources.requests[memory]: fractional byte value \"100m\" is invalid, must be an integer",
            "spec.volumes[0].persistentVolumeClaim: node agents of Muster do not support this and will reject the pod",
            "spec.affinity.podAntiAffinity: kept, but Muster does not act on it",
        ]
    );
}

#[test]
fn case_b61_a_host_path_without_type_is_accepted() {
    let tree = with(
        base(),
        "/spec/volumes/0/hostPath",
        json!({"path": "/tmp/mu/none"}),
    );
    assert_eq!(faults(&POD, tree), [""; 0]);
}
