//! From a pod to what the runtime is asked for (spec/node-agent.md 9 to 11).

use std::time::Duration;

use muster_model::k8s::api::core::v1::Container;

use crate::facts::PodFacts;
use crate::runtime::labels;
use crate::runtime::{
    ContainerId, ContainerSpec, Labels, Mount, Namespace, PortMapping, Resources, SandboxSpec,
};
use crate::security;
use crate::worker::actions::StartOrder;
use muster_model::resources::{self, Amounts, CPU, MEMORY};

/// Label: the file on the host that is mounted at the termination message path.
pub const TERMINATION_MESSAGE_FILE: &str = "muster.dev/termination-message-file";
/// Where a container leaves its last words, unless its spec says otherwise.
pub const DEFAULT_TERMINATION_PATH: &str = "/dev/termination-log";

/// CPU shares of a container that asks for none, and of every sandbox.
const FEWEST_SHARES: i64 = 2;
const MOST_SHARES: i64 = 262_144;
const CFS_PERIOD: i64 = 100_000;
const SMALLEST_QUOTA: i64 = 1_000;

/// A stable 32-bit hash (FNV-1a).
pub fn fnv32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// Hash of what may change of a container in place: its name and image. Frozen with the label format.
pub fn hash(container: &Container) -> String {
    let image = container.image.as_deref().unwrap_or_default();
    let text = serde_json::json!({"image": image, "name": container.name}).to_string();
    format!("{:x}", fnv32(text.as_bytes()))
}

/// Whether the pod's containers share something that a sandbox must own. One container with the host's network shares
/// nothing, and the sandbox would only cost time and memory.
pub fn needs_sandbox(pod: &PodFacts) -> bool {
    let spec = pod.spec();
    let containers = spec.containers.len() + spec.init_containers.as_ref().map_or(0, Vec::len);
    !pod.host_network() || containers > 1 || spec.share_process_namespace == Some(true)
}

/// The pod's own grace, at least 1 s.
pub fn own_grace(pod: &PodFacts) -> Duration {
    Duration::from_secs(u64::try_from(pod.grace_seconds()).unwrap_or(0).max(1))
}

/// Whether any volume may change while the pod runs.
pub fn has_live_volumes(pod: &PodFacts) -> bool {
    pod.spec().volumes.iter().flatten().any(|volume| {
        volume.config_map.is_some()
            || volume.secret.is_some()
            || volume.projected.is_some()
            || volume.downward_api.is_some()
    })
}

fn identity_labels(pod: &PodFacts, name: &str, kind: &str, attempt: u32) -> Labels {
    let mut labels = Labels::new();
    let mut set = |key: &str, value: &str| {
        labels.insert(key.to_owned(), value.to_owned());
    };
    set(labels::POD_NAME, &pod.name);
    set(labels::POD_NAMESPACE, &pod.namespace);
    set(labels::POD_UID, &pod.uid);
    set(labels::CONTAINER_NAME, name);
    set(labels::TYPE, kind);
    set(labels::RESTART_COUNT, &attempt.to_string());
    set(
        labels::TERMINATION_GRACE_PERIOD,
        &pod.grace_seconds().to_string(),
    );
    set(labels::NODE, &pod.host.node_name);
    if !pod.host.cluster.is_empty() {
        set(labels::CLUSTER, &pod.host.cluster);
    }
    set(labels::FORMAT, labels::FORMAT_VERSION);
    labels
}

