//! Opening a directory: again, while it is open, when it is somebody else's, when it is from a later release.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps says where it failed"
)]

use futures::FutureExt;
use futures::executor::block_on;
use futures::future::join_all;
use muster_store::{
    Compare, Key, Op, OpenError, Options, Revision, SledStore, Store, Txn, WatchError, verify,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::task::{Context, Wake, Waker};

fn open(dir: &Path) -> Result<SledStore, OpenError> {
    SledStore::open(dir, Options::default())
}

fn put(key: &str, value: &str) -> Op {
    Op::Put {
        key: Key::new(key),
        value: value.to_owned().into(),
        soft: false,
    }
}

fn soft(key: &str, value: &str) -> Op {
    Op::Put {
        key: Key::new(key),
        value: value.to_owned().into(),
        soft: true,
    }
}

fn txn(ops: impl Into<Vec<Op>>) -> Txn {
    Txn {
        compares: vec![],
        ops: ops.into(),
    }
}

fn commit(store: &SledStore, ops: impl Into<Vec<Op>>) -> Revision {
    block_on(store.commit(txn(ops))).unwrap()
}

/// Every file with its bytes.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            let bytes = fs::read(&path).unwrap();
            found.push((path, bytes));
        }
    }
    found.sort();
    found
}

#[test]
fn a_store_opened_again_holds_what_was_durable() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("new/store");
    let store = open(&dir).unwrap();
    let id = store.store_id().to_owned();
    assert_eq!(store.revision(), Revision(0));
    commit(&store, [put("a", "1"), put("b", "1"), soft("lease", "1")]);
    commit(&store, [put("a", "2"), soft("b", "soft")]);
    let last = commit(&store, [put("c", "3")]);
    drop(store);

    let store = open(&dir).unwrap();
    assert_eq!(store.store_id(), id);
    assert!(store.revision() > last);
    let entries = block_on(store.list("", None)).unwrap().entries;
    let lines: Vec<_> = entries
        .iter()
        .map(|e| (e.key.as_str(), &e.value[..], e.created.0, e.modified.0))
        .collect();
    assert_eq!(
        lines,
        [("a", &b"2"[..], 1, 2), ("b", b"1", 1, 1), ("c", b"3", 3, 3)]
    );

    // A writer that remembers a revision from before can still compare with it.
    let txn = Txn {
        compares: vec![Compare::At(Key::new("a"), Revision(2))],
        ops: vec![put("a", "4")],
    };
    block_on(store.commit(txn)).unwrap();
}

#[test]
fn a_watch_from_before_a_restart_is_too_old() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).unwrap();
    let last = commit(&store, [soft("a", "1")]);
    drop(store);
    let store = open(root.path()).unwrap();
    let now = store.revision();
    assert_eq!(
        store.watch("", last).err(),
        Some(WatchError::TooOld {
            asked: last,
            oldest: now
        })
    );
    assert!(store.watch("", now).is_ok());
}

#[test]
fn soft_writes_alone_never_flush_and_never_let_the_counter_go_back() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("store");
    let copy = root.path().join("copy");
    let store = open(&dir).unwrap();
    let mut last = Revision(0);
    for _ in 0..1000 {
        last = commit(&store, [soft("a", "1")]);
    }
    assert_eq!((last, store.stats().flushes), (Revision(1000), 0));
    // The directory as a killed process leaves it.
    copy_all(&dir, &copy);
    assert!(open(&copy).unwrap().revision() > last);
}

#[test]
fn the_next_block_is_reserved_before_the_last_one_is_used_up() {
    let root = tempfile::tempdir().unwrap();
    let (dir, copy) = (root.path().join("store"), root.path().join("copy"));
    let store = open(&dir).unwrap();
    let mut last = Revision(0);
    for _ in 0..70_000 {
        last = commit(&store, [soft("a", "1")]);
    }
    assert_eq!(last, Revision(70_000));
    assert_eq!(store.stats().flushes, 1, "only for the next block");
    copy_all(&dir, &copy);
    assert!(open(&copy).unwrap().revision() > last);
}

