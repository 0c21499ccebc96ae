//! The API server and its controllers, as a library.

pub mod admit;
pub mod auth;
pub mod cache;
pub mod controllers;
pub mod events;
pub mod heartbeats;
pub mod listen;
pub mod registry;
pub mod status;
pub mod tls;
