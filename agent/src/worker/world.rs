//! A world for tests of the pure step: it carries out actions in memory and owns the time.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_model::k8s::api::core::v1::{ContainerStatus, PodStatus};
use muster_model::reason::annotation;
use muster_model::time::Timestamp;

use super::actions::{Action, Done, EventNote, Outcome, Work};
use super::memory::WorkerMemory;
use super::step::{Step, step};
use super::view::{PodView, is_running};
use crate::facts::{Life, PodFacts};
use crate::moment::{Moment, Mono};
use crate::probe::{ProbeKind, Reply};
use crate::runtime::{ContainerId, ContainerState, ContainerView, ImageView, labels};
use crate::spec::{self, Surroundings};

pub(super) struct World {
    pub(super) pod: PodFacts,
    pub(super) memory: WorkerMemory,
    pub(super) containers: Vec<ContainerView>,
    pub(super) now_ms: i64,
    pub(super) events: Vec<EventNote>,
    /// When each container was started, in seconds.
    pub(super) starts: Vec<(String, i64)>,
    /// Actions in the order in which they were asked for.
    pub(super) asked: Vec<Action>,
    /// Outcomes of the next such works, instead of success.
    pub(super) fail: BTreeMap<Work, Done>,
    /// What probes come to, where they do not succeed.
    pub(super) probed: BTreeMap<ProbeKind, Reply>,
    pub(super) over: bool,
    pub(super) engine_stopped_at: Option<Timestamp>,
    next_id: u32,
}

pub(super) fn image(reference: &str) -> ImageView {
    ImageView {
        id: format!("sha256:{reference}"),
        tags: vec![reference.to_owned()],
        digests: Vec::new(),
        size_bytes: 1,
        user: String::new(),
    }
}

impl World {
    pub(super) fn new(pod: PodFacts) -> Self {
        Self {
            pod,
            memory: WorkerMemory::default(),
            containers: Vec::new(),
            now_ms: 0,
            events: Vec::new(),
            starts: Vec::new(),
            asked: Vec::new(),
            fail: BTreeMap::new(),
            probed: BTreeMap::new(),
            over: false,
            engine_stopped_at: None,
            next_id: 0,
        }
    }

    pub(super) fn now(&self) -> Moment {
        let wall = Timestamp::from_millisecond(1_769_853_600_000 + self.now_ms).unwrap();
        Moment {
            wall,
            mono: Mono(self.now_ms),
        }
    }

    pub(super) fn view(&self) -> PodView {
        let mut view = PodView::of(&self.pod.uid, self.containers.iter().cloned());
        view.engine_stopped_at = self.engine_stopped_at;
        view
    }

    pub(super) fn step(&mut self) -> Step {
        let step = step(&self.pod, &self.view(), &self.memory, self.now());
        self.memory = step.memory.clone();
        self.events.extend(step.events.clone());
        self.over |= step.over;
        step
    }

    /// Steps and acts until nothing is asked for any more.
    pub(super) fn settle(&mut self) -> Step {
        for _ in 0..100 {
            let step = self.step();
            if step.actions.is_empty() && step.wake_at.0 > self.now_ms {
                return step;
            }
            for action in step.actions {
                self.asked.push(action.clone());
                self.act(&action);
            }
        }
        panic!("the worker never comes to rest");
    }

    /// Lets time pass, waking where the worker wants to be woken.
    pub(super) fn pass(&mut self, seconds: i64) {
        let end = self.now_ms + seconds * 1000;
        loop {
            let wake = self.settle().wake_at.0.max(self.now_ms + 1);
            if wake > end {
                break;
            }
            self.now_ms = wake;
        }
        self.now_ms = end;
        self.settle();
    }

    fn act(&mut self, action: &Action) {
        let Some(work) = action.work() else { return };
        let mut done = self.fail.remove(&work);
        if done.is_none() {
            done = Some(self.carry_out(action));
        }
        let (timing, now) = (self.pod.host.timing.clone(), self.now());
        self.memory.note(
            Outcome {
                work,
                done: done.unwrap(),
            },
            &timing,
            now,
        );
    }