fn copy_all(from: &Path, to: &Path) {
    for (path, bytes) in contents(from) {
        let target = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, bytes).unwrap();
    }
}

#[test]
fn large_values_grow_shrink_and_go_without_a_trace() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("store");
    let text = |length: usize| {
        "0123456789abcdef"
            .chars()
            .cycle()
            .take(length)
            .collect::<String>()
    };
    let expect = |store: &SledStore, lengths: &[(&str, usize)]| {
        let entries = block_on(store.list("", None)).unwrap().entries;
        let found: Vec<_> = entries
            .iter()
            .map(|entry| (entry.key.as_str(), entry.value.len()))
            .collect();
        assert_eq!(found, lengths);
        assert!(
            entries
                .iter()
                .all(|entry| text(entry.value.len()).as_bytes() == entry.value)
        );
    };
    // Around the length of a part, with the record's header of 21 bytes.
    let edges = [
        ("a", 8170),
        ("b", 8171),
        ("c", 8172),
        ("d", 16_363),
        ("e", 16_364),
        ("f", 2_000_000),
        ("g", 0),
    ];
    let store = open(&dir).unwrap();
    commit(&store, edges.map(|(key, length)| put(key, &text(length))));
    drop(store);
    let store = open(&dir).unwrap();
    expect(&store, &edges);
    commit(
        &store,
        [
            put("f", "01234"),
            put("a", &text(100_000)),
            Op::Delete { key: Key::new("e") },
        ],
    );
    drop(store);
    let store = open(&dir).unwrap();
    expect(
        &store,
        &[
            ("a", 100_000),
            ("b", 8171),
            ("c", 8172),
            ("d", 16_363),
            ("f", 5),
            ("g", 0),
        ],
    );
    commit(
        &store,
        ["a", "b", "c", "d", "f", "g"].map(|key| Op::Delete { key: Key::new(key) }),
    );
    drop(store);
    expect(&open(&dir).unwrap(), &[]);
    assert_eq!(verify(&dir).unwrap().keys, 0);
}

#[test]
fn no_value_goes_into_a_file_that_the_engine_does_not_sync() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).unwrap();
    let text = "x".repeat(1_500_000);
    for turn in 0..6 {
        for key in 0..12 {
            commit(
                &store,
                [
                    put(&format!("/large/{key}"), &text[turn * 1000..]),
                    put(&format!("/small/{key}"), "1"),
                ],
            );
        }
        commit(
            &store,
            (0..60)
                .map(|key| put(&format!("/medium/{key}"), &text[..8000 + turn]))
                .collect::<Vec<_>>(),
        );
    }
    drop(store);
    drop(open(root.path()).unwrap());
    assert_eq!(
        fs::read_dir(root.path().join("sled/blobs"))
            .unwrap()
            .count(),
        0
    );
}

/// Keeps the thread that wakes it, from one meeting at the barrier to the next.
struct Keeper(Barrier);

impl Wake for Keeper {
    fn wake(self: Arc<Self>) {
        self.0.wait();
        self.0.wait();
    }
}

/// Has the store's writer stand still while `meanwhile` runs: in the answer to a transaction of its own.
fn while_the_writer_stands<T>(store: &SledStore, meanwhile: impl FnOnce() -> T) -> T {
    let keeper = Arc::new(Keeper(Barrier::new(2)));
    let waker = Waker::from(Arc::clone(&keeper));
    loop {
        let mut commit = store.commit(txn([put("first", "1")]));
        // One that was answered at once wakes nobody.
        if commit
            .poll_unpin(&mut Context::from_waker(&waker))
            .is_pending()
        {
            keeper.0.wait();
            let done = meanwhile();
            keeper.0.wait();
            return done;
        }
    }
}

