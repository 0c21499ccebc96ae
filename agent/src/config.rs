//! Everything that is decided before the agent starts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use muster_model::k8s::api::core::v1::Taint;
use muster_model::names;
use muster_model::reason::label;

use crate::disk::DiskWork;
use crate::facts::Timing;
use crate::machine::Machine;
use muster_model::resources::Amounts;

/// The agent's settings. [`AgentConfig::new`] gives the defaults.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// The node's name.
    pub node_name: String,
    /// Where checkpoint, volumes and credentials live. `None`: a hollow node, which keeps nothing on disk and gives its
    /// pods no volumes and no files; for simulations.
    pub state_dir: Option<PathBuf>,
    /// What the machine is; by default read from it.
    pub machine: Machine,
    /// Labels of the command line.
    pub labels: BTreeMap<String, String>,
    /// Taints given to the Node when it is first made.
    pub taints: Vec<Taint>,
    /// Whether the Node is made schedulable.
    pub register_schedulable: bool,
    /// `spec.providerID`; empty: none.
    pub provider_id: String,
    /// Lowers what the machine has.
    pub capacity: Amounts,
    /// Kept for the host.
    pub system_reserved: Amounts,
    /// Kept for the agent and the runtime.
    pub kube_reserved: Amounts,
    /// Most pods.
    pub max_pods: i64,
    /// The node's address; `None`: found out.
    pub node_ip: Option<IpAddr>,
    /// Whether a loopback address may be the node's.
    pub allow_loopback_node_ip: bool,
    /// Servers of a cluster DNS; empty: there is none.
    pub cluster_dns: Vec<String>,
    /// Its domain.
    pub cluster_domain: String,
    /// The resolver file that pods inherit.
    pub resolv_conf: PathBuf,
    /// Pods without a seccomp profile get the engine's default one.
    pub seccomp_default: bool,
    /// With the registry out of reach a local image serves `Always` as well.
    pub offline_image_fallback: bool,
    /// Pulls at a time, beside one that is made early for a revision to come.
    pub max_parallel_pulls: usize,
    /// Container starts at a time; 0: twice the processors.
    pub max_parallel_starts: usize,
    /// Sysctls allowed beside the safe ones: names, or `net.core.*`.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Secrets may be written to disk instead of a tmpfs.
    pub secrets_on_disk: bool,
    /// Pods are stopped when the node's identity is revoked.
    pub stop_pods_when_removed: bool,
    /// Where work that waits for the disk is done.
    pub disk: DiskWork,
    /// Seed of jitters: agents with different seeds do not act in step.
    pub seed: u64,
    /// Delays of pods; tests scale them.
    pub timing: Timing,
    /// Beats of the agent itself; tests scale them.
    pub pace: Pace,
}

/// How often things are done that are done for ever (spec/node-agent.md 1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    /// Heartbeat: 10 s.
    pub heartbeat: Duration,
    /// Node status computed: 10 s.
    pub node_status: Duration,
    /// Node status sent though unchanged: 5 min.
    pub node_status_resend: Duration,
    /// The runtime is looked at: 1 s.
    pub relist: Duration,
    /// No successful look for so long is 'container runtime is down': 30 s.
    pub runtime_patience: Duration,
    /// Dead containers are collected: 60 s.
    pub container_gc: Duration,
    /// A snapshot that lacks all known pods of a server with another identity must be confirmed after: 60 s.
    pub second_snapshot: Duration,
    /// First and longest delay between connections: 250 ms, 15 s.
    pub redial: (Duration, Duration),
}

impl Default for Pace {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            heartbeat: seconds(10),
            node_status: seconds(10),
            node_status_resend: seconds(300),
            relist: seconds(1),
            runtime_patience: seconds(30),
            container_gc: seconds(60),
            second_snapshot: seconds(60),
            redial: (Duration::from_millis(250), seconds(15)),
        }
    }
}

/// Settings that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The node name breaks a rule.
    #[error("node name \"{name}\" is not valid: {rule}")]
    NodeName {
        /// The name.
        name: String,
        /// The rule.
        rule: String,
    },
    /// A label of the command line that an agent may not set.
    #[error("node label \"{0}\" is not one that an agent may set")]
    ForbiddenLabel(String),
    /// A label that is none.
    #[error("node label \"{label}\" is not valid: {rule}")]
    Label {
        /// Key and value.
        label: String,
        /// The rule.
        rule: String,
    },
}

