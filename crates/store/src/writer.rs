//! The one writer of a durable store: a thread that takes every transaction that waits, writes them as one batch with
//! one flush, makes them visible, and answers. While it flushes, the next batch gathers: that is the group commit.
//!
//! # Invariants
//! - Nothing is visible before it is durable, and nothing is acknowledged before it is visible.
//! - After a write failed, nothing is written any more: whether it reached the disk is known only after a restart.

use crate::core::Core;
use crate::stage::Batch;
use crate::{CommitError, Revision, Txn};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{mpsc, oneshot};

/// How many transactions may wait. When the line is full, committing tasks wait for a place.
pub(crate) const QUEUE: usize = 1024;
/// A batch stops growing at this many bytes of values; a larger transaction is a batch of its own.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// Where batches become durable.
pub(crate) trait Disk: Send + 'static {
    /// Makes a batch durable before it returns. Says whether anything had to be flushed.
    fn write(&mut self, batch: &Batch) -> Result<bool, String>;
    /// The last call, after the last batch, when no write has failed.
    fn close(&mut self, revision: Revision) -> Result<(), String>;
}

/// A transaction that waits.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) txn: Txn,
    pub(crate) answer: oneshot::Sender<Result<Revision, CommitError>>,
}

/// What the writer has done since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriterStats {
    /// Transactions that were answered with a revision.
    pub commits: u64,
    /// Batches they were gathered in.
    pub batches: u64,
    /// Batches that had to be flushed; the others were soft.
    pub flushes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    commits: AtomicU64,
    batches: AtomicU64,
    flushes: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> WriterStats {
        WriterStats {
            commits: self.commits.load(Ordering::Relaxed),
            batches: self.batches.load(Ordering::Relaxed),
            flushes: self.flushes.load(Ordering::Relaxed),
        }
    }
}

/// Runs until every sender of the queue is gone and all that waited is answered.
pub(crate) fn run(
    core: &Core,
    disk: &mut impl Disk,
    mut queue: mpsc::Receiver<Request>,
    counters: &Counters,
) {
    let mut failure: Option<String> = None;
    while let Some(first) = queue.blocking_recv() {
        if let Some(reason) = &failure {
            let _ = first.answer.send(Err(CommitError::Closed(format!(
                "an earlier write failed: {reason}"
            ))));
            continue;
        }
        let (txns, waiting) = gather(first, &mut queue);
        let (batch, mut answers) = core.stage(txns);
        match guarded("write", || disk.write(&batch)) {
            Ok(flushed) => {
                let commits = answers.iter().filter(|answer| answer.is_ok()).count();
                counters
                    .commits
                    .fetch_add(commits as u64, Ordering::Relaxed);
                counters.batches.fetch_add(1, Ordering::Relaxed);
                counters
                    .flushes
                    .fetch_add(u64::from(flushed), Ordering::Relaxed);
                core.publish(batch);
            }
            Err(reason) => {
                tracing::error!(error = %reason, "the store could not write and accepts nothing any more");
                answers.fill(Err(CommitError::Write(reason.clone())));
                failure = Some(reason);
                core.close();
            }
        }
        for (waiting, answer) in waiting.into_iter().zip(answers) {
            // Whoever stopped waiting does not want to know.
            let _ = waiting.send(answer);
        }
    }
    if failure.is_none()
        && let Err(reason) = guarded("close", || disk.close(core.revision()))
    {
        tracing::warn!(error = %reason, "the store could not note that it was closed");
    }
    core.close();
}

type Answer = oneshot::Sender<Result<Revision, CommitError>>;

fn gather(first: Request, queue: &mut mpsc::Receiver<Request>) -> (Vec<Txn>, Vec<Answer>) {
    let mut bytes = first.txn.value_bytes();
    let mut txns = vec![first.txn];
    let mut answers = vec![first.answer];
    while bytes < BATCH_BYTES && txns.len() < QUEUE {
        let Ok(next) = queue.try_recv() else { break };
        bytes += next.txn.value_bytes();
        txns.push(next.txn);
        answers.push(next.answer);
    }
    (txns, answers)
}

impl Txn {
    fn value_bytes(&self) -> usize {
        let bytes = |op: &crate::Op| match op {
            crate::Op::Put { value, .. } => value.len(),
            crate::Op::Delete { .. } => 0,
        };
        self.ops.iter().map(bytes).sum()
    }
}

