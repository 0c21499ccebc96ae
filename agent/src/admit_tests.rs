use serde_json::{Value, json};

use super::*;
use crate::testing::pod_with;

fn node(allocatable: &str) -> NodeFacts {
    NodeFacts {
        name: "n1".into(),
        object: Some(NodeObject {
            labels: BTreeMap::from([(label::OS.into(), "linux".into())]),
            taints: Vec::new(),
        }),
        allocatable: Amounts::parse(allocatable).unwrap(),
        allowed_sysctls: vec!["net.core.*".into()],
    }
}

fn roomy() -> NodeFacts {
    node("cpu=2,memory=4Gi,pods=110")
}

fn one(container: Value, more: Value) -> PodFacts {
    let mut container = container;
    container["name"] = json!("c");
    container["image"] = json!("t:1");
    let mut spec = json!({"containers": [container]});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    pod_with("p", spec)
}

fn plain(more: Value) -> PodFacts {
    one(json!({}), more)
}

fn requests(amounts: Value) -> PodFacts {
    one(json!({"resources": {"requests": amounts}}), json!({}))
}

fn verdict(pod: &PodFacts, node: &NodeFacts, others: &[&Holding]) -> Option<(String, String)> {
    admit(pod, node, others)
        .err()
        .map(|r| (r.reason, r.message))
}

fn refused(reason: &str, message: &str) -> Option<(String, String)> {
    Some((reason.into(), message.into()))
}

#[test]
fn na_018_too_much_cpu_is_told_in_millicores() {
    let there = Holding::of(&requests(json!({"cpu": "1800m"})));
    assert_eq!(
        verdict(&requests(json!({"cpu": "500m"})), &roomy(), &[&there]),
        refused(
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 500, used: 1800, capacity: 2000"
        )
    );
    assert_eq!(
        verdict(&requests(json!({"cpu": "200m"})), &roomy(), &[&there]),
        None
    );
    assert_eq!(
        verdict(&requests(json!({"cpu": "0"})), &roomy(), &[&there]),
        None
    );
}

#[test]
fn na_019_too_much_memory_is_told_in_bytes() {
    let small = node("cpu=2,memory=3996Mi,pods=110");
    let message = "Node didn't have enough resource: memory, requested: 8589934592, used: 0, capacity: 4190109696";
    assert_eq!(
        verdict(&requests(json!({"memory": "8Gi"})), &small, &[]),
        refused("OutOfmemory", message)
    );
}

#[test]
fn na_020_pods_are_counted() {
    let two = [Holding::default(), Holding::default()];
    let message = "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2";
    let others = [&two[0], &two[1]];
    assert_eq!(
        verdict(&plain(json!({})), &node("cpu=2,pods=2"), &others),
        refused("OutOfpods", message)
    );
}

#[test]
fn na_021_a_node_selector_must_match() {
    let message =
        "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    let pod = plain(json!({"nodeSelector": {"x": "y"}}));
    assert_eq!(
        verdict(&pod, &roomy(), &[]),
        refused("NodeAffinity", message)
    );
    let mut labelled = roomy();
    labelled
        .object
        .as_mut()
        .unwrap()
        .labels
        .insert("x".into(), "y".into());
    assert_eq!(verdict(&pod, &labelled, &[]), None);
}

#[test]
fn na_022_host_ports_clash_by_protocol_number_and_address() {
    let port = |protocol: &str, ip: &str| {
        let ports =
            json!([{"containerPort": 80, "hostPort": 18080, "protocol": protocol, "hostIP": ip}]);
        one(json!({"ports": ports}), json!({}))
    };
    let there = Holding::of(&port("TCP", "0.0.0.0"));
    let message = format!(
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports (18080/TCP is held by \
         pod {})",
        there.pod
    );
    assert_eq!(
        verdict(&port("TCP", "127.0.0.1"), &roomy(), &[&there]),
        refused("NodePorts", &message)
    );
    assert_eq!(
        verdict(&port("UDP", "127.0.0.1"), &roomy(), &[&there]),
        None
    );
    let there = Holding::of(&port("TCP", "127.0.0.1"));
    assert_eq!(verdict(&port("TCP", "10.0.0.1"), &roomy(), &[&there]), None);
    let ports = json!({"ports": [{"containerPort": 18080}]});
    assert!(
        verdict(
            &one(ports.clone(), json!({"hostNetwork": true})),
            &roomy(),
            &[&there]
        )
        .is_some()
    );
    assert_eq!(verdict(&one(ports, json!({})), &roomy(), &[&there]), None);
}

