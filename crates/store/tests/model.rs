//! Random histories, compared with a model that is too simple to be wrong: a list of everything that happened.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps says where it failed"
)]

use bytes::Bytes;
use futures::executor::block_on;
use futures::{FutureExt, StreamExt};
use muster_store::{
    CommitError, Compare, Event, EventStream, Key, LogLimits, MemoryStore, Op, Options, Revision,
    SledStore, Store, Txn, WatchError,
};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use std::collections::{BTreeMap, BTreeSet};

const KEYS: [&str; 6] = ["", "/a", "/a/b", "/a/c", "/b", "/é"];
const PREFIXES: [&str; 5] = ["", "/", "/a", "/a/", "/zzz"];

/// What a test does, with numbers that are resolved when it is done.
#[derive(Debug, Clone)]
enum Step {
    Commit {
        compares: Vec<(usize, Guess)>,
        ops: Vec<(usize, Change)>,
    },
    List {
        prefix: usize,
        back: u64,
    },
    Watch {
        prefix: usize,
        back: u64,
    },
    Drain {
        watch: usize,
    },
    Reopen,
}

#[derive(Debug, Clone, Copy)]
enum Guess {
    Absent,
    Present,
    Right,
    Off,
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Put(u8),
    Soft(u8),
    Delete,
}

fn step() -> impl Strategy<Value = Step> {
    let guess = prop_oneof![1 => Just(Guess::Absent), 1 => Just(Guess::Present), 3 => Just(Guess::Right), 1 => Just(Guess::Off)];
    let change = prop_oneof![3 => any::<u8>().prop_map(Change::Put), 1 => any::<u8>().prop_map(Change::Soft), 1 => Just(Change::Delete)];
    let compares = prop::collection::vec((0..KEYS.len(), guess), 0..2);
    let ops = prop::collection::vec((0..KEYS.len(), change), 0..4);
    prop_oneof![
        8 => (compares, ops).prop_map(|(compares, ops)| Step::Commit { compares, ops }),
        2 => (0..PREFIXES.len(), 0_u64..8).prop_map(|(prefix, back)| Step::List { prefix, back }),
        1 => (0..PREFIXES.len(), 0_u64..8).prop_map(|(prefix, back)| Step::Watch { prefix, back }),
        1 => (0_usize..8).prop_map(|watch| Step::Drain { watch }),
        1 => Just(Step::Reopen),
    ]
}

/// A key's value: bytes, created, modified, and what is on disk below it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cell {
    now: (Bytes, u64, u64),
    durable: Option<(Bytes, u64, u64)>,
}

type Cells = BTreeMap<&'static str, Cell>;

struct Model {
    /// After each revision since the store was opened, from its first.
    history: Vec<(u64, Cells, Vec<Event>)>,
    log_limit: usize,
}

impl Model {
    fn cells(&self) -> &Cells {
        &self.history.last().unwrap().1
    }

    fn revision(&self) -> u64 {
        self.history.last().unwrap().0
    }

    fn first(&self) -> u64 {
        let kept = self.history.len().saturating_sub(self.log_limit).max(1);
        self.history[kept - 1].0
    }

    fn holds(&self, compare: &Compare) -> bool {
        let at = |key: &Key| self.cells().get(key.as_str()).map(|cell| cell.now.2);
        match compare {
            Compare::Absent(key) => at(key).is_none(),
            Compare::Present(key) => at(key).is_some(),
            Compare::At(key, revision) => at(key) == Some(revision.0),
        }
    }

    fn commit(&mut self, compares: &[Compare], ops: &[(usize, Change)]) -> Option<u64> {
        if !compares.iter().all(|compare| self.holds(compare)) {
            return None;
        }
        let revision = self.revision() + 1;
        let mut cells = self.cells().clone();
        let mut events = Vec::new();
        for (place, (key, change)) in ops.iter().enumerate() {
            if ops[place + 1..].iter().any(|(later, _)| later == key) {
                continue;
            }
            let key = KEYS[*key];
            let before = cells.get(key).cloned();
            let created = before.as_ref().map_or(revision, |cell| cell.now.1);
            let durable = before.as_ref().and_then(|cell| cell.durable.clone());
            let after = match change {
                Change::Delete => None,
                Change::Soft(byte) => Some(Cell {
                    now: (value(*byte), created, revision),
                    durable,
                }),
                Change::Put(byte) => {
                    let now = (value(*byte), created, revision);
                    Some(Cell {
                        now: now.clone(),
                        durable: Some(now),
                    })
                }
            };
            if before.is_none() && after.is_none() {
                continue;
            }
            events.push(Event {
                revision: Revision(revision),
                key: Key::new(key),
                value: after.as_ref().map(|cell| cell.now.0.clone()),
                previous: before.map(|cell| entry(key, &cell)),
            });
            match after {
                Some(cell) => cells.insert(key, cell),
                None => cells.remove(key),
            };
        }
        if events.is_empty() {
            return Some(self.revision());
        }
        self.history.push((revision, cells, events));
        Some(revision)
    }

