//! What must always hold (docs: "what must always hold"), as checkers that watch while a test runs.
//!
//! A [`Witness`] follows every change of the server's cache, in revision order, so that it sees each state the cluster
//! was in, however short. The functions look once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_agent::runtime::memory::MemoryEngine;
use muster_agent::runtime::{ContainerState, ContainerView, labels};
use muster_client::{ListOptions, Resources, WatchEvent};
use muster_model::kind::{Kind, POD};
use muster_model::object::Object;
use muster_server::cache::Cache;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::wait::is_ready;

/// Whether a pod counts as live: it has not ended, and nobody has asked it to go.
pub fn is_live(pod: &Object) -> bool {
    !pod.is_terminating() && !matches!(pod.text_at("/status/phase"), "Failed" | "Succeeded")
}

/// Invariant 1 on the objects: at most `most` live pods of one owner on one node (1; while surging 2).
pub fn pods_per_node<'a>(pods: impl IntoIterator<Item = &'a Object>, most: usize) -> Vec<String> {
    let mut found: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for pod in pods {
        if let (Some(owner), true) = (pod.controller(), is_live(pod)) {
            let place = (owner.name, pod.text_at("/spec/nodeName").to_owned());
            found.entry(place).or_default().push(pod.name().to_owned());
        }
    }
    found
        .into_iter()
        .filter(|(_, pods)| pods.len() > most)
        .map(|((owner, node), pods)| {
            format!("{owner} has {} live pods on {node}: {pods:?}", pods.len())
        })
        .collect()
}

/// Invariant 1 on the engine: at most `most` running containers of one name of one DaemonSet on one node.
pub fn containers_per_node(engine: &MemoryEngine, most: usize) -> Vec<String> {
    let mut found: BTreeMap<(String, String, String), Vec<String>> = BTreeMap::new();
    for container in engine.all_containers() {
        if !is_running(&container) || is_sandbox(&container) {
            continue;
        }
        let label = |key: &str| container.labels.get(key).cloned().unwrap_or_default();
        let pod = label(labels::POD_NAME);
        // A DaemonSet's pods are its name and five random letters.
        let set = pod.rsplit_once('-').map_or(pod.as_str(), |(set, _)| set);
        let place = (
            label(labels::NODE),
            format!("{}/{set}", label(labels::POD_NAMESPACE)),
            label(labels::CONTAINER_NAME),
        );
        found.entry(place).or_default().push(pod);
    }
    found
        .into_iter()
        .filter(|(_, pods)| pods.len() > most)
        .map(|((node, set, container), pods)| {
            format!(
                "{set} has {} running containers {container} on {node}: {pods:?}",
                pods.len()
            )
        })
        .collect()
}

fn is_running(container: &ContainerView) -> bool {
    matches!(container.state, ContainerState::Running { .. })
}

fn is_sandbox(container: &ContainerView) -> bool {
    container.labels.get(labels::TYPE).map(String::as_str) == Some(labels::TYPE_SANDBOX)
}

/// A node's containers, sandboxes too.
pub fn containers_of(engine: &MemoryEngine, node: &str) -> Vec<ContainerView> {
    let mut all = engine.all_containers();
    all.retain(|container| {
        container
            .labels
            .get(labels::NODE)
            .is_some_and(|n| n == node)
    });
    all
}

/// Invariant 4: ids of the running containers, sandboxes too; equal before and after a restart of server or agents.
pub fn running_ids(engine: &MemoryEngine) -> BTreeSet<String> {
    let running = engine.all_containers().into_iter().filter(is_running);
    running.map(|container| container.id.0).collect()
}

/// What a witness watches over.
#[derive(Debug, Clone, Default)]
pub struct Watchful {
    /// Most live pods of one owner on one node; 0: not watched.
    pub pods_per_node: usize,
    /// DaemonSet and the most nodes of its own that may be without a ready pod at once (invariant 2). Nodes count from
    /// the moment they first had one.
    pub budgets: BTreeMap<String, usize>,
}

/// Follows the cluster and notes what should not have been. [`Witness::finish`] tells.
pub struct Witness {
    faults: Arc<Mutex<Vec<String>>>,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Most nodes at once without a ready pod, by DaemonSet.
    worst: BTreeMap<String, usize>,
    /// Pods that were seen, by DaemonSet.
    pods: BTreeMap<String, BTreeSet<String>>,
}

impl Witness {
    /// Watches from now on, until finished or until the server ends.
    pub fn start(cache: &Cache, watchful: Watchful) -> Self {
        let faults = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let task = tokio::spawn(follow(
            cache.clone(),
            watchful,
            Arc::clone(&faults),
            Arc::clone(&seen),
        ));
        Self { faults, seen, task }
    }

    /// Ends the watch; what was wrong, in order.
    pub async fn finish(self) -> Vec<String> {
        self.task.abort();
        // Aborted or ended with the server: either way it is over.
        let _ = self.task.await;
        std::mem::take(&mut self.faults.lock())
    }

    /// The most nodes of a watched DaemonSet that were without a ready pod at once, so far.
    pub fn worst(&self, daemon_set: &str) -> usize {
        self.seen.lock().worst.get(daemon_set).copied().unwrap_or(0)
    }

