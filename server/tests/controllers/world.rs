//! A server without its doors, agents that do what agents must, and a clock that runs with tokio's.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use muster_model::kind::{DAEMON_SET, EVENT, Kind, NAMESPACE, NODE, POD};
use muster_model::object::{NamespacedName, Object};
use muster_model::time::{Clock, SharedClock, Timestamp, to_seconds_text};
use muster_server::auth::Caller;
use muster_server::cache::{Cache, Change, Stored, run_feed};
use muster_server::controllers::{self, Timing};
use muster_server::events::Recorder;
use muster_server::heartbeats::Heartbeats;
use muster_server::registry::{DeleteOptions, Ids, Precondition, Registry, Write, WriteOptions};
use muster_server::status::ApiError;
use muster_store::{MemoryStore, Store};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Monotonic time is tokio's; wall time is that plus whatever the test steps it by.
pub struct TestClock {
    start: Instant,
    wall: Mutex<Timestamp>,
}

impl TestClock {
    pub fn step(&self, by: Duration) {
        *self.wall.lock() += by;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        *self.wall.lock() + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// One life of the server's inside.
struct Life {
    registry: Registry,
    heartbeats: Heartbeats,
    recorder: Recorder,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

pub struct World {
    pub clock: Arc<TestClock>,
    pub store: Arc<dyn Store>,
    alive: Arc<Mutex<BTreeSet<String>>>,
    life: Life,
    seed: u64,
}

pub fn key(namespace: &str, name: &str) -> NamespacedName {
    NamespacedName::new(namespace, name)
}

pub fn object(tree: Value) -> Object {
    Object::from_value(tree).unwrap()
}

/// Waits for a condition in steps of the world's time; how long it took.
async fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    start.elapsed()
}

impl World {
    /// A fresh store with namespace `default`, and every controller.
    pub async fn start() -> Self {
        let clock = Arc::new(TestClock {
            start: Instant::now(),
            wall: Mutex::new("2026-01-31T10:00:00Z".parse().unwrap()),
        });
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let alive = Arc::default();
        let life = Life::begin(&store, &clock, &alive, 1, true).await;
        let world = Self {
            clock,
            store,
            alive,
            life,
            seed: 1,
        };
        world.namespace("default").await;
        world
    }

    /// The server stops and starts again over the same store.
    pub async fn restart(&mut self) {
        self.become_new(true).await;
    }

    /// The same, with the doors open and no controller running.
    pub async fn restart_without_controllers(&mut self) {
        self.become_new(false).await;
    }

    async fn become_new(&mut self, controllers: bool) {
        self.life.stop.cancel();
        while let Some(ended) = self.life.tasks.join_next().await {
            ended.unwrap();
        }
        self.seed += 1;
        self.life = Life::begin(
            &self.store,
            &self.clock,
            &self.alive,
            self.seed,
            controllers,
        )
        .await;
    }

    pub fn registry(&self) -> &Registry {
        &self.life.registry
    }

    pub fn cache(&self) -> &Cache {
        self.registry().cache()
    }

    pub fn recorder(&self) -> &Recorder {
        &self.life.recorder
    }

    pub fn admin(&self) -> Caller {
        Caller::internal("test")
    }

    pub async fn until(&self, what: &str, seconds: u64, holds: impl FnMut() -> bool) -> Duration {
        until(what, Duration::from_secs(seconds), holds).await
    }

    /// Lets the world run.
    pub async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    pub async fn create(&self, kind: &'static Kind, tree: Value) -> Result<Arc<Stored>, ApiError> {
        let options = WriteOptions::default();
        let written = self
            .registry()
            .create(&self.admin(), kind, object(tree), &options)
            .await?;
        Ok(written.stored)
    }

    pub async fn namespace(&self, name: &str) {
        let tree = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.create(&NAMESPACE, tree).await.unwrap();
    }

    pub fn get(&self, kind: &'static Kind, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let stored = self.cache().get(kind, &key(namespace, name))?;
        Some(Arc::clone(stored.object()))
    }

    pub fn pod(&self, name: &str) -> Option<Arc<Object>> {
        self.get(&POD, "default", name)
    }

    pub fn pods(&self) -> Vec<Arc<Object>> {
        let pods = self.cache().list_ns(&POD, "default").items;
        pods.iter().map(|pod| Arc::clone(pod.object())).collect()
    }

    /// A pod bound to a node, as a person would make it.
    pub async fn bare_pod(&self, name: &str, node: &str, tolerations: Value) -> Arc<Stored> {
        let tree = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": node, "tolerations": tolerations, "containers": [{"name": "c", "image": "i:1"}]},
        });
        self.create(&POD, tree).await.unwrap()
    }

