//! What the in-memory engine keeps behind its lock, and how containers come, run and go in it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use muster_model::time::Timestamp;
use sha2::{Digest, Sha256};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use super::behaviour::{Behaviour, Call, PullScript, RecordedCall};
use crate::runtime::labels::{self, Owner};
use crate::runtime::{
    ContainerId, ContainerState, ContainerView, ImageView, Labels, Namespace, RuntimeError,
    RuntimeEvent,
};

/// Recorded calls kept; the oldest go first.
const CALL_LOG_LIMIT: usize = 10_000;
/// Log lines kept of one container.
const LOG_LINES_LIMIT: usize = 1_000;
/// Events a slow reader may be behind; it then misses some, which is allowed: they are hints.
pub(super) const EVENT_BACKLOG: usize = 64;
/// Id of the built-in sandbox image.
pub(super) const SANDBOX_IMAGE: &str =
    "sha256:0000000000000000000000000000000000000000000000000000000000000000";

#[derive(Default)]
pub(super) struct State {
    pub(super) nodes: BTreeMap<Owner, NodeState>,
    pub(super) names: BTreeMap<String, (Owner, ContainerId)>,
    pub(super) images: BTreeMap<String, ImageView>,
    pub(super) pullable: BTreeMap<String, PullScript>,
    pub(super) pulls_anything: bool,
    pub(super) behaviours: BTreeMap<String, Behaviour>,
    pub(super) runs: BTreeMap<(String, String), u32>,
    pub(super) down: bool,
    pub(super) live_restore: bool,
    pub(super) sandbox_delay: Duration,
    pub(super) next_id: u64,
    pub(super) faults: BTreeMap<(String, Call), VecDeque<RuntimeError>>,
    pub(super) delays: BTreeMap<(String, Call), Duration>,
    pub(super) calls: VecDeque<RecordedCall>,
    pub(super) counts: BTreeMap<Call, u64>,
}

pub(super) struct NodeState {
    pub(super) containers: BTreeMap<ContainerId, Container>,
    pub(super) events: broadcast::Sender<RuntimeEvent>,
    /// Counts changes, log lines too, so that followers wake.
    pub(super) changes: watch::Sender<u64>,
}

impl Default for NodeState {
    fn default() -> Self {
        Self {
            containers: BTreeMap::new(),
            events: broadcast::channel(EVENT_BACKLOG).0,
            changes: watch::channel(0).0,
        }
    }
}

pub(super) struct Container {
    pub(super) sequence: u64,
    pub(super) view: ContainerView,
    pub(super) joins: Vec<ContainerId>,
    pub(super) own_network: bool,
    pub(super) behaviour: Behaviour,
    /// When it was last started.
    pub(super) since: Instant,
    /// When a running one ends by its script or by a SIGTERM, and how.
    pub(super) ends: Option<End>,
    pub(super) log: VecDeque<(Timestamp, String)>,
    /// Lines dropped from the front, so that followers keep their place.
    pub(super) log_dropped: usize,
}

#[derive(Clone)]
pub(super) struct End {
    pub(super) at: Instant,
    pub(super) finished_at: Timestamp,
    pub(super) code: i32,
    pub(super) oom_killed: bool,
}

impl Container {
    pub(super) fn is_running(&self) -> bool {
        matches!(self.view.state, ContainerState::Running { .. })
    }

    pub(super) fn finish(&mut self, finished_at: Timestamp, exit_code: i32, oom_killed: bool) {
        let ContainerState::Running { started_at, .. } = self.view.state else {
            return;
        };
        self.view.state = ContainerState::Exited {
            started_at,
            finished_at,
            exit_code,
            oom_killed,
            message: String::new(),
        };
        self.view.ip = None;
        self.ends = None;
    }

    pub(super) fn write(&mut self, at: Timestamp, line: String) {
        if self.log.len() == LOG_LINES_LIMIT {
            self.log.pop_front();
            self.log_dropped += 1;
        }
        self.log.push_back((at, line));
    }

    pub(super) fn pod_uid(&self) -> String {
        self.view
            .labels
            .get(labels::POD_UID)
            .cloned()
            .unwrap_or_default()
    }
}

impl NodeState {
    /// Ends what was to end by `now`.
    pub(super) fn settle(&mut self, now: Instant) {
        let mut ended = Vec::new();
        for container in self.containers.values_mut() {
            let due = container.ends.as_ref().is_some_and(|end| end.at <= now);
            if let Some(end) = if due { container.ends.take() } else { None } {
                container.finish(end.finished_at, end.code, end.oom_killed);
                ended.push(container.pod_uid());
            }
        }
        for pod_uid in ended {
            self.announce(pod_uid);
        }
    }