    fn reopen(&mut self, revision: u64) {
        let survives = |(key, cell): (&&'static str, &Cell)| {
            cell.durable.clone().map(|now| {
                (
                    *key,
                    Cell {
                        now: now.clone(),
                        durable: Some(now),
                    },
                )
            })
        };
        let cells = self.cells().iter().filter_map(survives).collect();
        self.history = vec![(revision, cells, Vec::new())];
    }

    fn events_after(&self, revision: u64, prefix: &str) -> Vec<Vec<Event>> {
        let later = self.history.iter().filter(|(at, ..)| *at > revision);
        let of_prefix = |events: &Vec<Event>| {
            events
                .iter()
                .filter(|event| event.key.as_str().starts_with(prefix))
                .cloned()
                .collect::<Vec<_>>()
        };
        later
            .map(|(_, _, events)| of_prefix(events))
            .filter(|events| !events.is_empty())
            .collect()
    }
}

fn value(byte: u8) -> Bytes {
    vec![byte; usize::from(byte)].into()
}

fn entry(key: &str, cell: &Cell) -> muster_store::Entry {
    let (value, created, modified) = cell.now.clone();
    muster_store::Entry {
        key: Key::new(key),
        value,
        created: Revision(created),
        modified: Revision(modified),
    }
}

struct Watch {
    stream: EventStream,
    prefix: &'static str,
    after: u64,
    seen: Vec<Vec<Event>>,
}

impl Watch {
    /// Takes what is there now; compares it with the model's history; true when the watch has ended.
    fn drain(&mut self, model: &Model) -> bool {
        loop {
            match self.stream.next().now_or_never() {
                None => {
                    assert_eq!(self.seen, model.events_after(self.after, self.prefix));
                    return false;
                }
                Some(Some(Ok(events))) => self.seen.push(events),
                Some(Some(Err(WatchError::TooOld { oldest, .. }))) => {
                    assert_eq!(oldest.0, model.first());
                    let all = model.events_after(self.after, self.prefix);
                    assert_eq!(
                        self.seen,
                        all[..self.seen.len()],
                        "until then nothing was left out"
                    );
                    return true;
                }
                Some(other) => panic!("{other:?}"),
            }
        }
    }
}