    pub async fn daemon(&self, name: &str, app: &str) -> Arc<Stored> {
        self.create(&DAEMON_SET, daemon("default", name, app))
            .await
            .unwrap()
    }

    pub async fn edit(
        &self,
        kind: &'static Kind,
        name: NamespacedName,
        change: impl Fn(&mut Object) + Send + Sync + 'static,
    ) {
        let write = Write::edit(kind, name, Precondition::default(), move |object| {
            change(object);
            Ok(())
        });
        self.registry().write(&self.admin(), write).await.unwrap();
    }

    pub async fn set_taints(&self, node: &str, taints: Value) {
        self.edit(&NODE, key("", node), move |node| {
            let spec = node.tree_mut().entry("spec").or_insert_with(|| json!({}));
            spec["taints"] = taints.clone();
        })
        .await;
    }

    pub async fn delete(
        &self,
        kind: &'static Kind,
        name: NamespacedName,
        options: DeleteOptions,
    ) -> Result<(), ApiError> {
        let admin = self.admin();
        let deleted = self.registry().delete(&admin, kind, name, options);
        deleted.await.map(drop)
    }

    /// A node whose agent runs: it beats, reports, runs its pods and confirms what was deleted.
    pub async fn agent_up(&self, node: &str) {
        self.life.heartbeats.beat(node);
        let time = to_seconds_text(self.clock.now());
        let condition = |type_: &str, status: &str| {
            json!({
                "type": type_, "status": status, "reason": "R", "message": "m",
                "lastHeartbeatTime": time, "lastTransitionTime": time,
            })
        };
        let status = json!({"conditions": [
            condition("MemoryPressure", "False"),
            condition("DiskPressure", "False"),
            condition("PIDPressure", "False"),
            condition("Ready", "True"),
        ]});
        if self.get(&NODE, "", node).is_none() {
            let tree = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "status": status,
            });
            self.create(&NODE, tree).await.unwrap();
        } else {
            let write = Write::edit_status(
                &NODE,
                key("", node),
                Precondition::default(),
                move |object| {
                    object.tree_mut().insert("status".into(), status.clone());
                    Ok(())
                },
            );
            self.registry().write(&self.admin(), write).await.unwrap();
        }
        self.alive.lock().insert(node.to_owned());
    }

    /// Kills an agent: nothing is heard of it any more.
    pub fn agent_down(&self, node: &str) {
        self.alive.lock().remove(node);
    }

    pub fn condition(&self, node: &str, type_: &str) -> Value {
        let node = self.get(&NODE, "", node);
        node.map_or(Value::Null, |node| condition(&node, type_))
    }

    /// `key:Effect` of each taint of a node.
    pub fn taints(&self, node: &str) -> Vec<String> {
        let node = self.get(&NODE, "", node).unwrap();
        let taints = node.at("/spec/taints").and_then(Value::as_array);
        let text = |t: &Value| {
            format!(
                "{}:{}",
                t["key"].as_str().unwrap(),
                t["effect"].as_str().unwrap()
            )
        };
        taints.into_iter().flatten().map(text).collect()
    }

    /// `type reason message` of each event about an object.
    pub fn said_of(&self, name: &str) -> Vec<String> {
        let events = self.cache().list(&EVENT).items;
        let about = events
            .iter()
            .filter(|event| event.object().text_at("/involvedObject/name") == name);
        let text = |field: &str, event: &Stored| event.object().text_at(field).to_owned();
        about
            .map(|event| {
                format!(
                    "{} {} {}",
                    text("/type", event),
                    text("/reason", event),
                    text("/message", event)
                )
            })
            .collect()
    }

    pub async fn until_said(&self, name: &str, sentence: &str) {
        self.until(sentence, 5, || {
            self.said_of(name).iter().any(|said| said == sentence)
        })
        .await;
    }

    /// Whether every node has exactly one pod of this set, running and Ready.
    pub fn all_serve(&self, nodes: &[&str]) -> bool {
        let pods = self.pods();
        pods.len() == nodes.len()
            && nodes.iter().all(|node| {
                pods.iter()
                    .any(|pod| pod.text_at("/spec/nodeName") == *node && serves(pod))
            })
    }
}

