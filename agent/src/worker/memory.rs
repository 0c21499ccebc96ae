//! What a worker remembers between steps: outcomes it was told, and what no look at the runtime can show.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_model::k8s::api::core::v1::{ContainerStateTerminated, PodStatus};
use muster_model::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::actions::{Done, Outcome, Work};
use super::pre_pull::PrePull;
use super::restarts::Backoff;
use crate::facts::Timing;
use crate::images;
use crate::moment::{Moment, Mono};
use crate::probe::state::ContainerProbes;
use crate::runtime::{ContainerId, ImageView};
use crate::waiting;

/// Why the pod may not run on this node, for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejection {
    /// `OutOfcpu`, `NodeAffinity`, ...
    pub reason: String,
    /// The bare message, as the event carries it.
    pub message: String,
}

/// Something about a container that stands in the way of a start, until `retry_at`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// `CreateContainerConfigError`, ...
    pub reason: String,
    /// In words.
    pub message: String,
    /// When to try again.
    pub retry_at: Mono,
}

/// A failed pull and its back-off (spec/node-agent.md 16).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullTrouble {
    /// `ErrImagePull`, `ErrImageNeverPull`, `InvalidImageName`, or one that tells of the machine.
    pub reason: String,
    /// In words.
    pub message: String,
    /// When it failed.
    pub at: Mono,
    /// From then on how long to wait.
    pub delay: Duration,
    /// Whether the `BackOff` event was sent.
    pub told: bool,
}

impl PullTrouble {
    /// Of a pull that failed now, after it had failed like `before`: each time twice the delay, up to the longest. What asks
    /// no registry is tried again as soon as the first time: a look costs nothing.
    pub fn new(
        before: Option<&Self>,
        (reason, message): (String, String),
        timing: &Timing,
        now: Moment,
    ) -> Self {
        let before = before.filter(|_| !is_mere_look(&reason));
        let delay = before.map_or(timing.pull_first, |before| {
            let doubled = before.delay.saturating_mul(2);
            doubled.clamp(timing.pull_first, timing.pull_max)
        });
        Self {
            reason,
            message,
            at: now.mono,
            delay,
            told: false,
        }
    }

    /// The pull secret that could not be read may have come.
    pub fn hurry(&mut self) {
        if self.reason == waiting::CONFIG_UNAVAILABLE {
            self.delay = Duration::ZERO;
        }
    }

    /// When the next try is due.
    pub fn retry_at(&self) -> Mono {
        self.at.plus(self.delay)
    }
}

/// Whether what failed with this reason was settled on this machine, and may go well the next time.
fn is_mere_look(reason: &str) -> bool {
    [
        images::ERR_IMAGE_NEVER_PULL,
        images::IMAGE_INSPECT_ERROR,
        waiting::CONTAINER_RUNTIME_UNAVAILABLE,
    ]
    .contains(&reason)
}

/// Where an image stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageMemory {
    /// Found or pulled for the start to come.
    pub ready: Option<ImageView>,
    /// The last try failed.
    pub trouble: Option<PullTrouble>,
}

/// Whether the pod's directory, volumes and files are there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumesMemory {
    /// Since when they are; refreshed from time to time.
    pub ready_at: Option<Mono>,
    /// The last try failed: its message, and when to try again.
    pub trouble: Option<(String, Mono)>,
    /// Delay of the next failure.
    pub delay: Duration,
    /// When the first of a row of failures was.
    pub failing_since: Option<Mono>,
    /// Whether `timed out` was said.
    pub told: bool,
    /// An object that is mounted changed: write it again.
    pub stale: bool,
}

/// A container that vanished without a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Vanished {
    /// How the status tells it.
    pub terminated: ContainerStateTerminated,
    /// Its restart count.
    pub attempt: u32,
}