#[test]
fn sixty_four_writers_share_flushes() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).unwrap();
    for turn in 0..20 {
        let (before, commits) = while_the_writer_stands(&store, || {
            let begin = |writer| {
                let mut commit = store.commit(txn([put(&format!("k{writer}"), &turn.to_string())]));
                assert_eq!((&mut commit).now_or_never(), None);
                commit
            };
            (store.stats(), (0..64).map(begin).collect::<Vec<_>>())
        });
        for answer in block_on(join_all(commits)) {
            answer.unwrap();
        }
        let after = store.stats();
        assert_eq!(after.commits - before.commits, 64);
        assert_eq!(after.flushes - before.flushes, 1, "{after:?}");
    }
}

#[test]
fn a_store_that_is_open_cannot_be_opened_again() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("store");
    let store = open(&dir).unwrap();
    commit(&store, [put("a", "1")]);
    let error = open(&dir).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "the store in {} is open in another process: stop that one first, or choose another directory",
            dir.display()
        )
    );
    assert!(matches!(verify(&dir), Err(OpenError::Locked { .. })));
    commit(&store, [put("a", "2")]);
    drop(store);
    open(&dir).unwrap();
}

#[test]
fn a_closed_store_can_be_opened_again_while_its_value_lives() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).unwrap();
    commit(&store, [put("a", "1")]);
    block_on(store.close());
    let again = open(root.path()).unwrap();
    assert!(block_on(again.get(&Key::new("a"))).is_some());
}

#[test]
fn a_directory_with_other_files_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("thesis.tex"), "words").unwrap();
    fs::create_dir(root.path().join("photos")).unwrap();
    let before = contents(root.path());
    let error = open(root.path()).unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    assert!(matches!(
        verify(root.path()),
        Err(OpenError::NoStore { .. })
    ));
    assert_eq!(contents(root.path()), before);
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2);
}

#[test]
fn a_file_is_no_directory() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("file");
    fs::write(&path, "words").unwrap();
    assert!(matches!(open(&path), Err(OpenError::NotADirectory { .. })));
    assert!(matches!(
        verify(&path),
        Err(OpenError::NotADirectory { .. })
    ));
}

#[test]
fn a_store_of_a_later_format_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    drop(open(root.path()).unwrap());
    fs::write(
        root.path().join("muster-store.json"),
        r#"{"format": 2, "state": {"new": true}}"#,
    )
    .unwrap();
    let before = contents(root.path());
    for error in [
        open(root.path()).unwrap_err(),
        verify(root.path()).unwrap_err(),
    ] {
        assert!(
            matches!(error, OpenError::Newer { found: 2, .. }),
            "{error}"
        );
    }
    assert_eq!(contents(root.path()), before);
}

#[test]
fn only_the_owner_may_look_into_a_new_store() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("store");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    drop(open(&dir).unwrap());
    assert_eq!(
        fs::metadata(&dir).unwrap().permissions().mode() & 0o777,
        0o700
    );
}

#[test]
fn a_start_that_was_cut_off_is_begun_again() {
    let root = tempfile::tempdir().unwrap();
    drop(open(root.path()).unwrap());
    let marker = root.path().join("muster-store.json");
    let creating = fs::read_to_string(&marker).unwrap();
    // As left by a crash before the marker was there at all.
    fs::remove_file(&marker).unwrap();
    for name in ["sled", "watermark"] {
        let path = root.path().join(name);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
    }
    fs::write(root.path().join("muster-store.json.new"), &creating[..10]).unwrap();
    let store = open(root.path()).unwrap();
    assert_eq!(store.revision(), Revision(0));
}

#[test]
fn the_id_may_be_chosen_and_stays() {
    let root = tempfile::tempdir().unwrap();
    let options = Options {
        store_id: Some("lab".to_owned()),
        ..Options::default()
    };
    drop(SledStore::open(root.path(), options).unwrap());
    let options = Options {
        store_id: Some("other".to_owned()),
        ..Options::default()
    };
    assert_eq!(
        SledStore::open(root.path(), options).unwrap().store_id(),
        "lab"
    );
}
