//! How many commits a second the durable store does on this disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use muster_store::{Key, Op, Options, SledStore, Store, Txn};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::figures::{Report, megabytes, row, table};
use crate::usage::Usage;

/// About what a pod is.
const VALUE_BYTES: usize = 3 * 1024;
const KEYS: usize = 1000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many writers wait for their commits at once; several numbers are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64,256")]
    writers: Vec<usize>,
    /// How long each number of writers writes, in seconds
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// A directory on the disk in question
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
}

/// All numbers of writers.
#[derive(Debug, Serialize)]
pub(crate) struct StoreReport {
    value_bytes: usize,
    keys: usize,
    rates: Vec<Rate>,
}

#[derive(Debug, Serialize)]
struct Rate {
    writers: usize,
    commits_a_second: u64,
    flushes_a_second: u64,
    wait_median_us: u64,
    wait_p90_us: u64,
    wait_p99_us: u64,
    /// On disk, for `value_bytes` times `keys`.
    disk_bytes: u64,
    rss_bytes: u64,
    reopen_ms: u64,
}

/// Measures each number of writers over a store of its own.
pub(crate) async fn run(args: Args) -> anyhow::Result<StoreReport> {
    let mut rates = Vec::new();
    for writers in args.writers {
        rates.push(measure(writers.max(1), args.seconds.max(1), &args.dir).await?);
    }
    Ok(StoreReport {
        value_bytes: VALUE_BYTES,
        keys: KEYS,
        rates,
    })
}

async fn measure(writers: usize, seconds: u64, dir: &Path) -> anyhow::Result<Rate> {
    let root = tempfile::tempdir_in(dir).context("cannot make a directory")?;
    let store = Arc::new(SledStore::open(root.path(), Options::default())?);
    let mut waits = write_for(&store, writers, Duration::from_secs(seconds)).await?;
    waits.sort();
    let percentile = |part: usize| {
        let wait = waits.get(waits.len().saturating_sub(1) * part / 100);
        u64::try_from(wait.copied().unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
    };
    let stats = store.stats();
    let (disk_bytes, rss_bytes) = (
        size_of(root.path())?,
        Usage::of(std::process::id())?.rss_bytes,
    );
    let closing = Instant::now();
    store.close().await;
    drop(store);
    drop(SledStore::open(root.path(), Options::default())?);
    Ok(Rate {
        writers,
        commits_a_second: u64::try_from(waits.len())? / seconds,
        flushes_a_second: stats.flushes / seconds,
        wait_median_us: percentile(50),
        wait_p90_us: percentile(90),
        wait_p99_us: percentile(99),
        disk_bytes,
        rss_bytes,
        reopen_ms: u64::try_from(closing.elapsed().as_millis())?,
    })
}

async fn write_for(
    store: &Arc<SledStore>,
    writers: usize,
    time: Duration,
) -> anyhow::Result<Vec<Duration>> {
    let end = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        let store = Arc::clone(store);
        tasks.spawn(async move {
            let mut waits = Vec::new();
            for turn in 0_usize.. {
                let began = Instant::now();
                if began > end {
                    break;
                }
                let key = Key::new(format!("/objects/{:04}", (writer * 31 + turn * 7) % KEYS));
                let value = Bytes::from(vec![turn.to_le_bytes()[0]; VALUE_BYTES]);
                let put = Op::Put {
                    key,
                    value,
                    soft: false,
                };
                let txn = Txn {
                    compares: vec![],
                    ops: vec![put],
                };
                store.commit(txn).await?;
                waits.push(began.elapsed());
            }
            anyhow::Ok(waits)
        });
    }
    let mut waits = Vec::new();
    while let Some(written) = tasks.join_next().await {
        waits.extend(written??);
    }
    Ok(waits)
}

fn size_of(dir: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let file = entry.metadata()?;
        bytes += if file.is_dir() {
            size_of(&entry.path())?
        } else {
            file.len()
        };
    }
    Ok(bytes)
}

impl Report for StoreReport {
    fn text(&self) -> String {
        let mut rows = vec![row([
            "WRITERS",
            "COMMITS/s",
            "FLUSHES/s",
            "WAIT µs MEDIAN",
            "P90",
            "P99",
            "DISK MB",
            "RSS MB",
            "REOPEN ms",
        ])];
        rows.extend(self.rates.iter().map(|rate| {
            vec![
                rate.writers.to_string(),
                rate.commits_a_second.to_string(),
                rate.flushes_a_second.to_string(),
                rate.wait_median_us.to_string(),
                rate.wait_p90_us.to_string(),
                rate.wait_p99_us.to_string(),
                megabytes(rate.disk_bytes),
                megabytes(rate.rss_bytes),
                rate.reopen_ms.to_string(),
            ]
        }));
        let (keys, bytes) = (self.keys, self.value_bytes);
        format!("{keys} keys, values of {bytes} bytes\n\n{}", table(&rows))
    }
}
