//! What the agent needs of a container runtime: the [`Runtime`] trait. `docker` is the real one,
//! `memory` the double for tests, the simulation and the scale benchmark.
//!
//! Specs arrive fully worked out (spec/node-agent.md 10 and 11): a runtime only translates and acts.
//! Nothing done is assumed to have worked: the pod worker looks at [`Runtime::list`] again.

pub mod docker;
pub mod labels;
pub mod memory;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use muster_client::dial::BoxedIo;
use muster_model::time::Timestamp;

/// A container id as the runtime gives it (64 hex digits with Docker).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(pub String);

/// Labels a container carries; identity is read from these, never from its name (spec/node-agent.md 9).
pub type Labels = BTreeMap<String, String>;

/// Where a container's network, IPC or PID namespace comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Namespace {
    /// Its own.
    #[default]
    Own,
    /// Its own, and others may join (the sandbox's IPC).
    Shareable,
    /// The host's.
    Host,
    /// That of another container.
    Container(ContainerId),
}

/// A published port of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortMapping {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Port inside.
    pub container_port: u16,
    /// Port on the host.
    pub host_port: u16,
    /// Address on the host; empty: all.
    pub host_ip: String,
}

/// A bind mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Path on the engine's host. Exists when the container is created.
    pub source: PathBuf,
    /// Absolute path inside.
    pub target: String,
    /// Whether writing is refused (not recursive: Kubernetes' meaning).
    pub read_only: bool,
    /// `rprivate`, `rslave` or `rshared`.
    pub propagation: &'static str,
}

/// Limits and weights in the units of spec/node-agent.md 11.2; 0 means none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resources {
    /// Relative weight, 2 to 262 144.
    pub cpu_shares: i64,
    /// Microseconds.
    pub cpu_period: i64,
    /// Microseconds per period.
    pub cpu_quota: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes, memory and swap together.
    pub memory_swap: i64,
    /// -1000 to 1000.
    pub oom_score_adj: i64,
}

/// Users, capabilities and their kin (spec/node-agent.md 11.3).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Security {
    /// `uid`, `uid:gid` or empty for the image's.
    pub user: String,
    /// Numeric group ids.
    pub groups: Vec<String>,
    /// Everything allowed, all devices.
    pub privileged: bool,
    /// Added capabilities, without `CAP_`.
    pub cap_add: Vec<String>,
    /// Dropped capabilities, without `CAP_`.
    pub cap_drop: Vec<String>,
    /// Root file system read-only.
    pub read_only_root: bool,
    /// Engine options such as `no-new-privileges`, `seccomp=unconfined`.
    pub options: Vec<String>,
    /// Whether the engine's masked and read-only paths are lifted (`procMount: Unmasked`).
    pub unmasked: bool,
}

/// The container that owns a pod's namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxSpec {
    /// `k8s_POD_NAME_NS_UID_ATTEMPT`.
    pub name: String,
    /// Identity and bookkeeping.
    pub labels: Labels,
    /// Empty with the host's network.
    pub hostname: String,
    /// Host or its own.
    pub network: Namespace,
    /// Host or shareable.
    pub ipc: Namespace,
    /// Host or its own.
    pub pid: Namespace,
    /// Published ports.
    pub ports: Vec<PortMapping>,
    /// Kernel parameters.
    pub sysctls: BTreeMap<String, String>,
    /// `uid[:gid]` or empty.
    pub user: String,
}

