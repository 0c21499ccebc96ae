//! The API server and its controllers, as a library.

pub mod admit;
mod agents;
pub mod auth;
pub mod cache;
pub mod controllers;
pub mod events;
pub mod grpc;
mod health;
pub mod heartbeats;
mod leases;
pub mod listen;
pub mod metrics;
mod node_feed;
pub mod registry;
pub mod status;
pub mod tls;
pub mod tokens;
mod tunnel;
