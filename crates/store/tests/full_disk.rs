//! A disk that is full: the write that does not fit is refused, nothing is accepted any more, and what was acknowledged is
//! there when there is room again. Needs a small file system of its own:
//! `mount -t tmpfs -o size=8m tmpfs DIR`, then
//! `MUSTER_STORE_SMALL_DIR=DIR cargo test -p muster-store --test full_disk -- --ignored`.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps says where it failed"
)]

use futures::executor::block_on;
use muster_store::{CommitError, Entry, Key, Op, Options, SledStore, Store, Txn};
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

#[test]
#[ignore = "needs a small file system, see the top of the file"]
fn a_full_disk_refuses_writes_and_loses_none() {
    let small = PathBuf::from(std::env::var("MUSTER_STORE_SMALL_DIR").unwrap());
    let (dir, ballast) = (small.join("store"), small.join("ballast"));
    let _ = fs::remove_dir_all(&dir);
    fs::write(&ballast, vec![1; 3 * 1024 * 1024]).unwrap();
    // On a thread of its own: a hang would be a failure too.
    let (done, wait) = mpsc::channel();
    let thread = std::thread::spawn({
        let dir = dir.clone();
        move || done.send(fill(&dir)).unwrap()
    });
    let (acknowledged, error) = wait
        .recv_timeout(Duration::from_secs(60))
        .expect("it hangs");
    thread.join().unwrap();
    assert!(matches!(error, CommitError::Write(_)), "{error}");
    println!("{} entries, then: {error}", acknowledged.len());

    fs::remove_file(&ballast).unwrap();
    let store = SledStore::open(&dir, Options::default()).unwrap();
    let mut found = block_on(store.list("", None)).unwrap().entries;
    // The one that failed may be there: it was not acknowledged, and not denied.
    found.retain(|entry| acknowledged.iter().any(|known| known.key == entry.key));
    assert_eq!(found, acknowledged);
}

fn fill(dir: &std::path::Path) -> (Vec<Entry>, CommitError) {
    let store = SledStore::open(dir, Options::default()).unwrap();
    for number in 0.. {
        let key = Key::new(format!("/{number:06}"));
        let ops = vec![Op::Put {
            key,
            value: vec![number as u8; 5000].into(),
            soft: false,
        }];
        if let Err(error) = block_on(store.commit(Txn {
            compares: vec![],
            ops,
        })) {
            let again = block_on(store.commit(Txn::default()));
            assert!(matches!(again, Err(CommitError::Closed(_))), "{again:?}");
            return (block_on(store.list("", None)).unwrap().entries, error);
        }
    }
    unreachable!("a disk is not endless")
}
