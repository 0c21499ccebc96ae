//! The API server and its controllers, as a library.
//!
//! ```text
//!  agents, people          one TLS port                 memory                      disk
//! ───────────────   ┌───────────────────────┐   ┌────────────────────┐   ┌──────────────────────┐
//!  gRPC, REST ────► │ listen → auth → grpc  │ ─►│ registry → admit   │ ─►│ store (revisions,    │
//!                   │                (rest) │   │     ▲              │   │        events)       │
//!                   └───────────────────────┘   │   cache ◄──────────┼───┤                      │
//!                                               │     │              │   └──────────────────────┘
//!                                               │ controllers, feeds │
//!                                               └────────────────────┘
//! ```
//!
//! [`Server::start`] puts it together; [`registry::Registry`] is what everything else goes through;
//! [`cache::Cache`] is where reads and watches come from; [`status::ApiError`] is every 'no'.

pub mod admit;
mod agents;
pub mod auth;
pub mod cache;
mod checks;
mod config;
pub mod controllers;
mod daemons;
pub mod data_dir;
pub mod events;
mod first_start;
pub mod grpc;
mod health;
pub mod heartbeats;
mod leases;
pub mod listen;
pub mod machines;
pub mod metrics;
mod node_feed;
pub mod registry;
mod server;
pub mod status;
pub mod tls;
pub mod tokens;
mod tunnel;

pub use config::Config;
pub use server::{RunningServer, Server, StartError};
