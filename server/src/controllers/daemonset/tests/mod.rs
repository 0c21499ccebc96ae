//! The scenarios that need the driver, against the real registry over a memory store.

mod claiming;
mod cluster;
mod creating;
mod explaining;
mod history;
mod random;
mod waking;
