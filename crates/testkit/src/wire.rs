//! A connection in memory that takes its time: bytes arrive late, or wait until the link moves again, but never change
//! their order.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, split};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Bytes in flight in one direction; a writer waits when the line is full.
const WINDOW_BYTES: usize = 256 * 1024;
/// Pieces on the way at once.
const WINDOW_PIECES: usize = 1_024;

/// How a link carries what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Weather {
    /// At once.
    #[default]
    Clear,
    /// Each piece takes so long, by chance, between these two.
    Slow(Duration, Duration),
    /// Not at all, and nobody is told: a link that is dead without being cut.
    Still,
}

/// The weather of one link, and its chance.
#[derive(Debug)]
pub(crate) struct Sky {
    state: Mutex<(Weather, StdRng)>,
    changed: Notify,
}

impl Sky {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            state: Mutex::new((Weather::Clear, StdRng::seed_from_u64(seed))),
            changed: Notify::new(),
        }
    }

    pub(crate) fn set(&self, weather: Weather) {
        self.state.lock().0 = weather;
        self.changed.notify_waiters();
    }

    /// How long the next piece takes.
    fn delay(&self) -> Duration {
        let (weather, rng) = &mut *self.state.lock();
        match *weather {
            Weather::Slow(least, most) if most > least => rng.random_range(least..=most),
            Weather::Slow(least, _) => least,
            Weather::Clear | Weather::Still => Duration::ZERO,
        }
    }

    /// Returns when the link moves.
    async fn moving(&self) {
        loop {
            let changed = self.changed.notified();
            if self.state.lock().0 != Weather::Still {
                return;
            }
            changed.await;
        }
    }
}

/// The near end of a connection whose far end is `far`. It is carried by two tasks, which end with either end or when the
/// link is cut.
pub(crate) fn lay(
    far: DuplexStream,
    sky: &Arc<Sky>,
    cut: &CancellationToken,
    carriers: &mut JoinSet<()>,
) -> DuplexStream {
    // Those of connections that are over.
    while carriers.try_join_next().is_some() {}
    let (near, inner) = tokio::io::duplex(WINDOW_BYTES);
    let ((far_read, far_write), (near_read, near_write)) = (split(far), split(inner));
    for (from, to) in [(near_read, far_write), (far_read, near_write)] {
        let (sky, cut) = (Arc::clone(sky), cut.clone());
        carriers.spawn(async move {
            // Either way the ends are dropped, and both sides see that it is over.
            let _ = cut.run_until_cancelled(carry(from, to, &sky)).await;
        });
    }
    near
}

/// Carries one direction until its source ends or its sink is gone.
async fn carry(
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    sky: &Sky,
) -> io::Result<()> {
    let mut line: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut last = Instant::now();
    let mut over = false;
    let mut room = vec![0; 16 * 1024];
    loop {
        let due = line.front().map(|(due, _)| *due);
        tokio::select! {
            biased;
            () = arrival(due, sky) => {
                if let Some((_, piece)) = line.pop_front() {
                    to.write_all(&piece).await?;
                }
            }
            read = from.read(&mut room), if !over && line.len() < WINDOW_PIECES => match read? {
                0 => over = true,
                count => {
                    // Bytes keep their order, however long each piece would have taken.
                    last = last.max(Instant::now() + sky.delay());
                    line.push_back((last, room[..count].to_vec()));
                }
            },
        }
        if over && line.is_empty() {
            return to.shutdown().await;
        }
    }
}

async fn arrival(due: Option<Instant>, sky: &Sky) {
    match due {
        Some(due) => {
            tokio::time::sleep_until(due).await;
            sky.moving().await;
        }
        None => std::future::pending().await,
    }
}
