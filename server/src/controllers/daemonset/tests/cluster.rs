//! A registry over a memory store that fails on demand, and a controller whose syncs the test asks for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use muster_model::kind::{CONTROLLER_REVISION, DAEMON_SET, EVENT, Kind, NODE, POD};
use muster_model::object::{NamespacedName, Object};
use muster_model::time::{Clock, Timestamp, to_seconds_text};
use muster_store::{
    CommitError, Entry, EventStream, Key, Listing, MemoryStore, Op, Revision, Store, Txn,
    WatchError,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::auth::Caller;
use crate::cache::{Cache, Stored};
use crate::controllers::daemonset::DaemonSets;
use crate::controllers::daemonset::sync::SyncError;
use crate::events::Recorder;
use crate::first_start;
use crate::metrics::Metrics;
use crate::registry::{DeleteOptions, Ids, Precondition, Registry, Write};

/// Follows tokio's paused clock.
struct TestClock {
    start: tokio::time::Instant,
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_767_225_600).unwrap() + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A memory store that refuses on demand.
#[derive(Default)]
pub(super) struct Faulty {
    inner: MemoryStore,
    /// How many more new pods are stored before every commit with one is refused; `usize::MAX`: no limit.
    pub(super) pods_left: AtomicUsize,
    /// New pods asked for.
    pub(super) pods_tried: AtomicUsize,
    /// How many more commits that touch a DaemonSet are refused.
    pub(super) daemonset_refusals: AtomicUsize,
    /// Every watch ends, and every list fails.
    pub(super) broken: std::sync::atomic::AtomicBool,
    /// While true, commits are carried out and no watch shows them.
    pub(super) hidden: watch::Sender<bool>,
}

impl Store for Faulty {
    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Option<Entry>> {
        self.inner.get(key)
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        at: Option<Revision>,
    ) -> BoxFuture<'a, Result<Listing, WatchError>> {
        if self.broken.load(Ordering::SeqCst) {
            return Box::pin(async { Err(WatchError::Closed) });
        }
        self.inner.list(prefix, at)
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>> {
        let refuse = || Box::pin(async { Err(CommitError::Write("no space left".to_owned())) });
        let touches = |op: &Op, plural: &str| match op {
            Op::Put { key, .. } | Op::Delete { key } => key.as_str().contains(plural),
        };
        let new_pods = txn
            .compares
            .iter()
            .filter(|compare| {
                matches!(compare, muster_store::Compare::Absent(key) if key.as_str().contains("/pods/"))
            })
            .count();
        self.pods_tried.fetch_add(new_pods, Ordering::SeqCst);
        let left = self.pods_left.load(Ordering::SeqCst);
        if new_pods > left {
            return refuse();
        }
        if left != usize::MAX {
            self.pods_left.fetch_sub(new_pods, Ordering::SeqCst);
        }
        let refusals = self.daemonset_refusals.load(Ordering::SeqCst);
        if refusals > 0 && txn.ops.iter().any(|op| touches(op, "/daemonsets/")) {
            self.daemonset_refusals
                .store(refusals - 1, Ordering::SeqCst);
            return refuse();
        }
        self.inner.commit(txn)
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<EventStream, WatchError> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(WatchError::Closed);
        }
        let hidden = self.hidden.subscribe();
        let shown = self.inner.watch(prefix, after)?.then(move |events| {
            let mut hidden = hidden.clone();
            async move {
                let _ = hidden.wait_for(|hidden| !hidden).await;
                events
            }
        });
        Ok(shown.boxed())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

pub(super) struct Cluster {
    pub(super) store: Arc<Faulty>,
    pub(super) registry: Registry,
    pub(super) events: Recorder,
    pub(super) controller: DaemonSets,
    caller: Caller,
    _tasks: JoinSet<()>,
}

pub(super) fn web() -> NamespacedName {
    NamespacedName::new("default", "web")
}

pub(super) fn object(tree: Value) -> Object {
    Object::from_value(tree).unwrap()
}

/// The base DaemonSet of section 18.
pub(super) fn daemonset(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "img:1"}]},
            },
        },
    })
}

impl Cluster {
    /// Nodes `n0`... and no DaemonSet.
    pub(super) async fn empty(nodes: usize) -> Self {
        let store = Arc::new(Faulty {
            pods_left: AtomicUsize::new(usize::MAX),
            ..Faulty::default()
        });
        Self::over(store, nodes).await
    }

