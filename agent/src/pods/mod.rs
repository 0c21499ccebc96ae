//! The set of pod workers: who is admitted, started, told of changes, retired (spec/node-agent.md 6, 7, 26, 27).

mod strangers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use muster_model::object::{NamespacedName, Object};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admit::{Holding, NodeFacts, NodeObject, admit};
use crate::checkpoint::PodRecord;
use crate::facts::{Life, PodFacts};
use crate::moment::Mono;
use crate::runtime::{ContainerView, RuntimeError, labels};
use crate::shared::Shared;
use crate::worker::actions::EventNote;
use crate::worker::memory::WorkerMemory;
use crate::worker::{WorkerEnd, WorkerHandle, WorkerStart};

/// A hung engine must not keep the agent from starting; workers look again by themselves.
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// What the set of pods is told.
pub(crate) enum PodInput {
    /// A stream of pods begins, from a server of this identity.
    StreamBegan {
        /// Identity of the server's data.
        cluster_id: String,
    },
    /// A pod is bound to this node, in this state.
    Set(Object),
    /// A pod's object is gone.
    Removed(Object),
    /// Every pod there is has been told.
    SnapshotComplete,
    /// The Node, as stored.
    Node(NodeObject),
    /// Containers of pods that have no worker.
    Strangers(Vec<ContainerView>),
    /// The node was removed, and is to stop its pods.
    StopAll,
}

struct Entry {
    handle: WorkerHandle,
    name: NamespacedName,
    life: Life,
    holding: Option<Holding>,
    finished: Arc<AtomicBool>,
}

struct Snapshot {
    seen: BTreeSet<String>,
    new: Vec<Object>,
}

/// The set of pods of one agent.
pub(crate) struct Pods {
    shared: Arc<Shared>,
    node: NodeFacts,
    workers: BTreeMap<String, Entry>,
    jobs: JoinSet<(String, WorkerEnd)>,
    /// Which pod each job is of.
    tasks: BTreeMap<tokio::task::Id, String>,
    /// Pods whose name is still taken by a former pod.
    successors: BTreeMap<NamespacedName, Object>,
    snapshot: Option<Snapshot>,
    complete: bool,
    /// Uids that the runtime showed at start; `None`: it could not be asked.
    at_start: Option<BTreeSet<String>>,
    cluster_id: String,
    known_cluster: String,
    doubt_since: Option<Mono>,
    stop: CancellationToken,
}

impl Pods {
    /// Starts the pods of the checkpoint: before, and without, a server.
    pub(crate) async fn start(
        shared: Arc<Shared>,
        records: Vec<PodRecord>,
        node: NodeFacts,
        known_cluster: String,
        stop: CancellationToken,
    ) -> Self {
        let listed = match tokio::time::timeout(FIRST_LOOK, shared.runtime.list()).await {
            Ok(listed) => listed,
            Err(_) => Err(RuntimeError::TimedOut {
                what: "list",
                limit_seconds: FIRST_LOOK.as_secs(),
            }),
        };
        shared.health.note(&listed, shared.now());
        let at_start = listed.ok().map(|all| all.iter().map(uid_of).collect());
        let mut pods = Self {
            shared,
            node,
            workers: BTreeMap::new(),
            jobs: JoinSet::new(),
            tasks: BTreeMap::new(),
            successors: BTreeMap::new(),
            snapshot: None,
            complete: false,
            at_start,
            cluster_id: String::new(),
            known_cluster,
            doubt_since: None,
            stop,
        };
        for record in records {
            pods.adopt(record);
        }
        pods
    }