impl AgentConfig {
    /// The defaults, for this node and state directory, on the machine at hand.
    pub fn new(node_name: impl Into<String>, state_dir: Option<PathBuf>) -> Self {
        Self {
            node_name: node_name.into(),
            state_dir,
            machine: Machine::read(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            register_schedulable: true,
            provider_id: String::new(),
            capacity: Amounts::default(),
            system_reserved: Amounts::default(),
            kube_reserved: Amounts::default(),
            max_pods: 110,
            node_ip: None,
            allow_loopback_node_ip: false,
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".into(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            seccomp_default: true,
            offline_image_fallback: true,
            max_parallel_pulls: 1,
            max_parallel_starts: 0,
            allowed_unsafe_sysctls: Vec::new(),
            secrets_on_disk: false,
            stop_pods_when_removed: false,
            disk: DiskWork::default(),
            seed: rand::random(),
            timing: Timing::default(),
            pace: Pace::default(),
        }
    }

    /// Checks what can be checked without acting.
    ///
    /// # Errors
    /// The first thing that cannot be.
    pub fn check(&self) -> Result<(), ConfigError> {
        if let Some(rule) = names::check_subdomain(&self.node_name).into_iter().next() {
            return Err(ConfigError::NodeName {
                name: self.node_name.clone(),
                rule,
            });
        }
        for (key, value) in &self.labels {
            if !is_own_label(key) {
                return Err(ConfigError::ForbiddenLabel(key.clone()));
            }
            let rule = names::check_qualified_name(key)
                .into_iter()
                .chain(names::check_label_value(value))
                .next();
            if let Some(rule) = rule {
                return Err(ConfigError::Label {
                    label: format!("{key}={value}"),
                    rule,
                });
            }
        }
        Ok(())
    }
}

/// Whether an agent may set this label on its own Node (spec/node-agent.md 2).
fn is_own_label(key: &str) -> bool {
    let allowed = [
        label::HOSTNAME,
        label::OS,
        label::ARCH,
        label::BETA_OS,
        label::BETA_ARCH,
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    ];
    let Some((prefix, _)) = key.split_once('/') else {
        return true;
    };
    let under = |domain: &str| prefix == domain || prefix.ends_with(&format!(".{domain}"));
    if allowed.contains(&key) || under("kubelet.kubernetes.io") || prefix == "node.kubernetes.io" {
        return true;
    }
    !under("kubernetes.io") && !under("k8s.io")
}

/// Reads a taint of the command line: `key=value:Effect`, `key:Effect`.
pub fn parse_taint(text: &str) -> Option<Taint> {
    let (pair, effect) = text.rsplit_once(':')?;
    let (key, value) = pair
        .split_once('=')
        .map_or((pair, None), |(key, value)| (key, Some(value)));
    let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect);
    (known && !key.is_empty()).then(|| Taint {
        key: key.to_owned(),
        value: value.map(str::to_owned),
        effect: effect.to_owned(),
        time_added: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(label: &str) -> AgentConfig {
        let mut config = AgentConfig::new("n1", None);
        config.labels.insert(label.into(), "1".into());
        config
    }

    #[test]
    fn na_004_labels_of_kubernetes_are_not_the_agents_to_set() {
        for bad in [
            "kubernetes.io/foo",
            "x.k8s.io/y",
            "node-restriction.kubernetes.io/z",
        ] {
            assert_eq!(
                config(bad).check(),
                Err(ConfigError::ForbiddenLabel(bad.into()))
            );
        }
        for good in [
            "disk",
            "example.com/disk",
            "topology.kubernetes.io/zone",
            "node.kubernetes.io/x",
            "kubernetes.io/os",
        ] {
            assert_eq!(config(good).check(), Ok(()), "{good}");
        }
    }

    #[test]
    fn a_node_name_follows_the_rules_of_names() {
        assert!(AgentConfig::new("node-1.example", None).check().is_ok());
        assert!(matches!(
            AgentConfig::new("Node_1", None).check(),
            Err(ConfigError::NodeName { .. })
        ));
    }

    #[test]
    fn taints_are_read_as_kubectl_writes_them() {
        let taint = parse_taint("k=v:NoSchedule").unwrap();
        assert_eq!(
            (
                taint.key.as_str(),
                taint.value.as_deref(),
                taint.effect.as_str()
            ),
            ("k", Some("v"), "NoSchedule")
        );
        assert_eq!(parse_taint("k:NoExecute").unwrap().value, None);
        assert_eq!(parse_taint("k=v:Never"), None);
    }
}
