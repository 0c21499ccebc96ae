//! The controllers: each watches the cache, decides with pure functions, and writes through the registry.

mod daemonset;
mod namespace;
pub mod node_lifecycle;
mod owner_gc;
mod pod_gc;
mod queue;

use std::time::Duration;

use muster_model::time::SharedClock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::events::Recorder;
use crate::heartbeats::Heartbeats;
use crate::metrics::Metrics;
use crate::registry::Registry;
use daemonset::DaemonSets;
pub(crate) use daemonset::Known;
pub use daemonset::Troubles;
use node_lifecycle::{Graces, NodeLifecycle};

/// Numbers that tests and simulations may turn down.
#[derive(Debug, Clone)]
pub struct Timing {
    /// How long a node may be silent.
    pub graces: Graces,
    /// Between two looks at every node (spec/node-agent.md 5: 5 s).
    pub node_period: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            graces: Graces::default(),
            node_period: Duration::from_secs(5),
        }
    }
}

/// Starts every controller into `tasks`. They end when `stop` is cancelled. The answer is where the DaemonSet
/// controller tells of its difficulties.
pub fn start(
    tasks: &mut JoinSet<()>,
    registry: &Registry,
    heartbeats: &Heartbeats,
    events: &Recorder,
    metrics: &Metrics,
    timing: &Timing,
    stop: &CancellationToken,
) -> Troubles {
    let clock: SharedClock = registry.clock().clone();
    let lifecycle = NodeLifecycle {
        registry: registry.clone(),
        heartbeats: heartbeats.clone(),
        events: events.clone(),
        clock: clock.clone(),
        graces: timing.graces,
        period: timing.node_period,
    };
    tasks.spawn(lifecycle.run(stop.clone()));
    tasks.spawn(pod_gc::run(registry.clone(), clock, stop.clone()));
    tasks.spawn(owner_gc::run(registry.clone(), stop.clone()));
    tasks.spawn(namespace::run(registry.clone(), stop.clone()));
    let daemonsets = DaemonSets::new(registry.clone(), events.clone(), metrics.clone());
    let troubles = daemonsets.troubles().clone();
    tasks.spawn(daemonsets.run(stop.clone()));
    troubles
}

/// Before a controller starts over: short after a lag, longer with every failure in a row, with jitter.
fn retry_delay(registry: &Registry, failures: u32) -> Duration {
    const FIRST_MS: u64 = 50;
    const LONGEST_MS: u64 = 30_000;
    let most = FIRST_MS
        .saturating_mul(1 << failures.min(16))
        .min(LONGEST_MS);
    Duration::from_millis(most / 2 + registry.ids().below(most / 2 + 1))
}
