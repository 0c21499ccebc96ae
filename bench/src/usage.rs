//! What a process uses, as the kernel counts it.

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

/// The kernel's clock of `/proc/PID/stat`: 100 ticks a second on every architecture Linux is built for today.
const TICK: Duration = Duration::from_millis(10);

/// Memory and processor time of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Usage {
    /// Resident memory in bytes, shared pages and the program itself included.
    pub(crate) rss_bytes: u64,
    /// The part that is the process's own: heap and stacks.
    pub(crate) anonymous_bytes: u64,
    /// Threads.
    pub(crate) threads: u64,
    /// Processor time since its start, in milliseconds.
    pub(crate) cpu_ms: u64,
}

impl Usage {
    /// Of this process now.
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        Self::parse(&read("status")?, &read("stat")?).context("/proc speaks another language")
    }

    fn parse(status: &str, stat: &str) -> Option<Self> {
        let field = |name: &str| -> Option<u64> {
            let line = status.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        // The program's name, in brackets, may hold anything; user and system time are the 12th and 13th after it.
        let mut times = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        let ticks = times.next()?.parse::<u64>().ok()? + times.next()?.parse::<u64>().ok()?;
        Some(Self {
            rss_bytes: field("VmRSS:")? * 1024,
            anonymous_bytes: field("RssAnon:")? * 1024,
            threads: field("Threads:")?,
            cpu_ms: ticks * u64::try_from(TICK.as_millis()).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_understood() {
        let status = "Name:\tx\nVmRSS:\t    2048 kB\nRssAnon:\t  1024 kB\nThreads:\t3\n";
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 50 25 0 0";
        let found = Usage::parse(status, stat).unwrap();
        assert_eq!((found.rss_bytes, found.anonymous_bytes), (2 << 20, 1 << 20));
        assert_eq!((found.threads, found.cpu_ms), (3, 750));
    }

    #[test]
    fn the_process_at_hand_has_memory() {
        assert!(Usage::of(std::process::id()).unwrap().rss_bytes > 100_000);
    }
}
