//! The exact JSON of create bodies.

use serde_json::{Value, json};

use super::*;
use crate::runtime::{ContainerId, Resources, Security};

const OLD: Abilities = engine(41);

const fn engine(minor: u32) -> Abilities {
    Abilities {
        api: ApiVersion { major: 1, minor },
        lowest_oom_score: -1000,
    }
}

fn labels() -> Labels {
    [("muster.dev/node", "n1"), ("io.kubernetes.pod.uid", "u1")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

fn sandbox_spec() -> SandboxSpec {
    SandboxSpec {
        hostname: "p".to_owned(),
        ipc: Namespace::Shareable,
        ..SandboxSpec::default()
    }
}

fn joined() -> Namespace {
    Namespace::Container(ContainerId("5a5a".to_owned()))
}

fn container_spec() -> ContainerSpec {
    ContainerSpec {
        image: "sha256:1".to_owned(),
        network: joined(),
        ipc: joined(),
        ..ContainerSpec::default()
    }
}

fn sandbox(spec: &SandboxSpec) -> Value {
    serde_json::to_value(sandbox_body(spec, labels(), "sha256:0", OLD, "bridge")).unwrap()
}

fn container(spec: &ContainerSpec, engine: Abilities) -> Value {
    serde_json::to_value(container_body(spec, labels(), engine, "bridge")).unwrap()
}

#[test]
fn na_028_a_sandbox_body_is_exactly_this() {
    assert_eq!(
        sandbox(&sandbox_spec()),
        json!({
            "Hostname": "p",
            "Image": "sha256:0",
            "Labels": {"muster.dev/node": "n1", "io.kubernetes.pod.uid": "u1"},
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": {
                "NetworkMode": "bridge",
                "IpcMode": "shareable",
                "CpuShares": 2,
                "OomScoreAdj": -998,
                "SecurityOpt": ["no-new-privileges"],
                "ReadonlyRootfs": true,
                "RestartPolicy": {"Name": "no"},
                "AutoRemove": false,
                "LogConfig": {"Type": "none"},
                "ShmSize": 67_108_864,
                "Init": false,
            },
        })
    );
}

#[test]
fn na_028_a_container_body_is_exactly_this() {
    assert_eq!(
        container(&container_spec(), OLD),
        json!({
            "Image": "sha256:1",
            "Env": [],
            "OpenStdin": false,
            "StdinOnce": false,
            "Tty": false,
            "Labels": {"muster.dev/node": "n1", "io.kubernetes.pod.uid": "u1"},
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": {
                "NetworkMode": "container:5a5a",
                "IpcMode": "container:5a5a",
                "CpuShares": 0,
                "CpuPeriod": 0,
                "CpuQuota": 0,
                "Memory": 0,
                "MemorySwap": 0,
                "OomScoreAdj": 0,
                "Privileged": false,
                "ReadonlyRootfs": false,
                "RestartPolicy": {"Name": "no"},
                "AutoRemove": false,
                "LogConfig": {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "5"}},
                "ShmSize": 67_108_864,
                "Init": false,
            },
        })
    );
}

#[test]
fn na_031_the_images_command_is_not_used_when_the_spec_has_its_own() {
    let command = |entrypoint: Option<&str>, cmd: Option<&str>| {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        let spec = ContainerSpec {
            entrypoint: entrypoint.map(words),
            cmd: cmd.map(words),
            ..container_spec()
        };
        let body = container(&spec, OLD);
        (body["Entrypoint"].clone(), body["Cmd"].clone())
    };
    assert_eq!(
        command(Some("sh -c"), None),
        (json!(["sh", "-c"]), json!([]))
    );
    assert_eq!(
        command(Some("sh"), Some("x y")),
        (json!(["sh"]), json!(["x", "y"]))
    );
    assert_eq!(command(None, Some("x")), (Value::Null, json!(["x"])));
    assert_eq!(command(None, None), (Value::Null, Value::Null));
}

#[test]
fn na_037_resources_are_sent_as_they_were_worked_out() {
    let resources = Resources {
        cpu_shares: 102,
        cpu_period: 100_000,
        cpu_quota: 25_000,
        memory: 67_108_864,
        memory_swap: 67_108_864,
        oom_score_adj: 1000,
    };
    let host = container(
        &ContainerSpec {
            resources,
            ..container_spec()
        },
        OLD,
    )["HostConfig"]
        .clone();
    for (field, value) in [
        ("CpuShares", 102),
        ("CpuPeriod", 100_000),
        ("CpuQuota", 25_000),
        ("Memory", 67_108_864),
        ("MemorySwap", 67_108_864),
        ("OomScoreAdj", 1000),
    ] {
        assert_eq!(host[field], json!(value), "{field}");
    }
    assert_eq!(host["NanoCpus"], Value::Null);
}

#[test]
fn an_engine_that_cannot_lower_the_oom_score_is_not_asked_to() {
    let weak = Abilities {
        lowest_oom_score: 0,
        ..OLD
    };
    let score = |oom_score_adj| {
        let resources = Resources {
            oom_score_adj,
            ..Resources::default()
        };
        container(
            &ContainerSpec {
                resources,
                ..container_spec()
            },
            weak,
        )["HostConfig"]["OomScoreAdj"]
            .clone()
    };
    assert_eq!((score(-997), score(750)), (json!(0), json!(750)));
    let body = sandbox_body(&sandbox_spec(), labels(), "sha256:0", weak, "bridge");
    assert_eq!(body.host_config.unwrap().oom_score_adj, Some(0));
}

