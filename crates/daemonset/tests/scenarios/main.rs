//! The scenarios of spec/daemonset.md 18 that can be decided without a server, played in a small world
//! ([`world::World`]); every sync in it also checks that the incremental answer equals the one from scratch.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod cases;
mod claiming;
mod creating;
mod failing;
mod golden;
mod holding;
mod judging;
mod offline;
mod outage;
mod placement;
mod preview;
mod properties;
mod revisions;
mod rolling;
mod status;
mod surge;
mod world;