/// The sandbox of this attempt.
pub fn sandbox(pod: &PodFacts, attempt: u32) -> SandboxSpec {
    let spec = pod.spec();
    let host_network = pod.host_network();
    let security = spec.security_context.as_ref();
    let user = match (
        security.and_then(|s| s.run_as_user),
        security.and_then(|s| s.run_as_group),
    ) {
        (Some(user), Some(group)) => format!("{user}:{group}"),
        (Some(user), None) => user.to_string(),
        (None, _) => String::new(),
    };
    let sysctls = security
        .and_then(|s| s.sysctls.as_ref())
        .into_iter()
        .flatten();
    SandboxSpec {
        name: container_name(pod, labels::SANDBOX_CONTAINER_NAME, attempt),
        labels: identity_labels(
            pod,
            labels::SANDBOX_CONTAINER_NAME,
            labels::TYPE_SANDBOX,
            attempt,
        ),
        hostname: if host_network {
            String::new()
        } else {
            pod.host_name()
        },
        network: if host_network {
            Namespace::Host
        } else {
            Namespace::Own
        },
        ipc: if spec.host_ipc == Some(true) {
            Namespace::Host
        } else {
            Namespace::Shareable
        },
        pid: if spec.host_pid == Some(true) {
            Namespace::Host
        } else {
            Namespace::Own
        },
        ports: if host_network {
            Vec::new()
        } else {
            published_ports(pod)
        },
        sysctls: sysctls
            .map(|sysctl| (sysctl.name.clone(), sysctl.value.clone()))
            .collect(),
        user,
    }
}

/// Ports with a `hostPort`, in spec order.
pub fn published_ports(pod: &PodFacts) -> Vec<PortMapping> {
    let spec = pod.spec();
    let containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let host_port = u16::try_from(port.host_port?)
                .ok()
                .filter(|number| *number > 0)?;
            Some(PortMapping {
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
                container_port: u16::try_from(port.container_port).ok()?,
                host_port,
                host_ip: port.host_ip.clone().unwrap_or_default(),
            })
        })
        .collect()
}

fn container_name(pod: &PodFacts, name: &str, attempt: u32) -> String {
    format!(
        "k8s_{name}_{}_{}_{}_{attempt}",
        pod.name, pod.namespace, pod.uid
    )
}

/// What a container needs beside its pod's spec.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// Variables, worked out.
    pub env: Vec<(String, String)>,
    /// Volumes and files.
    pub mounts: Vec<Mount>,
    /// Where the termination message goes, on the host.
    pub termination_file: Option<String>,
    /// Seccomp profile text by `localhostProfile`.
    pub seccomp_profile: Option<String>,
}

/// The container to make.
///
/// # Errors
/// The message of `CreateContainerConfigError`.
pub fn container(
    pod: &PodFacts,
    container: &Container,
    order: &StartOrder,
    around: &Surroundings,
) -> Result<ContainerSpec, String> {
    let spec = pod.spec();
    let expand = |list: &Vec<String>| {
        list.iter()
            .map(|text| crate::env::expand(text, &around.env))
            .collect::<Vec<_>>()
    };
    let entrypoint = container
        .command
        .as_ref()
        .filter(|list| !list.is_empty())
        .map(expand);
    let args = container
        .args
        .as_ref()
        .filter(|list| !list.is_empty())
        .map(expand);
    // With a command of its own the image's arguments are not used.
    let cmd = args.or_else(|| entrypoint.is_some().then(Vec::new));
    let sandbox = order.sandbox.as_ref();
    let joined = |host: bool, alone: Namespace| match sandbox {
        _ if host => Namespace::Host,
        Some(id) => Namespace::Container(id.clone()),
        None => alone,
    };
    let network = match sandbox {
        Some(id) => Namespace::Container(id.clone()),
        None => Namespace::Host,
    };
    let pid = if spec.share_process_namespace == Some(true) {
        joined(spec.host_pid == Some(true), Namespace::Own)
    } else if spec.host_pid == Some(true) {
        Namespace::Host
    } else {
        Namespace::Own
    };
    Ok(ContainerSpec {
        name: container_name(pod, &container.name, order.attempt),
        labels: container_labels(pod, container, order, around, sandbox),
        image: order.image.id.clone(),
        entrypoint,
        cmd,
        env: around
            .env
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect(),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        mounts: around.mounts.clone(),
        network,
        ipc: joined(spec.host_ipc == Some(true), Namespace::Own),
        pid,
        hostname: String::new(),
        resources: resources(pod, container),
        security: security::of(
            pod,
            container,
            &order.image,
            around.seccomp_profile.as_deref(),
        )?,
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        stop_signal: stop_signal(container),
    })
}

