use super::*;
use crate::kind::{
    CONFIG_MAP, CONTROLLER_REVISION, DAEMON_SET, DAEMON_SET_POLICY, EVENT, KINDS, NAMESPACE, NODE,
    POD, PRIORITY_CLASS, SECRET,
};
use serde_json::json;

fn now() -> Timestamp {
    "2026-01-31T10:05:00Z".parse().unwrap()
}

fn cells(kind: &Kind, tree: Value) -> Vec<String> {
    let object = Object::from_value(tree).unwrap();
    row(kind, &object, now())
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn header(kind: &Kind, wide: bool) -> String {
    let shown = columns(kind)
        .iter()
        .filter(|c| wide || c.priority == 0)
        .map(|c| c.name.to_uppercase());
    shown.collect::<Vec<_>>().join(" | ")
}

#[test]
fn ds_114_the_columns_are_exactly_kubectls() {
    assert_eq!(
        header(&DAEMON_SET, false),
        "NAME | DESIRED | CURRENT | READY | UP-TO-DATE | AVAILABLE | NODE SELECTOR | AGE"
    );
    assert_eq!(
        header(&DAEMON_SET, true),
        "NAME | DESIRED | CURRENT | READY | UP-TO-DATE | AVAILABLE | NODE SELECTOR | AGE | CONTAINERS | IMAGES | SELECTOR"
    );
    assert_eq!(
        header(&POD, true),
        "NAME | READY | STATUS | RESTARTS | AGE | IP | NODE | NOMINATED NODE | READINESS GATES"
    );
    assert_eq!(
        header(&NODE, true),
        "NAME | STATUS | ROLES | AGE | VERSION | INTERNAL-IP | EXTERNAL-IP | OS-IMAGE | KERNEL-VERSION | CONTAINER-RUNTIME"
    );
    assert_eq!(
        header(&CONTROLLER_REVISION, false),
        "NAME | CONTROLLER | REVISION | AGE"
    );
    assert_eq!(
        header(&EVENT, false),
        "LAST SEEN | TYPE | REASON | OBJECT | MESSAGE"
    );
    assert_eq!(
        header(&EVENT, true),
        "LAST SEEN | TYPE | REASON | OBJECT | SUBOBJECT | SOURCE | MESSAGE | FIRST SEEN | COUNT | NAME"
    );
}

#[test]
fn every_kind_has_as_many_cells_as_columns() {
    for kind in KINDS {
        let cells = row(kind, &Object::from_value(json!({})).unwrap(), now());
        assert_eq!(cells.len(), columns(kind).len(), "{kind}");
    }
}

#[test]
fn ds_114_a_daemonset_row() {
    let tree = json!({
        "metadata": {"name": "web", "creationTimestamp": "2026-01-31T10:00:00Z"},
        "spec": {
            "selector": {
                "matchLabels": {"app": "web"},
                "matchExpressions": [
                    {"key": "tier", "operator": "In", "values": ["b", "a"]},
                    {"key": "x", "operator": "DoesNotExist"},
                    {"key": "b", "operator": "Exists"},
                ],
            },
            "template": {"spec": {
                "nodeSelector": {"zone": "a", "disk": "ssd"},
                "initContainers": [{"name": "init", "image": "busybox"}],
                "containers": [{"name": "web", "image": "nginx:1.27"}, {"name": "side", "image": "envoy:1"}],
            }},
        },
        "status": {
            "desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3,
            "updatedNumberScheduled": 2, "numberAvailable": 1,
        },
    });
    assert_eq!(
        cells(&DAEMON_SET, tree),
        [
            "web",
            "5",
            "4",
            "3",
            "2",
            "1",
            "disk=ssd,zone=a",
            "5m",
            "web,side",
            "nginx:1.27,envoy:1",
            "app=web,b,tier in (a,b),!x"
        ]
    );
}

/// A pod of one container; `patch` is merged into its status.
fn pod(status: Value) -> Value {
    json!({
        "metadata": {"name": "p", "creationTimestamp": "2026-01-31T10:04:20Z"},
        "spec": {"containers": [{"name": "a"}]},
        "status": status,
    })
}

fn pod_status(tree: Value) -> String {
    cells(&POD, tree)[2].clone()
}

#[test]
fn ds_114_a_pod_row() {
    let mut tree = pod(json!({
        "phase": "Running", "podIP": "10.0.0.7",
        "conditions": [{"type": "g1", "status": "True"}],
        "containerStatuses": [{
            "name": "a", "ready": true, "restartCount": 3, "state": {"running": {}},
            "lastState": {"terminated": {"finishedAt": "2026-01-31T10:00:00Z"}},
        }],
    }));
    tree["spec"]["nodeName"] = json!("n1");
    tree["spec"]["readinessGates"] = json!([{"conditionType": "g1"}, {"conditionType": "g2"}]);
    assert_eq!(
        cells(&POD, tree),
        [
            "p",
            "1/1",
            "Running",
            "3 (5m ago)",
            "40s",
            "10.0.0.7",
            "n1",
            "<none>",
            "1/2"
        ]
    );
    assert_eq!(
        cells(&POD, pod(json!({"phase": "Pending"}))),
        [
            "p", "0/1", "Pending", "0", "40s", "<none>", "<none>", "<none>", "<none>"
        ]
    );
}

#[test]
fn ds_114_pod_status_shows_the_first_containers_trouble() {
    let of =
        |state: Value| pod(json!({"phase": "Running", "containerStatuses": [{"state": state}]}));
    for (state, expected) in [
        (
            json!({"waiting": {"reason": "CrashLoopBackOff"}}),
            "CrashLoopBackOff",
        ),
        (json!({"waiting": {}}), "Running"),
        (
            json!({"terminated": {"reason": "OOMKilled", "exitCode": 137}}),
            "OOMKilled",
        ),
        (json!({"terminated": {"exitCode": 3}}), "ExitCode:3"),
        (
            json!({"terminated": {"exitCode": 137, "signal": 9}}),
            "Signal:9",
        ),
    ] {
        assert_eq!(pod_status(of(state.clone())), expected, "{state}");
    }
    let two = pod(json!({"phase": "Running", "containerStatuses": [
        {"state": {"waiting": {"reason": "ImagePullBackOff"}}},
        {"state": {"waiting": {"reason": "CrashLoopBackOff"}}},
    ]}));
    assert_eq!(pod_status(two), "ImagePullBackOff");
    assert_eq!(
        pod_status(pod(json!({"phase": "Failed", "reason": "OutOfcpu"}))),
        "OutOfcpu"
    );
}

#[test]
fn ds_114_completed_beside_a_running_container_is_running_or_not_ready() {
    let of = |ready: &str| {
        pod(json!({"phase": "Running",
        "conditions": [{"type": "Ready", "status": ready}],
        "containerStatuses": [
            {"state": {"terminated": {"reason": "Completed", "exitCode": 0}}},
            {"ready": true, "state": {"running": {}}},
        ]}))
    };
    assert_eq!(pod_status(of("True")), "Running");
    assert_eq!(pod_status(of("False")), "NotReady");
}

#[test]
fn ds_114_pod_status_of_init_containers() {
    let of = |status: Value| {
        let mut tree = pod(json!({"phase": "Pending", "initContainerStatuses": status,
            "containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}]}));
        tree["spec"]["initContainers"] = json!([{"name": "i1"}, {"name": "i2"}]);
        tree
    };
    let done =
        json!({"name": "i1", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    for (second, expected) in [
        (json!({"name": "i2", "state": {"running": {}}}), "Init:1/2"),
        (
            json!({"name": "i2", "state": {"waiting": {"reason": "PodInitializing"}}}),
            "Init:1/2",
        ),
        (
            json!({"name": "i2", "state": {"waiting": {"reason": "ErrImagePull"}}}),
            "Init:ErrImagePull",
        ),
        (
            json!({"name": "i2", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}),
            "Init:Error",
        ),
        (
            json!({"name": "i2", "state": {"terminated": {"exitCode": 4}}}),
            "Init:ExitCode:4",
        ),
        (
            json!({"name": "i2", "state": {"terminated": {"exitCode": 137, "signal": 9}}}),
            "Init:Signal:9",
        ),
        (done.clone(), "PodInitializing"),
    ] {
        assert_eq!(
            pod_status(of(json!([done.clone(), second.clone()]))),
            expected,
            "{second}"
        );
    }
}

#[test]
fn ds_114_a_restartable_init_container_counts_as_a_container() {
    let mut tree = pod(json!({"phase": "Running",
        "initContainerStatuses": [
            {"name": "once", "restartCount": 5, "state": {"terminated": {"exitCode": 0}}},
            {"name": "side", "restartCount": 2, "ready": true, "started": true, "state": {"running": {}}},
        ],
        "containerStatuses": [{"ready": true, "restartCount": 1, "state": {"running": {}}}]}));
    tree["spec"]["initContainers"] =
        json!([{"name": "once"}, {"name": "side", "restartPolicy": "Always"}]);
    assert_eq!(cells(&POD, tree)[1..4], ["2/2", "Running", "3"]);
}

#[test]
fn ds_114_a_pod_being_deleted_is_terminating_unless_it_has_ended() {
    for (status, expected) in [
        (json!({"phase": "Running"}), "Terminating"),
        (json!({"phase": "Running", "reason": "NodeLost"}), "Unknown"),
        (json!({"phase": "Failed"}), "Failed"),
    ] {
        let mut tree = pod(status.clone());
        tree["metadata"]["deletionTimestamp"] = json!("2026-01-31T10:05:00Z");
        assert_eq!(pod_status(tree), expected, "{status}");
    }
}

#[test]
fn ds_114_a_node_row() {
    let mut tree = json!({
        "metadata": {"name": "n1", "creationTimestamp": null, "labels": {
            "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/edge": "", "kubernetes.io/role": "gate"}},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.32.0", "osImage": "Debian", "containerRuntimeVersion": "docker://27"},
        },
    });
    assert_eq!(
        cells(&NODE, tree.clone()),
        [
            "n1",
            "Ready,SchedulingDisabled",
            "edge,gate,worker",
            "<unknown>",
            "v1.32.0",
            "10.0.0.1",
            "<none>",
            "Debian",
            "<unknown>",
            "docker://27"
        ]
    );
    tree["status"]["conditions"][0]["status"] = json!("Unknown");
    tree["spec"] = json!({});
    assert_eq!(cells(&NODE, tree.clone())[1], "NotReady");
    tree["status"]["conditions"] = json!([]);
    tree["metadata"]["labels"] = json!({});
    assert_eq!(cells(&NODE, tree)[1..3], ["Unknown", "<none>"]);
}

#[test]
fn ds_114_an_event_row() {
    let tree = json!({
        "metadata": {"name": "web.1"},
        "involvedObject": {"kind": "DaemonSet", "name": "web", "fieldPath": "spec"},
        "type": "Normal", "reason": "SuccessfulCreate", "message": "Created pod: web-1\n",
        "source": {"component": "daemonset-controller", "host": "h"},
        "firstTimestamp": "2026-01-31T09:45:00Z", "lastTimestamp": "2026-01-31T10:00:00Z",
    });
    assert_eq!(
        cells(&EVENT, tree),
        [
            "5m",
            "Normal",
            "SuccessfulCreate",
            "daemonset/web",
            "spec",
            "daemonset-controller, h",
            "Created pod: web-1",
            "20m",
            "1",
            "web.1"
        ]
    );
}

#[test]
fn rows_of_the_small_kinds() {
    let meta = json!({"name": "x", "creationTimestamp": "2026-01-31T10:00:00Z"});
    let owned = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-31T10:00:00Z",
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web", "uid": "u", "controller": true}]},
        "revision": 4});
    for (kind, tree, expected) in [
        (
            &NAMESPACE,
            json!({"metadata": meta, "status": {"phase": "Active"}}),
            "x Active 5m",
        ),
        (
            &CONFIG_MAP,
            json!({"metadata": meta, "data": {"a": ""}, "binaryData": {"b": ""}}),
            "x 2 5m",
        ),
        (
            &SECRET,
            json!({"metadata": meta, "type": "Opaque", "data": {}}),
            "x Opaque 0 5m",
        ),
        (
            &PRIORITY_CLASS,
            json!({"metadata": meta, "value": -7}),
            "x -7 false 5m PreemptLowerPriority",
        ),
        (
            &DAEMON_SET_POLICY,
            json!({"metadata": meta, "spec": {
                "namespaces": {"names": ["a", "b"], "selector": {"matchLabels": {"tier": "edge"}}},
                "checks": {"OnDelete": "Refuse", "LatestTag": "Refuse", "NoHistory": "Warn"},
            }}),
            "x a,b,tier=edge LatestTag,OnDelete <none> 5m NoHistory",
        ),
        (
            &DAEMON_SET_POLICY,
            json!({"metadata": meta, "spec": {"checks": {"OnDelete": "Ignore"}}}),
            "x <all> <none> OnDelete 5m <none>",
        ),
        (&CONTROLLER_REVISION, owned, "x daemonset.apps/web 4 5m"),
        (
            &CONTROLLER_REVISION,
            json!({"metadata": meta}),
            "x <none> 0 5m",
        ),
    ] {
        assert_eq!(cells(kind, tree).join(" "), expected);
    }
}
