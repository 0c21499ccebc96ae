//! The node's last word about a pod (spec/node-agent.md 7). Pure: the first check that fails decides.

use std::collections::BTreeMap;

use muster_model::affinity;
use muster_model::k8s::api::core::v1::{Node, Taint};
use muster_model::quantity::Quantity;
use muster_model::reason::label;
use muster_model::taint;

use crate::facts::PodFacts;
use crate::spec;
use crate::worker::memory::Rejection;
use muster_model::resources::{self, Amounts, CPU, MEMORY, PODS, STORAGE};

/// What admission needs to know of the node.
#[derive(Debug, Clone, Default)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// The labels and taints of its object; `None` before it was ever seen.
    pub object: Option<NodeObject>,
    /// What pods may have.
    pub allocatable: Amounts,
    /// Sysctls allowed beside the safe ones: names, or `net.core.*`.
    pub allowed_sysctls: Vec<String>,
}

/// What admission needs of the Node object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeObject {
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
}

impl NodeObject {
    /// Of a Node.
    pub fn of(node: &Node) -> Self {
        Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: node
                .spec
                .as_ref()
                .and_then(|spec| spec.taints.clone())
                .unwrap_or_default(),
        }
    }
}

/// A port a pod takes on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The number.
    pub port: i32,
    /// Empty: all addresses.
    pub ip: String,
}

impl HostPort {
    fn clashes(&self, other: &Self) -> bool {
        let any = |ip: &str| matches!(ip, "" | "0.0.0.0" | "::");
        self.protocol == other.protocol
            && self.port == other.port
            && (self.ip == other.ip || any(&self.ip) || any(&other.ip))
    }
}

/// An admitted pod that is not finished: what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holding {
    /// `NAMESPACE/NAME` of the pod.
    pub pod: String,
    /// Resources.
    pub request: Amounts,
    /// Host ports.
    pub ports: Vec<HostPort>,
}

impl Holding {
    /// What the pod holds once it is admitted.
    pub fn of(pod: &PodFacts) -> Self {
        Self {
            pod: format!("{}/{}", pod.namespace, pod.name),
            request: resources::pod_request(pod.spec()),
            ports: host_ports(pod),
        }
    }
}

/// Ports of the host; with the host's network every container port is one.
fn host_ports(pod: &PodFacts) -> Vec<HostPort> {
    if !pod.host_network() {
        let published = spec::published_ports(pod).into_iter();
        return published
            .map(|port| HostPort {
                protocol: port.protocol,
                port: i32::from(port.host_port),
                ip: port.host_ip,
            })
            .collect();
    }
    let ports = pod
        .containers()
        .iter()
        .flat_map(|container| container.ports.iter().flatten());
    ports
        .map(|port| HostPort {
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
            port: port
                .host_port
                .filter(|number| *number > 0)
                .unwrap_or(port.container_port),
            ip: port.host_ip.clone().unwrap_or_default(),
        })
        .collect()
}

/// Judges a pod against the node and the pods already there.
///
/// # Errors
/// Why not, for good: the pod fails and its owner must make another.
pub fn admit(pod: &PodFacts, node: &NodeFacts, others: &[&Holding]) -> Result<(), Rejection> {
    sysctls(pod, node)?;
    let Some(object) = &node.object else {
        return reject("InvalidNodeInfo", "Kubelet cannot get node info.");
    };
    operating_system(pod, object)?;
    let security = pod.spec().security_context.as_ref();
    if security.and_then(|s| s.supplemental_groups_policy.as_deref()) == Some("Strict") {
        let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
        return reject("SupplementalGroupsPolicyNotSupported", message);
    }
    fits(pod, node, others)?;
    matches_node(pod, node, object)?;
    free_ports(pod, others)?;
    let tolerations = pod.spec().tolerations.as_deref().unwrap_or_default();
    if taint::first_untolerated(&object.taints, tolerations, &[taint::NO_EXECUTE]).is_some() {
        return predicate(
            "TaintToleration",
            "node(s) had taints that the pod didn't tolerate",
        );
    }
    supported(pod)
}

fn reject<T>(reason: &str, message: impl Into<String>) -> Result<T, Rejection> {
    Err(Rejection {
        reason: reason.to_owned(),
        message: message.into(),
    })
}

fn predicate<T>(name: &str, message: &str) -> Result<T, Rejection> {
    reject(name, format!("Predicate {name} failed: {message}"))
}

const SAFE_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

fn sysctls(pod: &PodFacts, node: &NodeFacts) -> Result<(), Rejection> {
    let wanted = pod
        .spec()
        .security_context
        .as_ref()
        .and_then(|s| s.sysctls.as_ref());
    let ipc = ["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."];
    for sysctl in wanted.into_iter().flatten() {
        let name = sysctl.name.replace('/', ".");
        let allowed = SAFE_SYSCTLS.contains(&name.as_str())
            || node
                .allowed_sysctls
                .iter()
                .any(|rule| match rule.strip_suffix('*') {
                    Some(prefix) => name.starts_with(prefix),
                    None => *rule == name,
                });
        let with_host = pod.host_network() && name.starts_with("net.")
            || pod.spec().host_ipc == Some(true)
                && ipc.iter().any(|prefix| name.starts_with(prefix));
        if !allowed || with_host {
            return reject(
                "SysctlForbidden",
                format!("forbidden sysctl: \"{}\" not allowlisted", sysctl.name),
            );
        }
    }
    Ok(())
}

