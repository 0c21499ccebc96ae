//! The node agent, as a library: pod workers, runtimes, volumes.

pub mod runtime;