    /// The same over a store with something in it.
    pub(super) async fn over(store: Arc<Faulty>, nodes: usize) -> Self {
        let mut tasks = JoinSet::new();
        let (cache, feed) = Cache::load(store.clone()).await.unwrap();
        let stop = CancellationToken::new();
        tasks.spawn(feed.run(stop.clone()));
        let clock = Arc::new(TestClock {
            start: tokio::time::Instant::now(),
        });
        let registry = Registry::new(store.clone(), cache, clock, Ids::seeded(7));
        first_start::objects(&registry).await.unwrap();
        let (events, scribe) = Recorder::new(registry.clone());
        tasks.spawn(scribe.run(stop.clone()));
        let caller = Caller::internal("test");
        let nodes = (0..nodes).map(|index| {
            let tree = json!({"metadata": {"name": format!("n{index}"), "labels": {}}, "spec": {}});
            Write::create(&NODE, object(tree))
        });
        for answer in registry.commit(&caller, nodes.collect()).await {
            answer.unwrap();
        }
        let controller = DaemonSets::new(registry.clone(), events.clone(), Metrics::new());
        Self {
            store,
            registry,
            events,
            controller,
            caller,
            _tasks: tasks,
        }
    }

    /// With the base DaemonSet.
    pub(super) async fn new(nodes: usize) -> Self {
        let cluster = Self::empty(nodes).await;
        cluster
            .create(&DAEMON_SET, daemonset("default", "web"))
            .await;
        cluster
    }

    /// With its pods made and Ready.
    pub(super) async fn running(nodes: usize) -> Self {
        let cluster = Self::new(nodes).await;
        cluster.settle_down().await;
        cluster
    }

    /// With a new controller, which remembers nothing.
    pub(super) fn restarted(mut self) -> Self {
        let (registry, events) = (self.registry.clone(), self.events.clone());
        self.controller = DaemonSets::new(registry, events, Metrics::new());
        self
    }

    pub(super) async fn create(&self, kind: &'static Kind, tree: Value) -> Arc<Stored> {
        let write = Write::create(kind, object(tree));
        self.registry
            .write(&self.caller, write)
            .await
            .unwrap()
            .stored
    }

