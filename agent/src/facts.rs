//! What the pure parts need to know of a pod and of its host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_model::k8s::api::core::v1::{Container, Pod, PodSpec};
use muster_model::object::{Object, ObjectError};
use muster_model::reason::annotation;
use muster_model::resources::{Amounts, qos_class};
use muster_model::time::{SHORTEST_RESTART_DELAY, parse_duration};

/// How long things take that only policy decides (spec/node-agent.md 1). Tests scale them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// First delay of a container that ends again and again: 10 s.
    pub restart_first: Duration,
    /// Longest such delay: 300 s.
    pub restart_max: Duration,
    /// A run longer than this is no crash loop: 600 s.
    pub restart_forget: Duration,
    /// First delay after a failed pull: 10 s.
    pub pull_first: Duration,
    /// Longest such delay: 300 s.
    pub pull_max: Duration,
    /// Until a failed sync is tried again: 10 s.
    pub failed_sync: Duration,
    /// Until everything of a pod is looked at again with nothing changed: 60 s.
    pub resync: Duration,
    /// First delay after a volume could not be set up: 500 ms.
    pub volume_first: Duration,
    /// Longest such delay: 122 s.
    pub volume_max: Duration,
    /// When a volume that does not come is called timed out: 123 s.
    pub volume_patience: Duration,
    /// Grace of the sandbox: 10 s.
    pub sandbox_grace: Duration,
    /// Smallest time between SIGTERM and SIGKILL: 2 s.
    pub smallest_stop: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            restart_first: seconds(10),
            restart_max: seconds(300),
            restart_forget: seconds(600),
            pull_first: seconds(10),
            pull_max: seconds(300),
            failed_sync: seconds(10),
            resync: seconds(60),
            volume_first: Duration::from_millis(500),
            volume_max: seconds(122),
            volume_patience: seconds(123),
            sandbox_grace: seconds(10),
            smallest_stop: seconds(2),
        }
    }
}

/// What pods need to know of the node they run on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostFacts {
    /// The node's name.
    pub node_name: String,
    /// The host's name: that of pods with the host's network.
    pub host_name: String,
    /// The node's addresses, the first one is `status.hostIP`.
    pub ips: Vec<String>,
    /// What the machine has.
    pub capacity: Amounts,
    /// What pods may have of it.
    pub allocatable: Amounts,
    /// Identity of the server's data; empty before the first registration.
    pub cluster: String,
    /// Whether pods without a seccomp profile get the engine's default one.
    pub seccomp_default: bool,
    /// Policy.
    pub timing: Timing,
}

impl HostFacts {
    /// The first address; empty when none is known.
    pub fn ip(&self) -> &str {
        self.ips.first().map(String::as_str).unwrap_or_default()
    }
}

/// Whether the pod is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It is.
    Wanted,
    /// Its object is being deleted: stop it within the grace and confirm.
    Deleted {
        /// `metadata.deletionGracePeriodSeconds`.
        grace_seconds: i64,
    },
    /// Its object is gone: stop it with its own grace; nobody waits for a confirmation.
    Removed,
}

/// Of a pod that asks for nothing.
const NO_CLASS: &str = "BestEffort";

/// A pod as the agent knows it.
#[derive(Debug, Clone)]
pub struct PodFacts {
    /// The object.
    pub object: Arc<Object>,
    /// Its typed view.
    pub pod: Arc<Pod>,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// Whether it is to run.
    pub life: Life,
    /// Its quality of service: of the spec, which changes seldom, while a status is computed at every step.
    pub qos_class: &'static str,
    /// The node.
    pub host: Arc<HostFacts>,
}

impl PodFacts {
    /// Of an object, to run on this host.
    pub fn new(object: Object, host: Arc<HostFacts>) -> Result<Self, ObjectError> {
        let pod: Pod = object.typed()?;
        let life = match object.is_terminating() {
            false => Life::Wanted,
            true => Life::Deleted {
                grace_seconds: pod
                    .metadata
                    .deletion_grace_period_seconds
                    .or(pod
                        .spec
                        .as_ref()
                        .and_then(|spec| spec.termination_grace_period_seconds))
                    .unwrap_or(30),
            },
        };
        Ok(Self {
            uid: object.uid().to_owned(),
            name: object.name().to_owned(),
            namespace: object.namespace().to_owned(),
            object: Arc::new(object),
            qos_class: pod.spec.as_ref().map_or(NO_CLASS, qos_class),
            pod: Arc::new(pod),
            life,
            host,
        })
    }

    /// The spec. A pod without one has no containers and so does nothing.
    pub fn spec(&self) -> &PodSpec {
        static EMPTY: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
        self.pod.spec.as_ref().unwrap_or(&EMPTY)
    }

    /// The regular containers.
    pub fn containers(&self) -> &[Container] {
        &self.spec().containers
    }

    /// One regular container.
    pub fn container(&self, name: &str) -> Option<&Container> {
        self.containers()
            .iter()
            .find(|container| container.name == name)
    }

    /// `NAME_NS(UID)`, as messages name pods.
    pub fn full_name(&self) -> String {
        format!("{}_{}({})", self.name, self.namespace, self.uid)
    }

    /// `Always`, `OnFailure` or `Never`.
    pub fn restart_policy(&self) -> &str {
        self.spec().restart_policy.as_deref().unwrap_or("Always")
    }

    /// Whether the pod uses the host's network.
    pub fn host_network(&self) -> bool {
        self.spec().host_network == Some(true)
    }

    /// Grace when nothing else is said, seconds.
    pub fn grace_seconds(&self) -> i64 {
        self.spec().termination_grace_period_seconds.unwrap_or(30)
    }

    /// Labels.
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.pod.metadata.labels.clone().unwrap_or_default()
    }

    /// One annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.pod
            .metadata
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    /// The host name inside (spec/node-agent.md 13.1).
    pub fn host_name(&self) -> String {
        if self.host_network() {
            return self.host.host_name.clone();
        }
        let wanted = self
            .spec()
            .hostname
            .as_deref()
            .filter(|name| !name.is_empty())
            .unwrap_or(&self.name);
        let cut: String = wanted.chars().take(63).collect();
        cut.trim_end_matches(['-', '.']).to_owned()
    }

    /// Longest delay between restarts: the annotation's, where it is lower than the node's.
    pub fn restart_max(&self) -> Duration {
        let most = self.host.timing.restart_max;
        self.annotation(annotation::MAX_RESTART_DELAY)
            .and_then(|text| parse_duration(text.trim()).ok())
            .map_or(most, |own| own.max(SHORTEST_RESTART_DELAY).min(most))
    }
}