/// What a worker knows besides what the runtime shows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WorkerMemory {
    /// Actions begun and not yet told finished: nothing that is in here is begun again.
    pub in_flight: BTreeSet<Work>,
    /// When the agent first took the pod in.
    pub start_time: Option<Timestamp>,
    /// The node said no.
    pub rejection: Option<Rejection>,
    /// Back-off by container name.
    pub backoff: BTreeMap<String, Backoff>,
    /// When dead containers died, on the steady clock.
    pub deaths: BTreeMap<ContainerId, Mono>,
    /// By reference.
    pub images: BTreeMap<String, ImageMemory>,
    /// What is pulled for the pod's next revision.
    pub pre_pull: Option<PrePull>,
    /// Directory, volumes, files.
    pub volumes: VolumesMemory,
    /// By container name.
    pub trouble: BTreeMap<String, Trouble>,
    /// The sandbox could not be made.
    pub sandbox_trouble: Option<(String, Mono)>,
    /// Highest sandbox attempt seen or begun.
    pub sandbox_attempt: Option<u32>,
    /// Containers that vanished, by name, until another one of the name is seen.
    pub vanished: BTreeMap<String, Vanished>,
    /// Probes of running containers that have any. What they come to outlives the agent with the last status.
    pub probes: BTreeMap<ContainerId, ContainerProbes>,
    /// Containers whose kill was announced.
    pub killing: BTreeSet<ContainerId>,
    /// Dead containers whose back-off was announced.
    pub backoff_told: BTreeSet<ContainerId>,
    /// When the pod's end began.
    pub ending_since: Option<Mono>,
    /// Directory and volumes are gone.
    pub released: bool,
    /// The server took the confirmation.
    pub confirmed: bool,
    /// Past its `activeDeadlineSeconds`.
    pub deadline_exceeded: bool,
    /// Last computed status; transition times, restart counts and phase never go back from here.
    pub last: PodStatus,
    /// Whether the pod's checkpoint is on disk.
    pub kept: bool,
    /// When to write the checkpoint (again).
    pub keep_at: Option<Mono>,
    /// Stopping, removing, releasing or confirming failed: when to try again.
    pub trouble_until: Option<Mono>,
    /// What images are called, by id: kept for the status after the start.
    pub image_names: BTreeMap<String, ImageName>,
}

/// How a status names an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageName {
    /// `image`: the first tag; empty when it has none.
    pub image: String,
    /// `imageID`.
    pub image_id: String,
}

impl ImageName {
    fn of(view: &ImageView) -> Self {
        let image_id = match view.digests.first() {
            Some(digest) => format!("docker-pullable://{digest}"),
            None => format!("docker://{}", view.id),
        };
        Self {
            image: view.tags.first().cloned().unwrap_or_default(),
            image_id,
        }
    }
}

/// The part of a memory that outlives the agent (spec/node-agent.md 26 and 27).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Remembered {
    /// The node said no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejection: Option<Rejection>,
    /// When the agent first took the pod in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// Back-off by container name: delay in milliseconds, and the hash it belongs to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backoff: BTreeMap<String, RememberedBackoff>,
    /// Past its deadline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deadline_exceeded: bool,
    /// Highest sandbox attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_attempt: Option<u32>,
    /// Last reported status.
    #[serde(default)]
    pub status: PodStatus,
}

/// A back-off on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RememberedBackoff {
    /// The delay.
    pub delay_ms: u64,
    /// Container hash it belongs to.
    pub hash: String,
    /// Wall time of its last change.
    pub changed: Timestamp,
}

impl WorkerMemory {
    /// What to keep on disk.
    pub fn remembered(&self, now: Moment) -> Remembered {
        let backoff = self.backoff.iter().map(|(name, entry)| {
            let ago = now.mono.since(entry.changed);
            let changed = now.wall.checked_sub(ago).unwrap_or(now.wall);
            let delay_ms = u64::try_from(entry.delay.as_millis()).unwrap_or(u64::MAX);
            (
                name.clone(),
                RememberedBackoff {
                    delay_ms,
                    hash: entry.hash.clone(),
                    changed,
                },
            )
        });
        Remembered {
            rejection: self.rejection.clone(),
            start_time: self.start_time,
            backoff: backoff.collect(),
            deadline_exceeded: self.deadline_exceeded,
            sandbox_attempt: self.sandbox_attempt,
            status: self.last.clone(),
        }
    }

    /// A memory from disk. After a reboot of the host no back-off is taken over: nothing crashed.
    pub fn restore(kept: Remembered, same_boot: bool, timing: &Timing, now: Moment) -> Self {
        let backoff = kept
            .backoff
            .into_iter()
            .filter(|_| same_boot)
            .map(|(name, entry)| {
                let delay = Duration::from_millis(entry.delay_ms);
                // A run that began before the agent's own start may be long: it is placed by the wall clock as far back as
                // matters and no farther.
                let changed = now.place(entry.changed, timing.restart_forget.saturating_mul(2));
                (
                    name,
                    Backoff {
                        delay,
                        changed,
                        hash: entry.hash,
                    },
                )
            });
        Self {
            rejection: kept.rejection,
            start_time: kept.start_time,
            backoff: backoff.collect(),
            deadline_exceeded: kept.deadline_exceeded,
            sandbox_attempt: kept.sandbox_attempt,
            last: kept.status,
            kept: true,
            ..Self::default()
        }
    }