pub fn daemon(namespace: &str, name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
        "spec": {
            "selector": {"matchLabels": {"app": app}},
            "template": {
                "metadata": {"labels": {"app": app}},
                "spec": {"containers": [{"name": "c", "image": "i:1"}]},
            },
        },
    })
}

pub fn condition(object: &Object, type_: &str) -> Value {
    let list = object.at("/status/conditions").and_then(Value::as_array);
    let found = list.into_iter().flatten().find(|c| c["type"] == type_);
    found.cloned().unwrap_or_default()
}

pub fn serves(pod: &Object) -> bool {
    !pod.is_terminating() && condition(pod, "Ready")["status"] == "True"
}

/// What happened to a kind's objects since it was subscribed, oldest first.
pub fn changes(subscription: &mut muster_server::cache::Subscription) -> Vec<Arc<Change>> {
    subscription.ready().unwrap()
}

impl Life {
    async fn begin(
        store: &Arc<dyn Store>,
        clock: &Arc<TestClock>,
        alive: &Arc<Mutex<BTreeSet<String>>>,
        seed: u64,
        controllers: bool,
    ) -> Self {
        let clock: SharedClock = clock.clone();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (cache, feed) = Cache::load(Arc::clone(store)).await.unwrap();
        tasks.spawn(run_feed(feed, stop.clone()));
        let registry = Registry::new(Arc::clone(store), cache, clock.clone(), Ids::seeded(seed));
        let heartbeats = Heartbeats::new(clock);
        let (recorder, scribe) = Recorder::new(registry.clone());
        tasks.spawn(scribe.run(stop.clone()));
        if controllers {
            let timing = Timing::default();
            controllers::start(
                &mut tasks,
                &registry,
                &heartbeats,
                &recorder,
                &muster_server::metrics::Metrics::new(),
                &timing,
                &stop,
            );
        }
        let agents = Agents {
            registry: registry.clone(),
            heartbeats: heartbeats.clone(),
            alive: Arc::clone(alive),
        };
        tasks.spawn(agents.run(stop.clone()));
        Self {
            registry,
            heartbeats,
            recorder,
            tasks,
            stop,
        }
    }
}

/// All agents that are alive.
struct Agents {
    registry: Registry,
    heartbeats: Heartbeats,
    alive: Arc<Mutex<BTreeSet<String>>>,
}

impl Agents {
    async fn run(self, stop: CancellationToken) {
        let mut second = 0_u64;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
            second += 1;
            let alive: Vec<String> = self.alive.lock().iter().cloned().collect();
            for (index, node) in alive.iter().enumerate() {
                // Each ten seconds, not all at the same moment.
                if (second + index as u64 * 3).is_multiple_of(10) {
                    self.heartbeats.beat(node);
                }
            }
            let writes: Vec<Write> = alive.iter().flat_map(|node| self.work(node)).collect();
            for answer in self
                .registry
                .commit(&Caller::internal("agents"), writes)
                .await
            {
                if let Err(error) = answer {
                    assert!(error.is_not_found() || error.is_conflict(), "{error}");
                }
            }
        }
    }

    fn work(&self, node: &str) -> Vec<Write> {
        let pods = self.registry.cache().pods_on_node(node);
        let act = |pod: &Arc<Stored>| {
            if pod.object().is_terminating() {
                let now = DeleteOptions::now(pod.uid());
                return Some(Write::delete(&POD, pod.key.clone(), now));
            }
            (!serves(pod.object())).then(|| run(pod))
        };
        pods.iter().filter_map(act).collect()
    }
}

/// The report of a pod that runs and is Ready.
fn run(pod: &Stored) -> Write {
    let uid = Precondition::uid(pod.uid());
    Write::edit_status(&POD, pod.key.clone(), uid, |pod| {
        let time = pod.text_at("/metadata/creationTimestamp").to_owned();
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": time});
        let contained =
            json!({"type": "ContainersReady", "status": "True", "lastTransitionTime": time});
        let status = json!({"phase": "Running", "conditions": [contained, ready]});
        pod.tree_mut().insert("status".into(), status);
        Ok(())
    })
}