fn stop_signal(container: &Container) -> String {
    container
        .lifecycle
        .as_ref()
        .and_then(|lifecycle| lifecycle.stop_signal.clone())
        .unwrap_or_default()
}

fn container_labels(
    pod: &PodFacts,
    container: &Container,
    order: &StartOrder,
    around: &Surroundings,
    sandbox: Option<&ContainerId>,
) -> Labels {
    let mut labels = identity_labels(pod, &container.name, labels::TYPE_CONTAINER, order.attempt);
    let mut set = |key: &str, value: String| {
        labels.insert(key.to_owned(), value);
    };
    if let Some(id) = sandbox {
        set(labels::SANDBOX_ID, id.0.clone());
    }
    set(labels::HASH, hash(container));
    set(
        labels::TERMINATION_MESSAGE_PATH,
        termination_path(container).to_owned(),
    );
    let policy = container
        .termination_message_policy
        .as_deref()
        .unwrap_or("File");
    set(labels::TERMINATION_MESSAGE_POLICY, policy.to_owned());
    if let Some(file) = &around.termination_file {
        set(TERMINATION_MESSAGE_FILE, file.clone());
    }
    if let Some(handler) = container
        .lifecycle
        .as_ref()
        .and_then(|lifecycle| lifecycle.pre_stop.as_ref())
        && let Ok(text) = serde_json::to_string(handler)
    {
        set(labels::PRE_STOP_HANDLER, text);
    }
    if let Some(ports) = container.ports.as_ref().filter(|ports| !ports.is_empty())
        && let Ok(text) = serde_json::to_string(ports)
    {
        set(labels::PORTS, text);
    }
    labels
}

/// Where the container leaves its last words.
pub fn termination_path(container: &Container) -> &str {
    container
        .termination_message_path
        .as_deref()
        .filter(|path| !path.is_empty())
        .unwrap_or(DEFAULT_TERMINATION_PATH)
}

/// Limits and weights (spec/node-agent.md 11.2).
pub fn resources(pod: &PodFacts, container: &Container) -> Resources {
    let own = container.resources.as_ref();
    let requests = Amounts::of(own.and_then(|r| r.requests.as_ref()));
    let limits = Amounts::of(own.and_then(|r| r.limits.as_ref()));
    let cpu_limit = limits.get(CPU).as_milli_ceil();
    let cpu_request = match requests.0.get(CPU) {
        Some(request) => request.as_milli_ceil(),
        None => cpu_limit,
    };
    let memory = limits.get(MEMORY).as_units_ceil();
    Resources {
        cpu_shares: (cpu_request.saturating_mul(1024) / 1000).clamp(FEWEST_SHARES, MOST_SHARES),
        cpu_period: if cpu_limit > 0 { CFS_PERIOD } else { 0 },
        cpu_quota: if cpu_limit > 0 {
            cpu_limit
                .saturating_mul(CFS_PERIOD / 1000)
                .max(SMALLEST_QUOTA)
        } else {
            0
        },
        memory,
        memory_swap: memory,
        oom_score_adj: oom_score(pod, container),
    }
}

/// Who the kernel kills first (spec/node-agent.md 21.2).
fn oom_score(pod: &PodFacts, container: &Container) -> i64 {
    let spec = pod.spec();
    if spec.priority_class_name.as_deref() == Some("system-node-critical") {
        return -997;
    }
    match resources::qos_class(spec) {
        "Guaranteed" => -997,
        "BestEffort" => 1000,
        _ => {
            let capacity = pod.host.capacity.get(MEMORY).as_units_ceil().max(1);
            let request = resources::container_request(container)
                .get(MEMORY)
                .as_units_ceil();
            let share =
                i64::try_from(i128::from(request) * 1000 / i128::from(capacity)).unwrap_or(1000);
            (1000 - share).clamp(3, 999)
        }
    }
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
