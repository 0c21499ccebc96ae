//! The Node object: what is registered, and its status (spec/node-agent.md 2 and 4). Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use muster_model::k8s::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec, NodeStatus,
    NodeSystemInfo,
};
use muster_model::k8s::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use muster_model::quantity::Quantity;
use muster_model::reason::{annotation, condition, label};
use muster_model::time::Timestamp;

use crate::config::AgentConfig;
use crate::machine::{file_system_bytes, kibibytes};
use crate::moment::whole_seconds;
use crate::worker::actions::EventNote;
use muster_model::resources::{Amounts, CPU, MEMORY, PODS, STORAGE};

/// Memory that is never given to pods: below it the agent evicts.
const EVICTION_MEMORY_KIB: i64 = 100 * 1024;

/// What the machine has, as the Node shows it.
pub fn capacity(config: &AgentConfig) -> Amounts {
    let mut capacity = config.machine.capacity.clone();
    let storage = config.state_dir.as_deref().and_then(file_system_bytes);
    if let Some(bytes) = storage {
        capacity.set(STORAGE, kibibytes(bytes / 1024));
    }
    for (name, amount) in &config.capacity.0 {
        // It may be lowered, never raised.
        let found = capacity.0.get(name).copied();
        if found.is_none_or(|found| *amount < found) {
            capacity.set(name, *amount);
        }
    }
    capacity.set(PODS, Quantity::from_units(config.max_pods));
    capacity
}

/// What pods may have of it: less what is reserved and what eviction keeps free.
pub fn allocatable(config: &AgentConfig, capacity: &Amounts) -> Amounts {
    let mut left = capacity.clone();
    let mut take = |name: &str, amount: Quantity| {
        if let Some(found) = left.0.get(name).copied() {
            let rest = found - amount;
            left.set(
                name,
                if rest.is_negative() {
                    Quantity::ZERO
                } else {
                    rest
                },
            );
        }
    };
    for reserved in [&config.system_reserved, &config.kube_reserved] {
        for (name, amount) in &reserved.0 {
            take(name, *amount);
            if name.starts_with("hugepages-") {
                take(MEMORY, *amount);
            }
        }
    }
    take(MEMORY, kibibytes(EVICTION_MEMORY_KIB));
    take(
        STORAGE,
        kibibytes(capacity.get(STORAGE).as_units_ceil() / 10 / 1024),
    );
    left
}

/// An address the node cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The wish breaks a rule.
    #[error("node address {ip} is {what}")]
    Refused {
        /// The address.
        ip: IpAddr,
        /// Loopback, multicast, ...
        what: &'static str,
    },
    /// There is none.
    #[error("no address for this node was found; name one")]
    None,
}

/// The node's addresses, `InternalIP` first.
///
/// # Errors
/// The wished one cannot be, or none was found.
pub fn addresses(config: &AgentConfig) -> Result<Vec<IpAddr>, AddressError> {
    if let Some(ip) = config.node_ip {
        let refused = |what| Err(AddressError::Refused { ip, what });
        if ip.is_unspecified() {
            return refused("unspecified");
        }
        if ip.is_multicast() {
            return refused("multicast");
        }
        if ip.is_loopback() && !config.allow_loopback_node_ip {
            return refused("a loopback address, which --allow-loopback-node-ip would allow");
        }
        return Ok(vec![ip]);
    }
    let found = &config.machine.addresses;
    match found.first() {
        Some(_) => Ok(found.clone()),
        None if config.allow_loopback_node_ip => Ok(vec![IpAddr::from([127, 0, 0, 1])]),
        None => Err(AddressError::None),
    }
}

/// The Node as this agent registers it. The server keeps what an administrator has set (spec/node-agent.md 2).
pub fn registration(config: &AgentConfig, status: NodeStatus) -> Node {
    let machine = &config.machine;
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    let mut set = |key: &str, value: &str| {
        labels.insert(key.to_owned(), value.to_owned());
    };
    set(label::HOSTNAME, host_name(config));
    set(label::OS, "linux");
    set(label::BETA_OS, "linux");
    set(label::ARCH, &machine.architecture);
    set(label::BETA_ARCH, &machine.architecture);
    config
        .labels
        .iter()
        .for_each(|(key, value)| set(key, value));
    let own: Vec<&str> = config.labels.keys().map(String::as_str).collect();
    let annotations = BTreeMap::from([(annotation::AGENT_LABELS.to_owned(), own.join(","))]);
    Node {
        metadata: ObjectMeta {
            name: Some(config.node_name.clone()),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            taints: (!config.taints.is_empty()).then(|| config.taints.clone()),
            unschedulable: (!config.register_schedulable).then_some(true),
            provider_id: (!config.provider_id.is_empty()).then(|| config.provider_id.clone()),
            ..NodeSpec::default()
        }),
        status: Some(status),
    }
}

/// The host's name: the node's where none is known.
pub fn host_name(config: &AgentConfig) -> &str {
    if config.machine.host_name.is_empty() {
        &config.node_name
    } else {
        &config.machine.host_name
    }
}

/// What is observed for a status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeView {
    /// `docker://20.10.24`; empty before the engine answered.
    pub runtime_version: String,
    /// What makes the node not ready, in words.
    pub errors: Vec<String>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
}

