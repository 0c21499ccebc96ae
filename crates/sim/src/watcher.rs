//! A client that watches over the wire, as a person's tool does: through a link with weather, over restarts of the server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use muster_client::{ClientError, ListOptions, Resources, WatchEvent, WatchEventType};
use muster_model::kind::Kind;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::manifest::NAMESPACE;

const AGAIN: Duration = Duration::from_secs(1);
/// A call that is not answered is made again.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client that follows one kind from the beginning to the end of a run.
pub(crate) struct Watcher {
    pub(crate) kind: &'static Kind,
    view: Arc<Mutex<View>>,
    task: JoinHandle<()>,
}

/// What it believes.
#[derive(Debug, Default)]
struct View {
    /// Name -> resourceVersion.
    objects: BTreeMap<String, u64>,
    /// The newest version it was told of; 0: it must list.
    version: u64,
    /// The newest version it was ever told of.
    newest: u64,
    faults: Vec<String>,
}

impl View {
    /// Takes a version in; they only grow.
    fn reach(&mut self, what: &str, version: u64) {
        if version < self.newest {
            self.faults.push(format!(
                "{what} tells version {version} after {}",
                self.newest
            ));
        }
        self.newest = self.newest.max(version);
        self.version = version;
    }
}

impl Watcher {
    pub(crate) fn start(resources: Resources, kind: &'static Kind) -> Self {
        let view = Arc::new(Mutex::new(View::default()));
        let task = tokio::spawn(follow(resources, kind, Arc::clone(&view)));
        Self { kind, view, task }
    }

    /// What was wrong since the last call.
    pub(crate) fn faults(&self) -> Vec<String> {
        std::mem::take(&mut self.view.lock().faults)
    }

    /// What it believes there is: names and versions.
    pub(crate) fn objects(&self) -> BTreeMap<String, u64> {
        self.view.lock().objects.clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(resources: Resources, kind: &'static Kind, view: Arc<Mutex<View>>) {
    loop {
        // An end that nobody explains is as good as any other: the watch is opened again where it stood.
        if let Err(error) = round(&resources, kind, &view).await
            && error.is_expired()
        {
            view.lock().version = 0;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// A list, if there is none, and a watch up to its end.
async fn round(
    resources: &Resources,
    kind: &'static Kind,
    view: &Mutex<View>,
) -> Result<(), ClientError> {
    let options = ListOptions::default();
    let namespace = if kind.namespaced { NAMESPACE } else { "" };
    let from = view.lock().version;
    if from == 0 {
        let listing = resources.list(kind, namespace, &options);
        let Ok(list) = tokio::time::timeout(PATIENCE, listing).await else {
            return Ok(());
        };
        let list = list?;
        let mut view = view.lock();
        view.objects = list
            .items
            .iter()
            .map(|object| (object.name().to_owned(), version(object.resource_version())))
            .collect();
        view.reach("a list", version(&list.resource_version));
    }
    let from = view.lock().version.to_string();
    let opening = resources.watch(kind, namespace, &options, &from);
    let Ok(watch) = tokio::time::timeout(PATIENCE, opening).await else {
        return Ok(());
    };
    let mut watch = watch?;
    while let Some(event) = watch.next().await {
        let event = event?;
        let at = version(event.resource_version());
        let mut view = view.lock();
        view.reach("a watch", at);
        if let WatchEvent::Object { kind, object, .. } = event {
            let name = object.name().to_owned();
            let known = match kind {
                WatchEventType::Deleted => view.objects.remove(&name),
                WatchEventType::Added | WatchEventType::Modified => {
                    view.objects.insert(name.clone(), at)
                }
            };
            if known.is_some() != (kind != WatchEventType::Added) {
                view.faults.push(format!(
                    "a watch tells {kind:?} of {name} at {at}, known there was {known:?}"
                ));
            }
        }
    }
    Ok(())
}

fn version(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}
