//! Every DaemonSet, node and orphan, fed by the cache's changes. Each change says which DaemonSets have to be
//! looked at (spec/daemonset.md 9, what queues a DS).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_daemonset::{Claim, DaemonFacts, NodeFacts, NodeName, claim_object};
use muster_model::k8s::api::core::v1::Node;
use muster_model::kind::{CONTROLLER_REVISION, DAEMON_SET, Kind, NODE, POD};
use muster_model::object::NamespacedName;
use muster_model::time::{Moment, shifted};

use super::set::Set;
use crate::cache::{Cache, Change, Stored};

/// What the index follows. DaemonSets first, so that a list of all finds owners before what they own.
pub(super) static KINDS: [&Kind; 4] = [&DAEMON_SET, &NODE, &CONTROLLER_REVISION, &POD];

/// The keys that have to be looked at.
pub(super) type Wake = BTreeSet<NamespacedName>;

/// The index.
#[derive(Default)]
pub(super) struct Index {
    /// Every node.
    pub(super) nodes: BTreeMap<NodeName, NodeFacts>,
    /// Every DaemonSet that can be read.
    pub(super) sets: BTreeMap<NamespacedName, Set>,
    by_uid: BTreeMap<String, NamespacedName>,
    /// Pods and revisions that nobody controls.
    orphans: BTreeMap<(&'static Kind, NamespacedName), Arc<Stored>>,
    /// Uids of DaemonSets that went since this was last taken.
    pub(super) gone: Vec<String>,
    /// When the clock was last looked at.
    looked: Option<Moment>,
    /// Nodes that a pod left which may have held a port or room there, since this was last taken.
    pub(super) freed: BTreeSet<NodeName>,
}

impl Index {
    /// Everything anew, from a list of all. What the sets remember (since when a revision is current, what was
    /// asked of the store) is carried over.
    pub(super) fn rebuild(&mut self, items: &[Arc<Stored>], cache: &Cache) -> Wake {
        let before = std::mem::take(self);
        self.looked = before.looked;
        for stored in items {
            self.put(None, stored, cache);
        }
        for (key, old) in before.sets {
            match self.sets.get_mut(&key) {
                Some(set) if set.facts.uid == old.facts.uid => {
                    set.facts.keep_history_of(&old.facts);
                    set.must_reach = old.must_reach;
                    set.confident = old.confident;
                }
                _ => self.gone.push(old.facts.uid),
            }
        }
        self.sets.keys().cloned().collect()
    }

    /// Takes one change.
    pub(super) fn apply(&mut self, change: &Change, cache: &Cache) -> Wake {
        let same = |old: &Arc<Stored>, new: &Arc<Stored>| old.uid() == new.uid();
        match (&change.old, &change.new) {
            (Some(old), Some(new)) if same(old, new) => self.put(Some(old), new, cache),
            (old, new) => {
                let mut wake = Wake::new();
                if let Some(old) = old {
                    self.note_freed(old);
                    wake.extend(self.remove(old));
                }
                if let Some(new) = new {
                    wake.extend(self.put(None, new, cache));
                }
                wake
            }
        }
    }

    /// A pod that its node refused never held anything; any other may have until now.
    fn note_freed(&mut self, old: &Stored) {
        let (pod, node) = (old.object(), old.object().text_at("/spec/nodeName"));
        let containers = pod.at("/status/containerStatuses");
        let ran = containers
            .and_then(|list| list.as_array())
            .is_some_and(|list| !list.is_empty());
        let refused = pod.text_at("/status/phase") == "Failed" && !ran;
        if *old.kind == POD && !refused && !node.is_empty() {
            self.freed.insert(NodeName::from(node));
        }
    }

    /// Has a node of a DaemonSet looked at again; the key to queue.
    pub(super) fn touch(&mut self, uid: &str, node: &NodeName) -> Option<NamespacedName> {
        let set = self.sets.get_mut(self.by_uid.get(uid)?)?;
        set.touch(node.clone());
        Some(set.key().clone())
    }

    fn put(&mut self, old: Option<&Arc<Stored>>, new: &Arc<Stored>, cache: &Cache) -> Wake {
        match new.kind {
            kind if *kind == DAEMON_SET => self.put_set(new, cache),
            kind if *kind == NODE => self.put_node(new),
            _ => self.put_dependent(old, new),
        }
    }

    fn remove(&mut self, old: &Arc<Stored>) -> Wake {
        match old.kind {
            kind if *kind == DAEMON_SET => self.remove_set(old),
            kind if *kind == NODE => {
                let name = NodeName::from(old.name());
                self.nodes.remove(&name);
                self.node_changed(&name)
            }
            _ => {
                let mut wake = self.disown(old);
                wake.extend(self.tell_borrowers(old, None));
                wake
            }
        }
    }

    fn put_set(&mut self, stored: &Arc<Stored>, cache: &Cache) -> Wake {
        let key = stored.key.clone();
        let read = stored
            .typed()
            .map_err(|error| error.to_string())
            .and_then(|typed| {
                DaemonFacts::from_typed(&typed, stored.object()).map_err(|error| error.to_string())
            });
        let facts = match read {
            Ok(facts) => facts,
            Err(error) => {
                tracing::warn!(daemonset = %key, %error, "a stored DaemonSet cannot be read and is skipped");
                return self.remove_set(stored);
            }
        };
        match self.sets.get_mut(&key) {
            Some(set) if set.facts.uid == facts.uid => {
                if !set.update(stored.clone(), facts) {
                    return Wake::new();
                }
            }
            _ => {
                self.by_uid.insert(facts.uid.clone(), key.clone());
                let mut set = Set::new(stored.clone(), facts);
                // What it owns may have come first: a DaemonSet that could not be read before.
                for owned in cache.owned_by(stored.uid()) {
                    adopt_into(&mut set, &owned);
                }
                self.sets.insert(key.clone(), set);
            }
        }
        Wake::from([key])
    }

