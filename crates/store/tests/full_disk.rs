//! A disk that is full: the write that does not fit is refused, nothing is accepted any more, and what was acknowledged is
//! there when there is room again.
//!
//! The writer is a process of its own whose files may not grow past a limit, so that no file system has to be filled
//! and nobody has to be root. To sled a file that cannot grow is what a full disk is: a write that fails.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps says where it failed"
)]
#![allow(
    clippy::print_stdout,
    reason = "the writer's process speaks to the test's"
)]

use futures::executor::block_on;
use muster_store::{CommitError, Key, Op, Options, Revision, SledStore, Store, Txn};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

const DIRECTORY: &str = "MUSTER_STORE_FULL_DIR";
/// Most bytes of one file, in the shell's blocks of 512.
const LIMIT_BLOCKS: &str = "8192";
/// The writer hangs when it says nothing for longer.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_full_disk_refuses_writes_and_loses_none() {
    // The writer is this very test, told so by its environment.
    if let Some(dir) = std::env::var_os(DIRECTORY) {
        return fill(Path::new(&dir));
    }
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("store");
    let writer = start_writer(&dir);
    let said = wait(writer);

    let acknowledged: Vec<(u64, Revision)> = said
        .lines()
        .filter_map(|line| line.split_once("@done ").map(|(_, rest)| rest))
        .map(|rest| {
            let (number, revision) = rest.split_once(' ').unwrap();
            (number.parse().unwrap(), Revision(revision.parse().unwrap()))
        })
        .collect();
    assert!(acknowledged.len() > 20, "it was full at once:\n{said}");
    assert!(said.contains("@refused could not write"), "{said}");
    assert!(said.contains("@closed"), "{said}");

    let store = SledStore::open(&dir, Options::default()).unwrap();
    for (number, revision) in acknowledged {
        let entry = block_on(store.get(&key(number))).expect("an acknowledged entry is gone");
        assert_eq!((entry.modified, entry.value), (revision, value(number)));
    }
    let room_again = block_on(store.commit(put(0)));
    assert!(room_again.is_ok(), "{room_again:?}");
}

/// Starts the writer under a limit on file sizes, with the signal that tells of it ignored: only the write fails.
fn start_writer(dir: &Path) -> Child {
    Command::new("sh")
        .arg("-c")
        .arg(format!(
            "trap '' XFSZ; ulimit -f {LIMIT_BLOCKS}; exec \"$0\" \"$@\""
        ))
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_full_disk_refuses_writes_and_loses_none",
            "--nocapture",
        ])
        .env(DIRECTORY, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What the writer said until it ended, which it must.
fn wait(mut writer: Child) -> String {
    let out = BufReader::new(writer.stdout.take().unwrap());
    let (tell, told) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in out.lines() {
            let _ = tell.send(line.unwrap());
        }
    });
    let mut said = String::new();
    loop {
        match told.recv_timeout(PATIENCE) {
            Ok(line) => said.push_str(&(line + "\n")),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                writer.kill().unwrap();
                panic!("the writer hangs: {said}");
            }
        }
    }
    reader.join().unwrap();
    let status = writer.wait().unwrap();
    assert!(status.success(), "{status}:\n{said}");
    said
}

/// Writes until a write is refused.
fn fill(dir: &Path) {
    let store = SledStore::open(dir, Options::default()).unwrap();
    for number in 0.. {
        match block_on(store.commit(put(number))) {
            Ok(revision) => println!("@done {number} {revision}"),
            Err(error) => {
                assert!(matches!(error, CommitError::Write(_)), "{error}");
                println!("@refused {error}");
                break;
            }
        }
    }
    let again = block_on(store.commit(Txn::default()));
    assert!(matches!(again, Err(CommitError::Closed(_))), "{again:?}");
    println!("@closed");
}

fn key(number: u64) -> Key {
    Key::new(format!("/{number:06}"))
}

fn value(number: u64) -> bytes::Bytes {
    vec![number.to_le_bytes()[0]; 5000].into()
}

fn put(number: u64) -> Txn {
    let ops = vec![Op::Put {
        key: key(number),
        value: value(number),
        soft: false,
    }];
    Txn {
        compares: vec![],
        ops,
    }
}