#[test]
fn na_023_only_no_execute_taints_reject() {
    let tainted = |effect: &str| {
        let mut node = roomy();
        let taint = Taint {
            key: "k".into(),
            value: None,
            effect: effect.into(),
            time_added: None,
        };
        node.object.as_mut().unwrap().taints.push(taint);
        node
    };
    let message =
        "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    assert_eq!(
        verdict(&plain(json!({})), &tainted("NoExecute"), &[]),
        refused("TaintToleration", message)
    );
    assert_eq!(
        verdict(&plain(json!({})), &tainted("NoSchedule"), &[]),
        None
    );
    let tolerant = plain(json!({"tolerations": [{"operator": "Exists"}]}));
    assert_eq!(verdict(&tolerant, &tainted("NoExecute"), &[]), None);
}

#[test]
fn na_024_resources_come_before_labels() {
    let pod = one(
        json!({"resources": {"requests": {"cpu": "3"}}}),
        json!({"nodeSelector": {"x": "y"}}),
    );
    assert_eq!(verdict(&pod, &roomy(), &[]).unwrap().0, "OutOfcpu");
}

#[test]
fn na_026_sysctls_are_safe_or_allowed() {
    let with = |name: &str, more: Value| {
        let mut spec = json!({"securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        verdict(&plain(spec), &roomy(), &[])
    };
    let message = "forbidden sysctl: \"kernel.msgmax\" not allowlisted";
    assert_eq!(
        with("kernel.msgmax", json!({})),
        refused("SysctlForbidden", message)
    );
    assert_eq!(with("net.ipv4.ip_unprivileged_port_start", json!({})), None);
    assert_eq!(with("net.core.somaxconn", json!({})), None);
    assert!(with("net.ipv4.tcp_syncookies", json!({"hostNetwork": true})).is_some());
}

#[test]
fn fields_that_would_be_ignored_are_refused_by_name() {
    for (spec, path) in [
        (json!({"hostUsers": false}), "spec.hostUsers"),
        (
            json!({"runtimeClassName": "gvisor"}),
            "spec.runtimeClassName",
        ),
        (
            json!({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "v", "csi": {"driver": "d"}}]}),
            "spec.volumes[1].csi",
        ),
        (
            json!({"volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]}),
            "spec.volumes[0].nfs",
        ),
    ] {
        let message = format!("Pod uses {path}, which this node agent does not support");
        assert_eq!(
            verdict(&plain(spec), &roomy(), &[]),
            refused("UnsupportedByNode", &message)
        );
    }
    let known = json!({"volumes": [
        {"name": "a", "hostPath": {"path": "/x"}}, {"name": "b", "configMap": {"name": "m"}},
        {"name": "c", "secret": {"secretName": "s"}}, {"name": "d", "downwardAPI": {"items": []}},
        {"name": "e", "projected": {"sources": [{"configMap": {"name": "m"}}]}}, {"name": "f", "emptyDir": {"medium": "Memory"}}]});
    assert_eq!(verdict(&plain(known), &roomy(), &[]), None);
}

#[test]
fn a_node_that_was_never_seen_admits_nothing() {
    let unseen = NodeFacts {
        object: None,
        ..roomy()
    };
    assert_eq!(
        verdict(&plain(json!({})), &unseen, &[]),
        refused("InvalidNodeInfo", "Kubelet cannot get node info.")
    );
    let windows = plain(json!({"os": {"name": "windows"}}));
    assert_eq!(
        verdict(&windows, &roomy(), &[]).unwrap().0,
        "PodOSNotSupported"
    );
}
