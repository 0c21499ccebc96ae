//! A whole cluster in one process: seeded, faults to order, checkers of what must hold.
//!
//! ```text
//! Cluster ── Server (real, TLS) ◄── Network: a gate per node and one for the server ◄── Agent (real)
//!    │          │                     close = partition, cut = kill -9                     │
//!    │          └ store: memory, or sled in a temporary directory          MemoryRuntime ──┘
//!    │                                                                     (one shared MemoryEngine)
//!    ├ eventually(...)   waits for a condition, and says what the cluster looks like when it never comes
//!    └ check::*          what must always hold (one pod per node, the budget, versions that only grow)
//! ```
//!
//! [`Fleet`] is the other one: real processes of the binary on the real Docker engine, for what no task can show.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use muster_testkit::{Cluster, ClusterOptions, NodeOptions, build};
//! let mut cluster = Cluster::start(ClusterOptions::default()).await?;
//! cluster.add_node(NodeOptions::new("n1")).await?;
//! cluster.create(&build::daemon_set("web").object()).await?;
//! cluster.until_ready("web", 1).await;
//! cluster.stop().await;
//! # Ok(()) }
//! ```

pub mod build;
pub mod check;
pub mod clock;
mod cluster;
mod fleet;
pub mod images;
mod network;
mod node;
pub mod ports;
pub mod processes;
mod store;
mod wait;
mod wire;

pub use cluster::{Cluster, ClusterOptions, StoreKind};
pub use fleet::Fleet;
pub use network::{Gate, Link};
pub use node::{NodeOptions, NodeRuntime};
pub use store::{Observer, StoreControl, StoreMood};
pub use wait::{PATIENCE, condition, is_ready};
pub use wire::Weather;