    /// Runs until the agent stops; then waits for the workers to write down what they know.
    pub(crate) async fn run(mut self, mut inputs: mpsc::Receiver<PodInput>) {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                Some(ended) = self.jobs.join_next(), if !self.jobs.is_empty() => self.ended(ended),
                input = inputs.recv() => match input {
                    Some(input) => self.take(input),
                    None => break,
                },
            }
        }
        while self.jobs.join_next().await.is_some() {}
    }

    fn take(&mut self, input: PodInput) {
        match input {
            PodInput::StreamBegan { cluster_id } => {
                self.cluster_id = cluster_id;
                self.snapshot = Some(Snapshot {
                    seen: BTreeSet::new(),
                    new: Vec::new(),
                });
            }
            PodInput::Set(object) => self.set(object),
            PodInput::Removed(object) => self.remove(object.uid(), &object.namespaced_name()),
            PodInput::SnapshotComplete => self.snapshot_complete(),
            PodInput::Node(node) => self.node.object = Some(node),
            PodInput::Strangers(containers) if self.complete => self.retire_strangers(containers),
            PodInput::Strangers(_) => {}
            PodInput::StopAll => {
                let uids: Vec<String> = self.workers.keys().cloned().collect();
                uids.iter()
                    .for_each(|uid| self.set_life(uid, Life::Removed));
            }
        }
    }

    fn set(&mut self, object: Object) {
        let uid = object.uid().to_owned();
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.seen.insert(uid.clone());
            if !self.workers.contains_key(&uid) {
                snapshot.new.push(object);
                return;
            }
        }
        match self.workers.contains_key(&uid) {
            true => self.update(&uid, object),
            false => self.add(object),
        }
    }

    fn update(&mut self, uid: &str, object: Object) {
        let host = self.shared.host();
        let Some(entry) = self.workers.get_mut(uid) else {
            return;
        };
        match PodFacts::new(object, host) {
            Ok(mut facts) => {
                facts.life = further(entry.life, facts.life);
                entry.life = facts.life;
                entry.handle.facts.send_replace(Arc::new(facts));
            }
            Err(error) => {
                tracing::warn!(uid, %error, "a changed pod could not be understood; the former one runs on")
            }
        }
    }

    fn set_life(&mut self, uid: &str, life: Life) {
        let Some(entry) = self.workers.get_mut(uid) else {
            return;
        };
        entry.life = further(entry.life, life);
        let mut facts = PodFacts::clone(&entry.handle.facts.borrow());
        facts.life = entry.life;
        entry.handle.facts.send_replace(Arc::new(facts));
    }

    fn remove(&mut self, uid: &str, name: &NamespacedName) {
        self.shared.outbox.forget_pod(uid);
        if self
            .successors
            .get(name)
            .is_some_and(|next| next.uid() == uid)
        {
            self.successors.remove(name);
        }
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.new.retain(|object| object.uid() != uid);
        }
        self.set_life(uid, Life::Removed);
    }

    fn snapshot_complete(&mut self) {
        let Some(mut snapshot) = self.snapshot.take() else {
            return;
        };
        let missing: Vec<String> = self
            .workers
            .iter()
            .filter(|(uid, entry)| !snapshot.seen.contains(*uid) && entry.life != Life::Removed)
            .map(|(uid, _)| uid.clone())
            .collect();
        let stranger = !self.known_cluster.is_empty() && self.known_cluster != self.cluster_id;
        let lacks_all = !missing.is_empty() && missing.len() == self.workers.len();
        if stranger && lacks_all && !self.is_confirmed() {
            return;
        }
        self.doubt_since = None;
        self.known_cluster.clone_from(&self.cluster_id);
        for uid in missing {
            tracing::info!(%uid, "a pod was deleted while the server was out of reach");
            self.shared.outbox.forget_pod(&uid);
            self.set_life(&uid, Life::Removed);
        }
        self.complete = true;
        self.shared.outbox.open();
        snapshot.new.sort_by(|a, b| {
            let key = |object: &Object| {
                (
                    object.text_at("/metadata/creationTimestamp").to_owned(),
                    object.uid().to_owned(),
                )
            };
            key(a).cmp(&key(b))
        });
        snapshot.new.into_iter().for_each(|object| self.add(object));
        self.shared.look_for_strangers.notify_one();
        self.clear_directories();
    }

    /// Whether a snapshot of an unknown server that lacks all pods may be believed: only the second one, a minute later.
    fn is_confirmed(&mut self) -> bool {
        let wait = self.shared.config.pace.second_snapshot;
        let now = self.shared.now().mono;
        match self.doubt_since {
            Some(since) if now.since(since) >= wait => true,
            Some(_) => {
                // The session that was to ask again may have ended.
                self.shared.snapshot_again.notify_one();
                false
            }
            None => {
                tracing::warn!(
                    cluster = %self.cluster_id,
                    "the server is another one than before and knows none of this node's pods; asking again before \
                     anything is stopped"
                );
                self.doubt_since = Some(now);
                self.shared.snapshot_again.notify_one();
                false
            }
        }
    }

    /// A pod that is new here.
    fn add(&mut self, object: Object) {
        let name = object.namespaced_name();
        if let Some((former, _)) = self.workers.iter().find(|(_, entry)| entry.name == name) {
            tracing::info!(pod = %name, former, "a new pod waits until the former one of its name is gone");
            self.successors.insert(name, object);
            return;
        }
        let facts = match PodFacts::new(object, self.shared.host()) {
            Ok(facts) => facts,
            Err(error) => {
                tracing::warn!(pod = %name, %error, "a pod could not be understood");
                return;
            }
        };
        let known = self.at_start.as_ref().map(|uids| uids.contains(&facts.uid));
        let mut memory = WorkerMemory::default();
        if let Some(status) = &facts.pod.status
            && status.start_time.is_some()
        {
            memory.start_time = status.start_time.as_ref().map(|time| time.0);
            memory.last = status.clone();
        }
        let ended = matches!(memory.last.phase.as_deref(), Some("Succeeded" | "Failed"));
        let mut holding = None;
        if facts.life == Life::Wanted && !ended {
            // What runs already was admitted once: a restart must not reject it.
            let judged = match known {
                Some(true) => Ok(()),
                _ => admit(&facts, &self.node, &self.holdings()),
            };
            match judged {
                Ok(()) => holding = Some(Holding::of(&facts)),
                Err(rejection) => {
                    let note = EventNote::warning(
                        None,
                        rejection.reason.clone(),
                        rejection.message.clone(),
                    );
                    self.shared
                        .outbox
                        .pod_event(&facts, &note, self.shared.now());
                    memory.rejection = Some(rejection);
                }
            }
        }
        let seen = (known == Some(false)).then(Vec::new);
        self.spawn(facts, memory, holding, seen);
    }

    /// A pod of the checkpoint: it was admitted.
    fn adopt(&mut self, record: PodRecord) {
        let facts = match Object::from_value(record.object)
            .and_then(|object| PodFacts::new(object, self.shared.host()))
        {
            Ok(facts) => facts,
            Err(error) => {
                tracing::warn!(%error, "a pod of the checkpoint could not be understood");
                return;
            }
        };
        let same_boot = record.boot_id == self.shared.config.machine.boot_id;
        let memory = WorkerMemory::restore(
            record.remembered,
            same_boot,
            &facts.host.timing,
            self.shared.now(),
        );
        let ended = memory.rejection.is_some()
            || matches!(memory.last.phase.as_deref(), Some("Succeeded" | "Failed"));
        let holding = (!ended).then(|| Holding::of(&facts));
        self.spawn(facts, memory, holding, None);
    }

    fn holdings(&self) -> Vec<&Holding> {
        let counted = |entry: &&Entry| !entry.finished.load(Ordering::Relaxed);
        self.workers
            .values()
            .filter(counted)
            .filter_map(|entry| entry.holding.as_ref())
            .collect()
    }

    fn spawn(
        &mut self,
        facts: PodFacts,
        memory: WorkerMemory,
        holding: Option<Holding>,
        seen: Option<Vec<ContainerView>>,
    ) {
        let uid = facts.uid.clone();
        let (life, name) = (
            facts.life,
            NamespacedName::new(facts.namespace.clone(), facts.name.clone()),
        );
        let look = Arc::new(Notify::new());
        let finished = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = watch::channel(Arc::new(facts));
        let start = WorkerStart {
            shared: Arc::clone(&self.shared),
            facts: receiver,
            look: Arc::clone(&look),
            memory,
            seen,
            finished: Arc::clone(&finished),
            stop: self.stop.clone(),
        };
        self.shared
            .directory
            .lock()
            .insert(uid.clone(), (Arc::clone(&look), sender.subscribe()));
        let handle = WorkerHandle { facts: sender };
        self.workers.insert(
            uid.clone(),
            Entry {
                handle,
                name,
                life,
                holding,
                finished,
            },
        );
        let task = self.jobs.spawn({
            let uid = uid.clone();
            async move {
                let end = start.run().await;
                (uid, end)
            }
        });
        self.tasks.insert(task.id(), uid);
    }

    fn ended(&mut self, ended: Result<(String, WorkerEnd), tokio::task::JoinError>) {
        let uid = match ended {
            Ok((uid, WorkerEnd::Over)) => uid,
            Ok((_, WorkerEnd::Stopped)) => return,
            Err(error) => {
                // Its containers run on; the pod is taken in again with the next snapshot, which is asked for.
                let uid = self.tasks.remove(&error.id()).unwrap_or_default();
                tracing::error!(%error, uid, "a pod worker panicked");
                self.shared.directory.lock().remove(&uid);
                self.workers.remove(&uid);
                self.shared.snapshot_again.notify_one();
                return;
            }
        };
        self.tasks.retain(|_, of| *of != uid);
        self.shared.directory.lock().remove(&uid);
        self.shared.objects.release(&uid);
        let Some(entry) = self.workers.remove(&uid) else {
            return;
        };
        if let Some(uids) = &mut self.at_start {
            uids.remove(&uid);
        }
        if let Some(checkpoint) = &self.shared.checkpoint
            && let Err(error) = checkpoint.remove_pod(&uid)
        {
            tracing::warn!(%uid, %error, "a pod's checkpoint could not be removed");
        }
        if let Some(next) = self.successors.remove(&entry.name) {
            self.add(next);
        }
    }
}

fn uid_of(container: &ContainerView) -> String {
    container
        .labels
        .get(labels::POD_UID)
        .cloned()
        .unwrap_or_default()
}

/// Life goes one way, and a grace only gets shorter.
fn further(before: Life, wanted: Life) -> Life {
    match (before, wanted) {
        (Life::Removed, _) | (_, Life::Removed) => Life::Removed,
        (Life::Deleted { grace_seconds: a }, Life::Deleted { grace_seconds: b }) => Life::Deleted {
            grace_seconds: a.min(b),
        },
        (Life::Deleted { grace_seconds }, Life::Wanted) => Life::Deleted { grace_seconds },
        (Life::Wanted, wanted) => wanted,
    }
}