fn operating_system(pod: &PodFacts, node: &NodeObject) -> Result<(), Rejection> {
    let wanted = pod
        .pod
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(label::OS));
    if wanted.is_some() && wanted != node.labels.get(label::OS) {
        let message =
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return reject("PodOSSelectorNodeLabelDoesNotMatch", message);
    }
    if pod.spec().os.as_ref().is_some_and(|os| os.name != "linux") {
        return reject(
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        );
    }
    Ok(())
}

fn fits(pod: &PodFacts, node: &NodeFacts, others: &[&Holding]) -> Result<(), Rejection> {
    let out_of = |name: &str, requested: i64, used: i64, capacity: i64| {
        let message = format!(
            "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
        );
        reject(&format!("OutOf{name}"), message)
    };
    let pods = node.allocatable.get(PODS).as_units_ceil();
    let there = i64::try_from(others.len()).unwrap_or(i64::MAX);
    if there.saturating_add(1) > pods {
        return out_of(PODS, 1, there, pods);
    }
    let request = resources::pod_request(pod.spec());
    let well_known = [CPU, MEMORY, STORAGE];
    let extended = request
        .0
        .keys()
        .map(String::as_str)
        .filter(|name| !well_known.contains(name));
    for name in well_known.into_iter().chain(extended) {
        let wanted = request.get(name);
        if wanted.is_zero() || !node.allocatable.0.contains_key(name) {
            continue;
        }
        let used = others
            .iter()
            .fold(Quantity::ZERO, |sum, other| sum + other.request.get(name));
        let capacity = node.allocatable.get(name);
        if wanted + used > capacity {
            let number = |amount: Quantity| match name {
                CPU => amount.as_milli_ceil(),
                _ => amount.as_units_ceil(),
            };
            return out_of(name, number(wanted), number(used), number(capacity));
        }
    }
    Ok(())
}

fn matches_node(pod: &PodFacts, node: &NodeFacts, object: &NodeObject) -> Result<(), Rejection> {
    let spec = pod.spec();
    let selector = spec.node_selector.as_ref();
    if affinity::mismatch(&node.name, &object.labels, selector, spec.affinity.as_ref()).is_some() {
        return predicate(
            "NodeAffinity",
            "node(s) didn't match Pod's node affinity/selector",
        );
    }
    if spec
        .node_name
        .as_deref()
        .is_some_and(|name| !name.is_empty() && name != node.name)
    {
        return predicate("NodeName", "node(s) didn't match the requested node name");
    }
    Ok(())
}

fn free_ports(pod: &PodFacts, others: &[&Holding]) -> Result<(), Rejection> {
    let wanted = host_ports(pod);
    let taken = others
        .iter()
        .flat_map(|other| other.ports.iter().map(move |port| (*other, port)))
        .find(|(_, port)| wanted.iter().any(|own| own.clashes(port)));
    match taken {
        None => Ok(()),
        // Kubernetes' sentence, and what a person needs to mend it.
        Some((holder, port)) => predicate(
            "NodePorts",
            &format!(
                "node(s) didn't have free ports for the requested pod ports ({}/{} is held by pod {})",
                port.port, port.protocol, holder.pod
            ),
        ),
    }
}

/// A field that would silently weaken the pod if it were ignored rejects it.
fn supported(pod: &PodFacts) -> Result<(), Rejection> {
    match unsupported(pod) {
        None => Ok(()),
        Some(path) => {
            let message = format!("Pod uses {path}, which this node agent does not support");
            reject("UnsupportedByNode", message)
        }
    }
}

fn unsupported(pod: &PodFacts) -> Option<String> {
    let spec = pod.spec();
    if spec
        .init_containers
        .as_ref()
        .is_some_and(|list| !list.is_empty())
    {
        return Some("spec.initContainers".to_owned());
    }
    if spec.host_users == Some(false) {
        return Some("spec.hostUsers".to_owned());
    }
    if spec
        .runtime_class_name
        .as_deref()
        .is_some_and(|name| !name.is_empty())
    {
        return Some("spec.runtimeClassName".to_owned());
    }
    if spec
        .resource_claims
        .as_ref()
        .is_some_and(|claims| !claims.is_empty())
    {
        return Some("spec.resourceClaims".to_owned());
    }
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        if let Some(kind) = crate::volume::unsupported(volume) {
            return Some(format!("spec.volumes[{index}].{kind}"));
        }
    }
    for (index, container) in spec.containers.iter().enumerate() {
        if container
            .volume_devices
            .as_ref()
            .is_some_and(|devices| !devices.is_empty())
        {
            return Some(format!("spec.containers[{index}].volumeDevices"));
        }
    }
    None
}

#[cfg(test)]
#[path = "admit_tests.rs"]
mod tests;
