//! Pod workers: one task per pod around a pure [`step`](step::step). The task looks, steps, acts and notes the outcome;
//! it decides nothing (spec/node-agent.md 8).

pub mod actions;
mod containers;
pub mod memory;
mod perform;
pub mod pre_pull;
mod probes;
pub mod restarts;
mod sandbox;
pub mod step;
mod task;
mod terminate;
pub mod view;
#[cfg(test)]
mod world;

pub(crate) use containers::resting;
pub(crate) use step::{Draft, Stage, stage};
pub(crate) use task::{WorkerEnd, WorkerHandle, WorkerStart};