/// Runs a history; `reopen` gives the store opened again and true, or as it is where an engine keeps nothing.
fn run(
    steps: &[Step],
    log_limit: usize,
    mut store: Box<dyn Store>,
    reopen: impl Fn(Box<dyn Store>) -> (Box<dyn Store>, bool),
) {
    let mut model = Model {
        history: vec![(0, Cells::new(), Vec::new())],
        log_limit,
    };
    let mut watches: Vec<Watch> = Vec::new();
    let mut highest = 0;
    for step in steps {
        match step {
            Step::Commit { compares, ops } => {
                let compares: Vec<Compare> = compares
                    .iter()
                    .map(|(key, guess)| resolve(&model, *key, *guess))
                    .collect();
                let txn = Txn {
                    compares: compares.clone(),
                    ops: ops.iter().map(|(key, change)| op(*key, *change)).collect(),
                };
                let answer = block_on(store.commit(txn));
                match model.commit(&compares, ops) {
                    Some(revision) => assert_eq!(answer, Ok(Revision(revision))),
                    None => assert!(
                        matches!(answer, Err(CommitError::Conflict { .. })),
                        "{answer:?}"
                    ),
                }
                highest = highest.max(model.revision());
            }
            Step::List { prefix, back } => list(&model, store.as_ref(), PREFIXES[*prefix], *back),
            Step::Watch { prefix, back } => {
                let after = model.revision().saturating_sub(*back);
                let prefix = PREFIXES[*prefix];
                match store.watch(prefix, Revision(after)) {
                    Ok(stream) => {
                        assert!(after >= model.first());
                        watches.push(Watch {
                            stream,
                            prefix,
                            after,
                            seen: Vec::new(),
                        });
                    }
                    Err(error) => {
                        let oldest = Revision(model.first());
                        assert_eq!(
                            error,
                            WatchError::TooOld {
                                asked: Revision(after),
                                oldest
                            }
                        );
                    }
                }
            }
            Step::Drain { watch } => {
                if *watch < watches.len() && watches[*watch].drain(&model) {
                    watches.swap_remove(*watch);
                }
            }
            Step::Reopen => {
                let (again, reopened) = reopen(store);
                store = again;
                if !reopened {
                    continue;
                }
                watches.clear();
                let revision = store.revision().0;
                assert!(revision > highest || highest == 0);
                highest = revision;
                model.reopen(revision);
            }
        }
        assert_eq!(store.revision().0, model.revision());
    }
    list(&model, store.as_ref(), "", 0);
    for mut watch in watches {
        watch.drain(&model);
    }
    let seen: BTreeSet<u64> = model.history.iter().map(|(at, ..)| *at).collect();
    assert_eq!(seen.len(), model.history.len());
}

fn resolve(model: &Model, key: usize, guess: Guess) -> Compare {
    let at = model.cells().get(KEYS[key]).map_or(0, |cell| cell.now.2);
    let key = Key::new(KEYS[key]);
    match guess {
        Guess::Absent => Compare::Absent(key),
        Guess::Present => Compare::Present(key),
        Guess::Right => Compare::At(key, Revision(at)),
        Guess::Off => Compare::At(key, Revision(at + 1)),
    }
}

fn op(key: usize, change: Change) -> Op {
    let key = Key::new(KEYS[key]);
    match change {
        Change::Put(byte) => Op::Put {
            key,
            value: value(byte),
            soft: false,
        },
        Change::Soft(byte) => Op::Put {
            key,
            value: value(byte),
            soft: true,
        },
        Change::Delete => Op::Delete { key },
    }
}

fn list(model: &Model, store: &dyn Store, prefix: &str, back: u64) {
    let at = model.revision().saturating_sub(back);
    let answer = block_on(store.list(prefix, Some(Revision(at))));
    if at < model.first() {
        assert_eq!(
            answer,
            Err(WatchError::TooOld {
                asked: Revision(at),
                oldest: Revision(model.first())
            })
        );
        return;
    }
    let (_, cells, _) = model
        .history
        .iter()
        .find(|(revision, ..)| *revision == at)
        .unwrap();
    let of_prefix = cells.iter().filter(|(key, _)| key.starts_with(prefix));
    let expected: Vec<_> = of_prefix.map(|(key, cell)| entry(key, cell)).collect();
    let answer = answer.unwrap();
    assert_eq!((answer.entries, answer.revision), (expected, Revision(at)));
}

/// Failing histories are kept beside the test, to be run first the next time.
fn config(cases: u32) -> ProptestConfig {
    let file = FileFailurePersistence::Direct("tests/model.regressions");
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(file)),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(300))]
    #[test]
    fn memory_does_as_the_model(steps in prop::collection::vec(step(), 1..60), short in any::<bool>()) {
        let commits = if short { 5 } else { 1000 };
        let store = MemoryStore::with_limits(LogLimits { commits, bytes: usize::MAX });
        run(&steps, commits, Box::new(store), |store| (store, false));
    }
}

proptest! {
    #![proptest_config(config(60))]
    #[test]
    fn sled_does_as_the_model(steps in prop::collection::vec(step(), 1..60), short in any::<bool>()) {
        let commits = if short { 5 } else { 1000 };
        let options = Options { log: LogLimits { commits, bytes: usize::MAX }, ..Options::default() };
        let directory = tempfile::tempdir().unwrap();
        let open = || -> Box<dyn Store> { Box::new(SledStore::open(directory.path(), options.clone()).unwrap()) };
        run(&steps, commits, open(), |store| {
            drop(store);
            (open(), true)
        });
    }
}
