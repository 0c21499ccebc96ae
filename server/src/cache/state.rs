//! The cache's maps, indexes and logs: plain data, changed by one writer under a lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use muster_model::kind::{EVENT, KINDS, Kind, POD};
use muster_model::object::{NamespacedName, Object};
use muster_store::{Entry, Event, Revision};

use super::log::Log;
use super::stored::{Change, Stored};
use super::{Broken, TooOld, typed};
use crate::registry::keys;

type Id = (&'static Kind, NamespacedName);

#[derive(Debug)]
pub(super) struct State {
    kinds: BTreeMap<&'static Kind, PerKind>,
    pods_by_node: BTreeMap<String, BTreeSet<NamespacedName>>,
    by_owner: HashMap<String, BTreeSet<Id>>,
    by_uid: HashMap<String, Id>,
    broken: BTreeMap<String, String>,
    revision: Revision,
    /// Counts changes of all kinds: what a subscriber's cursor points at.
    position: u64,
}

#[derive(Debug, Default)]
struct PerKind {
    objects: BTreeMap<NamespacedName, Arc<Stored>>,
    log: Log,
}

/// Kinds that are many and seldom read: only their bytes are kept, and they are in no index. Nobody owns
/// events; Kubernetes' collector leaves them alone, too.
fn is_cold(kind: &Kind) -> bool {
    *kind == EVENT
}

impl State {
    pub(super) fn starting_at(revision: Revision) -> Self {
        let kinds = KINDS
            .iter()
            .map(|kind| {
                (
                    *kind,
                    PerKind {
                        objects: BTreeMap::new(),
                        log: Log::starting_at(revision),
                    },
                )
            })
            .collect();
        Self {
            kinds,
            pods_by_node: BTreeMap::new(),
            by_owner: HashMap::new(),
            by_uid: HashMap::new(),
            broken: BTreeMap::new(),
            revision,
            position: 0,
        }
    }

    /// Takes the first list.
    pub(super) fn load(&mut self, entries: &[Entry]) {
        for entry in entries {
            let Some((kind, key)) = keys::parse(entry.key.as_str()) else {
                continue;
            };
            if let Some(stored) =
                self.read(kind, &key, entry.key.as_str(), &entry.value, entry.modified)
            {
                self.put(stored);
            }
        }
    }

    /// Takes the events of one commit.
    pub(super) fn apply(&mut self, revision: Revision, events: &[Event]) {
        for event in events {
            let Some((kind, key)) = keys::parse(event.key.as_str()) else {
                continue;
            };
            let new = match &event.value {
                Some(value) => self.read(kind, &key, event.key.as_str(), value, event.revision),
                None => {
                    self.broken.remove(event.key.as_str());
                    None
                }
            };
            self.change(kind, &key, event.revision, new);
        }
        self.revision = self.revision.max(revision);
    }

    /// After a gap: becomes what the list shows, with one change for each difference.
    pub(super) fn replace(&mut self, entries: &[Entry], revision: Revision) {
        let mut gone: BTreeSet<Id> = self
            .kinds
            .iter()
            .flat_map(|(kind, per)| per.objects.keys().map(|key| (*kind, key.clone())))
            .collect();
        for entry in entries {
            let Some((kind, key)) = keys::parse(entry.key.as_str()) else {
                continue;
            };
            gone.remove(&(kind, key.clone()));
            if self
                .get(kind, &key)
                .is_some_and(|known| known.revision == entry.modified)
            {
                continue;
            }
            let new = self.read(kind, &key, entry.key.as_str(), &entry.value, entry.modified);
            self.change(kind, &key, revision, new);
        }
        for (kind, key) in gone {
            self.change(kind, &key, revision, None);
        }
        self.revision = self.revision.max(revision);
        // Watchers that start from a revision inside the gap would miss the versions in between.
        let position = self.position;
        for per in self.kinds.values_mut() {
            per.log.forget(position, revision);
        }
    }

    fn read(
        &mut self,
        kind: &'static Kind,
        key: &NamespacedName,
        store_key: &str,
        value: &[u8],
        revision: Revision,
    ) -> Option<Stored> {
        let why = match Object::from_bytes(value) {
            Err(error) => error.to_string(),
            Ok(object) => {
                if object.namespaced_name() != *key {
                    format!("it names itself {}", object.namespaced_name())
                } else if object.kind() != Some(kind) {
                    format!(
                        "it says it is a {} of {}",
                        object.kind_name(),
                        object.api_version()
                    )
                } else {
                    match typed::read(kind, &object) {
                        Ok(view) => {
                            self.broken.remove(store_key);
                            let stored =
                                Stored::read(kind, object, value, revision).with_view(view);
                            return Some(if is_cold(kind) { stored.slim() } else { stored });
                        }
                        Err(error) => error,
                    }
                }
            }
        };
        tracing::error!(
            key = store_key,
            why,
            "a stored object cannot be read and is left out"
        );
        self.broken.insert(store_key.to_owned(), why);
        None
    }

    fn change(
        &mut self,
        kind: &'static Kind,
        key: &NamespacedName,
        revision: Revision,
        new: Option<Stored>,
    ) {
        let old = self.take(kind, key);
        let new = new.map(|stored| self.put(stored));
        if old.is_none() && new.is_none() {
            return;
        }
        self.position += 1;
        let position = self.position;
        self.per_mut(kind)
            .log
            .push(position, Arc::new(Change::new(revision, old, new)));
    }

    fn put(&mut self, stored: Stored) -> Arc<Stored> {
        let stored = Arc::new(stored);
        if !is_cold(stored.kind) {
            self.index(&stored);
        }
        self.per_mut(stored.kind)
            .objects
            .insert(stored.key.clone(), Arc::clone(&stored));
        stored
    }

    fn index(&mut self, stored: &Stored) {
        let id = (stored.kind, stored.key.clone());
        let object = stored.object();
        if stored.kind == &POD {
            let node = object.text_at("/spec/nodeName");
            if !node.is_empty() {
                self.pods_by_node
                    .entry(node.to_owned())
                    .or_default()
                    .insert(stored.key.clone());
            }
        }
        for owner in object.owner_references() {
            self.by_owner
                .entry(owner.uid)
                .or_default()
                .insert(id.clone());
        }
        self.by_uid.insert(object.uid().to_owned(), id);
    }

    /// Drops the parsed forms of a kind's objects: whoever reads them again parses them again.
    pub(super) fn cool(&mut self, kind: &'static Kind) {
        for stored in self.per_mut(kind).objects.values_mut() {
            if stored.is_parsed() {
                *stored = Arc::new(stored.slim());
            }
        }
    }

    fn take(&mut self, kind: &'static Kind, key: &NamespacedName) -> Option<Arc<Stored>> {
        let stored = self.per_mut(kind).objects.remove(key)?;
        if !is_cold(kind) {
            self.unindex(&stored);
        }
        Some(stored)
    }

    fn unindex(&mut self, stored: &Stored) {
        let id = (stored.kind, stored.key.clone());
        let (key, object) = (&stored.key, stored.object());
        if stored.kind == &POD {
            let node = object.text_at("/spec/nodeName");
            if let Some(pods) = self.pods_by_node.get_mut(node) {
                pods.remove(key);
                if pods.is_empty() {
                    self.pods_by_node.remove(node);
                }
            }
        }
        for owner in object.owner_references() {
            if let Some(owned) = self.by_owner.get_mut(&owner.uid) {
                owned.remove(&id);
                if owned.is_empty() {
                    self.by_owner.remove(&owner.uid);
                }
            }
        }
        self.by_uid.remove(object.uid());
    }

    fn per(&self, kind: &'static Kind) -> &PerKind {
        self.kinds
            .get(kind)
            .expect("every served kind has its map from the start")
    }

    fn per_mut(&mut self, kind: &'static Kind) -> &mut PerKind {
        self.kinds
            .get_mut(kind)
            .expect("every served kind has its map from the start")
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    pub(super) fn position_of(&self, kind: &'static Kind, after: Revision) -> Result<u64, TooOld> {
        let log = &self.per(kind).log;
        log.position_of(after).ok_or(TooOld {
            asked: after,
            oldest: log.forgotten_revision(),
        })
    }

    pub(super) fn get(&self, kind: &'static Kind, key: &NamespacedName) -> Option<Arc<Stored>> {
        self.per(kind).objects.get(key).cloned()
    }

    pub(super) fn count(&self, kind: &'static Kind) -> usize {
        self.per(kind).objects.len()
    }

    pub(super) fn list(&self, kind: &'static Kind, namespace: Option<&str>) -> Vec<Arc<Stored>> {
        let objects = &self.per(kind).objects;
        match namespace {
            None => objects.values().cloned().collect(),
            Some(namespace) => objects
                .range(NamespacedName::new(namespace, "")..)
                .take_while(|(key, _)| key.namespace == namespace)
                .map(|(_, stored)| Arc::clone(stored))
                .collect(),
        }
    }

    pub(super) fn list_at(
        &self,
        kind: &'static Kind,
        namespace: Option<&str>,
        revision: Revision,
    ) -> Result<Vec<Arc<Stored>>, TooOld> {
        let per = self.per(kind);
        if revision < per.log.forgotten_revision() {
            return Err(TooOld {
                asked: revision,
                oldest: per.log.forgotten_revision(),
            });
        }
        let mut past: BTreeMap<&NamespacedName, &Arc<Stored>> = per.objects.iter().collect();
        for change in per.log.newest_first_until(revision) {
            match &change.old {
                Some(old) => past.insert(&old.key, old),
                None => past.remove(change.key()),
            };
        }
        let wanted = |stored: &&Arc<Stored>| {
            namespace.is_none_or(|namespace| stored.key.namespace == namespace)
        };
        Ok(past.into_values().filter(wanted).cloned().collect())
    }

    pub(super) fn pods_on_node(&self, node: &str) -> Vec<Arc<Stored>> {
        let Some(keys) = self.pods_by_node.get(node) else {
            return Vec::new();
        };
        keys.iter().filter_map(|key| self.get(&POD, key)).collect()
    }

    pub(super) fn owned_by(&self, uid: &str) -> Vec<Arc<Stored>> {
        let Some(ids) = self.by_owner.get(uid) else {
            return Vec::new();
        };
        ids.iter()
            .filter_map(|(kind, key)| self.get(kind, key))
            .collect()
    }

    pub(super) fn any_owned_by(&self, uid: &str, passes: impl Fn(&Object) -> bool) -> bool {
        let mut ids = self.by_owner.get(uid).into_iter().flatten();
        ids.any(|(kind, key)| {
            let found = self.per(kind).objects.get(key);
            found.is_some_and(|stored| passes(stored.object()))
        })
    }

    pub(super) fn is_broken(&self, kind: &Kind, key: &NamespacedName) -> bool {
        !self.broken.is_empty() && self.broken.contains_key(keys::of(kind, key).as_str())
    }

    pub(super) fn by_uid(&self, uid: &str) -> Option<Arc<Stored>> {
        let (kind, key) = self.by_uid.get(uid)?;
        self.get(kind, key)
    }

    pub(super) fn broken(&self) -> Vec<Broken> {
        self.broken
            .iter()
            .map(|(key, why)| Broken {
                key: key.clone(),
                why: why.clone(),
            })
            .collect()
    }

    /// The changes of these kinds after a position, in order, at most `most` (never cutting a commit in
    /// two), and the position they reach; `None`: some are forgotten.
    pub(super) fn changes_after(
        &self,
        kinds: &[&'static Kind],
        position: u64,
        most: usize,
    ) -> Option<(Vec<Arc<Change>>, u64)> {
        let mut found: Vec<(u64, Arc<Change>)> = Vec::new();
        for kind in kinds {
            let log = &self.per(kind).log;
            if log.forgotten_position() > position {
                return None;
            }
            found.extend(
                log.after(position)
                    .map(|(at, change)| (*at, Arc::clone(change))),
            );
        }
        if kinds.len() > 1 {
            found.sort_unstable_by_key(|(at, _)| *at);
        }
        let mut reached = self.position;
        if found.len() > most {
            let last = found[most - 1].1.revision;
            let end = found[most..]
                .iter()
                .position(|(_, change)| change.revision != last)
                .map(|more| most + more);
            if let Some(end) = end {
                found.truncate(end);
                reached = found[end - 1].0;
            }
        }
        Some((
            found.into_iter().map(|(_, change)| change).collect(),
            reached,
        ))
    }
}