#[test]
fn na_043_capabilities_groups_and_options_go_through() {
    let security = Security {
        user: "1000:3000".to_owned(),
        groups: vec!["2000".to_owned()],
        cap_add: vec!["NET_BIND_SERVICE".to_owned()],
        cap_drop: vec!["ALL".to_owned()],
        read_only_root: true,
        options: vec!["no-new-privileges".to_owned()],
        unmasked: true,
        ..Security::default()
    };
    let body = container(
        &ContainerSpec {
            security,
            ..container_spec()
        },
        OLD,
    );
    let host = &body["HostConfig"];
    assert_eq!(body["User"], json!("1000:3000"));
    assert_eq!(host["GroupAdd"], json!(["2000"]));
    assert_eq!(host["CapAdd"], json!(["NET_BIND_SERVICE"]));
    assert_eq!(host["CapDrop"], json!(["ALL"]));
    assert_eq!(host["ReadonlyRootfs"], json!(true));
    assert_eq!(host["SecurityOpt"], json!(["no-new-privileges"]));
    assert_eq!(
        (&host["MaskedPaths"], &host["ReadonlyPaths"]),
        (&json!([]), &json!([]))
    );
}

#[test]
fn na_044_a_container_may_be_privileged_and_a_sandbox_never_is() {
    let security = Security {
        privileged: true,
        ..Security::default()
    };
    let body = container(
        &ContainerSpec {
            security,
            ..container_spec()
        },
        OLD,
    );
    assert_eq!(body["HostConfig"]["Privileged"], json!(true));
    assert_eq!(
        sandbox(&sandbox_spec())["HostConfig"]["Privileged"],
        Value::Null
    );
}

#[test]
fn na_045_with_the_hosts_network_no_host_name_is_sent() {
    let spec = SandboxSpec {
        network: Namespace::Host,
        pid: Namespace::Host,
        ..sandbox_spec()
    };
    let body = sandbox(&spec);
    assert_eq!(body["Hostname"], Value::Null);
    assert_eq!(body["HostConfig"]["NetworkMode"], json!("host"));
    assert_eq!(body["HostConfig"]["UTSMode"], json!("host"));
    assert_eq!(body["HostConfig"]["PidMode"], json!("host"));
    let spec = ContainerSpec {
        network: Namespace::Host,
        hostname: "n1".to_owned(),
        ..container_spec()
    };
    let body = container(&spec, OLD);
    assert_eq!(body["Hostname"], Value::Null);
    assert_eq!(body["HostConfig"]["UTSMode"], json!("host"));
}

#[test]
fn a_joined_network_gives_the_name_so_none_is_sent() {
    let spec = ContainerSpec {
        hostname: "p".to_owned(),
        pid: joined(),
        ..container_spec()
    };
    let body = container(&spec, OLD);
    assert_eq!(body["Hostname"], Value::Null);
    assert_eq!(body["HostConfig"]["UTSMode"], Value::Null);
    assert_eq!(body["HostConfig"]["PidMode"], json!("container:5a5a"));
}

#[test]
fn na_049_several_host_ports_of_one_port_are_appended() {
    let port = |host_port, host_ip: &str, protocol: &str| PortMapping {
        protocol: protocol.to_owned(),
        container_port: 8080,
        host_port,
        host_ip: host_ip.to_owned(),
    };
    let ports = vec![
        port(18_081, "127.0.0.1", "TCP"),
        port(18_082, "", "TCP"),
        port(53, "", "UDP"),
    ];
    let body = sandbox(&SandboxSpec {
        ports,
        ..sandbox_spec()
    });
    assert_eq!(
        body["ExposedPorts"],
        json!({"8080/tcp": {}, "8080/udp": {}})
    );
    assert_eq!(
        body["HostConfig"]["PortBindings"],
        json!({
            "8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": "18081"}, {"HostIp": "", "HostPort": "18082"}],
            "8080/udp": [{"HostIp": "", "HostPort": "53"}],
        })
    );
}

#[test]
fn na_026_sysctls_go_on_the_sandbox() {
    let sysctls = [(
        "net.ipv4.ip_unprivileged_port_start".to_owned(),
        "0".to_owned(),
    )]
    .into();
    let body = sandbox(&SandboxSpec {
        sysctls,
        ..sandbox_spec()
    });
    assert_eq!(
        body["HostConfig"]["Sysctls"],
        json!({"net.ipv4.ip_unprivileged_port_start": "0"})
    );
}

#[test]
fn a_private_mount_leaves_its_propagation_to_the_engine() {
    let mount = Mount {
        source: "/var/lib/docker/containers".into(),
        target: "/logs".to_owned(),
        read_only: false,
        propagation: "rprivate",
    };
    let spec = ContainerSpec {
        mounts: vec![mount],
        ..container_spec()
    };
    assert_eq!(
        container(&spec, OLD)["HostConfig"]["Mounts"][0]["BindOptions"],
        json!({})
    );
}

#[test]
fn na_103_mount_fields_follow_the_api_version() {
    let mount = |read_only| Mount {
        source: "/srv/data".into(),
        target: "/data".to_owned(),
        read_only,
        propagation: "rslave",
    };
    let spec = ContainerSpec {
        mounts: vec![mount(true), mount(false)],
        ..container_spec()
    };
    let entry = |read_only: bool, options: Value| {
        json!({
            "Type": "bind", "Source": "/srv/data", "Target": "/data", "ReadOnly": read_only, "BindOptions": options,
        })
    };
    let plain = json!({"Propagation": "rslave"});
    assert_eq!(
        container(&spec, OLD)["HostConfig"]["Mounts"],
        json!([entry(true, plain.clone()), entry(false, plain.clone())])
    );
    for api in [engine(44), engine(52)] {
        let not_recursive = json!({"Propagation": "rslave", "ReadOnlyNonRecursive": true});
        assert_eq!(
            container(&spec, api)["HostConfig"]["Mounts"],
            json!([entry(true, not_recursive), entry(false, plain.clone())])
        );
    }
}