/// Runs a call into the engine, which is known to panic where it should answer with an error.
pub(crate) fn guarded<T>(
    step: &str,
    call: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        Err(format!(
            "the engine failed to {step}: {}",
            panic_text(panic.as_ref())
        ))
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no reason given".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogLimits;
    use crate::record::Totals;
    use crate::{Key, Op};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::mpsc as blocking;

    /// A disk that asks, for each batch, what should become of it.
    struct Scripted {
        asked: blocking::Sender<usize>,
        outcome: blocking::Receiver<Result<bool, String>>,
    }

    impl Disk for Scripted {
        fn write(&mut self, batch: &Batch) -> Result<bool, String> {
            self.asked.send(batch.commits.len()).unwrap();
            match self.outcome.recv().unwrap() {
                Err(text) if text == "panic" => panic!("boom"),
                outcome => outcome,
            }
        }

        fn close(&mut self, _: Revision) -> Result<(), String> {
            self.asked.send(usize::MAX).unwrap();
            Ok(())
        }
    }

    struct Bench {
        core: Arc<Core>,
        queue: Option<mpsc::Sender<Request>>,
        asked: blocking::Receiver<usize>,
        outcome: blocking::Sender<Result<bool, String>>,
        counters: Arc<Counters>,
        thread: std::thread::JoinHandle<()>,
    }

    fn bench() -> Bench {
        let core = Core::new(
            Revision(0),
            BTreeMap::new(),
            Totals::default(),
            LogLimits::default(),
        );
        let (queue, waiting) = mpsc::channel(QUEUE);
        let (asked_in, asked) = blocking::channel();
        let (outcome, outcome_out) = blocking::channel();
        let counters = Arc::new(Counters::default());
        let thread = std::thread::spawn({
            let (core, counters) = (Arc::clone(&core), Arc::clone(&counters));
            move || {
                run(
                    &core,
                    &mut Scripted {
                        asked: asked_in,
                        outcome: outcome_out,
                    },
                    waiting,
                    &counters,
                )
            }
        });
        Bench {
            core,
            queue: Some(queue),
            asked,
            outcome,
            counters,
            thread,
        }
    }

    impl Bench {
        fn put(&self, key: &str) -> oneshot::Receiver<Result<Revision, CommitError>> {
            let (answer, wait) = oneshot::channel();
            let ops = vec![Op::Put {
                key: Key::new(key),
                value: "v".into(),
                soft: false,
            }];
            let request = Request {
                txn: Txn {
                    compares: vec![],
                    ops,
                },
                answer,
            };
            self.queue.as_ref().unwrap().try_send(request).unwrap();
            wait
        }
    }

    #[test]
    fn what_waits_during_a_flush_is_one_batch() {
        let mut bench = bench();
        let first = bench.put("a");
        assert_eq!(bench.asked.recv(), Ok(1));
        let others = [bench.put("b"), bench.put("c"), bench.put("d")];
        assert_eq!(
            bench.core.revision(),
            Revision(0),
            "nothing is visible before it is durable"
        );
        bench.outcome.send(Ok(true)).unwrap();
        assert_eq!(first.blocking_recv().unwrap(), Ok(Revision(1)));
        assert_eq!(bench.asked.recv(), Ok(3));
        bench.outcome.send(Ok(true)).unwrap();
        let revisions = others.map(|other| other.blocking_recv().unwrap().unwrap().0);
        assert_eq!(revisions, [2, 3, 4]);
        assert_eq!(
            bench.counters.read(),
            WriterStats {
                commits: 4,
                batches: 2,
                flushes: 2
            }
        );
        bench.queue = None;
        assert_eq!(bench.asked.recv(), Ok(usize::MAX));
        bench.thread.join().unwrap();
    }

    #[test]
    fn after_a_failed_write_nothing_is_visible_and_nothing_is_accepted() {
        for outcome in ["no space", "panic"] {
            let mut bench = bench();
            let first = bench.put("a");
            bench.asked.recv().unwrap();
            let second = bench.put("b");
            bench.outcome.send(Err(outcome.to_owned())).unwrap();
            let error = first.blocking_recv().unwrap().unwrap_err();
            let text = if outcome == "panic" {
                "the engine failed to write: boom"
            } else {
                outcome
            };
            assert_eq!(error, CommitError::Write(text.to_owned()));
            let error = second.blocking_recv().unwrap().unwrap_err();
            assert_eq!(
                error,
                CommitError::Closed(format!("an earlier write failed: {text}"))
            );
            assert_eq!(
                (bench.core.revision(), bench.core.get(&Key::new("a"))),
                (Revision(0), None)
            );
            bench.queue = None;
            bench.thread.join().unwrap();
            assert!(
                bench.asked.recv().is_err(),
                "a disk that failed is not closed as if all were well"
            );
        }
    }

    #[test]
    fn a_caller_that_left_does_not_stop_its_transaction() {
        let bench = bench();
        drop(bench.put("a"));
        bench.asked.recv().unwrap();
        bench.outcome.send(Ok(true)).unwrap();
        let second = bench.put("b");
        bench.asked.recv().unwrap();
        bench.outcome.send(Ok(true)).unwrap();
        assert_eq!(second.blocking_recv().unwrap(), Ok(Revision(2)));
        assert!(bench.core.get(&Key::new("a")).is_some());
    }
}