/// The whole status; `last` gives transition times.
pub fn status(
    config: &AgentConfig,
    seen: &NodeView,
    last: &NodeStatus,
    now: Timestamp,
) -> NodeStatus {
    let machine = &config.machine;
    let capacity = capacity(config);
    let allocatable = allocatable(config, &capacity);
    let mut errors = seen.errors.clone();
    let expected: &[&str] = if config.state_dir.is_some() {
        &[CPU, MEMORY, STORAGE]
    } else {
        &[CPU, MEMORY]
    };
    let missing: Vec<&str> = expected
        .iter()
        .copied()
        .filter(|name| !capacity.0.contains_key(*name))
        .collect();
    if !missing.is_empty() {
        errors.push(format!(
            "missing node capacity for resources: {}",
            missing.join(", ")
        ));
    }
    let mut addresses: Vec<NodeAddress> = seen
        .addresses
        .iter()
        .map(|ip| NodeAddress {
            type_: "InternalIP".into(),
            address: ip.to_string(),
        })
        .collect();
    addresses.push(NodeAddress {
        type_: "Hostname".into(),
        address: host_name(config).to_owned(),
    });
    let ready = match errors.as_slice() {
        [] => (
            "True",
            "KubeletReady",
            "kubelet is posting ready status".to_owned(),
        ),
        [one] => ("False", "KubeletNotReady", one.clone()),
        many => ("False", "KubeletNotReady", format!("[{}]", many.join(", "))),
    };
    let conditions = [
        (
            condition::MEMORY_PRESSURE,
            (
                "False",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available".to_owned(),
            ),
        ),
        (
            condition::DISK_PRESSURE,
            (
                "False",
                "KubeletHasNoDiskPressure",
                "kubelet has no disk pressure".to_owned(),
            ),
        ),
        (
            condition::PID_PRESSURE,
            (
                "False",
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available".to_owned(),
            ),
        ),
        (condition::READY, ready),
    ];
    let now = Time(whole_seconds(now));
    let conditions = conditions
        .into_iter()
        .map(|(type_, (status, reason, message))| {
            let before = last
                .conditions
                .iter()
                .flatten()
                .find(|c| c.type_ == type_ && c.status == status);
            NodeCondition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message),
                last_heartbeat_time: Some(now.clone()),
                last_transition_time: before
                    .and_then(|c| c.last_transition_time.clone())
                    .or_else(|| Some(now.clone())),
            }
        })
        .collect();
    let version = muster_model::version_text();
    NodeStatus {
        addresses: Some(addresses),
        capacity: Some(capacity.to_list()),
        allocatable: Some(allocatable.to_list()),
        conditions: Some(conditions),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: 0 }),
        }),
        node_info: Some(NodeSystemInfo {
            machine_id: machine.machine_id.clone(),
            system_uuid: machine.system_uuid.clone(),
            boot_id: machine.boot_id.clone(),
            kernel_version: machine.kernel_version.clone(),
            os_image: machine.os_image.clone(),
            operating_system: "linux".into(),
            architecture: machine.architecture.clone(),
            container_runtime_version: seen.runtime_version.clone(),
            kubelet_version: version.clone(),
            kube_proxy_version: version,
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}

/// Whether the Ready condition is True.
pub fn is_ready(status: &NodeStatus) -> bool {
    ready_word(status) == Some("True")
}

/// Whether the server has given the node up: its Ready condition is Unknown.
pub fn is_unknown(node: &Node) -> bool {
    node.status.as_ref().and_then(ready_word) == Some("Unknown")
}

fn ready_word(status: &NodeStatus) -> Option<&str> {
    let mut conditions = status.conditions.iter().flatten();
    let ready = conditions.find(|c| c.type_ == condition::READY)?;
    Some(&ready.status)
}

/// Whether two statuses say the same but for heartbeat times.
pub fn same_but_for_heartbeats(a: &NodeStatus, b: &NodeStatus) -> bool {
    let still = |status: &NodeStatus| {
        let mut status = status.clone();
        status
            .conditions
            .iter_mut()
            .flatten()
            .for_each(|c| c.last_heartbeat_time = None);
        status
    };
    still(a) == still(b)
}

/// The events of conditions that flipped.
pub fn flips(node: &str, before: &NodeStatus, after: &NodeStatus) -> Vec<EventNote> {
    let status = |s: &NodeStatus, type_: &str| {
        s.conditions
            .iter()
            .flatten()
            .find(|c| c.type_ == type_)
            .map(|c| c.status.clone())
    };
    let names: [(&str, &'static str, &'static str); 4] = [
        (condition::READY, "NodeReady", "NodeNotReady"),
        (
            condition::MEMORY_PRESSURE,
            "NodeHasInsufficientMemory",
            "NodeHasSufficientMemory",
        ),
        (
            condition::DISK_PRESSURE,
            "NodeHasDiskPressure",
            "NodeHasNoDiskPressure",
        ),
        (
            condition::PID_PRESSURE,
            "NodeHasInsufficientPID",
            "NodeHasSufficientPID",
        ),
    ];
    let flipped = |(type_, when_true, when_false): (&str, &'static str, &'static str)| {
        let now = status(after, type_)?;
        if status(before, type_).as_ref() == Some(&now) {
            return None;
        }
        let reason = if now == "True" { when_true } else { when_false };
        Some(EventNote::normal(
            None,
            reason,
            format!("Node {node} status is now: {reason}"),
        ))
    };
    names.into_iter().filter_map(flipped).collect()
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
