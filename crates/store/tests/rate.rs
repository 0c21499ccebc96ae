//! How many commits a second the durable store does on this disk. Prints numbers and judges nothing:
//! `cargo test -p muster-store --test rate -- --ignored --nocapture`, with `TMPDIR` on the disk in question.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps says where it failed"
)]

use bytes::Bytes;
use muster_store::{Key, Op, Options, SledStore, Store, Txn};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const VALUE_BYTES: usize = 3 * 1024;
const KEYS: usize = 1000;

#[test]
#[ignore = "prints numbers; run by hand"]
fn commits_a_second() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    for writers in [1, 4, 16, 64, 256] {
        let root = tempfile::tempdir().unwrap();
        let store = Arc::new(SledStore::open(root.path(), Options::default()).unwrap());
        let mut waits = runtime.block_on(write_for(&store, writers, Duration::from_secs(3)));
        waits.sort();
        let stats = store.stats();
        let percentile = |part: usize| waits[(waits.len() - 1) * part / 100].as_micros();
        println!(
            "{writers:4} writers: {:6} commits/s, {:5} flushes/s, wait µs median {} p90 {} p99 {}; disk {} KB for {} KB of values; memory {}",
            waits.len() / 3,
            stats.flushes / 3,
            percentile(50),
            percentile(90),
            percentile(99),
            disk_bytes(root.path()) / 1024,
            KEYS * VALUE_BYTES / 1024,
            memory(),
        );
        let before = Instant::now();
        drop(store);
        let store = SledStore::open(root.path(), Options::default()).unwrap();
        println!(
            "     closed and opened again in {} ms",
            before.elapsed().as_millis()
        );
        drop(store);
    }
}

async fn write_for(store: &Arc<SledStore>, writers: usize, time: Duration) -> Vec<Duration> {
    let end = Instant::now() + time;
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..writers {
        let store = Arc::clone(store);
        tasks.spawn(async move {
            let mut waits = Vec::new();
            for turn in 0.. {
                let began = Instant::now();
                if began > end {
                    break;
                }
                let key = Key::new(format!("/objects/{:04}", (writer * 31 + turn * 7) % KEYS));
                let value = Bytes::from(vec![turn as u8; VALUE_BYTES]);
                let ops = vec![Op::Put {
                    key,
                    value,
                    soft: false,
                }];
                store
                    .commit(Txn {
                        compares: vec![],
                        ops,
                    })
                    .await
                    .unwrap();
                waits.push(began.elapsed());
            }
            waits
        });
    }
    tasks.join_all().await.concat()
}

fn disk_bytes(dir: &Path) -> u64 {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            if path.is_dir() {
                disk_bytes(&path)
            } else {
                path.metadata().unwrap().len()
            }
        })
        .sum()
}

fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap_or("unknown");
    line.split_whitespace()
        .skip(1)
        .collect::<Vec<_>>()
        .join(" ")
}