    /// Takes in how an action ended.
    pub fn note(&mut self, outcome: Outcome, timing: &Timing, now: Moment) {
        self.in_flight.remove(&outcome.work);
        let retry_at = now.mono.plus(timing.failed_sync);
        match (outcome.work, outcome.done) {
            (Work::Prepare, Done::Well) => {
                let ready_at = Some(now.mono);
                self.volumes = VolumesMemory {
                    ready_at,
                    ..VolumesMemory::default()
                };
            }
            (Work::Prepare, Done::Failed { message, .. }) => {
                self.volumes_failed(message, timing, now)
            }
            (Work::Image(reference), Done::Image(view)) => {
                self.image_names
                    .insert(view.id.clone(), ImageName::of(&view));
                self.images.insert(
                    reference,
                    ImageMemory {
                        ready: Some(view),
                        trouble: None,
                    },
                );
            }
            (Work::Image(reference), Done::Failed { reason, message }) => {
                let image = self.images.entry(reference).or_default();
                let before = image.trouble.as_ref();
                let trouble = PullTrouble::new(before, (reason, message), timing, now);
                image.ready = None;
                image.trouble = Some(trouble);
            }
            (Work::PrePull(reference), done) => {
                if let Some(asked) = &mut self.pre_pull {
                    asked.note(&reference, done, timing, now);
                }
            }
            (Work::Sandbox, Done::Failed { message, .. }) => {
                self.sandbox_trouble = Some((message, retry_at))
            }
            (Work::Sandbox, _) => self.sandbox_trouble = None,
            (Work::Start(name), Done::Failed { reason, message }) => {
                if ![
                    waiting::CREATE_CONTAINER_CONFIG_ERROR,
                    waiting::CONFIG_UNAVAILABLE,
                ]
                .contains(&reason.as_str())
                {
                    // The image may be what is missing: look for it again.
                    self.images
                        .values_mut()
                        .for_each(|image| image.ready = None);
                }
                self.trouble.insert(
                    name,
                    Trouble {
                        reason,
                        message,
                        retry_at,
                    },
                );
            }
            (Work::Start(name), _) => {
                self.trouble.remove(&name);
                // Each start asks for its image afresh: `Always` pulls.
                self.images
                    .values_mut()
                    .for_each(|image| image.ready = None);
            }
            (Work::Probe(id, kind), Done::Probed(reply)) => {
                if let Some(probes) = self.probes.get_mut(&id) {
                    probes.note(kind, &reply);
                }
            }
            (Work::Release, Done::Well) => self.released = true,
            (Work::Confirm, Done::Well) => self.confirmed = true,
            (Work::Keep, Done::Well) => self.kept = true,
            (Work::Keep, _) => self.keep_at = Some(retry_at),
            (
                Work::Stop(..) | Work::Remove(_) | Work::Release | Work::Confirm,
                Done::Failed { .. },
            ) => {
                self.trouble_until = Some(retry_at);
            }
            _ => {}
        }
    }

    /// Something the pod waits for may have come: tries again at once, and writes mounted objects again.
    pub fn hurry(&mut self, now: Moment) {
        self.trouble
            .values_mut()
            .for_each(|trouble| trouble.retry_at = now.mono);
        if let Some((_, retry_at)) = &mut self.volumes.trouble {
            *retry_at = now.mono;
        }
        self.volumes.stale = self.volumes.ready_at.is_some();
        self.images
            .values_mut()
            .filter_map(|image| image.trouble.as_mut())
            .for_each(PullTrouble::hurry);
        if let Some(asked) = &mut self.pre_pull {
            asked.hurry();
        }
    }

    fn volumes_failed(&mut self, message: String, timing: &Timing, now: Moment) {
        let volumes = &mut self.volumes;
        let delay = volumes.delay.clamp(timing.volume_first, timing.volume_max);
        volumes.failing_since.get_or_insert(now.mono);
        volumes.trouble = Some((message, now.mono.plus(delay)));
        volumes.delay = delay.saturating_mul(2).min(timing.volume_max);
        volumes.stale = false;
    }
}
