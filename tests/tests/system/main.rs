//! The whole system in one process: a real server, real agents over TLS, containers in memory.
//!
//! Most tests run with tokio's clock paused: minutes of back-off pass in no time, and a wait that is in vain ends as soon
//! as nothing moves any more.
//!
//! | module | about |
//! |---|---|
//! | `basics` | a cluster comes up: over TCP and in memory |
//! | `placement` | which nodes get a pod, and what is said of the others |
//! | `healing` | pods and nodes that go, fail and come back |
//! | `policies` | what an author is told of his DaemonSet, and what a policy refuses |
//! | `rolling` | updates, budgets, history |
//! | `outages` | servers and agents that die, networks that part |
//! | `access` | tokens, certificates, what a node may not see |
//! | `nodes` | registration, heartbeats, reboots |
//! | `logs` | logs through the tunnel |
//! | `churn` | random changes, and a recount at rest |
//! | `coverage` | nodes without an available pod, and since when |
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod access;
mod basics;
mod churn;
mod coverage;
mod healing;
mod logs;
mod nodes;
mod outages;
mod placement;
mod policies;
mod rolling;
mod support;
