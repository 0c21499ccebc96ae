//! What the parts of one agent share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use muster_model::k8s::api::core::v1::NodeStatus;
use muster_model::time::{SharedClock, Timestamp};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, Semaphore, watch};

use crate::checkpoint::Checkpoint;
use crate::config::AgentConfig;
use crate::facts::{HostFacts, PodFacts};
use crate::image_puller::ImagePuller;
use crate::moment::{Moment, Mono};
use crate::network_files::NodeDns;
use crate::object_store::ObjectStore;
use crate::outbox::Outbox;
use crate::runtime::{Runtime, RuntimeError};

/// How to make a worker look again, and its pod as it is to be.
pub(crate) type Reach = (Arc<Notify>, watch::Receiver<Arc<PodFacts>>);

/// One agent's parts.
pub(crate) struct Shared {
    pub(crate) config: AgentConfig,
    pub(crate) clock: SharedClock,
    pub(crate) runtime: Arc<dyn Runtime>,
    /// `None` on hollow nodes.
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) outbox: Outbox,
    pub(crate) objects: Arc<ObjectStore>,
    pub(crate) images: ImagePuller,
    /// Container starts at a time: more gain nothing.
    pub(crate) starts: Semaphore,
    pub(crate) host: RwLock<Arc<HostFacts>>,
    pub(crate) health: Health,
    pub(crate) secrets_on_disk: bool,
    /// The workers, by pod uid.
    pub(crate) directory: Mutex<BTreeMap<String, Reach>>,
    /// Have the containers of unknown pods looked for.
    pub(crate) look_for_strangers: Notify,
    /// Have the server tell all pods again, after a while.
    pub(crate) snapshot_again: Notify,
    /// The node's last computed status.
    pub(crate) node_status: Mutex<NodeStatus>,
}

/// How the engine is.
#[derive(Debug, Default)]
pub(crate) struct Health {
    inner: Mutex<HealthInner>,
}

#[derive(Debug, Default)]
struct HealthInner {
    answered: Option<Mono>,
    stopped_at: Option<Timestamp>,
    down: bool,
    version: String,
}

impl Health {
    /// Takes in how a call to the engine ended.
    pub(crate) fn note<T>(&self, result: &Result<T, RuntimeError>, now: Moment) {
        let mut inner = self.inner.lock();
        match result {
            Err(error) if error.is_engine_trouble() => {
                if !inner.down {
                    inner.stopped_at = Some(now.wall);
                    tracing::warn!(%error, "the container runtime does not answer");
                }
                inner.down = true;
            }
            _ => {
                if inner.down {
                    tracing::info!("the container runtime answers again");
                }
                inner.down = false;
                inner.answered = Some(now.mono);
            }
        }
    }

    /// The engine's version, when it said it.
    pub(crate) fn set_version(&self, version: &str) {
        version.clone_into(&mut self.inner.lock().version);
    }

    /// The engine's version; empty before it answered.
    pub(crate) fn version(&self) -> String {
        self.inner.lock().version.clone()
    }

    /// When the engine last went away.
    pub(crate) fn stopped_at(&self) -> Option<Timestamp> {
        self.inner.lock().stopped_at
    }

    /// Whether it has not answered for longer than `patience`, or never.
    pub(crate) fn is_down(&self, patience: Duration, now: Mono) -> bool {
        self.inner
            .lock()
            .answered
            .is_none_or(|at| now.since(at) > patience)
    }
}

impl Shared {
    /// Now.
    pub(crate) fn now(&self) -> Moment {
        Moment::of(&*self.clock)
    }

    /// The node, as pods see it.
    pub(crate) fn host(&self) -> Arc<HostFacts> {
        Arc::clone(&self.host.read())
    }

    /// A pod's directory; `None` on hollow nodes.
    pub(crate) fn pod_dir(&self, uid: &str) -> Option<PathBuf> {
        self.config
            .state_dir
            .as_ref()
            .map(|dir| dir.join("pods").join(uid))
    }

    /// What the node gives for names, read afresh: it changes with the network.
    pub(crate) fn dns(&self) -> NodeDns {
        let mut path = self.config.resolv_conf.clone();
        let mut text = std::fs::read_to_string(&path).unwrap_or_default();
        let stub = crate::network_files::Resolver::parse(&text).servers == ["127.0.0.53"];
        let real = PathBuf::from("/run/systemd/resolve/resolv.conf");
        if stub && real.exists() {
            path = real;
            text = std::fs::read_to_string(&path).unwrap_or_default();
        }
        NodeDns {
            resolver: crate::network_files::Resolver::parse(&text),
            cluster_dns: self.config.cluster_dns.clone(),
            cluster_domain: self.config.cluster_domain.clone(),
        }
    }

    /// How long until this moment of the steady clock.
    pub(crate) fn until(&self, at: Mono) -> Duration {
        at.since(self.now().mono)
    }
}
