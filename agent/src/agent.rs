//! The agent as a whole: the order of starting and stopping.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use muster_model::k8s::api::core::v1::{Node, NodeStatus};
use muster_model::time::SharedClock;
use parking_lot::{Mutex, RwLock};
use rustix::fs::FlockOperation;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admit::{NodeFacts, NodeObject};
use crate::checkpoint::{Checkpoint, PodRecord};
use crate::config::{AgentConfig, ConfigError};
use crate::facts::HostFacts;
use crate::identity::{Connect, IdentityFile};
use crate::image_puller::ImagePuller;
use crate::machine::is_tmpfs;
use crate::moment::Moment;
use crate::node::{self, AddressError};
use crate::object_store::ObjectStore;
use crate::outbox::Outbox;
use crate::pods::Pods;
use crate::runtime::Runtime;
use crate::session::Session;
use crate::shared::{Health, Shared};
use crate::worker::actions::EventNote;
use crate::{node_rounds, relist};

/// What the set of pods is told waits here; full means it is busy, and the stream from the server waits.
const INPUT_ROOM: usize = 256;
/// A hung engine must not keep the node from registering.
const FIRST_ANSWER: Duration = Duration::from_secs(2);
/// An agent that is told to stop is gone after this.
const STOP_WITHIN: Duration = Duration::from_secs(4);

/// Why an agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A setting cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The node has no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Another agent uses the state directory.
    #[error("another agent is running with the state directory {0}")]
    Locked(PathBuf),
    /// The state directory belongs to another node.
    #[error(
        "the state directory {directory} belongs to node \"{owner}\"; node \"{name}\" needs one of its own"
    )]
    OtherNode {
        /// The directory.
        directory: PathBuf,
        /// The name in its identity file.
        owner: String,
        /// The name asked for.
        name: String,
    },
    /// The state directory cannot be used.
    #[error("the state directory {directory} cannot be used: {source}")]
    State {
        /// The directory.
        directory: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The node agent.
#[derive(Debug, Clone, Copy)]
pub struct Agent;

impl Agent {
    /// Runs until `shutdown`; pods of the checkpoint start at once, the server is dialled meanwhile and for ever. Stopping
    /// takes at most 5 s and stops no container.
    ///
    /// # Errors
    /// Only for what no retry can mend: settings, the state directory, the address.
    pub async fn run(
        config: AgentConfig,
        runtime: Arc<dyn Runtime>,
        clock: SharedClock,
        connector: Arc<dyn Connect>,
        shutdown: CancellationToken,
    ) -> Result<(), AgentError> {
        config.check()?;
        let addresses = node::addresses(&config)?;
        let state = State::open(&config)?;
        let stop = shutdown.child_token();
        // Dropped in the middle, the agent takes everything it started with it.
        let _all_ends = stop.clone().drop_guard();
        let (connection, connected) = watch::channel(None);
        let shared = share(config, runtime, clock, &addresses, &state, connected, &stop);
        announce(&shared, &state);

        let mut tasks = JoinSet::new();
        let (inputs, received) = mpsc::channel(INPUT_ROOM);
        // The first status is there before anything is told.
        node_rounds::round(&shared, &addresses, FIRST_ANSWER).await;
        let kept_node = shared.checkpoint.as_ref().and_then(Checkpoint::node);
        let facts = NodeFacts {
            name: shared.config.node_name.clone(),
            object: kept_node
                .and_then(|node| node.typed::<Node>().ok())
                .map(|node| NodeObject::of(&node)),
            allocatable: shared.host().allocatable.clone(),
            allowed_sysctls: shared.config.allowed_unsafe_sysctls.clone(),
        };
        let cluster = state.identity.cluster_id.clone();
        let pods = Pods::start(
            Arc::clone(&shared),
            state.records,
            facts,
            cluster,
            stop.clone(),
        )
        .await;
        tasks.spawn(pods.run(received));
        tasks.spawn(relist::run(
            Arc::clone(&shared),
            inputs.clone(),
            stop.clone(),
        ));
        tasks.spawn(relist::listen(Arc::clone(&shared), stop.clone()));
        tasks.spawn(node_rounds::run(
            Arc::clone(&shared),
            addresses,
            stop.clone(),
        ));
        let session = Session {
            shared: Arc::clone(&shared),
            connector,
            pods: inputs,
            connection,
            identity: state.identity,
            stop: stop.clone(),
        };
        tasks.spawn(session.run());

        let mut failed = None;
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            Some(ended) = tasks.join_next() => failed = ended.err(),
        }
        // A part that ended by itself has panicked: the process is better started anew than run without it.
        stop.cancel();
        let rest = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_WITHIN, rest).await.is_err() {
            tracing::warn!("some parts of the agent did not stop in time");
        }
        if let Some(error) = failed
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
        drop(state.lock);
        Ok(())
    }
}

