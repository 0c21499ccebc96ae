//! The thin task of a worker: look, step, act, note the outcome.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::actions::{Action, Done, Outcome, Work};
use super::memory::WorkerMemory;
use super::perform::{Hands, Papers};
use super::step::step;
use super::view::{PodView, is_dead};
use crate::facts::PodFacts;
use crate::moment::Mono;
use crate::runtime::{ContainerId, ContainerView, LogOptions, labels};
use crate::shared::Shared;
use crate::spec::TERMINATION_MESSAGE_FILE;

/// A look at the runtime that failed is repeated after this.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long an agent that stops waits for starts that are under way: less than it is given.
const STARTS_WITHIN: Duration = Duration::from_secs(2);
/// Most bytes of a container's last words, and of the log that stands in for them.
const MAX_MESSAGE: usize = 4096;
const MAX_LOG_MESSAGE: usize = 2048;
const MAX_LOG_LINES: i64 = 80;

/// How a worker is reached.
pub(crate) struct WorkerHandle {
    /// The pod as it is to be.
    pub(crate) facts: watch::Sender<Arc<PodFacts>>,
}

/// A worker that is to begin.
pub(crate) struct WorkerStart {
    pub(crate) shared: Arc<Shared>,
    pub(crate) facts: watch::Receiver<Arc<PodFacts>>,
    pub(crate) look: Arc<Notify>,
    pub(crate) memory: WorkerMemory,
    /// What the runtime shows of the pod, when it is known already.
    pub(crate) seen: Option<Vec<ContainerView>>,
    /// Set once the pod has ended and holds nothing of the node any more.
    pub(crate) finished: Arc<AtomicBool>,
    /// The agent stops: pods do not.
    pub(crate) stop: CancellationToken,
}

/// What became of a worker.
pub(crate) enum WorkerEnd {
    /// Nothing of the pod is left.
    Over,
    /// The agent stops.
    Stopped,
}

/// Why the runtime is to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    /// It is not.
    No,
    /// Something may have happened.
    Hint,
    /// Something was done, or nothing was ever seen: no step without it.
    Must,
}

struct Task {
    shared: Arc<Shared>,
    objects_changed: Arc<Notify>,
    memory: WorkerMemory,
    view: PodView,
    jobs: JoinSet<Option<Outcome>>,
    works: BTreeMap<tokio::task::Id, (Work, AbortHandle)>,
    need: Need,
    looked: Option<Mono>,
    reported: bool,
    finished: Arc<AtomicBool>,
}

impl WorkerStart {
    /// Runs until nothing of the pod is left, or the agent stops.
    pub(crate) async fn run(mut self) -> WorkerEnd {
        let facts = self.facts.borrow_and_update().clone();
        let mut task = Task {
            view: PodView::of(&facts.uid, self.seen.clone().unwrap_or_default()),
            need: if self.seen.is_none() {
                Need::Must
            } else {
                Need::No
            },
            looked: None,
            shared: self.shared,
            objects_changed: Arc::new(Notify::new()),
            memory: self.memory,
            jobs: JoinSet::new(),
            works: BTreeMap::new(),
            reported: false,
            finished: self.finished,
        };
        drop(facts);
        if let Some(seen) = &self.seen
            && !seen.is_empty()
        {
            task.read_messages().await;
        }
        let objects_changed = Arc::clone(&task.objects_changed);
        loop {
            let pod = self.facts.borrow_and_update().clone();
            task.look(&pod.uid).await;
            let wake = match task.need {
                // The view is older than what was done: a step would do it again.
                Need::Must => LOOK_AGAIN,
                need => {
                    let (over, wake) = task.advance(&pod);
                    if over {
                        return WorkerEnd::Over;
                    }
                    if need == Need::No {
                        wake
                    } else {
                        wake.min(LOOK_AGAIN)
                    }
                }
            };
            tokio::select! {
                biased;
                Some(ended) = task.jobs.join_next_with_id(), if !task.jobs.is_empty() => task.note(ended),
                changed = self.facts.changed() => if changed.is_err() { return WorkerEnd::Stopped },
                () = self.look.notified() => task.need = task.need.max(Need::Hint),
                () = objects_changed.notified() => {
                    let now = task.shared.now();
                    task.memory.hurry(now);
                }
                () = tokio::time::sleep(wake) => {}
                () = self.stop.cancelled() => {
                    task.last_words(&pod).await;
                    return WorkerEnd::Stopped;
                }
            }
        }
    }
}

