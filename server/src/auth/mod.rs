//! Who asks, and what they may do.

mod caller;
pub(crate) mod node;

pub use caller::{
    AUTHENTICATED, Caller, MASTERS, NODE_USER_PREFIX, NODES, UNAUTHENTICATED, VIEWERS,
};
