//! The client's side of a Muster server: connect, retry, typed calls, reflector, contexts.
//!
//! ```text
//! context   which server, which identity (flags, environment, kubeconfig files)
//!    |
//! connect   TLS over any connection a `Dial` makes; the server is known by its CA, not by its address
//!    |
//! Connection --- resources   get, list, watch, create, update, patch, delete of every kind
//!    |      \--- daemonsets, pods: the typed services, with the same identity
//!    |
//! reflector   list, then watch, into a local map
//! ```
//!
//! `join` trades a join token for a node's certificate; `backoff` spaces retries out.
//!
//! ```no_run
//! use muster_client::{ConnectOptions, Connection, ListOptions, Trust};
//! # async fn example(ca_pem: String) -> Result<(), Box<dyn std::error::Error>> {
//! let options = ConnectOptions::new("127.0.0.1:7443".parse()?, Trust::Ca(ca_pem));
//! let connection = Connection::open(&options).await?;
//! let nodes = connection.resources().list(&muster_model::kind::NODE, "", &ListOptions::default()).await?;
//! println!("{} nodes", nodes.items.len());
//! # Ok(()) }
//! ```

pub mod address;
pub mod backoff;
pub mod connect;
pub mod connection;
pub mod context;
pub mod dial;
pub mod error;
pub mod join;
pub mod reflector;
mod refusal;
pub mod resources;
pub mod tls;

pub use address::{AddressError, ServerAddress};
pub use backoff::Backoff;
pub use connect::{ConnectError, ConnectOptions, connect};
pub use connection::Connection;
pub use context::{ContextError, ContextFlags, Environment, Target};
pub use dial::{BoxedIo, Dial};
pub use error::{ApiFailure, Cause, ClientError};
pub use join::{JoinError, JoinOptions, NodeCredentials, join, renew};
pub use reflector::{Cache, Reflector};
pub use resources::{
    DeleteOptions, Deleted, FieldValidation, ListOptions, ObjectList, PatchType, Resources,
    WatchEvent, WatchEventType, WriteOptions, Written,
};
pub use tls::{Identity, SERVER_NAME, Trust};
