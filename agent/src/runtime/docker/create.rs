//! What is sent to make a container: pure translations of specs (spec/node-agent.md 10 and 11).

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount as BindMount,
    MountBindOptions, MountBindOptionsPropagationEnum as Propagation, MountType, PortBinding,
    PortMap, RestartPolicy, RestartPolicyNameEnum,
};

use super::client::Abilities;
use super::version::ApiVersion;
use crate::runtime::{ContainerSpec, Labels, Mount, Namespace, PortMapping, SandboxSpec};

/// CPU weight of a sandbox: the least there is.
const SANDBOX_CPU_SHARES: i64 = 2;
/// A sandbox is about the last process to be killed for memory: all containers of its pod hang on it.
const SANDBOX_OOM_SCORE_ADJ: i64 = -998;
/// Docker's own default, sent so that an engine's configuration does not change it.
const SHM_BYTES: i64 = 64 << 20;
/// A log file is turned over at this size, and so many are kept.
const LOG_MAX_SIZE: &str = "10m";
const LOG_MAX_FILES: &str = "5";
/// From here on a read-only mount is recursive unless told otherwise (Engine 25).
const READ_ONLY_IS_RECURSIVE: ApiVersion = ApiVersion {
    major: 1,
    minor: 44,
};

/// The body that makes a sandbox. `labels` are the final ones, `network` the engine's name of the pods' network.
pub(super) fn sandbox_body(
    spec: &SandboxSpec,
    labels: Labels,
    image: &str,
    engine: Abilities,
    network: &str,
) -> ContainerCreateBody {
    let host_network = spec.network == Namespace::Host;
    ContainerCreateBody {
        image: Some(image.to_owned()),
        hostname: non_empty(&spec.hostname).filter(|_| !host_network),
        user: non_empty(&spec.user),
        exposed_ports: non_empty_list(exposed_ports(&spec.ports)),
        host_config: Some(HostConfig {
            port_bindings: (!spec.ports.is_empty()).then(|| port_bindings(&spec.ports)),
            sysctls: (!spec.sysctls.is_empty()).then(|| spec.sysctls.clone().into_iter().collect()),
            cpu_shares: Some(SANDBOX_CPU_SHARES),
            oom_score_adj: Some(SANDBOX_OOM_SCORE_ADJ.max(engine.lowest_oom_score)),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            readonly_rootfs: Some(true),
            log_config: Some(log_config("none", &[])),
            ..namespaces(&spec.network, &spec.ipc, &spec.pid, network)
        }),
        ..common(labels)
    }
}

/// The body that makes a pod's container. `labels` are the final ones.
pub(super) fn container_body(
    spec: &ContainerSpec,
    labels: Labels,
    engine: Abilities,
    network: &str,
) -> ContainerCreateBody {
    let (resources, security) = (&spec.resources, &spec.security);
    // With an entry point of its own the image's command must not be appended to it.
    let cmd = spec
        .cmd
        .clone()
        .or_else(|| spec.entrypoint.as_ref().map(|_| Vec::new()));
    ContainerCreateBody {
        image: Some(spec.image.clone()),
        entrypoint: spec.entrypoint.clone(),
        cmd,
        env: Some(spec.env.clone()),
        working_dir: non_empty(&spec.working_dir),
        // Docker refuses a name beside a joined or the host's network: it then follows from that.
        hostname: non_empty(&spec.hostname).filter(|_| spec.network == Namespace::Own),
        user: non_empty(&security.user),
        open_stdin: Some(spec.stdin),
        stdin_once: Some(spec.stdin_once),
        tty: Some(spec.tty),
        stop_signal: non_empty(&spec.stop_signal),
        host_config: Some(HostConfig {
            mounts: non_empty_list(
                spec.mounts
                    .iter()
                    .map(|mount| bind_mount(mount, engine.api))
                    .collect(),
            ),
            cpu_shares: Some(resources.cpu_shares),
            cpu_period: Some(resources.cpu_period),
            cpu_quota: Some(resources.cpu_quota),
            memory: Some(resources.memory),
            memory_swap: Some(resources.memory_swap),
            oom_score_adj: Some(resources.oom_score_adj.max(engine.lowest_oom_score)),
            privileged: Some(security.privileged),
            cap_add: non_empty_list(security.cap_add.clone()),
            cap_drop: non_empty_list(security.cap_drop.clone()),
            group_add: non_empty_list(security.groups.clone()),
            security_opt: non_empty_list(security.options.clone()),
            readonly_rootfs: Some(security.read_only_root),
            masked_paths: security.unmasked.then(Vec::new),
            readonly_paths: security.unmasked.then(Vec::new),
            log_config: Some(log_config(
                "json-file",
                &[("max-size", LOG_MAX_SIZE), ("max-file", LOG_MAX_FILES)],
            )),
            ..namespaces(&spec.network, &spec.ipc, &spec.pid, network)
        }),
        ..common(labels)
    }
}

