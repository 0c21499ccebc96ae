//! What a server must be told.

use std::sync::Arc;

use muster_pki::CertificateAuthority;

use crate::controllers::Timing;
use crate::listen::Limits;

/// How to run a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The cluster's CA: signs the server, nodes and people.
    pub ca: Arc<CertificateAuthority>,
    /// DNS names and IP addresses under which clients reach the server, for its certificate. `muster-server`,
    /// `localhost` and loopback are always in it.
    pub names: Vec<String>,
    /// Limits of the accept loop.
    pub limits: Limits,
    /// Numbers of the controllers.
    pub timing: Timing,
    /// Whether to run the controllers. Off in tests of the API alone.
    pub controllers: bool,
    /// Seed of uids and generated names; `None`: from the operating system.
    pub seed: Option<u64>,
}

impl Config {
    /// A server of this CA with the usual numbers.
    pub fn new(ca: Arc<CertificateAuthority>) -> Self {
        Self {
            ca,
            names: Vec::new(),
            limits: Limits::default(),
            timing: Timing::default(),
            controllers: true,
            seed: None,
        }
    }
}
