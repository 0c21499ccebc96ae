//! Verify, export and import: with no server, on a directory.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps says where it failed"
)]

use futures::executor::block_on;
use muster_store::{
    ImportError, Key, Op, OpenError, Options, Revision, SledStore, Store, Txn, export, import,
    verify,
};
use std::fs;
use std::path::Path;

fn open(dir: &Path) -> Result<SledStore, OpenError> {
    SledStore::open(dir, Options::default())
}

fn put(key: &str, value: &str, soft: bool) -> Op {
    Op::Put {
        key: Key::new(key),
        value: value.to_owned().into(),
        soft,
    }
}

fn commit(store: &SledStore, ops: impl Into<Vec<Op>>) -> Revision {
    block_on(store.commit(Txn {
        compares: vec![],
        ops: ops.into(),
    }))
    .unwrap()
}

fn filled(dir: &Path) -> Vec<muster_store::Entry> {
    let store = open(dir).unwrap();
    commit(
        &store,
        [
            put("/a", "1", false),
            put("/b", "zwei\n", false),
            put("/lease", "x", true),
        ],
    );
    commit(&store, [put("/a", "3", false)]);
    let mut entries = block_on(store.list("", None)).unwrap().entries;
    entries.retain(|entry| entry.key.as_str() != "/lease");
    entries
}

#[test]
fn verify_tells_what_is_there() {
    let root = tempfile::tempdir().unwrap();
    filled(root.path());
    let report = verify(root.path()).unwrap();
    assert_eq!(
        (report.keys, report.value_bytes, report.revision),
        (2, 6, Revision(2))
    );
    assert_eq!(verify(root.path()).unwrap(), report);
}

#[test]
fn an_export_makes_the_same_store_again() {
    let root = tempfile::tempdir().unwrap();
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    let entries = filled(&from);
    let mut text = Vec::new();
    assert_eq!(export(&from, &mut text).unwrap(), 2);
    assert_eq!(import(&text[..], &to).unwrap(), 2);
    assert_eq!(verify(&to).unwrap(), verify(&from).unwrap());
    let mut again = Vec::new();
    export(&to, &mut again).unwrap();
    assert_eq!(
        String::from_utf8(text).unwrap(),
        String::from_utf8(again).unwrap()
    );
    let (old, new) = (open(&from).unwrap(), open(&to).unwrap());
    assert_eq!(block_on(new.list("", None)).unwrap().entries, entries);
    assert!(
        new.revision() >= old.revision(),
        "no revision of the old store is given out again"
    );
}

#[test]
fn an_import_goes_into_an_empty_directory_only() {
    let root = tempfile::tempdir().unwrap();
    let from = root.path().join("from");
    filled(&from);
    let mut text = Vec::new();
    export(&from, &mut text).unwrap();
    let before = verify(&from).unwrap();
    assert!(matches!(
        import(&text[..], &from),
        Err(ImportError::NotEmpty { .. })
    ));
    assert_eq!(verify(&from).unwrap(), before);
    let foreign = root.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("x"), "x").unwrap();
    assert!(matches!(
        import(&text[..], &foreign),
        Err(ImportError::NotEmpty { .. })
    ));
}

#[test]
fn a_damaged_export_is_refused_and_writes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let from = root.path().join("from");
    filled(&from);
    let mut text = Vec::new();
    export(&from, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let cases = [
        (String::new(), "the export is cut short: it has no end line"),
        (
            lines[..3].join("\n") + "\n",
            "the export is cut short: it has no end line",
        ),
        (
            "kind: Node\n".to_owned(),
            "line 1 of the export: this is no export of a muster store",
        ),
        (
            [lines[0], lines[1], lines[3]].join("\n") + "\n",
            "line 3 of the export: there should be 2 keys before it, and there are 1",
        ),
        (
            text.replace("MQ==", "Mg==").replace("Mw==", "NA=="),
            "line 4 of the export: the checksum is wrong: the export was altered",
        ),
        (
            text.replace("_export\":1", "_export\":2"),
            "line 1 of the export: it is of version 2, and this release knows only 1",
        ),
    ];
    let to = root.path().join("to");
    for (text, message) in cases {
        assert_eq!(
            import(text.as_bytes(), &to).unwrap_err().to_string(),
            message
        );
        assert!(!to.exists(), "{message}");
    }
}