    pub(super) async fn edit<F>(&self, kind: &'static Kind, key: &NamespacedName, edit: F)
    where
        F: Fn(&mut Value) + Send + Sync + 'static,
    {
        let write = Write::edit(kind, key.clone(), Precondition::default(), move |object| {
            change(object, &edit);
            Ok(())
        });
        self.registry.write(&self.caller, write).await.unwrap();
    }

    pub(super) async fn edit_status<F>(&self, kind: &'static Kind, key: &NamespacedName, edit: F)
    where
        F: Fn(&mut Value) + Send + Sync + 'static,
    {
        let write = Write::edit_status(kind, key.clone(), Precondition::default(), move |object| {
            change(object, &edit);
            Ok(())
        });
        self.registry.write(&self.caller, write).await.unwrap();
    }

    pub(super) async fn delete(&self, kind: &'static Kind, key: &NamespacedName) {
        let options = DeleteOptions::default();
        self.registry
            .write(&self.caller, Write::delete(kind, key.clone(), options))
            .await
            .unwrap();
    }

    /// The node's agent confirms: the pod is gone.
    pub(super) async fn remove_pod(&self, pod: &Stored) {
        let options = DeleteOptions::now(pod.uid());
        self.registry
            .write(&self.caller, Write::delete(&POD, pod.key.clone(), options))
            .await
            .unwrap();
    }

    pub(super) fn get(&self, kind: &'static Kind, key: &NamespacedName) -> Arc<Stored> {
        self.registry.cache().get(kind, key).unwrap()
    }

    pub(super) fn set(&self) -> Arc<Stored> {
        self.get(&DAEMON_SET, &web())
    }

    pub(super) fn status(&self, field: &str) -> i64 {
        let set = self.set();
        set.object()
            .at(&format!("/status/{field}"))
            .and_then(Value::as_i64)
            .unwrap_or_default()
    }

    pub(super) fn pods(&self) -> Vec<Arc<Stored>> {
        self.registry.cache().list(&POD).items
    }

    pub(super) fn pods_on(&self, node: &str) -> Vec<Arc<Stored>> {
        self.registry.cache().pods_on_node(node)
    }

    pub(super) fn only(&self, node: &str) -> Arc<Stored> {
        let pods = self.pods_on(node);
        assert_eq!(pods.len(), 1, "pods on {node}");
        pods[0].clone()
    }

    pub(super) fn revisions(&self) -> Vec<Arc<Stored>> {
        self.registry.cache().list(&CONTROLLER_REVISION).items
    }

    pub(super) fn numbers(&self) -> Vec<i64> {
        let number =
            |stored: &Arc<Stored>| stored.object().at("/revision").unwrap().as_i64().unwrap();
        let mut numbers: Vec<i64> = self.revisions().iter().map(number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// One sync of one DaemonSet.
    pub(super) async fn try_sync_of(
        &self,
        key: &NamespacedName,
    ) -> Result<(usize, usize), SyncError> {
        let live = || -> BTreeSet<String> {
            let pods = self.pods();
            let live = pods.iter().filter(|pod| !pod.object().is_terminating());
            live.map(|pod| pod.uid().to_owned()).collect()
        };
        let before = live();
        let result = self.controller.inner.sync(key).await;
        let after = live();
        result.map(|()| {
            (
                after.difference(&before).count(),
                before.difference(&after).count(),
            )
        })
    }

    pub(super) async fn try_sync(&self) -> Result<(usize, usize), SyncError> {
        self.try_sync_of(&web()).await
    }

    pub(super) async fn sync(&self) -> (usize, usize) {
        self.try_sync().await.unwrap()
    }

    pub(super) async fn set_ready(&self, pod: &Stored, ready: bool) {
        let now = to_seconds_text(self.registry.clock().now());
        self.edit_status(&POD, &pod.key, move |pod| {
            pod["status"]["phase"] = "Running".into();
            pod["status"]["conditions"] = json!([{
                "type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": now,
            }]);
        })
        .await;
    }

    /// Terminating pods go, the others turn Ready.
    pub(super) async fn be_fair(&self) {
        for pod in self.pods() {
            let object = pod.object();
            let ready = object
                .at("/status/conditions/0/status")
                .is_some_and(|s| s == "True");
            if object.is_terminating() {
                self.remove_pod(&pod).await;
            } else if !ready && object.text_at("/status/phase") != "Failed" {
                self.set_ready(&pod, true).await;
            }
        }
    }

    pub(super) async fn settle_down(&self) {
        for _ in 0..200 {
            let done = self.sync().await;
            self.be_fair().await;
            if done == (0, 0) && self.sync().await == (0, 0) {
                return;
            }
        }
        panic!("does not come to rest");
    }

    /// What was told, as `REASON MESSAGE`, once the scribe has written it.
    pub(super) async fn told(&self, reason: &str) -> Vec<String> {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let events = self.registry.cache().list(&EVENT).items;
        let of = |event: &&Arc<Stored>| event.object().text_at("/reason") == reason;
        events
            .iter()
            .filter(of)
            .map(|event| event.object().text_at("/message").to_owned())
            .collect()
    }

    /// The keys that are queued now; they are taken out.
    pub(super) fn queued(&self) -> Vec<String> {
        let inner = &self.controller.inner;
        inner.catch_up(&mut inner.state.lock());
        let mut keys: Vec<String> = inner
            .queue
            .drain()
            .into_iter()
            .map(|key| key.name.clone())
            .collect();
        keys.sort();
        keys
    }

    /// What the controller knows of the base DaemonSet.
    pub(super) fn controller_facts(&self) -> muster_daemonset::DaemonFacts {
        self.queued();
        self.controller.inner.state.lock().index.sets[&web()]
            .facts
            .clone()
    }

    /// Puts bytes in the store past every check, and waits until they are seen.
    pub(super) async fn put_raw(&self, key: &Key, bytes: Vec<u8>) {
        let op = Op::Put {
            key: key.clone(),
            value: bytes.into(),
            soft: false,
        };
        let txn = Txn {
            compares: Vec::new(),
            ops: vec![op],
        };
        let revision = self.store.commit(txn).await.unwrap();
        assert!(
            self.registry
                .cache()
                .wait_for(revision, Duration::from_secs(5))
                .await
        );
    }

    /// The store's revision, once the scribe has nothing left to write.
    pub(super) async fn store_revision(&self) -> Revision {
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.store.revision()
    }
}

fn change(object: &mut Object, edit: &impl Fn(&mut Value)) {
    let mut tree = object.clone().into_tree();
    edit(&mut tree);
    *object = Object::from_value(tree).unwrap();
}
