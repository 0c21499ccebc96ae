//! List, then watch, into a local map; list again when the revision is too old.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use muster_model::kind::Kind;
use muster_model::object::{NamespacedName, Object};
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::error::ClientError;
use crate::resources::{ListOptions, Resources, WatchEvent, WatchEventType};

/// The local copy. Cheap to clone; all clones see the same.
#[derive(Debug, Clone)]
pub struct Cache {
    objects: Arc<RwLock<BTreeMap<NamespacedName, Arc<Object>>>>,
    version: watch::Receiver<u64>,
}

impl Cache {
    /// One object.
    pub fn get(&self, name: &NamespacedName) -> Option<Arc<Object>> {
        self.objects.read().get(name).cloned()
    }

    /// Every object, ordered by namespace, then name.
    pub fn list(&self) -> Vec<Arc<Object>> {
        self.objects.read().values().cloned().collect()
    }

    /// Whether the first list has arrived.
    pub fn is_synced(&self) -> bool {
        *self.version.borrow() > 0
    }

    /// Waits for the first list; false when the reflector has ended before.
    pub async fn wait_synced(&self) -> bool {
        self.version
            .clone()
            .wait_for(|version| *version > 0)
            .await
            .is_ok()
    }

    /// A counter that moves with every change: for waiting until something is as wished.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.clone()
    }

    /// Waits until `ready` says yes of the objects; false when the reflector has ended before.
    pub async fn wait_until(
        &self,
        mut ready: impl FnMut(&BTreeMap<NamespacedName, Arc<Object>>) -> bool,
    ) -> bool {
        let mut changes = self.version.clone();
        loop {
            changes.borrow_and_update();
            if ready(&self.objects.read()) {
                return true;
            }
            if changes.changed().await.is_err() {
                return false;
            }
        }
    }
}

/// Keeps a [`Cache`] up to date while [`Reflector::run`] runs.
#[derive(Debug)]
pub struct Reflector {
    resources: Resources,
    kind: &'static Kind,
    namespace: String,
    options: ListOptions,
    backoff: Backoff,
    objects: Arc<RwLock<BTreeMap<NamespacedName, Arc<Object>>>>,
    version: watch::Sender<u64>,
}

impl Reflector {
    /// Of one kind, in one namespace (empty: all). `seed` spreads the retries.
    pub fn new(
        resources: Resources,
        kind: &'static Kind,
        namespace: &str,
        options: ListOptions,
        seed: u64,
    ) -> (Self, Cache) {
        let objects = Arc::default();
        let (version, receiver) = watch::channel(0);
        let cache = Cache {
            objects: Arc::clone(&objects),
            version: receiver,
        };
        let backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30), seed);
        (
            Self {
                resources,
                kind,
                namespace: namespace.to_owned(),
                options,
                backoff,
                objects,
                version,
            },
            cache,
        )
    }

    /// Runs until stopped. Trouble is retried with growing delays; nothing is ever given up.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let round = Box::pin(self.round());
            let error = tokio::select! {
                biased;
                // Dropping a round drops its call or stream: nothing is half done.
                () = stop.cancelled() => return,
                error = round => error,
            };
            // A watch that is too old is no failure, but a server that says so at once each time must not be
            // hammered either: the delay is short at first, and grows.
            let delay = self.backoff.next_delay();
            tracing::debug!(resource = self.kind.plural, %error, attempt = self.backoff.attempt(), "watch ended");
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(delay) => {}
            }
        }
    }

    /// One list and the watches after it, up to an error that makes a new list necessary.
    async fn round(&mut self) -> ClientError {
        let list = match self
            .resources
            .list(self.kind, &self.namespace, &self.options)
            .await
        {
            Ok(list) => list,
            Err(error) => return error,
        };
        let mut from = list.resource_version;
        let fresh = list
            .items
            .into_iter()
            .map(|object| (object.namespaced_name(), Arc::new(object)))
            .collect();
        *self.objects.write() = fresh;
        self.moved();
        loop {
            match self.follow(&mut from).await {
                error if error.is_expired() || !error.is_retryable() => return error,
                error => {
                    let delay = self.backoff.next_delay();
                    tracing::debug!(resource = self.kind.plural, %error, "watch interrupted");
                    tokio::time::sleep(delay).await;
                }
            }
        }
    }

    /// One watch, to its end. `from` moves with every event.
    async fn follow(&mut self, from: &mut String) -> ClientError {
        let mut events = match self
            .resources
            .watch(self.kind, &self.namespace, &self.options, from)
            .await
        {
            Ok(events) => events,
            Err(error) => return error,
        };
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(error) => return error,
            };
            self.backoff.reset();
            event.resource_version().clone_into(from);
            if let WatchEvent::Object { kind, object, .. } = event {
                let name = object.namespaced_name();
                match kind {
                    WatchEventType::Deleted => self.objects.write().remove(&name),
                    WatchEventType::Added | WatchEventType::Modified => {
                        self.objects.write().insert(name, Arc::new(object))
                    }
                };
                self.moved();
            }
        }
        ClientError::Lost("the watch ended".to_owned())
    }

    fn moved(&self) {
        self.version.send_modify(|version| *version += 1);
    }
}
