//! An acknowledged write survives `kill -9`, and the revision never goes back. A child process writes to a real
//! directory and says what was acknowledged; it is killed at any moment, again and again, and what the directory holds
//! is compared with what it said.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps says where it failed"
)]

use bytes::Bytes;
use futures::executor::block_on;
use muster_store::{Key, Op, Options, Revision, SledStore, Store, Txn};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const DIRECTORY: &str = "MUSTER_STORE_CRASH_DIR";
const TASKS: u64 = 12;
/// The child hangs when it takes longer over one acknowledged write.
const PATIENCE: Duration = Duration::from_secs(60);

/// A transaction of the child, as it says it: a put with its value, a soft put, or a delete.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Put(String),
    Soft,
    Delete,
}

/// What is known of one key.
#[derive(Debug, Default)]
struct Known {
    /// The last acknowledged durable step, and its revision.
    acknowledged: Option<(Step, u64)>,
    /// Begun and not acknowledged: it may have happened.
    begun: Option<Step>,
}

/// What the test runs in a process that it kills.
fn write_until_killed(dir: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let store = Arc::new(SledStore::open(dir, Options::default()).unwrap());
    say(&format!("open - - {}", store.revision()));
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..TASKS {
            let store = Arc::clone(&store);
            tasks.spawn(async move {
                for turn in 0_u64.. {
                    write(&store, task, turn).await;
                }
            });
        }
        tasks.join_all().await;
    });
}

async fn write(store: &SledStore, task: u64, turn: u64) {
    let key = format!("/{task}/{}", turn % 5);
    let number = store.revision().0 + turn;
    let put = |key: String, value: Bytes, soft| Op::Put {
        key: Key::new(key),
        value,
        soft,
    };
    // Every durable step changes two keys, which must stay alike.
    let keys = [key.clone(), twin(&key)];
    let (step, ops) = match number % 7 {
        0 => (
            "delete",
            keys.map(|key| Op::Delete { key: Key::new(key) }).to_vec(),
        ),
        1 | 2 => ("soft", vec![put(format!("/soft{key}"), "s".into(), true)]),
        _ => (
            "put",
            keys.map(|twin| put(twin, value(&key, number), false))
                .to_vec(),
        ),
    };
    say(&format!("begin {key} {step} {number}"));
    let revision = store
        .commit(Txn {
            compares: vec![],
            ops,
        })
        .await
        .unwrap();
    say(&format!("done {key} {step} {revision}"));
}

fn twin(key: &str) -> String {
    format!("/twin{key}")
}

/// A value that can be made again from what the child said. Some are large.
fn value(key: &str, number: u64) -> Bytes {
    let length = if number.is_multiple_of(50) {
        20_000
    } else {
        300 + (number % 1000) as usize
    };
    format!("{key}={number};")
        .bytes()
        .cycle()
        .take(length)
        .collect::<Vec<u8>>()
        .into()
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("@{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

#[test]
fn what_was_acknowledged_survives_being_killed() {
    // The child is this very test, told so by its environment.
    if let Some(dir) = std::env::var_os(DIRECTORY) {
        return write_until_killed(Path::new(&dir));
    }
    let rounds = std::env::var("MUSTER_STORE_KILLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(50);
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("store");
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    let mut newest = 0;
    let mut acknowledged = 0;
    for round in 0_u64..rounds {
        // Now and then it is killed wherever it is, perhaps before it has opened anything.
        let wanted = match round % 5 {
            4 => 0,
            _ => 1 + round % 13,
        };
        let pause = Duration::from_millis(round.wrapping_mul(7919) % 173);
        for line in run_and_kill(&dir, wanted, pause) {
            acknowledged += u64::from(note(&line, &mut known, &mut newest));
        }
        check(&dir, &mut known, &mut newest, round);
    }
    println!("{acknowledged} acknowledged writes in {rounds} lives");
    assert!(acknowledged > rounds, "the child hardly ever got to write");
    muster_store::verify(&dir).unwrap();
}

/// What the child said until it was killed: a while after it had told of this many acknowledged writes.
fn run_and_kill(dir: &Path, wanted: u64, pause: Duration) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "what_was_acknowledged_survives_being_killed",
            "--nocapture",
        ])
        .env(DIRECTORY, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let (tell, told) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        // A line that was cut by the kill says nothing.
        out.split(b'\n')
            .map_while(Result::ok)
            .filter_map(|line| String::from_utf8(line).ok())
            // The test harness may have begun the line.
            .filter_map(|line| line.split_once('@').map(|(_, said)| said.to_owned()))
            .inspect(|said| {
                if said.starts_with("done") {
                    let _ = tell.send(());
                }
            })
            .collect::<Vec<_>>()
    });
    for _ in 0..wanted {
        told.recv_timeout(PATIENCE).expect("the child writes");
    }
    // Not waiting for something, but choosing when to kill.
    std::thread::sleep(pause);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

