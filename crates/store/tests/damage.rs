//! A store whose files were harmed opens with every acknowledged value, or says that it is damaged. It never panics, and
//! never opens with less.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps says where it failed"
)]

use futures::executor::block_on;
use muster_store::{Entry, Key, Op, OpenError, Options, SledStore, Store, Txn};
use std::collections::BTreeMap;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

/// A store with overwritten, deleted, large and small values; and what it holds.
fn filled(dir: &Path) -> Vec<Entry> {
    let store = SledStore::open(dir, Options::default()).unwrap();
    let commit = |ops: Vec<Op>| {
        block_on(store.commit(Txn {
            compares: vec![],
            ops,
        }))
        .unwrap()
    };
    let put = |key: String, length: usize| Op::Put {
        value: key.bytes().cycle().take(length).collect::<Vec<u8>>().into(),
        key: Key::new(key),
        soft: false,
    };
    for turn in 0..6 {
        for key in 0..20 {
            commit(vec![put(
                format!("/objects/{key:03}"),
                100 + 37 * key * turn % 3000,
            )]);
        }
    }
    commit(
        (0..5)
            .map(|key| Op::Delete {
                key: Key::new(format!("/objects/{key:03}")),
            })
            .collect(),
    );
    // Opened again, so that sled has written a snapshot.
    drop(store);
    let store = SledStore::open(dir, Options::default()).unwrap();
    let commit = |ops: Vec<Op>| {
        block_on(store.commit(Txn {
            compares: vec![],
            ops,
        }))
        .unwrap()
    };
    // In many parts.
    commit(vec![put("/large".to_owned(), 600_000)]);
    block_on(store.list("", None)).unwrap().entries
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path))
        } else {
            found.push(path)
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// How opening went: whole, or damaged.
fn opens_whole(dir: &Path, expected: &[Entry], what: &str) -> bool {
    let result = catch_unwind(|| SledStore::open(dir, Options::default()));
    let result = result.unwrap_or_else(|_| panic!("{what}: opening panicked"));
    match result {
        Ok(store) => {
            let found = block_on(store.list("", None)).unwrap().entries;
            assert!(
                found == expected,
                "{what}: opened with other contents than were acknowledged"
            );
            true
        }
        Err(OpenError::Damaged { .. } | OpenError::Newer { .. } | OpenError::Io { .. }) => false,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Numbers that look random and are the same each time.
fn numbers(seed: u64) -> impl Iterator<Item = usize> {
    let mut state = seed;
    std::iter::from_fn(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        Some((state >> 33) as usize)
    })
}

struct Bench {
    _root: tempfile::TempDir,
    original: PathBuf,
    work: PathBuf,
    entries: Vec<Entry>,
}

fn bench() -> Bench {
    let root = tempfile::tempdir().unwrap();
    let (original, work) = (root.path().join("original"), root.path().join("work"));
    let entries = filled(&original);
    Bench {
        _root: root,
        original,
        work,
        entries,
    }
}

impl Bench {
    /// Harms one file of a fresh copy and opens it.
    fn harmed(&self, file: &Path, harm: impl FnOnce(&mut Vec<u8>), what: &str) -> bool {
        let _ = fs::remove_dir_all(&self.work);
        copy(&self.original, &self.work);
        let path = self.work.join(file.strip_prefix(&self.original).unwrap());
        let mut bytes = fs::read(&path).unwrap();
        harm(&mut bytes);
        fs::write(&path, bytes).unwrap();
        opens_whole(&self.work, &self.entries, what)
    }
}

fn flips_per_file() -> usize {
    std::env::var("MUSTER_STORE_FLIPS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(40)
}

#[test]
fn a_changed_byte_anywhere_is_noticed_or_harmless() {
    let bench = bench();
    let mut outcomes = BTreeMap::new();
    for file in files(&bench.original) {
        let bytes = fs::read(&file).unwrap();
        // Most of a segment is empty; what was written is what matters.
        let written: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
        if written.is_empty() {
            continue;
        }
        for number in numbers(7).take(flips_per_file()) {
            let at = written[number % written.len()];
            let bit = 1 << (number / 7 % 8);
            let what = format!("{} byte {at} ^ {bit}", file.display());
            let whole = bench.harmed(&file, |bytes| bytes[at] ^= bit, &what);
            *outcomes
                .entry((file.file_name().unwrap().to_owned(), whole))
                .or_insert(0) += 1;
        }
    }
    println!("{outcomes:?}");
    assert!(
        outcomes.keys().any(|(_, whole)| !whole),
        "some damage must have been noticed"
    );
}

#[test]
fn a_file_that_is_cut_short_is_noticed_or_harmless() {
    let bench = bench();
    for file in files(&bench.original) {
        let length = fs::metadata(&file).unwrap().len() as usize;
        for number in numbers(11).take(8).chain([0]) {
            let keep = if number == 0 {
                0
            } else {
                number % length.max(1)
            };
            let what = format!("{} cut to {keep} of {length}", file.display());
            bench.harmed(&file, |bytes| bytes.truncate(keep), &what);
        }
    }
}

#[test]
fn a_file_that_is_gone_is_noticed_or_harmless() {
    let bench = bench();
    for file in files(&bench.original) {
        let _ = fs::remove_dir_all(&bench.work);
        copy(&bench.original, &bench.work);
        let path = bench.work.join(file.strip_prefix(&bench.original).unwrap());
        fs::remove_file(&path).unwrap();
        let what = format!("{} removed", file.display());
        if path.ends_with("muster-store.json") {
            // Without it the directory is not known to be a store, and is left alone.
            let error = SledStore::open(&bench.work, Options::default()).unwrap_err();
            assert!(
                matches!(error, OpenError::Foreign { .. }),
                "{what}: {error}"
            );
            continue;
        }
        opens_whole(&bench.work, &bench.entries, &what);
    }
}

#[test]
fn an_older_copy_of_the_engine_s_files_is_noticed() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("store");
    filled(&dir);
    let old = root.path().join("old");
    copy(&dir.join("sled"), &old);
    let store = SledStore::open(&dir, Options::default()).unwrap();
    let put = Op::Put {
        key: Key::new("/new"),
        value: "v".into(),
        soft: false,
    };
    block_on(store.commit(Txn {
        compares: vec![],
        ops: vec![put],
    }))
    .unwrap();
    drop(store);
    fs::remove_dir_all(dir.join("sled")).unwrap();
    copy(&old, &dir.join("sled"));
    let error = SledStore::open(&dir, Options::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("was acknowledged, and the newest there is"),
        "{error}"
    );
}
