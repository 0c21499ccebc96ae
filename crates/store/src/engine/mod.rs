//! The engines: one file each. They differ in what survives.

pub(crate) mod memory;
pub(crate) mod sled;
pub(crate) mod sled_files;
