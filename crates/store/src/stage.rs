//! Transactions before they happen: checked one after the other against the index and those before them in the same
//! batch, given revisions, and turned into what to write and what to publish. Pure.
//!
//! # Invariants
//! - A transaction sees every change of those before it, and nothing of those after it.
//! - Revisions of a batch follow each other without a gap, starting after the published one.
//! - A transaction that fails leaves no trace.

use crate::index::{Index, Slot};
use crate::log::Commit;
use crate::record::{OnDisk, Record, Totals};
use crate::{CommitError, Compare, Event, Key, Op, Revision, Txn};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A batch being made.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    index: &'a Index,
    batch: Batch,
}

/// A batch of commits, ready to be written and published.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// In revision order.
    pub(crate) commits: Vec<Arc<Commit>>,
    /// The index after all of them.
    pub(crate) slots: BTreeMap<Key, Option<Slot>>,
    /// What to do on disk.
    pub(crate) disk: BTreeMap<Key, DiskChange>,
    /// The newest revision: of the last commit, or the one before the batch.
    pub(crate) revision: Revision,
    /// Of the records on disk, after all of them.
    pub(crate) totals: Totals,
}

/// What becomes of a key's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiskChange {
    /// Its new bytes; `None`: it is removed.
    pub(crate) record: Option<Vec<u8>>,
    /// In how many parts it lies there before the batch.
    pub(crate) old_parts: u32,
}

impl<'a> Stage<'a> {
    /// An empty batch on top of a store at this revision.
    pub(crate) fn new(index: &'a Index, revision: Revision, totals: Totals) -> Self {
        Self {
            index,
            batch: Batch {
                revision,
                totals,
                ..Batch::default()
            },
        }
    }

    /// The batch so far.
    pub(crate) fn finish(self) -> Batch {
        self.batch
    }

    /// Adds a transaction, if its comparisons hold.
    pub(crate) fn add(&mut self, txn: Txn) -> Result<Revision, CommitError> {
        txn.compares
            .iter()
            .try_for_each(|compare| self.check(compare))?;
        let revision = Revision(self.batch.revision.0 + 1);
        let mut events = Vec::with_capacity(txn.ops.len());
        for op in last_of_each_key(txn.ops) {
            match op {
                Op::Put { key, value, soft } => events.push(self.put(revision, key, value, soft)),
                Op::Delete { key } => events.extend(self.delete(revision, key)),
            }
        }
        if events.is_empty() {
            return Ok(self.batch.revision);
        }
        self.batch.revision = revision;
        self.batch
            .commits
            .push(Arc::new(Commit { revision, events }));
        Ok(revision)
    }

    fn current(&self, key: &Key) -> Option<&Slot> {
        match self.batch.slots.get(key) {
            Some(changed) => changed.as_ref(),
            None => self.index.get(key),
        }
    }

    fn check(&self, compare: &Compare) -> Result<(), CommitError> {
        let (Compare::Absent(key) | Compare::At(key, _) | Compare::Present(key)) = compare;
        let found = self.current(key).map(|slot| slot.modified);
        let holds = match compare {
            Compare::Absent(_) => found.is_none(),
            Compare::At(_, revision) => found == Some(*revision),
            Compare::Present(_) => found.is_some(),
        };
        if holds {
            return Ok(());
        }
        Err(CommitError::Conflict {
            expected: compare.clone(),
            key: key.clone(),
            found,
        })
    }

    fn put(&mut self, revision: Revision, key: Key, value: Bytes, soft: bool) -> Event {
        let before = self.current(&key).cloned();
        let created = before.as_ref().map_or(revision, |slot| slot.created);
        let mut on_disk = before.as_ref().and_then(|slot| slot.on_disk);
        if !soft {
            if let Some(old) = on_disk {
                self.batch.totals.remove(old.checksum);
            }
            let record = Record {
                created,
                modified: revision,
                value: value.clone(),
            };
            let (bytes, checksum) = record.encode(&key);
            self.batch.totals.add(checksum);
            on_disk = Some(OnDisk::new(checksum, bytes.len()));
            self.change_disk(&key, Some(bytes));
        }
        let slot = Slot {
            value: value.clone(),
            created,
            modified: revision,
            on_disk,
        };
        self.batch.slots.insert(key.clone(), Some(slot));
        Event {
            revision,
            previous: before.map(|slot| slot.entry(&key)),
            key,
            value: Some(value),
        }
    }

    fn change_disk(&mut self, key: &Key, record: Option<Vec<u8>>) {
        // Of the index, not of an earlier transaction of this batch: that one's record never reaches the disk.
        let old_parts = self
            .index
            .get(key)
            .and_then(|slot| slot.on_disk)
            .map_or(0, |old| old.parts);
        self.batch
            .disk
            .insert(key.clone(), DiskChange { record, old_parts });
    }

