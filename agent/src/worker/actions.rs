//! What a step may ask for, and how it is told the outcome.

use std::borrow::Cow;
use std::time::Duration;

use crate::probe::{ProbeKind, Reply};
use crate::runtime::{ContainerId, ImageView};

/// One thing to do. Each is carried out at most once at a time: see [`Action::work`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Put the pod into the checkpoint.
    Keep,
    /// Make (or refresh) the pod's directory, volumes and files.
    Prepare,
    /// Find the image, or pull it.
    EnsureImage {
        /// For which container; events name it.
        container: String,
        /// The reference of the spec.
        reference: String,
        /// `Always`, `IfNotPresent` or `Never`.
        policy: &'static str,
        /// It is for the container's first start in this pod: what was pulled early for the pod's revision serves.
        first: bool,
    },
    /// Find or pull an image of the pod's next revision, early ([`super::pre_pull`]).
    PrePull {
        /// The reference of the next revision's spec.
        reference: String,
        /// `Always`, `IfNotPresent` or `Never`.
        policy: &'static str,
        /// The revision's hash, for events.
        revision: String,
        /// Whether events tell of it: retries are quiet.
        told: bool,
    },
    /// Make and start a sandbox.
    RunSandbox {
        /// 0 for the first one of the pod.
        attempt: u32,
    },
    /// Make and start a container.
    Start(Box<StartOrder>),
    /// Probe a running container once.
    Probe(Box<ProbeOrder>),
    /// Stop a container, and kill it after the grace.
    Stop {
        /// Which.
        id: ContainerId,
        /// From SIGTERM to SIGKILL.
        grace: Duration,
        /// The whole grace this is the rest of: a shorter one shortens a running stop.
        total: Duration,
    },
    /// Remove a stopped container.
    Remove {
        /// Which.
        id: ContainerId,
    },
    /// Unmount and remove the pod's directory.
    Release,
    /// Tell the server that nothing of the pod is left.
    Confirm,
    /// Break off a pull.
    Cancel(Work),
}

/// Which container to start, with what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartOrder {
    /// Its name in the spec.
    pub container: String,
    /// Its restart count.
    pub attempt: u32,
    /// A container of the same attempt that was made and never started: removed first.
    pub leftover: Option<ContainerId>,
    /// The sandbox to join; `None`: the pod has none.
    pub sandbox: Option<ContainerId>,
    /// The pod's address.
    pub pod_ip: String,
    /// What to run.
    pub image: ImageView,
}

/// What to probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeOrder {
    /// The container's name in the spec.
    pub container: String,
    /// The running one.
    pub id: ContainerId,
    /// Which of its probes.
    pub kind: ProbeKind,
    /// The pod's address.
    pub pod_ip: String,
}

/// Identity of an action: two actions of one identity never run at the same time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// [`Action::Keep`].
    Keep,
    /// [`Action::Prepare`].
    Prepare,
    /// [`Action::EnsureImage`], by reference.
    Image(String),
    /// [`Action::PrePull`], by reference.
    PrePull(String),
    /// [`Action::RunSandbox`].
    Sandbox,
    /// [`Action::Start`], by container name.
    Start(String),
    /// [`Action::Probe`], by container and kind.
    Probe(ContainerId, ProbeKind),
    /// [`Action::Stop`] with its whole grace. A shorter grace is another work: the running stop is shortened.
    Stop(ContainerId, Duration),
    /// [`Action::Remove`].
    Remove(ContainerId),
    /// [`Action::Release`].
    Release,
    /// [`Action::Confirm`].
    Confirm,
}

impl Action {
    /// Its identity; `None` for what is done at once.
    pub fn work(&self) -> Option<Work> {
        Some(match self {
            Self::Keep => Work::Keep,
            Self::Prepare => Work::Prepare,
            Self::EnsureImage { reference, .. } => Work::Image(reference.clone()),
            Self::PrePull { reference, .. } => Work::PrePull(reference.clone()),
            Self::RunSandbox { .. } => Work::Sandbox,
            Self::Start(order) => Work::Start(order.container.clone()),
            Self::Probe(order) => Work::Probe(order.id.clone(), order.kind),
            Self::Stop { id, total, .. } => Work::Stop(id.clone(), *total),
            Self::Remove { id } => Work::Remove(id.clone()),
            Self::Release => Work::Release,
            Self::Confirm => Work::Confirm,
            Self::Cancel(_) => return None,
        })
    }
}

impl Work {
    /// Whether doing it changes what the runtime shows, so that it must be looked at again.
    pub fn touches_runtime(&self) -> bool {
        matches!(
            self,
            Self::Sandbox | Self::Start(_) | Self::Stop(..) | Self::Remove(_)
        )
    }
}

/// How an action ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Which.
    pub work: Work,
    /// How.
    pub done: Done,
}

/// How something ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// As asked, as far as the doer can tell; the next look shows.
    Well,
    /// The image is here.
    Image(ImageView),
    /// A probe was run.
    Probed(Reply),
    /// Not.
    Failed {
        /// The waiting reason it leads to; empty where there is none.
        reason: String,
        /// In words.
        message: String,
    },
}

impl Done {
    /// A failure that has no waiting reason of its own.
    pub fn failed(message: impl ToString) -> Self {
        Self::Failed {
            reason: String::new(),
            message: message.to_string(),
        }
    }
}

/// An event to record on the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventNote {
    /// The container it is about; `None`: the pod.
    pub container: Option<String>,
    /// `Warning` rather than `Normal`.
    pub warning: bool,
    /// `BackOff`, ...
    pub reason: Cow<'static, str>,
    /// In words.
    pub message: String,
}

impl EventNote {
    /// Of `Normal` type.
    pub fn normal(
        container: Option<&str>,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            container: container.map(str::to_owned),
            warning: false,
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// Of `Warning` type.
    pub fn warning(
        container: Option<&str>,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            container: container.map(str::to_owned),
            warning: true,
            reason: reason.into(),
            message: message.into(),
        }
    }
}