    fn remove_set(&mut self, stored: &Arc<Stored>) -> Wake {
        let key = stored.key.clone();
        if self
            .sets
            .get(&key)
            .is_some_and(|set| set.facts.uid == stored.uid())
        {
            self.sets.remove(&key);
        }
        self.by_uid.remove(stored.uid());
        self.gone.push(stored.uid().to_owned());
        Wake::from([key])
    }

    /// Where the clock was set, nodes are out of reach for as long as they were by the old one. To be called before newer
    /// changes are taken.
    pub(super) fn follow_clock(&mut self, now: Moment) {
        let before = self.looked.replace(now);
        let Some(step) = before.and_then(|before| now.step_since(before)) else {
            return;
        };
        for node in self.nodes.values_mut() {
            let since = &mut node.unreachable_since;
            *since = since.map(|since| shifted(since, step));
        }
    }

    fn put_node(&mut self, stored: &Arc<Stored>) -> Wake {
        let Ok(typed) = stored.typed::<Node>() else {
            return Wake::new();
        };
        let mut facts = NodeFacts::from_typed(&typed);
        let name = facts.name.clone();
        let lost_before = self
            .nodes
            .get(&name)
            .and_then(|node| node.unreachable_since);
        if let (Some(_), Some(before)) = (facts.unreachable_since, lost_before) {
            facts.unreachable_since = Some(before);
        }
        // Heartbeats, conditions and capacity change no facts.
        if self.nodes.get(&name) == Some(&facts) {
            return Wake::new();
        }
        self.nodes.insert(name.clone(), facts);
        self.node_changed(&name)
    }

    fn node_changed(&mut self, name: &NodeName) -> Wake {
        let node = self.nodes.get(name);
        self.sets
            .values_mut()
            .filter_map(|set| set.node_changed(name, node).then(|| set.key().clone()))
            .collect()
    }

    fn put_dependent(&mut self, old: Option<&Arc<Stored>>, new: &Arc<Stored>) -> Wake {
        let mut wake = Wake::new();
        let controller = new.object().controller().map(|reference| reference.uid);
        if let Some(old) = old
            && old.object().controller().map(|reference| reference.uid) != controller
        {
            wake.extend(self.disown(old));
        }
        let orphan = (new.kind, new.key.clone());
        match controller {
            Some(uid) => {
                self.orphans.remove(&orphan);
                if let Some(set) = self.by_uid.get(&uid).and_then(|key| self.sets.get_mut(key)) {
                    let changed = adopt_into(set, new);
                    // A revision's appearing is our own doing.
                    if changed && (old.is_some() || *new.kind == POD) {
                        wake.insert(set.key().clone());
                    }
                }
            }
            None => {
                let asked = old.is_none_or(|old| {
                    old.object().controller().is_some()
                        || old.object().labels() != new.object().labels()
                });
                self.orphans.insert(orphan, new.clone());
                if asked {
                    wake.extend(self.would_adopt(new));
                }
            }
        }
        wake.extend(self.tell_borrowers(new, Some(new)));
        wake
    }

    /// The DaemonSets that use a revision without owning it take what became of it; `None`: it is gone.
    fn tell_borrowers(&mut self, stored: &Stored, now: Option<&Stored>) -> Wake {
        if *stored.kind != CONTROLLER_REVISION {
            return Wake::new();
        }
        let NamespacedName { namespace, name } = &stored.key;
        self.sets
            .values_mut()
            .filter(|set| set.key().namespace == *namespace)
            .filter_map(|set| set.borrowed_changed(name, now).then(|| set.key().clone()))
            .collect()
    }

    /// A pod or revision is not its former owner's any more, nor an orphan.
    fn disown(&mut self, old: &Arc<Stored>) -> Wake {
        self.orphans.remove(&(old.kind, old.key.clone()));
        let controller = old.object().controller();
        let key = controller.and_then(|reference| self.by_uid.get(&reference.uid));
        let Some(set) = key.and_then(|key| self.sets.get_mut(key)) else {
            return Wake::new();
        };
        let known = if *old.kind == POD {
            set.remove_pod(old.uid())
        } else {
            set.remove_revision(old.name())
        };
        if known {
            Wake::from([set.key().clone()])
        } else {
            Wake::new()
        }
    }

    /// The DaemonSets that would adopt this orphan.
    fn would_adopt(&self, orphan: &Stored) -> Wake {
        self.sets
            .values()
            .filter(|set| claim_object(&set.facts, orphan.object()) == Claim::Adopt)
            .map(|set| set.key().clone())
            .collect()
    }

    /// The orphans that a DaemonSet would adopt.
    pub(super) fn to_adopt(&self, set: &Set) -> Vec<Arc<Stored>> {
        self.orphans
            .values()
            .filter(|orphan| claim_object(&set.facts, orphan.object()) == Claim::Adopt)
            .cloned()
            .collect()
    }
}

/// Takes a pod or revision into the set that controls it. `true`: it says something new.
fn adopt_into(set: &mut Set, owned: &Arc<Stored>) -> bool {
    let controller = owned.object().controller();
    if controller.is_none_or(|reference| reference.uid != set.facts.uid) {
        return false;
    }
    if *owned.kind == POD {
        set.put_pod(owned)
    } else if *owned.kind == CONTROLLER_REVISION {
        set.put_revision(owned);
        true
    } else {
        false
    }
}