    fn delete(&mut self, revision: Revision, key: Key) -> Option<Event> {
        let before = self.current(&key).cloned()?;
        if let Some(old) = before.on_disk {
            self.batch.totals.remove(old.checksum);
            self.change_disk(&key, None);
        }
        self.batch.slots.insert(key.clone(), None);
        Some(Event {
            revision,
            previous: Some(before.entry(&key)),
            key,
            value: None,
        })
    }
}

fn last_of_each_key(mut ops: Vec<Op>) -> Vec<Op> {
    let mut seen = BTreeSet::new();
    let mut keep: Vec<bool> = ops
        .iter()
        .rev()
        .map(|op| seen.insert(op.key().clone()))
        .collect();
    ops.retain(|_| keep.pop().unwrap_or(true));
    ops
}

impl Op {
    /// The key it changes.
    pub fn key(&self) -> &Key {
        let (Self::Put { key, .. } | Self::Delete { key }) = self;
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &'static str, soft: bool) -> Op {
        Op::Put {
            key: Key::new(key),
            value: value.into(),
            soft,
        }
    }

    fn txn(ops: Vec<Op>) -> Txn {
        Txn {
            compares: vec![],
            ops,
        }
    }

    #[test]
    fn a_later_transaction_sees_the_earlier_one_of_its_batch() {
        let index = Index::default();
        let mut stage = Stage::new(&index, Revision(4), Totals::default());
        stage.add(txn(vec![put("a", "1", false)])).unwrap();
        let again = Txn {
            compares: vec![Compare::Absent(Key::new("a"))],
            ops: vec![put("a", "2", false)],
        };
        let error = stage.add(again).unwrap_err();
        assert_eq!(
            error,
            CommitError::Conflict {
                expected: Compare::Absent(Key::new("a")),
                key: Key::new("a"),
                found: Some(Revision(5)),
            }
        );
        let next = Txn {
            compares: vec![Compare::At(Key::new("a"), Revision(5))],
            ops: vec![put("a", "3", false)],
        };
        assert_eq!(stage.add(next), Ok(Revision(6)));
        assert_eq!(
            stage.finish().commits.len(),
            2,
            "the one that failed left no trace"
        );
    }

    #[test]
    fn the_last_op_on_a_key_is_the_one_that_happens() {
        let index = Index::default();
        let mut stage = Stage::new(&index, Revision(0), Totals::default());
        stage
            .add(txn(vec![
                put("a", "1", false),
                put("b", "1", false),
                put("a", "2", false),
            ]))
            .unwrap();
        let batch = stage.finish();
        let shown: Vec<_> = batch.commits[0]
            .events
            .iter()
            .map(|e| (e.key.to_string(), e.value.clone()))
            .collect();
        assert_eq!(
            shown,
            [
                ("b".to_owned(), Some("1".into())),
                ("a".to_owned(), Some("2".into()))
            ]
        );
    }

    #[test]
    fn a_soft_value_over_a_durable_one_leaves_the_durable_record_to_be_written() {
        let index = Index::default();
        let mut stage = Stage::new(&index, Revision(0), Totals::default());
        stage.add(txn(vec![put("a", "durable", false)])).unwrap();
        stage.add(txn(vec![put("a", "soft", true)])).unwrap();
        let batch = stage.finish();
        let bytes = batch.disk[&Key::new("a")].record.clone().unwrap();
        let (record, checksum) = Record::decode(&Key::new("a"), &bytes).unwrap();
        assert_eq!(
            (record.value, record.modified),
            ("durable".into(), Revision(1))
        );
        let slot = batch.slots[&Key::new("a")].clone().unwrap();
        assert_eq!(
            (slot.value, slot.created, slot.on_disk),
            (
                "soft".into(),
                Revision(1),
                Some(OnDisk { checksum, parts: 1 })
            )
        );
        assert_eq!(batch.totals.count, 1);
    }

    #[test]
    fn deleting_a_soft_value_removes_the_record_below_it() {
        let index = Index::default();
        let mut stage = Stage::new(&index, Revision(0), Totals::default());
        stage
            .add(txn(vec![
                put("a", "durable", false),
                put("b", "soft", true),
            ]))
            .unwrap();
        stage.add(txn(vec![put("a", "soft", true)])).unwrap();
        stage
            .add(txn(vec![
                Op::Delete { key: Key::new("a") },
                Op::Delete { key: Key::new("b") },
            ]))
            .unwrap();
        let batch = stage.finish();
        let removed = DiskChange {
            record: None,
            old_parts: 0,
        };
        assert_eq!(batch.disk, BTreeMap::from([(Key::new("a"), removed)]));
        assert_eq!(batch.totals, Totals::default());
    }

    #[test]
    fn a_transaction_that_changes_nothing_takes_no_revision() {
        let index = Index::default();
        let mut stage = Stage::new(&index, Revision(9), Totals::default());
        assert_eq!(stage.add(txn(vec![])), Ok(Revision(9)));
        assert_eq!(
            stage.add(txn(vec![Op::Delete { key: Key::new("a") }])),
            Ok(Revision(9))
        );
        assert!(stage.finish().commits.is_empty());
    }
}
