//! Many seeds, on all processors.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::generate::Size;
use crate::play::play;
use crate::scenario::Scenario;

/// Debug builds need deep stacks for deep futures.
const STACK_BYTES: usize = 32 << 20;
/// A seed that takes longer, by the machine's clock, hangs.
const HANGS_AFTER: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What came of a seed.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// The seed.
    pub seed: u64,
    /// What was broken; empty: nothing.
    pub faults: Vec<String>,
    /// The trace; empty when nothing was broken.
    pub trace: Vec<String>,
    /// Simulated time.
    pub simulated: Duration,
}

/// Seeds to run.
#[derive(Debug, Clone)]
pub struct Farm {
    /// Which.
    pub seeds: Range<u64>,
    /// How large their scenarios are.
    pub size: Size,
    /// Threads.
    pub jobs: usize,
    /// No further seed is begun after so long; `None`: all are run.
    pub time_limit: Option<Duration>,
    /// No further seed is begun after one that breaks something.
    pub stop_at_first: bool,
}

/// What came of all of them.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Seeds that were run.
    pub run: u64,
    /// Those that broke something, in order.
    pub broken: Vec<Verdict>,
    /// Simulated time of all.
    pub simulated: Duration,
    /// Time by the machine's clock.
    pub took: Duration,
}

struct Shared {
    farm: Farm,
    begun: Instant,
    next: AtomicU64,
    stop: AtomicBool,
    /// What each thread plays, and since when.
    playing: Vec<Mutex<Option<(u64, Instant)>>>,
}

impl Farm {
    /// Runs the seeds; `tell` hears of each as it ends.
    ///
    /// # Panics
    /// When the machine refuses a thread.
    pub fn run(&self, mut tell: impl FnMut(&Verdict)) -> Report {
        let jobs = self.jobs.max(1);
        let shared = Arc::new(Shared {
            farm: self.clone(),
            begun: Instant::now(),
            next: AtomicU64::new(self.seeds.start),
            stop: AtomicBool::new(false),
            playing: (0..jobs).map(|_| Mutex::new(None)).collect(),
        });
        let (sender, verdicts) = mpsc::sync_channel(jobs * 4);
        for job in 0..jobs {
            let (shared, sender) = (Arc::clone(&shared), sender.clone());
            std::thread::Builder::new()
                .name(format!("seeds-{job}"))
                .stack_size(STACK_BYTES)
                .spawn(move || shared.work(job, &sender))
                .expect("the machine has room for a thread");
        }
        drop(sender);
        let mut report = Report::default();
        let mut take = |verdict: Verdict, report: &mut Report| {
            tell(&verdict);
            report.run += 1;
            report.simulated += verdict.simulated;
            if !verdict.faults.is_empty() {
                report.broken.push(verdict);
            }
        };
        loop {
            match verdicts.recv_timeout(LOOK_EVERY) {
                Ok(verdict) => take(verdict, &mut report),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if let Some(seed) = shared.hanging() {
                        take(hanging(seed), &mut report);
                        // Its thread cannot be ended; the program can.
                        break;
                    }
                }
            }
        }
        report.broken.sort_by_key(|verdict| verdict.seed);
        report.took = shared.begun.elapsed();
        report
    }
}

impl Shared {
    fn work(&self, job: usize, verdicts: &mpsc::SyncSender<Verdict>) {
        loop {
            let late = self
                .farm
                .time_limit
                .is_some_and(|limit| self.begun.elapsed() > limit);
            if late || self.stop.load(Ordering::Relaxed) {
                return;
            }
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.farm.seeds.end {
                return;
            }
            *self.playing[job].lock() = Some((seed, Instant::now()));
            let outcome = play(&Scenario::from_seed(seed, self.farm.size));
            *self.playing[job].lock() = None;
            let broken = !outcome.faults.is_empty();
            if broken && self.farm.stop_at_first {
                self.stop.store(true, Ordering::Relaxed);
            }
            let verdict = Verdict {
                seed,
                faults: outcome.faults,
                trace: if broken { outcome.trace } else { Vec::new() },
                simulated: outcome.simulated,
            };
            if verdicts.send(verdict).is_err() {
                return;
            }
        }
    }

    fn hanging(&self) -> Option<u64> {
        let playing = self.playing.iter().filter_map(|playing| *playing.lock());
        playing
            .into_iter()
            .find(|(_, since)| since.elapsed() > HANGS_AFTER)
            .map(|(seed, _)| seed)
    }
}

fn hanging(seed: u64) -> Verdict {
    Verdict {
        seed,
        faults: vec![format!("it did not end within {} s", HANGS_AFTER.as_secs())],
        trace: Vec::new(),
        simulated: Duration::ZERO,
    }
}
