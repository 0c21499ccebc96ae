//! ConfigMaps and Secrets while pods use them: fetched, watched, kept on disk for the time without a server
//! (spec/node-agent.md 14 and 27).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use futures::StreamExt;
use futures::future::join_all;
use muster_client::resources::{ListOptions, WatchEvent, WatchEventType};
use muster_client::{Backoff, ClientError, Connection};
use muster_model::object::{NamespacedName, Object};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::checkpoint::Checkpoint;
use crate::objects::{Lookup, Needed, ObjectSet};

type Key = (String, Needed);

struct Entry {
    value: Option<Lookup>,
    /// A watch keeps the value true.
    live: bool,
    users: BTreeMap<String, Weak<Notify>>,
    stop: CancellationToken,
}

/// The objects in use.
pub(crate) struct ObjectStore {
    entries: Mutex<BTreeMap<Key, Entry>>,
    tasks: Mutex<JoinSet<()>>,
    connection: watch::Receiver<Option<Connection>>,
    checkpoint: Option<Checkpoint>,
    seed: u64,
    stop: CancellationToken,
}

impl ObjectStore {
    /// Empty. `connection` is the one to the server, while there is one.
    pub(crate) fn new(
        connection: watch::Receiver<Option<Connection>>,
        checkpoint: Option<Checkpoint>,
        seed: u64,
        stop: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            entries: Mutex::new(BTreeMap::new()),
            tasks: Mutex::new(JoinSet::new()),
            connection,
            checkpoint,
            seed,
            stop,
        })
    }

    /// The objects, for this pod; from now on `changed` is notified when one of them changes.
    pub(crate) async fn use_objects(
        self: &Arc<Self>,
        uid: &str,
        namespace: &str,
        needed: &BTreeSet<Needed>,
        changed: &Arc<Notify>,
    ) -> ObjectSet {
        if needed.is_empty() {
            return ObjectSet::default();
        }
        for one in needed {
            self.enter(uid, (namespace.to_owned(), one.clone()), changed);
        }
        let all = needed
            .iter()
            .map(|one| async { (one.clone(), self.fetch(namespace, one).await) });
        ObjectSet(join_all(all).await.into_iter().collect())
    }

    /// The pod is gone: what nobody else uses is forgotten, on disk too.
    pub(crate) fn release(&self, uid: &str) {
        let mut unused = Vec::new();
        self.entries.lock().retain(|key, entry| {
            entry.users.remove(uid);
            let used = !entry.users.is_empty();
            if !used {
                entry.stop.cancel();
                unused.push(key.clone());
            }
            used
        });
        let Some(checkpoint) = &self.checkpoint else {
            return;
        };
        for (namespace, needed) in unused {
            if let Err(error) = checkpoint.remove_object(&namespace, &needed) {
                tracing::warn!(%namespace, name = %needed.name, %error, "a kept object could not be removed");
            }
        }
    }

    fn enter(self: &Arc<Self>, uid: &str, key: Key, changed: &Arc<Notify>) {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get_mut(&key) {
            entry.users.insert(uid.to_owned(), Arc::downgrade(changed));
            return;
        }
        let stop = self.stop.child_token();
        let users = BTreeMap::from([(uid.to_owned(), Arc::downgrade(changed))]);
        entries.insert(
            key.clone(),
            Entry {
                value: None,
                live: false,
                users,
                stop: stop.clone(),
            },
        );
        drop(entries);
        let store = Arc::clone(self);
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            // The watch borrows nothing that outlives its entry: it ends with the last user.
            let _ = stop
                .clone()
                .run_until_cancelled(store.watch(key, stop))
                .await;
        });
    }

    async fn fetch(&self, namespace: &str, needed: &Needed) -> Lookup {
        let key = (namespace.to_owned(), needed.clone());
        if let Some(entry) = self.entries.lock().get(&key)
            && entry.live
            && let Some(value) = &entry.value
        {
            return value.clone();
        }
        let connection = self.connection.borrow().clone();
        if let Some(connection) = connection {
            let name = NamespacedName::new(namespace, &needed.name);
            match connection.resources().find(needed.kind(), &name).await {
                Ok(found) => return self.learn(&key, found),
                Err(error) if !error.is_retryable() => {
                    return self.unreachable(&key, refusal(needed, &error));
                }
                Err(_) => {}
            }
        }
        if let Some(value) = self
            .entries
            .lock()
            .get(&key)
            .and_then(|entry| entry.value.clone())
            .filter(|value| !matches!(value, Lookup::Unreachable(_)))
        {
            return value;
        }
        match self
            .checkpoint
            .as_ref()
            .and_then(|checkpoint| checkpoint.object(namespace, needed))
        {
            Some(object) => Lookup::Found(Arc::new(object)),
            None => self.unreachable(
                &key,
                format!(
                    "{} \"{}\" cannot be read: the server cannot be reached, and no copy is kept",
                    needed.kind().singular,
                    needed.name
                ),
            ),
        }
    }

    /// Nobody can say; that was said, so that the users are told once it is known.
    fn unreachable(&self, key: &Key, message: String) -> Lookup {
        let value = Lookup::Unreachable(message);
        if let Some(entry) = self.entries.lock().get_mut(key) {
            entry.value.get_or_insert_with(|| value.clone());
        }
        value
    }

    /// Takes in what the server says; users are told when it is another thing than before.
    fn learn(&self, key: &Key, found: Option<Object>) -> Lookup {
        let value = found.map_or(Lookup::Missing, |object| Lookup::Found(Arc::new(object)));
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(key) else {
            return value;
        };
        if entry.value.as_ref() == Some(&value) {
            return value;
        }
        let first = entry.value.replace(value.clone()).is_none();
        let users: Vec<Arc<Notify>> = entry.users.values().filter_map(Weak::upgrade).collect();
        drop(entries);
        if let (Some(checkpoint), Lookup::Found(object)) = (&self.checkpoint, &value)
            && let Err(error) = checkpoint.put_object(&key.0, &key.1, object)
        {
            tracing::warn!(namespace = %key.0, name = %key.1.name, %error, "an object could not be kept on disk");
        }
        if !first {
            users.iter().for_each(|user| user.notify_one());
        }
        value
    }

    fn set_live(&self, key: &Key, live: bool) {
        if let Some(entry) = self.entries.lock().get_mut(key) {
            entry.live = live;
        }
    }

    async fn watch(&self, key: Key, stop: CancellationToken) {
        let mut backoff =
            Backoff::reconnect(self.seed ^ u64::from(crate::spec::fnv32(key.1.name.as_bytes())));
        let mut connection = self.connection.clone();
        while !stop.is_cancelled() {
            let current = match connection.wait_for(Option::is_some).await {
                Ok(found) => found.clone(),
                Err(_) => return,
            };
            let Some(current) = current else { continue };
            let ended = self.watch_once(&key, &current).await;
            self.set_live(&key, false);
            match ended {
                Ok(true) => return,
                Ok(false) => backoff.reset(),
                Err(error) => {
                    tracing::debug!(namespace = %key.0, name = %key.1.name, %error, "a watch ended")
                }
            }
            tokio::time::sleep(backoff.next_delay()).await;
        }
    }

    /// True when the object will never change again.
    async fn watch_once(&self, key: &Key, connection: &Connection) -> Result<bool, ClientError> {
        let (namespace, needed) = key;
        let resources = connection.resources();
        let name = NamespacedName::new(namespace.clone(), needed.name.clone());
        let found = resources.find(needed.kind(), &name).await?;
        if found
            .as_ref()
            .and_then(|object| object.at("/immutable"))
            .and_then(serde_json::Value::as_bool)
            == Some(true)
        {
            self.learn(key, found);
            self.set_live(key, true);
            return Ok(true);
        }
        let revision = found
            .as_ref()
            .map(|object| object.resource_version().to_owned())
            .unwrap_or_default();
        self.learn(key, found);
        let options = ListOptions {
            field_selector: format!("metadata.name={}", needed.name),
            ..ListOptions::default()
        };
        let mut events = resources
            .watch(needed.kind(), namespace, &options, &revision)
            .await?;
        self.set_live(key, true);
        while let Some(event) = events.next().await {
            match event? {
                WatchEvent::Object {
                    kind: WatchEventType::Deleted,
                    ..
                } => self.learn(key, None),
                WatchEvent::Object { object, .. } => self.learn(key, Some(object)),
                WatchEvent::Bookmark { .. } => continue,
            };
        }
        Ok(false)
    }
}

fn refusal(needed: &Needed, error: &ClientError) -> String {
    format!(
        "{} \"{}\" cannot be read: {error}",
        needed.kind().singular,
        needed.name
    )
}