fn share(
    config: AgentConfig,
    runtime: Arc<dyn Runtime>,
    clock: SharedClock,
    addresses: &[IpAddr],
    state: &State,
    connected: watch::Receiver<Option<muster_client::Connection>>,
    stop: &CancellationToken,
) -> Arc<Shared> {
    let capacity = node::capacity(&config);
    let host = HostFacts {
        node_name: config.node_name.clone(),
        host_name: node::host_name(&config).to_owned(),
        ips: addresses.iter().map(IpAddr::to_string).collect(),
        allocatable: node::allocatable(&config, &capacity),
        capacity,
        cluster: state.identity.cluster_id.clone(),
        seccomp_default: config.seccomp_default,
        timing: config.timing.clone(),
    };
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let starts = if config.max_parallel_starts == 0 {
        2 * processors
    } else {
        config.max_parallel_starts
    };
    let on_tmpfs = config.state_dir.as_deref().is_some_and(is_tmpfs);
    Arc::new(Shared {
        outbox: Outbox::new(&config.node_name, config.seed),
        objects: ObjectStore::new(
            connected,
            state.checkpoint.clone(),
            config.seed,
            stop.clone(),
        ),
        images: ImagePuller::new(
            Arc::clone(&runtime),
            Arc::clone(&clock),
            config.max_parallel_pulls,
            config.offline_image_fallback,
        ),
        starts: Semaphore::new(starts),
        host: RwLock::new(Arc::new(host)),
        health: Health::default(),
        secrets_on_disk: config.secrets_on_disk || on_tmpfs,
        directory: Mutex::default(),
        look_for_strangers: Notify::new(),
        snapshot_again: Notify::new(),
        node_status: Mutex::new(NodeStatus::default()),
        checkpoint: state.checkpoint.clone(),
        config,
        clock,
        runtime,
    })
}

fn announce(shared: &Shared, state: &State) {
    let (node, now) = (&shared.config.node_name, Moment::of(&*shared.clock));
    shared.outbox.node_event(
        node,
        &EventNote::normal(None, "Starting", "Starting agent."),
        now,
    );
    let boot_id = &shared.config.machine.boot_id;
    if !state.former_boot.is_empty() && state.former_boot != *boot_id {
        let message = format!("Node {node} has been rebooted, boot id: {boot_id}");
        shared
            .outbox
            .node_event(node, &EventNote::warning(None, "Rebooted", message), now);
    }
}

/// What the state directory holds.
struct State {
    /// Held as long as the agent runs.
    lock: Option<File>,
    checkpoint: Option<Checkpoint>,
    records: Vec<PodRecord>,
    identity: IdentityFile,
    former_boot: String,
}

impl State {
    fn open(config: &AgentConfig) -> Result<Self, AgentError> {
        let fresh = IdentityFile {
            node_name: config.node_name.clone(),
            machine_id: config.machine.machine_id.clone(),
            boot_id: config.machine.boot_id.clone(),
            ..IdentityFile::default()
        };
        let Some(directory) = &config.state_dir else {
            let identity = fresh;
            return Ok(Self {
                lock: None,
                checkpoint: None,
                records: Vec::new(),
                identity,
                former_boot: String::new(),
            });
        };
        let fail = |source| AgentError::State {
            directory: directory.clone(),
            source,
        };
        let lock = lock(directory)?;
        let former = IdentityFile::load(directory);
        if let Some(former) = &former
            && former.node_name != config.node_name
        {
            return Err(AgentError::OtherNode {
                directory: directory.clone(),
                owner: former.node_name.clone(),
                name: config.node_name.clone(),
            });
        }
        let checkpoint = Checkpoint::open(directory).map_err(fail)?;
        let found = checkpoint.load().map_err(fail)?;
        for (file, reason) in &found.bad {
            tracing::warn!(
                file,
                reason,
                "a checkpoint file is damaged; it was moved to checkpoint/bad and its pod skipped"
            );
        }
        let former_boot = former
            .as_ref()
            .map(|former| former.boot_id.clone())
            .unwrap_or_default();
        let identity = match former {
            // A copied disk: the same name on another machine is another node to the server.
            Some(former) => IdentityFile {
                machine_id: fresh.machine_id,
                boot_id: fresh.boot_id,
                ..former
            },
            None => fresh,
        };
        identity.store(directory).map_err(fail)?;
        Ok(Self {
            lock: Some(lock),
            checkpoint: Some(checkpoint),
            records: found.pods,
            identity,
            former_boot,
        })
    }
}

fn lock(directory: &Path) -> Result<File, AgentError> {
    let fail = |source| AgentError::State {
        directory: directory.to_owned(),
        source,
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(directory)
        .map_err(fail)?;
    let path = directory.join("agent.lock");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(fail)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(AgentError::Locked(directory.to_owned())),
        Err(error) => Err(fail(error.into())),
    }
}
