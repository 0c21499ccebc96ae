//! Probes, security, scheduling, the rest of the spec, updates, warnings.

use serde_json::{Value, json};

use super::{base, check};
use crate::kind::POD;
use crate::validate::tests::{defaulted, faults, update_faults, with};
use crate::validate::warnings;

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
    assert_eq!(
        warnings(&POD, &defaulted(&POD, tree)),
        [
            "spec.containers[0].env[1]: hides previous definition of \"A\" (spec.containers[0].env[0]), which may be dropped when using apply",
            "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
            "spec.containers[0].resources.requests[memory]: fractional byte value \"100m\" is invalid, must be an integer",
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
