use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::facts::PodFacts;
use crate::runtime::ImageView;
use crate::testing::{pod, pod_with};

fn image() -> ImageView {
    ImageView {
        id: "sha256:abc".into(),
        tags: vec!["t:1".into()],
        digests: Vec::new(),
        size_bytes: 1,
        user: String::new(),
    }
}

fn order(sandbox: Option<&str>) -> StartOrder {
    StartOrder {
        container: "c".into(),
        attempt: 0,
        leftover: None,
        sandbox: sandbox.map(|id| ContainerId(id.into())),
        pod_ip: "172.17.0.2".into(),
        image: image(),
    }
}

fn made(pod: &PodFacts, sandbox: Option<&str>) -> ContainerSpec {
    container(
        pod,
        &pod.containers()[0],
        &order(sandbox),
        &Surroundings::default(),
    )
    .unwrap()
}

/// A pod whose container `c` has these fields beside name and image.
fn with_container(more: Value) -> PodFacts {
    let mut container = json!({"name": "c", "image": "t:1"});
    container
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    pod_with("p", json!({"containers": [container]}))
}

#[test]
fn na_028_names_labels_and_namespaces_of_sandbox_and_container() {
    let p = pod("p");
    let sandbox = sandbox(&p, 0);
    assert_eq!(sandbox.name, "k8s_POD_p_default_UID-p_0");
    assert_eq!(sandbox.hostname, "p");
    assert_eq!(sandbox.ipc, Namespace::Shareable);
    let c = made(&p, Some("sb"));
    assert_eq!(c.name, "k8s_c_p_default_UID-p_0");
    let joined = Namespace::Container(ContainerId("sb".into()));
    assert_eq!(
        (&c.network, &c.ipc, &c.pid),
        (&joined, &joined, &Namespace::Own)
    );
    assert_eq!(c.hostname, "");
    assert_eq!(c.image, "sha256:abc");
    for (key, value) in [
        (labels::NODE, "n1"),
        (labels::POD_UID, "UID-p"),
        (labels::POD_NAME, "p"),
        (labels::POD_NAMESPACE, "default"),
        (labels::CONTAINER_NAME, "c"),
        (labels::TYPE, "container"),
        (labels::RESTART_COUNT, "0"),
        (labels::SANDBOX_ID, "sb"),
        (labels::FORMAT, "1"),
        (labels::TERMINATION_GRACE_PERIOD, "30"),
    ] {
        assert_eq!(c.labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert_eq!(
        sandbox
            .labels
            .get(labels::CONTAINER_NAME)
            .map(String::as_str),
        Some("POD")
    );
}

#[test]
fn the_hash_knows_name_and_image_and_nothing_else() {
    let base = hash(&with_container(json!({})).containers()[0]);
    assert_eq!(
        base,
        hash(&with_container(json!({"args": ["x"], "env": []})).containers()[0])
    );
    assert_ne!(
        base,
        hash(&with_container(json!({"image": "t:2"})).containers()[0])
    );
    // Frozen with the label format: another value here restarts every container of an upgraded fleet.
    assert_eq!(base, "909f426f");
}

#[test]
fn na_030_na_031_commands_are_expanded_and_replace_the_images() {
    let p = with_container(json!({"command": ["sh", "-c"], "args": ["echo $(A) $$(A) $(NOPE)"]}));
    let around = Surroundings {
        env: vec![("A".into(), "1".into())],
        ..Surroundings::default()
    };
    let c = container(&p, &p.containers()[0], &order(None), &around).unwrap();
    assert_eq!(c.entrypoint, Some(vec!["sh".to_owned(), "-c".to_owned()]));
    assert_eq!(c.cmd, Some(vec!["echo 1 $(A) $(NOPE)".to_owned()]));
    let c = made(&with_container(json!({"command": ["x"]})), None);
    assert_eq!((c.entrypoint.unwrap().len(), c.cmd), (1, Some(Vec::new())));
    let c = made(&with_container(json!({"args": ["y"]})), None);
    assert_eq!((c.entrypoint, c.cmd), (None, Some(vec!["y".to_owned()])));
    let c = made(&with_container(json!({})), None);
    assert_eq!((c.entrypoint, c.cmd), (None, None));
}

#[test]
fn na_037_na_038_resources_in_the_engines_units() {
    let limits = json!({"limits": {"cpu": "250m", "memory": "64Mi"}, "requests": {"cpu": "100m"}});
    let r = made(&with_container(json!({"resources": limits})), None).resources;
    assert_eq!(
        (r.cpu_shares, r.cpu_quota, r.cpu_period),
        (102, 25_000, 100_000)
    );
    assert_eq!((r.memory, r.memory_swap), (67_108_864, 67_108_864));
    let r = made(&with_container(json!({})), None).resources;
    assert_eq!(
        (
            r.cpu_shares,
            r.cpu_quota,
            r.cpu_period,
            r.memory,
            r.oom_score_adj
        ),
        (2, 0, 0, 0, 1000)
    );
    for (limit, shares, quota) in [
        ("250m", 256, 25_000),
        ("1", 1024, 100_000),
        ("5m", 5, 1_000),
        ("1m", 2, 1_000),
    ] {
        let r = made(
            &with_container(json!({"resources": {"limits": {"cpu": limit}}})),
            None,
        )
        .resources;
        assert_eq!((r.cpu_shares, r.cpu_quota), (shares, quota), "{limit}");
    }
}

#[test]
fn na_039_the_kernel_kills_by_class_and_request() {
    let score = |resources: Value| {
        made(&with_container(json!({"resources": resources})), None)
            .resources
            .oom_score_adj
    };
    let same = json!({"cpu": "100m", "memory": "64Mi"});
    assert_eq!(score(json!({"limits": same})), -997);
    for (request, wanted) in [("1Gi", 750), ("64Mi", 985), ("4Gi", 3)] {
        assert_eq!(
            score(json!({"requests": {"memory": request}})),
            wanted,
            "{request}"
        );
    }
    assert_eq!(score(json!({"requests": {"cpu": "1m"}})), 999);
    let critical = pod_with(
        "p",
        json!({"priorityClassName": "system-node-critical", "containers": [{"name": "c", "image": "t:1"}]}),
    );
    assert_eq!(made(&critical, None).resources.oom_score_adj, -997);
}

#[test]
fn na_040_users_and_groups() {
    let p = pod_with(
        "p",
        json!({
            "securityContext": {"runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000, "supplementalGroups": [7]},
            "containers": [{"name": "c", "image": "t:1"}]}),
    );
    let security = made(&p, Some("sb")).security;
    assert_eq!(security.user, "1000:3000");
    assert_eq!(security.groups, ["7", "2000"]);
    assert_eq!(sandbox(&p, 0).user, "1000:3000");
    let only_group = with_container(json!({"securityContext": {"runAsGroup": 5}}));
    assert_eq!(made(&only_group, None).security.user, "0:5");
}

#[test]
fn na_041_a_container_that_must_not_be_root_is_checked_before_it_is_made() {
    let refusal = |security: Value, user: &str| {
        let p = with_container(json!({"securityContext": security}));
        let mut order = order(None);
        order.image.user = user.into();
        container(&p, &p.containers()[0], &order, &Surroundings::default()).err()
    };
    let non_root = json!({"runAsNonRoot": true});
    let which = "(pod: \"p_default(UID-p)\", container: c)";
    let will_be_root = format!("container has runAsNonRoot and image will run as root {which}");
    assert_eq!(refusal(non_root.clone(), ""), Some(will_be_root.clone()));
    assert_eq!(refusal(non_root.clone(), "0:5"), Some(will_be_root));
    assert_eq!(
        refusal(non_root.clone(), "www"),
        Some(format!(
            "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root {which}"
        ))
    );
    assert_eq!(
        refusal(json!({"runAsNonRoot": true, "runAsUser": 0}), "5"),
        Some(format!(
            "container's runAsUser breaks non-root policy {which}"
        ))
    );
    assert_eq!(refusal(non_root, "1000"), None);
    assert_eq!(
        refusal(json!({"runAsNonRoot": true, "runAsUser": 5}), ""),
        None
    );
}

#[test]
fn na_043_capabilities_and_escalation() {
    let security = json!({
        "capabilities": {"drop": ["ALL"], "add": ["CAP_NET_BIND_SERVICE"]},
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true});
    let s = made(&with_container(json!({"securityContext": security})), None).security;
    assert_eq!(
        (s.cap_drop, s.cap_add),
        (vec!["ALL".to_owned()], vec!["NET_BIND_SERVICE".to_owned()])
    );
    assert_eq!(s.options, ["no-new-privileges"]);
    assert!(s.read_only_root);
}

#[test]
fn na_044_privileged_containers_have_no_profile_options() {
    let p = with_container(
        json!({"securityContext": {"privileged": true, "seccompProfile": {"type": "Unconfined"}}}),
    );
    let s = made(&p, Some("sb")).security;
    assert!(s.privileged);
    assert_eq!(s.options, Vec::<String>::new());
}

#[test]
fn profiles_become_engine_options() {
    let options = |security: Value| {
        made(&with_container(json!({"securityContext": security})), None)
            .security
            .options
    };
    assert_eq!(options(json!({})), Vec::<String>::new());
    assert_eq!(
        options(json!({"seccompProfile": {"type": "Unconfined"}})),
        ["seccomp=unconfined"]
    );
    assert_eq!(
        options(json!({"seccompProfile": {"type": "RuntimeDefault"}})),
        Vec::<String>::new()
    );
    let labels = json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}, "seLinuxOptions": {"level": "s0"}});
    assert_eq!(options(labels), ["apparmor=x", "label=level:s0"]);
    let mut off = with_container(json!({}));
    Arc::make_mut(&mut off.host).seccomp_default = false;
    assert_eq!(made(&off, None).security.options, ["seccomp=unconfined"]);
}

