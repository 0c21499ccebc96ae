//! What a client sees of a DaemonSet and its pods, by watching.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::stream::{BoxStream, SelectAll, StreamExt};
use muster_client::{ClientError, Connection, ListOptions, WatchEvent, WatchEventType};
use muster_model::kind::{DAEMON_SET, Kind, NODE, POD};
use muster_model::object::Object;
use serde_json::Value;

/// Nothing that is measured takes longer.
const PATIENCE: Duration = Duration::from_secs(300);

/// A pod, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodSeen {
    /// Running, with a true Ready condition, and not on its way out.
    pub(crate) up: bool,
}

/// A DaemonSet's status, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Numbers {
    pub(crate) observed_generation: i64,
    pub(crate) ready: i64,
    pub(crate) updated: i64,
    pub(crate) available: i64,
}

/// What is there.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) pods: BTreeMap<String, PodSeen>,
    pub(crate) daemon: Option<Numbers>,
    /// Whether each node is Ready.
    pub(crate) nodes: BTreeMap<String, bool>,
}

impl World {
    /// How many pods are up.
    pub(crate) fn up(&self) -> usize {
        self.pods.values().filter(|pod| pod.up).count()
    }

    /// How many nodes are Ready.
    pub(crate) fn ready_nodes(&self) -> usize {
        self.nodes.values().filter(|ready| **ready).count()
    }

    fn take(&mut self, kind: &Kind, change: WatchEventType, object: &Object) {
        let name = object.name().to_owned();
        let gone = change == WatchEventType::Deleted;
        if *kind == POD {
            if gone {
                self.pods.remove(&name);
            } else {
                self.pods.insert(name, PodSeen { up: is_up(object) });
            }
        } else if *kind == NODE {
            self.nodes.insert(name, !gone && is_ready(object));
        } else {
            self.daemon = (!gone).then(|| numbers(object));
        }
    }
}

fn is_ready(object: &Object) -> bool {
    let conditions = object.at("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        condition["type"].as_str() == Some("Ready") && condition["status"].as_str() == Some("True")
    })
}

fn is_up(pod: &Object) -> bool {
    !pod.is_terminating() && pod.text_at("/status/phase") == "Running" && is_ready(pod)
}

fn numbers(daemon: &Object) -> Numbers {
    let number = |pointer: &str| daemon.at(pointer).and_then(Value::as_i64).unwrap_or(0);
    Numbers {
        observed_generation: number("/status/observedGeneration"),
        ready: number("/status/numberReady"),
        updated: number("/status/updatedNumberScheduled"),
        available: number("/status/numberAvailable"),
    }
}

type Events = BoxStream<'static, (&'static Kind, Result<WatchEvent, ClientError>)>;

/// A view that is brought up to date while something is waited for.
pub(crate) struct View {
    pub(crate) world: World,
    events: SelectAll<Events>,
}

impl View {
    /// Of the DaemonSet and the pods of this selection.
    pub(crate) async fn of_daemon(
        connection: &Connection,
        selection: &ListOptions,
    ) -> anyhow::Result<Self> {
        Self::open(connection, &[&POD, &DAEMON_SET], selection).await
    }

    /// Of the pods of this selection.
    pub(crate) async fn of_pods(
        connection: &Connection,
        selection: &ListOptions,
    ) -> anyhow::Result<Self> {
        Self::open(connection, &[&POD], selection).await
    }

    /// Of all nodes.
    pub(crate) async fn of_nodes(connection: &Connection) -> anyhow::Result<Self> {
        Self::open(connection, &[&NODE], &ListOptions::default()).await
    }

    async fn open(
        connection: &Connection,
        kinds: &[&'static Kind],
        selection: &ListOptions,
    ) -> anyhow::Result<Self> {
        let resources = connection.resources();
        let mut world = World::default();
        let mut events = SelectAll::new();
        for kind in kinds.iter().copied() {
            let now = resources.list(kind, "", selection).await?;
            for object in &now.items {
                world.take(kind, WatchEventType::Added, object);
            }
            let watch = resources
                .watch(kind, "", selection, &now.resource_version)
                .await?;
            events.push(watch.map(move |event| (kind, event)).boxed());
        }
        Ok(Self { world, events })
    }

    /// Waits until this holds; answers when the event came that made it so.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        holds: impl Fn(&World) -> bool,
    ) -> anyhow::Result<Instant> {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            if holds(&self.world) {
                return Ok(Instant::now());
            }
            let next = tokio::time::timeout_at(end, self.events.next()).await;
            let Ok(next) = next else {
                bail!(
                    "{what}: not after {PATIENCE:?}; {} pods, {} up, {:?}",
                    self.world.pods.len(),
                    self.world.up(),
                    self.world.daemon
                );
            };
            let (kind, event) = next.with_context(|| format!("{what}: the watches ended"))?;
            if let WatchEvent::Object {
                kind: change,
                object,
                ..
            } = event.with_context(|| format!("{what}: the watch of {} failed", kind.plural))?
            {
                self.world.take(kind, change, &object);
            }
        }
    }
}
