//! The scenarios of spec/daemonset.md 18 that can be decided without a server, played in a small world
//! ([`world::World`]); every sync in it also checks that the incremental answer equals the one from scratch.

mod claiming;
mod creating;
mod placement;
mod rolling;
mod world;