impl Task {
    /// Looks at the runtime, if there is reason to. Outcomes are noted before, never while: what ends during the look stays
    /// in flight for the step that follows, so that a stale view can start nothing twice.
    async fn look(&mut self, uid: &str) {
        while let Some(ended) = self.jobs.try_join_next_with_id() {
            self.note(ended);
        }
        if self.need == Need::No {
            return;
        }
        // What is under way will ask for a look when it ends; until then hints are answered now and then only.
        let busy = self.works.values().any(|(work, _)| work.touches_runtime());
        let now = self.shared.now().mono;
        let lately = self.looked.is_some_and(|at| now.since(at) < LOOK_AGAIN);
        if self.need == Need::Hint && busy && lately {
            return;
        }
        self.looked = Some(now);
        let shared = Arc::clone(&self.shared);
        let listed = shared.runtime.list_pod(uid).await;
        shared.health.note(&listed, shared.now());
        match listed {
            Ok(listed) => {
                let messages = std::mem::take(&mut self.view.messages);
                self.view = PodView::of(uid, listed);
                self.view.messages = messages;
                self.need = Need::No;
                self.read_messages().await;
            }
            Err(error) => tracing::debug!(uid, %error, "a pod could not be looked at"),
        }
    }

    /// Steps and acts. Returns whether the pod is over, and how long to sleep.
    fn advance(&mut self, pod: &Arc<PodFacts>) -> (bool, Duration) {
        let now = self.shared.now();
        self.view.engine_stopped_at = self.shared.health.stopped_at();
        let step = step(pod, &self.view, &self.memory, now);
        for note in &step.events {
            self.shared.outbox.pod_event(pod, note, now);
        }
        if step.status != self.memory.last || !self.reported {
            self.reported = true;
            if !step.memory.confirmed && pod.life != crate::facts::Life::Removed {
                self.shared.outbox.put_status(pod, &step.status, now.mono);
            }
        }
        let ended = matches!(step.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        // Before the server hears that the pod is gone: its successor may be here before the answer is.
        self.finished.store(
            step.memory.released || ended && self.view.running().next().is_none(),
            Ordering::Relaxed,
        );
        self.memory = step.memory;
        for action in step.actions {
            self.begin(pod, action);
        }
        (step.over, self.shared.until(step.wake_at))
    }

    fn begin(&mut self, pod: &Arc<PodFacts>, action: Action) {
        if let Action::Cancel(wanted) = &action {
            self.works
                .values()
                .filter(|(work, _)| work == wanted)
                .for_each(|(_, abort)| abort.abort());
            return;
        }
        let Some(work) = action.work() else { return };
        let hands = Hands {
            shared: Arc::clone(&self.shared),
            pod: Arc::clone(pod),
            objects_changed: Arc::clone(&self.objects_changed),
        };
        // Most actions carry none.
        let papers = match action {
            Action::Keep | Action::Confirm => Papers {
                remembered: self.memory.remembered(self.shared.now()),
                status: self.memory.last.clone(),
            },
            _ => Papers::default(),
        };
        let abort = self.jobs.spawn(hands.perform(action, papers));
        self.works.insert(abort.id(), (work, abort));
    }

    fn note(&mut self, ended: Result<(tokio::task::Id, Option<Outcome>), tokio::task::JoinError>) {
        let (id, outcome) = match ended {
            Ok((id, outcome)) => (id, outcome),
            Err(error) => {
                let lost = self.works.get(&error.id()).filter(|_| error.is_panic());
                let outcome = lost.map(|(work, _)| Outcome {
                    work: work.clone(),
                    done: Done::failed(&error),
                });
                if outcome.is_some() {
                    tracing::error!(%error, "an action of a pod worker panicked");
                }
                (error.id(), outcome)
            }
        };
        self.works.remove(&id);
        if let Some(outcome) = outcome {
            if outcome.work.touches_runtime() {
                self.need = Need::Must;
            }
            let (host, now) = (self.shared.host(), self.shared.now());
            self.memory.note(outcome, &host.timing, now);
        }
    }

    /// The agent stops: what the worker knows is written down, with what has just begun.
    async fn last_words(&mut self, pod: &Arc<PodFacts>) {
        let Some(checkpoint) = self.shared.checkpoint.clone().filter(|_| self.memory.kept) else {
            return;
        };
        self.see_starts(pod).await;
        let record = crate::checkpoint::PodRecord {
            object: pod.object.tree().clone(),
            remembered: self.memory.remembered(self.shared.now()),
            boot_id: self.shared.config.machine.boot_id.clone(),
        };
        let uid = pod.uid.clone();
        let disk = self.shared.config.disk;
        let written = disk.run(move || checkpoint.put_pod(&uid, &record)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(uid = %pod.uid, %error, "the checkpoint could not be written");
        }
    }

    /// Lets containers that are being started come up, and takes over their restart counts, which would be given out
    /// again if somebody removed the containers before the next agent looks.
    async fn see_starts(&mut self, pod: &Arc<PodFacts>) {
        let seen = async {
            while self.works.values().any(|(work, _)| is_start(work))
                && let Some(ended) = self.jobs.join_next_with_id().await
            {
                self.note(ended);
            }
            self.look(&pod.uid).await;
        };
        let in_time = tokio::time::timeout(STARTS_WITHIN, seen).await.is_ok();
        if in_time && self.need == Need::No {
            self.memory = step(pod, &self.view, &self.memory, self.shared.now()).memory;
        }
    }

    /// Reads the last words of containers that have just died (spec/node-agent.md 20.3).
    async fn read_messages(&mut self) {
        let known: std::collections::BTreeSet<ContainerId> = self.view.ids().cloned().collect();
        self.view.messages.retain(|id, _| known.contains(id));
        let count = self.view.containers.len().max(1);
        let most = MAX_MESSAGE.min(3 * MAX_MESSAGE / count);
        let dead: Vec<ContainerView> = self
            .view
            .containers
            .values()
            .flatten()
            .filter(|c| is_dead(c))
            .cloned()
            .collect();
        for container in dead
            .iter()
            .filter(|c| !self.view.messages.contains_key(&c.id))
            .collect::<Vec<_>>()
        {
            let text = last_words_of(&self.shared, container, most).await;
            self.view.messages.insert(container.id.clone(), text);
        }
    }
}

fn is_start(work: &Work) -> bool {
    matches!(work, Work::Start(_))
}

async fn last_words_of(shared: &Shared, container: &ContainerView, most: usize) -> String {
    let file = container.labels.get(TERMINATION_MESSAGE_FILE).cloned();
    let text = match file {
        Some(path) => shared
            .config
            .disk
            .run(move || tail_of_file(&path, most))
            .await
            .unwrap_or_default(),
        None => String::new(),
    };
    let failed = super::view::end_of(container).is_some_and(|(_, code)| code != 0);
    let policy = container
        .labels
        .get(labels::TERMINATION_MESSAGE_POLICY)
        .map(String::as_str);
    if !text.is_empty() || policy != Some("FallbackToLogsOnError") || !failed {
        return text;
    }
    let options = LogOptions {
        tail_lines: Some(MAX_LOG_LINES),
        ..LogOptions::default()
    };
    let Ok(mut log) = shared.runtime.logs(&container.id, &options).await else {
        return String::new();
    };
    let mut bytes = Vec::new();
    while let Some(Ok(chunk)) = log.next().await {
        bytes.extend_from_slice(&chunk);
    }
    let from = bytes.len().saturating_sub(MAX_LOG_MESSAGE.min(most));
    String::from_utf8_lossy(&bytes[from..]).into_owned()
}

fn tail_of_file(path: &str, most: usize) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}