    fn carry_out(&mut self, action: &Action) -> Done {
        match action {
            Action::EnsureImage { reference, .. } | Action::PrePull { reference, .. } => {
                return Done::Image(image(reference));
            }
            Action::RunSandbox { attempt } => {
                let wanted = spec::sandbox(&self.pod, *attempt);
                self.add(
                    wanted.name,
                    wanted.labels,
                    "pause",
                    Some("172.17.0.2".into()),
                );
            }
            Action::Start(order) => {
                let container = self.pod.container(&order.container).unwrap();
                let wanted =
                    spec::container(&self.pod, container, order, &Surroundings::default()).unwrap();
                let image = wanted.image.clone();
                self.containers
                    .retain(|c| Some(&c.id) != order.leftover.as_ref());
                self.add(wanted.name, wanted.labels, &image, None);
                self.starts
                    .push((order.container.clone(), self.now_ms / 1000));
            }
            Action::Stop { id, .. } => {
                self.end(&id.clone(), 143);
            }
            Action::Probe(order) => {
                let reply = self.probed.get(&order.kind).cloned();
                return Done::Probed(reply.unwrap_or(Reply::Success));
            }
            Action::Remove { id } => self.containers.retain(|c| c.id != *id),
            Action::Keep
            | Action::Prepare
            | Action::Release
            | Action::Confirm
            | Action::Cancel(_) => {}
        }
        Done::Well
    }

    fn add(
        &mut self,
        name: String,
        labels: crate::runtime::Labels,
        image: &str,
        ip: Option<String>,
    ) {
        self.next_id += 1;
        let now = self.now().wall;
        self.containers.push(ContainerView {
            id: ContainerId(format!("{:064x}", self.next_id)),
            name,
            labels,
            image_id: image.to_owned(),
            created_at: now,
            state: ContainerState::Running {
                started_at: now,
                pid: 1,
            },
            ip,
            log_path: None,
        });
    }

    /// Ends a container by itself.
    pub(super) fn end(&mut self, id: &ContainerId, exit_code: i32) {
        let now = self.now().wall;
        for container in &mut self.containers {
            if container.id == *id
                && let ContainerState::Running { started_at, .. } = container.state
            {
                container.state = ContainerState::Exited {
                    started_at,
                    finished_at: now,
                    exit_code,
                    oom_killed: false,
                    message: String::new(),
                };
            }
        }
    }

    pub(super) fn current(&self, name: &str) -> ContainerView {
        let of_name = |c: &&ContainerView| {
            c.labels.get(labels::CONTAINER_NAME).map(String::as_str) == Some(name)
        };
        self.containers.iter().rfind(of_name).unwrap().clone()
    }

    pub(super) fn is_up(&self, name: &str) -> bool {
        let of_name = |c: &&ContainerView| {
            c.labels.get(labels::CONTAINER_NAME).map(String::as_str) == Some(name)
        };
        self.containers.iter().filter(of_name).any(is_running)
    }

    /// The current container of this name ends with this code, now.
    pub(super) fn crash(&mut self, name: &str, exit_code: i32) {
        let id = self.current(name).id;
        self.end(&id, exit_code);
    }

    pub(super) fn status(&self) -> &PodStatus {
        &self.memory.last
    }

    pub(super) fn of(&self, name: &str) -> ContainerStatus {
        self.status()
            .container_statuses
            .iter()
            .flatten()
            .find(|s| s.name == name)
            .unwrap()
            .clone()
    }

    pub(super) fn waiting(&self, name: &str) -> (String, String) {
        let waiting = self.of(name).state.unwrap().waiting.unwrap();
        (
            waiting.reason.unwrap_or_default(),
            waiting.message.unwrap_or_default(),
        )
    }

    pub(super) fn delete(&mut self, grace_seconds: i64) {
        self.pod.life = Life::Deleted { grace_seconds };
    }

    pub(super) fn said(&self, reason: &str) -> Vec<String> {
        self.events
            .iter()
            .filter(|e| e.reason == reason)
            .map(|e| e.message.clone())
            .collect()
    }

    /// The agent is another process: only what is on disk is remembered.
    pub(super) fn restart_agent(&mut self, same_boot: bool) {
        let kept = serde_json::to_value(self.memory.remembered(self.now())).unwrap();
        let kept = serde_json::from_value(kept).unwrap();
        self.memory = WorkerMemory::restore(kept, same_boot, &self.pod.host.timing, self.now());
    }

    pub(super) fn condition(&self, type_: &str) -> (String, String, String) {
        let condition = self
            .status()
            .conditions
            .iter()
            .flatten()
            .find(|c| c.type_ == type_)
            .unwrap();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        (
            condition.status.clone(),
            text(&condition.reason),
            text(&condition.message),
        )
    }

    /// Sets or removes the annotation that asks for images of the next revision.
    pub(super) fn ask(&mut self, text: Option<&str>) {
        let (life, mut tree) = (self.pod.life, self.pod.object.tree().clone());
        tree["metadata"]["annotations"] = serde_json::json!({});
        if let Some(text) = text {
            tree["metadata"]["annotations"][annotation::PRE_PULL] = text.into();
        }
        self.pod = crate::testing::pod_from(tree);
        self.pod.life = life;
    }

    pub(super) fn wait(&mut self, duration: Duration) {
        self.now_ms += i64::try_from(duration.as_millis()).unwrap();
    }
}