#[test]
fn na_045_one_container_with_the_hosts_network_needs_no_sandbox() {
    let p = pod_with(
        "p",
        json!({"hostNetwork": true, "containers": [{"name": "c", "image": "t:1"}]}),
    );
    assert!(!needs_sandbox(&p));
    let c = made(&p, None);
    assert_eq!(
        (c.network, c.ipc, c.pid),
        (Namespace::Host, Namespace::Own, Namespace::Own)
    );
    let two = [
        json!({"name": "a", "image": "t:1"}),
        json!({"name": "b", "image": "t:1"}),
    ];
    let p = pod_with("p", json!({"hostNetwork": true, "containers": two}));
    assert!(needs_sandbox(&p));
    assert_eq!(
        (sandbox(&p, 0).network, sandbox(&p, 0).hostname),
        (Namespace::Host, String::new())
    );
    assert!(needs_sandbox(&pod("p")));
}

#[test]
fn na_046_process_namespaces() {
    let p = pod_with(
        "p",
        json!({"hostPID": true, "hostIPC": true, "containers": [{"name": "c", "image": "t:1"}]}),
    );
    assert_eq!(
        (sandbox(&p, 0).pid, sandbox(&p, 0).ipc),
        (Namespace::Host, Namespace::Host)
    );
    let c = made(&p, Some("sb"));
    assert_eq!((c.pid, c.ipc), (Namespace::Host, Namespace::Host));
    let p = pod_with(
        "p",
        json!({"shareProcessNamespace": true, "containers": [{"name": "c", "image": "t:1"}]}),
    );
    assert_eq!(
        made(&p, Some("sb")).pid,
        Namespace::Container(ContainerId("sb".into()))
    );
}

#[test]
fn published_ports_lie_on_the_sandbox() {
    let ports = json!([
        {"containerPort": 8080, "hostPort": 18081, "hostIP": "127.0.0.1"},
        {"containerPort": 53, "hostPort": 53, "protocol": "UDP"},
        {"containerPort": 9}]);
    let p = with_container(json!({"ports": ports}));
    let published = sandbox(&p, 0).ports;
    let flat: Vec<_> = published
        .iter()
        .map(|p| {
            (
                p.protocol.as_str(),
                p.container_port,
                p.host_port,
                p.host_ip.as_str(),
            )
        })
        .collect();
    assert_eq!(
        flat,
        [("TCP", 8080, 18081, "127.0.0.1"), ("UDP", 53, 53, "")]
    );
}
