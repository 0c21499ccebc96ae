//! The node agent, as a library: it keeps the pods of one node running, with or without its server.
//!
//! ```text
//!             server                                         engine
//!   pods ───────┐  ▲ reports   ┌── worker: look ─ step ─ act ──┐
//!               ▼  │           │     (one task per pod)        ▼
//!   session ─> pods ───────────┼── worker ──────────────────> Runtime
//!      │         │             └── worker                      ▲
//!      │         └ admit, adopt, retire      relist, events ───┘ wake workers
//!      └ outbox: statuses, events, confirmations, heartbeats
//! ```
//! What decides is pure: [`worker::step`], [`admit`], [`status`], [`spec`], [`env`]. What acts decides nothing:
//! `worker/perform.rs`, `session.rs`, `volume/`. What a restart must not forget is in [`checkpoint`].
//!
//! # Example
//!
//! ```no_run
//! # async fn run(runtime: std::sync::Arc<dyn muster_agent::runtime::Runtime>) -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use muster_agent::{Agent, AgentConfig, ServerConnector};
//! use muster_model::time::SystemClock;
//! use tokio_util::sync::CancellationToken;
//!
//! let config = AgentConfig::new("node-1", Some("/var/lib/muster/agent".into()));
//! let clock = SystemClock::shared();
//! let connector = ServerConnector::new(
//!     vec!["192.0.2.1:7443".parse()?],
//!     Some("muster1.id.secret.hash".into()),
//!     "node-1",
//!     &config.machine.machine_id,
//!     "/var/lib/muster/agent".as_ref(),
//!     clock.clone(),
//! );
//! Agent::run(config, runtime, clock, Arc::new(connector), CancellationToken::new()).await?;
//! # Ok(())
//! # }
//! ```

pub mod admit;
mod agent;
pub mod checkpoint;
pub mod config;
mod disk;
pub mod downward;
pub mod env;
mod events;
pub mod facts;
pub mod gc;
mod identity;
mod image_puller;
pub mod images;
mod logs;
pub mod machine;
pub mod moment;
pub mod network_files;
pub mod node;
mod node_rounds;
mod object_store;
pub mod objects;
mod outbox;
mod pods;
pub mod probe;
mod relist;
pub mod runtime;
mod security;
mod session;
mod shared;
pub mod spec;
pub mod status;
#[cfg(test)]
mod testing;
mod tunnel;
pub mod volume;
pub mod waiting;
pub mod worker;

pub use agent::{Agent, AgentError};
pub use config::{AgentConfig, ConfigError, Pace};
pub use disk::DiskWork;
pub use facts::Timing;
pub use identity::{Connect, DialError, ServerConnector};
pub use machine::Machine;
pub use muster_model::resources::Amounts;
