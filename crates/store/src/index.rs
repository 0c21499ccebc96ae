//! What the store holds now, in memory and in key order. Every read is answered from here.

use crate::record::OnDisk;
use crate::{Entry, Key, Revision};
use bytes::Bytes;
use std::collections::BTreeMap;

/// One key's present state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) value: Bytes,
    pub(crate) created: Revision,
    pub(crate) modified: Revision,
    /// The record on disk. It may be of an older, durable value than a soft one here; `None`: the disk knows nothing
    /// of the key.
    pub(crate) on_disk: Option<OnDisk>,
}

/// Keys and their slots.
#[derive(Debug, Default)]
pub(crate) struct Index {
    slots: BTreeMap<Key, Slot>,
}

impl Slot {
    pub(crate) fn entry(&self, key: &Key) -> Entry {
        Entry {
            key: key.clone(),
            value: self.value.clone(),
            created: self.created,
            modified: self.modified,
        }
    }
}

impl Index {
    pub(crate) fn get(&self, key: &Key) -> Option<&Slot> {
        self.slots.get(key)
    }

    /// Every entry whose key starts with `prefix`, in order.
    pub(crate) fn list(&self, prefix: &str) -> impl Iterator<Item = Entry> {
        self.slots
            .range(Key::new(prefix)..)
            .take_while(move |(key, _)| key.as_str().starts_with(prefix))
            .map(|(key, slot)| slot.entry(key))
    }

    /// Sets the slot, or removes the key.
    pub(crate) fn set(&mut self, key: Key, slot: Option<Slot>) {
        match slot {
            Some(slot) => self.slots.insert(key, slot),
            None => self.slots.remove(&key),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> Option<Slot> {
        Some(Slot {
            value: Bytes::new(),
            created: Revision(1),
            modified: Revision(1),
            on_disk: None,
        })
    }

    #[test]
    fn a_list_holds_the_prefix_and_nothing_beside_it() {
        let mut index = Index::default();
        for key in ["/a", "/a/", "/a/x", "/a/y", "/a0", "/b", ""] {
            index.set(Key::new(key), slot());
        }
        let keys = |prefix: &str| {
            index
                .list(prefix)
                .map(|entry| entry.key.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(keys("/a/"), ["/a/", "/a/x", "/a/y"]);
        assert_eq!(keys("/a/x"), ["/a/x"]);
        assert_eq!(keys("/c"), Vec::<String>::new());
        assert_eq!(keys("").len(), 7);
    }
}