/// One container of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerSpec {
    /// `k8s_CTR_NAME_NS_UID_ATTEMPT`.
    pub name: String,
    /// Identity and bookkeeping.
    pub labels: Labels,
    /// Image id (or reference, where the id is not known).
    pub image: String,
    /// Replaces the image's entry point; `None`: the image's.
    pub entrypoint: Option<Vec<String>>,
    /// Replaces the image's command; `None`: the image's.
    pub cmd: Option<Vec<String>>,
    /// `K=V`, in order.
    pub env: Vec<String>,
    /// Empty: the image's.
    pub working_dir: String,
    /// Bind mounts.
    pub mounts: Vec<Mount>,
    /// The sandbox's, or the host's where no sandbox is made.
    pub network: Namespace,
    /// The sandbox's or the host's.
    pub ipc: Namespace,
    /// Its own, the sandbox's or the host's.
    pub pid: Namespace,
    /// Only where no sandbox carries it (host network).
    pub hostname: String,
    /// Limits and weights.
    pub resources: Resources,
    /// Users and capabilities.
    pub security: Security,
    /// Keep stdin open.
    pub stdin: bool,
    /// Close it after the first attach.
    pub stdin_once: bool,
    /// Allocate a terminal.
    pub tty: bool,
    /// Empty: the image's.
    pub stop_signal: String,
}

/// What a container is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerState {
    /// Made and never started.
    Created,
    /// A start was tried and the runtime refused it: the command is missing, or a port or mount failed.
    StartFailed {
        /// 127, 126 or 128.
        exit_code: i32,
        /// The runtime's words.
        message: String,
    },
    /// Running (or paused) since then.
    Running {
        /// When it started.
        started_at: Timestamp,
        /// Process id on the host; 0 when unknown.
        pid: u32,
    },
    /// It ended.
    Exited {
        /// When it started.
        started_at: Timestamp,
        /// When it ended.
        finished_at: Timestamp,
        /// 137 after SIGKILL.
        exit_code: i32,
        /// The kernel killed it for its memory limit.
        oom_killed: bool,
        /// The runtime's words, often empty.
        message: String,
    },
    /// Being removed, or broken beyond use.
    Gone,
}

/// A container as the runtime shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerView {
    /// Its id.
    pub id: ContainerId,
    /// Its name, without the leading slash.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// The image id it runs.
    pub image_id: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// What it is doing.
    pub state: ContainerState,
    /// Its address, when it has a network namespace of its own and runs.
    pub ip: Option<String>,
    /// Where the engine keeps its log, when it says so.
    pub log_path: Option<PathBuf>,
}

/// A local image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageView {
    /// `sha256:...`.
    pub id: String,
    /// Tags, first one first.
    pub tags: Vec<String>,
    /// `repo@sha256:...`.
    pub digests: Vec<String>,
    /// Bytes.
    pub size_bytes: i64,
    /// The user it runs as; empty is root.
    pub user: String,
}

/// The engine behind the runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// As nodes show it: `docker://20.10.24`.
    pub text: String,
    /// Negotiated API version, such as `1.41`.
    pub api_version: String,
}

/// Which log lines (spec/node-agent.md 23).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogOptions {
    /// Stay until the container ends.
    pub follow: bool,
    /// Last lines, both streams together; `None`: all.
    pub tail_lines: Option<i64>,
    /// Only at or after.
    pub since: Option<Timestamp>,
    /// RFC 3339 with nanoseconds before each line.
    pub timestamps: bool,
}

/// How a command inside a container ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecOutcome {
    /// Its exit code; `None` when it was still running at its time limit.
    pub exit_code: Option<i32>,
    /// Both streams together, at most [`MAX_EXEC_OUTPUT`] bytes; what is not UTF-8 is replaced.
    pub output: String,
}

/// Most bytes of a command's output that are kept: the first ones.
pub const MAX_EXEC_OUTPUT: usize = 10 * 1024;

/// Something happened to a container: look again. A hint only; [`Runtime::list`] is the truth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeEvent {
    /// Of which pod, from its labels.
    pub pod_uid: String,
}

