//! What a person or a script sees.

pub(crate) mod describe;
pub(crate) mod document;
pub(crate) mod jsonpath;
pub(crate) mod paint;
pub(crate) mod structured;
pub(crate) mod table;
pub(crate) mod yaml;
