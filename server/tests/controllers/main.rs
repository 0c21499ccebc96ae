//! What the controllers promise, over a real registry and the memory store, in time that the tests own.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "tests")]

mod admission;
mod deletion;
mod events;
mod machines;
mod namespaces;
mod nodes;
mod world;
