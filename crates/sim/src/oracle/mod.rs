//! What must hold, written from the user's book and from nothing else: none of it calls the controller's own code.

pub(crate) mod blast;
pub(crate) mod budget;
pub(crate) mod containers;
pub(crate) mod fit;
pub(crate) mod pods;
pub(crate) mod rest;
