//! One command, one file.

pub(crate) mod apply;
pub(crate) mod completion;
pub(crate) mod cordon;
pub(crate) mod delete;
pub(crate) mod describe;
pub(crate) mod diff;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod label;
pub(crate) mod logs;
pub(crate) mod rollout;
pub(crate) mod taint;
pub(crate) mod token;
pub(crate) mod version;
