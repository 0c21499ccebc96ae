use super::*;
use crate::machine::Machine;

fn config() -> AgentConfig {
    let mut config = AgentConfig::new("n1", None);
    config.machine = Machine {
        host_name: "host-1".into(),
        machine_id: "m".into(),
        boot_id: "b".into(),
        architecture: "amd64".into(),
        capacity: Amounts::parse("cpu=2,memory=4Gi").unwrap(),
        addresses: vec!["10.0.0.1".parse().unwrap()],
        ..Machine::default()
    };
    config
}

fn now() -> Timestamp {
    "2026-01-31T10:00:00.5Z".parse().unwrap()
}

fn seen(errors: &[&str]) -> NodeView {
    NodeView {
        runtime_version: "docker://20.10.24".into(),
        errors: errors.iter().map(|&e| e.to_owned()).collect(),
        addresses: addresses(&config()).unwrap(),
    }
}

#[test]
fn na_001_na_002_the_node_carries_its_labels_and_taints() {
    let mut config = config();
    config.labels.insert("disk".into(), "ssd".into());
    config
        .taints
        .extend(crate::config::parse_taint("k=v:NoSchedule"));
    let node = registration(&config, NodeStatus::default());
    let labels = node.metadata.labels.unwrap();
    for (key, value) in [
        ("kubernetes.io/hostname", "host-1"),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", "amd64"),
        ("disk", "ssd"),
    ] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert_eq!(
        node.metadata.annotations.unwrap()["muster.dev/agent-labels"],
        "disk"
    );
    let taints = node.spec.unwrap().taints.unwrap();
    assert_eq!(
        (taints[0].key.as_str(), taints[0].effect.as_str()),
        ("k", "NoSchedule")
    );
}

#[test]
fn na_005_reservations_and_the_eviction_threshold_are_not_for_pods() {
    let mut config = config();
    config.system_reserved = Amounts::parse("cpu=500m,memory=256Mi").unwrap();
    let allocatable = allocatable(&config, &capacity(&config));
    assert_eq!(allocatable.get(CPU).to_string(), "1500m");
    assert_eq!(allocatable.get(MEMORY).as_units_ceil(), (4096 - 356) << 20);
    assert_eq!(allocatable.get(PODS).to_string(), "110");
    config.kube_reserved = Amounts::parse("cpu=9").unwrap();
    assert!(
        super::allocatable(&config, &capacity(&config))
            .get(CPU)
            .is_zero()
    );
}

#[test]
fn capacity_may_be_lowered_and_not_raised() {
    let mut config = config();
    config.capacity = Amounts::parse("cpu=1,memory=64Gi").unwrap();
    let capacity = capacity(&config);
    assert_eq!(capacity.get(CPU).to_string(), "1");
    assert_eq!(capacity.get(MEMORY).to_string(), "4Gi");
}

#[test]
fn na_006_conditions_come_in_order_with_their_reasons() {
    let status = status(&config(), &seen(&[]), &NodeStatus::default(), now());
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .flatten()
        .map(|c| {
            (
                c.type_.as_str(),
                c.status.as_str(),
                c.reason.as_deref().unwrap(),
                c.message.as_deref().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        conditions,
        [
            (
                "MemoryPressure",
                "False",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available"
            ),
            (
                "DiskPressure",
                "False",
                "KubeletHasNoDiskPressure",
                "kubelet has no disk pressure"
            ),
            (
                "PIDPressure",
                "False",
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available"
            ),
            (
                "Ready",
                "True",
                "KubeletReady",
                "kubelet is posting ready status"
            ),
        ]
    );
    let addresses: Vec<_> = status
        .addresses
        .unwrap()
        .into_iter()
        .map(|a| format!("{} {}", a.type_, a.address))
        .collect();
    assert_eq!(addresses, ["InternalIP 10.0.0.1", "Hostname host-1"]);
    assert_eq!(
        status.node_info.unwrap().container_runtime_version,
        "docker://20.10.24"
    );
}

#[test]
fn what_is_wrong_is_told_and_flips_are_events() {
    let good = status(&config(), &seen(&[]), &NodeStatus::default(), now());
    let later = "2026-01-31T10:01:00Z".parse().unwrap();
    let bad = status(
        &config(),
        &seen(&["container runtime is down"]),
        &good,
        later,
    );
    let ready = bad.conditions.as_ref().unwrap()[3].clone();
    assert_eq!(
        (ready.status.as_str(), ready.message.as_deref()),
        ("False", Some("container runtime is down"))
    );
    let two = status(&config(), &seen(&["a", "b"]), &good, later);
    assert_eq!(
        two.conditions.as_ref().unwrap()[3].message.as_deref(),
        Some("[a, b]")
    );
    let messages: Vec<_> = flips("n1", &good, &bad)
        .into_iter()
        .map(|n| n.message)
        .collect();
    assert_eq!(messages, ["Node n1 status is now: NodeNotReady"]);
    let still = status(&config(), &seen(&[]), &good, later);
    assert!(same_but_for_heartbeats(&good, &still));
    assert_ne!(good, still);
    assert!(!same_but_for_heartbeats(&good, &bad));
}

#[test]
fn an_address_must_be_one_that_others_can_reach() {
    let with = |ip: &str, loopback: bool| {
        let mut config = config();
        config.node_ip = Some(ip.parse().unwrap());
        config.allow_loopback_node_ip = loopback;
        addresses(&config)
    };
    assert!(with("127.0.0.1", false).is_err());
    assert_eq!(
        with("127.0.0.1", true).unwrap(),
        ["127.0.0.1".parse::<IpAddr>().unwrap()]
    );
    assert!(with("0.0.0.0", true).is_err());
    assert!(with("224.0.0.1", true).is_err());
    let mut none = config();
    none.machine.addresses.clear();
    assert_eq!(addresses(&none), Err(AddressError::None));
}