/// What every container has: the agent alone restarts, removes and probes.
fn common(labels: Labels) -> ContainerCreateBody {
    ContainerCreateBody {
        labels: Some(labels.into_iter().collect()),
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

fn namespaces(
    network: &Namespace,
    ipc: &Namespace,
    pid: &Namespace,
    default_network: &str,
) -> HostConfig {
    let mode = |namespace: &Namespace| match namespace {
        Namespace::Own => None,
        Namespace::Shareable => Some("shareable".to_owned()),
        Namespace::Host => Some("host".to_owned()),
        Namespace::Container(id) => Some(format!("container:{}", id.0)),
    };
    let network_mode = match network {
        Namespace::Own | Namespace::Shareable => Some(default_network.to_owned()),
        other => mode(other),
    };
    HostConfig {
        network_mode,
        ipc_mode: mode(ipc),
        pid_mode: mode(pid),
        uts_mode: (*network == Namespace::Host).then(|| "host".to_owned()),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        auto_remove: Some(false),
        shm_size: Some(SHM_BYTES),
        init: Some(false),
        ..HostConfig::default()
    }
}

fn bind_mount(mount: &Mount, api: ApiVersion) -> BindMount {
    let propagation = match mount.propagation {
        "rslave" => Some(Propagation::RSLAVE),
        "rshared" => Some(Propagation::RSHARED),
        // The engine's own choice: private, but for a source that holds its data directory or lies in it (`/`,
        // `/var/lib/docker/containers`), where it refuses to be told so.
        _ => None,
    };
    // Keeps what Engine 20.10 does: mounts below a read-only one stay as they are.
    let not_recursive = (mount.read_only && api >= READ_ONLY_IS_RECURSIVE).then_some(true);
    BindMount {
        typ: Some(MountType::BIND),
        source: Some(mount.source.to_string_lossy().into_owned()),
        target: Some(mount.target.clone()),
        read_only: Some(mount.read_only),
        bind_options: Some(MountBindOptions {
            propagation,
            read_only_non_recursive: not_recursive,
            ..MountBindOptions::default()
        }),
        ..BindMount::default()
    }
}

fn port_key(port: &PortMapping) -> String {
    format!(
        "{}/{}",
        port.container_port,
        port.protocol.to_ascii_lowercase()
    )
}

fn exposed_ports(ports: &[PortMapping]) -> Vec<String> {
    let mut keys: Vec<_> = ports.iter().map(port_key).collect();
    keys.sort();
    keys.dedup();
    keys
}

fn port_bindings(ports: &[PortMapping]) -> PortMap {
    let mut bindings: PortMap = HashMap::new();
    for port in ports {
        let binding = PortBinding {
            host_ip: Some(port.host_ip.clone()),
            host_port: Some(port.host_port.to_string()),
        };
        bindings
            .entry(port_key(port))
            .or_default()
            .get_or_insert_default()
            .push(binding);
    }
    bindings
}

fn log_config(driver: &str, options: &[(&str, &str)]) -> HostConfigLogConfig {
    let options: HashMap<_, _> = options
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    HostConfigLogConfig {
        typ: Some(driver.to_owned()),
        config: (!options.is_empty()).then_some(options),
    }
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn non_empty_list<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

#[cfg(test)]
#[path = "create_tests.rs"]
mod tests;
