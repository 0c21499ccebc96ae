//! Who asks ([`Caller`], from a client certificate), and what they may do ([`authorize()`]).

pub(crate) mod authenticate;
mod authorize;
mod caller;
pub(crate) mod node;
mod pod_references;
pub mod removed;

pub use authenticate::from_peer_certificate;
pub use authorize::{Ask, Verb, authorize};
pub use caller::{
    AUTHENTICATED, Caller, MASTERS, NODE_USER_PREFIX, NODES, UNAUTHENTICATED, VIEWERS,
};
