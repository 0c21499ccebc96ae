//! The demonstration: a whole cluster on this machine, and a story told with the real commands.

pub(crate) mod nodes;
pub(crate) mod stage;
pub(crate) mod story;