    /// When the next container ends by itself.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.containers
            .values()
            .filter_map(|container| container.ends.as_ref().map(|end| end.at))
            .min()
    }

    pub(super) fn announce(&mut self, pod_uid: String) {
        // Nobody listening is fine: events are hints.
        let _ = self.events.send(RuntimeEvent { pod_uid });
        self.changes.send_modify(|count| *count += 1);
    }
}

/// A container to make, sandbox or not.
pub(super) struct NewContainer<'a> {
    pub(super) name: &'a str,
    pub(super) labels: &'a Labels,
    pub(super) image: &'a str,
    pub(super) namespaces: [&'a Namespace; 3],
}

impl State {
    pub(super) fn node(&mut self, owner: &Owner) -> &mut NodeState {
        if !self.nodes.contains_key(owner) {
            self.nodes.insert(owner.clone(), NodeState::default());
        }
        self.nodes
            .get_mut(owner)
            .expect("inserted above when it was missing")
    }

    /// Records a call and answers whether it may go on.
    pub(super) fn admit(
        &mut self,
        owner: &Owner,
        call: Call,
        target: &str,
    ) -> Result<(), RuntimeError> {
        *self.counts.entry(call).or_default() += 1;
        if !matches!(call, Call::Version | Call::List | Call::ListPod) {
            if self.calls.len() == CALL_LOG_LIMIT {
                self.calls.pop_front();
            }
            self.calls.push_back(RecordedCall {
                node: owner.node.clone(),
                call,
                target: target.to_owned(),
            });
        }
        self.reachable()?;
        match self
            .faults
            .get_mut(&(owner.node.clone(), call))
            .and_then(VecDeque::pop_front)
        {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    pub(super) fn reachable(&self) -> Result<(), RuntimeError> {
        if self.down {
            return Err(RuntimeError::Unreachable(
                "the in-memory engine is switched off".to_owned(),
            ));
        }
        Ok(())
    }

    pub(super) fn delay_of(&self, owner: &Owner, call: Call) -> Duration {
        self.delays
            .get(&(owner.node.clone(), call))
            .copied()
            .unwrap_or_default()
    }

    pub(super) fn behaviour_of(&self, image: &ImageView) -> Behaviour {
        let script = image
            .tags
            .iter()
            .chain([&image.id])
            .find_map(|name| self.behaviours.get(name));
        script.cloned().unwrap_or_default()
    }

    /// Which run of this container name of this pod begins now, counted from 0.
    pub(super) fn next_run(&mut self, labels: &Labels) -> u32 {
        let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
        let run = self
            .runs
            .entry((label(labels::POD_UID), label(labels::CONTAINER_NAME)))
            .or_default();
        *run += 1;
        *run - 1
    }

    pub(super) fn find_image(&self, reference: &str) -> Option<ImageView> {
        let wanted = with_default_tag(reference);
        let by_id = |image: &&ImageView| image.id == reference;
        self.images
            .get(&wanted)
            .or_else(|| self.images.values().find(by_id))
            .cloned()
    }

    pub(super) fn insert_image(&mut self, reference: &str) -> ImageView {
        let reference = with_default_tag(reference);
        let user = self
            .behaviours
            .get(&reference)
            .map(|script| script.user.clone())
            .unwrap_or_default();
        let image = ImageView {
            id: format!("sha256:{}", hex_digest(&reference)),
            tags: vec![reference.clone()],
            digests: Vec::new(),
            size_bytes: 1 << 20,
            user,
        };
        self.images.insert(reference, image.clone());
        image
    }

    /// What the next try to pull does: the delay, then this answer.
    pub(super) fn next_pull(&mut self, reference: &str) -> (Duration, Result<(), RuntimeError>) {
        match self.pullable.get_mut(&with_default_tag(reference)) {
            Some(script) if script.failures.is_empty() => (script.delay, Ok(())),
            Some(script) => (script.delay, Err(script.failures.remove(0))),
            None if self.pulls_anything => (Duration::ZERO, Ok(())),
            None => {
                let message = format!(
                    "pull access denied for {reference}, repository does not exist or may require 'docker login'"
                );
                (
                    Duration::ZERO,
                    Err(RuntimeError::Refused {
                        status: 404,
                        message,
                    }),
                )
            }
        }
    }

    pub(super) fn insert(
        &mut self,
        owner: &Owner,
        new: &NewContainer<'_>,
        now: Timestamp,
    ) -> Result<ContainerId, RuntimeError> {
        let (image_id, behaviour) = if new.image == SANDBOX_IMAGE {
            (SANDBOX_IMAGE.to_owned(), Behaviour::default())
        } else {
            let image = self.find_image(new.image);
            let image = image
                .ok_or_else(|| RuntimeError::NotFound(format!("No such image: {}", new.image)))?;
            let behaviour = self.behaviour_of(&image);
            (image.id, behaviour)
        };
        let name = self.claim_name(owner, new)?;
        self.next_id += 1;
        let sequence = self.next_id;
        let id = ContainerId(hex_digest(&format!("container {sequence}")));
        let view = ContainerView {
            id: id.clone(),
            name: name.clone(),
            labels: owner.stamp(new.labels),
            image_id,
            created_at: now,
            state: ContainerState::Created,
            ip: None,
            log_path: None,
        };
        let joins = new
            .namespaces
            .iter()
            .filter_map(|namespace| match namespace {
                Namespace::Container(id) => Some(id.clone()),
                _ => None,
            });
        let container = Container {
            sequence,
            view,
            joins: joins.collect(),
            own_network: *new.namespaces[0] == Namespace::Own,
            behaviour,
            since: Instant::now(),
            ends: None,
            log: VecDeque::new(),
            log_dropped: 0,
        };
        self.names.insert(name, (owner.clone(), id.clone()));
        self.node(owner).containers.insert(id.clone(), container);
        Ok(id)
    }

    fn claim_name(
        &mut self,
        owner: &Owner,
        new: &NewContainer<'_>,
    ) -> Result<String, RuntimeError> {
        let mut name = new.name.to_owned();
        for attempt in 0.. {
            let Some((holder_owner, holder_id)) = self.names.get(&name).cloned() else {
                break;
            };
            let holder = self
                .nodes
                .get(&holder_owner)
                .and_then(|node| node.containers.get(&holder_id));
            let (holder_labels, runs) = holder
                .map(|c| (c.view.labels.clone(), c.is_running()))
                .unwrap_or_default();
            let decision = labels::resolve_name_conflict(
                owner,
                new.name,
                new.labels,
                &holder_id.0,
                &holder_labels,
                runs,
                attempt,
            );
            match decision {
                labels::NameConflict::RemoveHolder => self.remove(&holder_owner, &holder_id),
                labels::NameConflict::Rename(other) => name = other,
            }
        }
        Ok(name)
    }

    pub(super) fn remove(&mut self, owner: &Owner, id: &ContainerId) {
        if let Some(container) = self.node(owner).containers.remove(id) {
            self.names.remove(&container.view.name);
            self.node(owner).announce(container.pod_uid());
        }
    }

    /// Makes a created container run, by its script.
    pub(super) fn run(
        &mut self,
        owner: &Owner,
        id: &ContainerId,
        now: Timestamp,
    ) -> Result<(), RuntimeError> {
        let node = self.node(owner);
        let container = node
            .containers
            .get(id)
            .ok_or_else(|| no_such_container(id))?;
        let dead = container.joins.iter().find(|joined| {
            !node
                .containers
                .get(joined)
                .is_some_and(Container::is_running)
        });
        if let Some(joined) = dead {
            let message = format!(
                "cannot join network of a non running container: {}",
                joined.0
            );
            return Err(RuntimeError::Conflict(message));
        }
        let (labels, behaviour) = (container.view.labels.clone(), container.behaviour.clone());
        let sequence = container.sequence;
        let run = self.next_run(&labels);
        let node = self.node(owner);
        let container = node
            .containers
            .get_mut(id)
            .ok_or_else(|| no_such_container(id))?;
        if let Some((exit_code, message)) = behaviour.start_failure {
            container.view.state = ContainerState::StartFailed {
                exit_code,
                message: message.clone(),
            };
            let pod_uid = container.pod_uid();
            node.announce(pod_uid);
            return Err(RuntimeError::Refused {
                status: 400,
                message,
            });
        }
        container.since = Instant::now();
        container.view.state = ContainerState::Running {
            started_at: now,
            pid: u32::try_from(sequence % 30_000).unwrap_or(0) + 100,
        };
        if container.own_network {
            container.view.ip = Some(format!(
                "172.17.{}.{}",
                (sequence >> 8) & 0xff,
                sequence & 0xff
            ));
        }
        container.ends = container.behaviour.exit_of_run(run).map(|exit| End {
            at: Instant::now() + exit.after,
            finished_at: later(now, exit.after),
            code: exit.code,
            oom_killed: exit.oom_killed,
        });
        for line in container.behaviour.log_lines.clone() {
            container.write(now, line);
        }
        let pod_uid = container.pod_uid();
        node.announce(pod_uid);
        Ok(())
    }
}

pub(super) fn no_such_container(id: &ContainerId) -> RuntimeError {
    RuntimeError::NotFound(format!("No such container: {}", id.0))
}

/// A time that long after another.
pub(super) fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_add(by).unwrap_or(time)
}

pub(super) fn with_default_tag(reference: &str) -> String {
    let last = reference.rsplit('/').next().unwrap_or(reference);
    if reference.starts_with("sha256:") || last.contains([':', '@']) {
        return reference.to_owned();
    }
    format!("{reference}:latest")
}

fn hex_digest(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