    /// How many pods of a DaemonSet there have been, so far.
    pub fn pods_seen(&self, daemon_set: &str) -> usize {
        self.seen
            .lock()
            .pods
            .get(daemon_set)
            .map_or(0, BTreeSet::len)
    }
}

async fn follow(
    cache: Cache,
    watchful: Watchful,
    faults: Arc<Mutex<Vec<String>>>,
    seen: Arc<Mutex<Seen>>,
) {
    let mut served: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    loop {
        let (snapshot, mut changes) = cache.list_and_subscribe(&[&POD]);
        let mut pods: BTreeMap<String, Arc<Object>> = snapshot
            .items
            .iter()
            .filter(|stored| stored.kind == &POD)
            .map(|stored| (stored.uid().to_owned(), Arc::clone(stored.object())))
            .collect();
        judge(&pods, &watchful, &mut served, &faults, &seen);
        loop {
            let Ok(batch) = changes.next().await else {
                // Lagged: begin again; what was between is not judged.
                break;
            };
            let mut revision = batch.first().map(|change| change.revision);
            for change in batch {
                // One commit is one state: it is judged whole.
                if revision != Some(change.revision) {
                    judge(&pods, &watchful, &mut served, &faults, &seen);
                    revision = Some(change.revision);
                }
                match &change.new {
                    Some(stored) => {
                        pods.insert(stored.uid().to_owned(), Arc::clone(stored.object()));
                    }
                    None => {
                        pods.remove(change.subject().uid());
                    }
                }
            }
            judge(&pods, &watchful, &mut served, &faults, &seen);
        }
    }
}

fn judge(
    pods: &BTreeMap<String, Arc<Object>>,
    watchful: &Watchful,
    served: &mut BTreeMap<String, BTreeSet<String>>,
    faults: &Mutex<Vec<String>>,
    seen: &Mutex<Seen>,
) {
    let mut note = |fault: String| {
        let mut faults = faults.lock();
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    };
    if watchful.pods_per_node > 0 {
        let all = pods.values().map(|pod| &**pod);
        pods_per_node(all, watchful.pods_per_node)
            .into_iter()
            .for_each(&mut note);
    }
    let mut seen = seen.lock();
    let mut ready: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for pod in pods.values() {
        let Some(owner) = pod.controller() else {
            continue;
        };
        seen.pods
            .entry(owner.name.clone())
            .or_default()
            .insert(pod.name().to_owned());
        if let Some((set, _)) = watchful.budgets.get_key_value(&owner.name)
            && is_ready(pod)
            && is_live(pod)
        {
            ready
                .entry(set.as_str())
                .or_default()
                .insert(pod.text_at("/spec/nodeName").to_owned());
        }
    }
    for (set, most) in &watchful.budgets {
        let ready = ready.remove(set.as_str()).unwrap_or_default();
        let served = served.entry(set.clone()).or_default();
        served.extend(ready.iter().cloned());
        let without: Vec<&String> = served.difference(&ready).collect();
        let worst = seen.worst.entry(set.clone()).or_default();
        *worst = (*worst).max(without.len());
        if without.len() > *most {
            note(format!(
                "{set}: {} nodes without a ready pod, {most} allowed: {without:?}",
                without.len()
            ));
        }
    }
}

/// Invariant 3: watches a kind over the wire and notes every resourceVersion that does not grow.
pub struct VersionWitness {
    faults: Arc<Mutex<Vec<String>>>,
    events: Arc<Mutex<usize>>,
    task: JoinHandle<()>,
}

impl VersionWitness {
    /// Watches from the present state on, until finished or until the connection is lost.
    pub async fn start(resources: Resources, kind: &'static Kind) -> anyhow::Result<Self> {
        use futures::StreamExt;
        let listed = resources.list(kind, "", &ListOptions::default()).await?;
        let mut last: u64 = listed.resource_version.parse()?;
        let mut watch = resources
            .watch(kind, "", &ListOptions::default(), &listed.resource_version)
            .await?;
        let faults = Arc::new(Mutex::new(Vec::new()));
        let events = Arc::new(Mutex::new(0));
        let (told, counted) = (Arc::clone(&faults), Arc::clone(&events));
        let task = tokio::spawn(async move {
            while let Some(Ok(event)) = watch.next().await {
                let text = event.resource_version().to_owned();
                *counted.lock() += 1;
                match text.parse::<u64>() {
                    // Objects of one commit share its revision, and a bookmark repeats the last one.
                    Ok(version) if version >= last => last = version,
                    _ => told.lock().push(format!(
                        "{} event of {text} after {last}",
                        if matches!(event, WatchEvent::Bookmark { .. }) {
                            "a bookmark"
                        } else {
                            "an"
                        }
                    )),
                }
            }
        });
        Ok(Self {
            faults,
            events,
            task,
        })
    }

    /// How many events came.
    pub fn events(&self) -> usize {
        *self.events.lock()
    }

    /// Ends the watch; what was wrong, in order.
    pub async fn finish(self) -> Vec<String> {
        self.task.abort();
        // Aborted or ended with the connection: either way it is over.
        let _ = self.task.await;
        std::mem::take(&mut self.faults.lock())
    }
}