/// Takes over one line; true when it acknowledges a write.
fn note(line: &str, known: &mut BTreeMap<String, Known>, newest: &mut u64) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    let [what, key, step, number] = words[..] else {
        return false;
    };
    let Ok(number) = number.parse::<u64>() else {
        return false;
    };
    let entry = known.entry(key.to_owned()).or_default();
    match (what, step) {
        ("open", _) => assert!(
            number >= *newest,
            "opened at {number} after {newest} was seen"
        ),
        ("begin", "put") => entry.begun = Some(Step::Put(number.to_string())),
        ("begin", "delete") => entry.begun = Some(Step::Delete),
        ("begin", _) => entry.begun = Some(Step::Soft),
        ("done", _) => {
            let step = entry.begun.take().unwrap();
            if step != Step::Soft {
                entry.acknowledged = Some((step, number));
            }
            *newest = number.max(*newest);
            return true;
        }
        _ => panic!("{line}"),
    }
    false
}

/// Opens the directory and compares; then takes what it holds as what is known.
fn check(dir: &Path, known: &mut BTreeMap<String, Known>, newest: &mut u64, round: u64) {
    let store = SledStore::open(dir, Options::default()).unwrap();
    let revision = store.revision();
    assert!(
        revision.0 > *newest || *newest == 0,
        "round {round}: at {revision} after {newest}"
    );
    assert!(
        block_on(store.list("/soft", None))
            .unwrap()
            .entries
            .is_empty(),
        "round {round}: a soft value is back"
    );
    for (key, known) in known.iter_mut() {
        if key == "-" {
            continue;
        }
        let found = block_on(store.get(&Key::new(&**key)));
        let other = block_on(store.get(&Key::new(twin(key))));
        assert_eq!(
            found.as_ref().map(|entry| (&entry.value, entry.modified)),
            other.as_ref().map(|entry| (&entry.value, entry.modified)),
            "round {round}, {key}: half a transaction is there"
        );
        let is = |step: &Step| match (step, &found) {
            (Step::Put(number), Some(entry)) => entry.value == value(key, number.parse().unwrap()),
            (Step::Delete, None) => true,
            _ => false,
        };
        let as_acknowledged = match &known.acknowledged {
            None => found.is_none(),
            Some((step, at)) => {
                is(step)
                    && found
                        .as_ref()
                        .is_none_or(|entry| entry.modified == Revision(*at))
            }
        };
        let as_begun = known.begun.as_ref().is_some_and(is);
        assert!(
            as_acknowledged || as_begun,
            "round {round}, {key}: {known:?}, found {:?}",
            found.map(|entry| (
                entry.modified,
                String::from_utf8_lossy(&entry.value[..20]).into_owned()
            ))
        );
        if as_begun && !as_acknowledged {
            let at = found.as_ref().map_or(0, |entry| entry.modified.0);
            known.acknowledged = known.begun.clone().map(|step| (step, at));
        }
        known.begun = None;
    }
    *newest = revision.0.max(*newest);
}
