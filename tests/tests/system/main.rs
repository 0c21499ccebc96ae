//! The whole system in one process: a real server, real agents over TLS, containers in memory.
//!
//! | module | about |
//! |---|---|
//! | `basics` | a cluster comes up: over TCP and in memory with tokio's paused clock |
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod basics;