/// Why the runtime could not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// The engine does not answer.
    #[error("container runtime is down: {0}")]
    Unreachable(String),
    /// A call took longer than its deadline.
    #[error("the container runtime did not answer {what} within {limit_seconds} s")]
    TimedOut {
        /// The call.
        what: &'static str,
        /// The deadline.
        limit_seconds: u64,
    },
    /// No such container or image.
    #[error("{0}")]
    NotFound(String),
    /// The name or the state is in the way.
    #[error("{0}")]
    Conflict(String),
    /// The registry, or the way to it, does not answer (spec/node-agent.md 16, offline fallback).
    #[error("{0}")]
    RegistryUnreachable(String),
    /// The engine refused, in its words.
    #[error("{message}")]
    Refused {
        /// HTTP status of the engine's answer; 0 when there is none.
        status: u16,
        /// The engine's words.
        message: String,
    },
    /// The engine is too old or the host lacks what is needed.
    #[error("{0}")]
    Unsupported(String),
}

impl RuntimeError {
    /// Whether the engine itself is the trouble, rather than what was asked of it.
    pub fn is_engine_trouble(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::TimedOut { .. })
    }
}

/// A call in flight.
pub type RuntimeFuture<'a, T> = BoxFuture<'a, Result<T, RuntimeError>>;

/// A container runtime, of one node: it shows and touches only containers that carry its node's label.
pub trait Runtime: Send + Sync + 'static {
    /// Asks the engine who it is; also the health check.
    fn version(&self) -> RuntimeFuture<'_, RuntimeVersion>;
    /// Every container of this node, dead ones too.
    fn list(&self) -> RuntimeFuture<'_, Vec<ContainerView>>;
    /// The containers of one pod.
    fn list_pod<'a>(&'a self, pod_uid: &'a str) -> RuntimeFuture<'a, Vec<ContainerView>>;
    /// Makes and starts a sandbox. When the start fails the sandbox is removed again.
    fn run_sandbox<'a>(&'a self, spec: &'a SandboxSpec) -> RuntimeFuture<'a, ContainerId>;
    /// Makes a container.
    fn create<'a>(&'a self, spec: &'a ContainerSpec) -> RuntimeFuture<'a, ContainerId>;
    /// Starts a container; fine when it runs already.
    fn start<'a>(&'a self, id: &'a ContainerId) -> RuntimeFuture<'a, ()>;
    /// Sends the stop signal, and SIGKILL after the grace; fine when it has stopped or is gone.
    fn stop<'a>(&'a self, id: &'a ContainerId, grace: Duration) -> RuntimeFuture<'a, ()>;
    /// Removes a container with its anonymous volumes, by force; fine when it is gone.
    fn remove<'a>(&'a self, id: &'a ContainerId) -> RuntimeFuture<'a, ()>;
    /// The local image of this reference; `None` when it is not here.
    fn image<'a>(&'a self, reference: &'a str) -> RuntimeFuture<'a, Option<ImageView>>;
    /// Pulls an image. `auth` is the registry's base64 auth header, empty for none.
    fn pull<'a>(&'a self, reference: &'a str, auth: &'a str) -> RuntimeFuture<'a, ImageView>;
    /// A container's log: chunks that end at line ends, both streams merged in order.
    fn logs<'a>(
        &'a self,
        id: &'a ContainerId,
        options: &'a LogOptions,
    ) -> RuntimeFuture<'a, BoxStream<'static, Result<Bytes, RuntimeError>>>;
    /// Runs a command in a running container, with its environment and user and without a shell, at most this long.
    /// What runs on then is ended where the engine allows it.
    fn exec<'a>(
        &'a self,
        id: &'a ContainerId,
        command: &'a [String],
        limit: Duration,
    ) -> RuntimeFuture<'a, ExecOutcome>;
    /// Connects to an address of a pod, or any other, from the agent's network. The caller sets the deadline.
    fn dial(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<BoxedIo>> {
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            Ok(Box::new(stream) as BoxedIo)
        })
    }
    /// Hints that a container of this node started, died or vanished. The stream may end at any time.
    fn events(&self) -> RuntimeFuture<'_, BoxStream<'static, RuntimeEvent>>;
}
