//! Who needs to hear of a pod: one task reads the changes of all pods and nodes and hands each to the streams
//! of the one node it concerns, so that a change costs the same with five nodes and with five thousand.

use std::collections::HashMap;
use std::sync::Arc;

use muster_model::kind::{NODE, POD};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::agents;
use crate::cache::{Cache, Change, Stored};

/// Changes waiting for one stream at most; a stream that is slower is closed, and its agent starts over from a
/// new snapshot.
const WAITING: usize = 1_024;

/// A node's name -> its open streams.
type Streams = HashMap<String, Vec<mpsc::Sender<Arc<Change>>>>;

/// The open streams of all nodes. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct NodeFeeds {
    open: Arc<Mutex<Streams>>,
}

impl NodeFeeds {
    /// Changes that concern this node, from now on. The receiver ends when its reader was too slow.
    pub(crate) fn open(&self, node: &str) -> mpsc::Receiver<Arc<Change>> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let mut open = self.open.lock();
        let streams = open.entry(node.to_owned()).or_default();
        streams.retain(|stream| !stream.is_closed());
        streams.push(sender);
        receiver
    }

    /// Routes changes until told to stop.
    pub(crate) async fn run(self, cache: Cache, stop: CancellationToken) {
        let mut changes = cache.subscribe(&[&POD, &NODE]);
        loop {
            let batch = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                batch = changes.next() => batch,
            };
            match batch {
                Ok(batch) => batch.iter().for_each(|change| self.route(change)),
                Err(_) => {
                    // What was missed is unknown: every stream starts over.
                    changes = cache.subscribe(&[&POD, &NODE]);
                    self.open.lock().clear();
                }
            }
        }
    }

    fn route(&self, change: &Arc<Change>) {
        if is_echo(change) {
            return;
        }
        let new = change.new.as_ref().map_or("", node_of);
        let old = change.old.as_ref().map_or("", node_of);
        let mut open = self.open.lock();
        for node in [new, old].into_iter().filter(|node| !node.is_empty()) {
            if let Some(streams) = open.get_mut(node) {
                streams.retain(|stream| stream.try_send(Arc::clone(change)).is_ok());
                if streams.is_empty() {
                    open.remove(node);
                }
            }
            if new == old {
                break;
            }
        }
    }
}

/// Whether all that changed of a pod is what its own agent said: it need not be told what it told.
fn is_echo(change: &Change) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else {
        return false;
    };
    *change.kind() == POD
        && old.uid() == new.uid()
        && agents::differ_in_own_words(old.object(), new.object())
}

/// The node that an object concerns; empty: none.
fn node_of(stored: &Arc<Stored>) -> &str {
    if *stored.kind == NODE {
        stored.name()
    } else {
        stored.object().text_at("/spec/nodeName")
    }
}
