//! Where a benchmark takes place: a directory with a CA, a server over it, and ways to reach that.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use muster_client::{ConnectOptions, Connection, Identity, Trust};
use muster_model::time::{SharedClock, SystemClock};
use muster_pki::{CertificateAuthority, issue};
use muster_server::data_dir::DataDir;
use secrecy::ExposeSecret;
use serde::Serialize;

use crate::part::Part;

/// Certificates are good for longer than any benchmark.
const VALIDITY: Duration = Duration::from_secs(86_400);

/// Where the server keeps its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreKind {
    /// On disk, as servers do.
    Sled,
    /// Nowhere: what remains is not the disk's time.
    Memory,
}

/// The CA of a directory and what it can sign.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) directory: PathBuf,
    pub(crate) ca: Arc<CertificateAuthority>,
    pub(crate) clock: SharedClock,
}

impl Site {
    /// Of this directory; the CA is made the first time.
    pub(crate) fn open(directory: &Path) -> anyhow::Result<Self> {
        let clock = SystemClock::shared();
        let ca = DataDir::open(directory)?.ca("bench", clock.now())?;
        Ok(Self {
            directory: directory.to_owned(),
            ca: Arc::new(ca),
            clock,
        })
    }

    /// Starts a server over this directory in a process of its own; answers its address.
    pub(crate) async fn start_server(&self, store: StoreKind) -> anyhow::Result<(Part, String)> {
        let store = match store {
            StoreKind::Sled => "sled",
            StoreKind::Memory => "memory",
        };
        let directory = self.directory.as_os_str().to_owned();
        Part::start(&[
            "server".into(),
            "--store".into(),
            store.into(),
            "--dir".into(),
            directory,
        ])
        .await
    }

    /// A connection that may do everything.
    pub(crate) async fn admin(&self, address: &str) -> anyhow::Result<Connection> {
        let options = self.options(address, "bench-admin", "system:masters")?;
        Connection::open(&options)
            .await
            .context("cannot reach the server")
    }

    /// How a node reaches its server.
    pub(crate) fn node(&self, address: &str, name: &str) -> anyhow::Result<ConnectOptions> {
        self.options(address, &format!("system:node:{name}"), "system:nodes")
    }

    fn options(&self, address: &str, user: &str, group: &str) -> anyhow::Result<ConnectOptions> {
        let groups = [group.to_owned()];
        let issued = issue::issue_client(&self.ca, user, &groups, self.clock.now(), VALIDITY)?;
        let trust = Trust::Ca(self.ca.cert_pem().to_owned());
        let identity = Identity {
            cert_pem: issued.cert_pem,
            key_pem: issued.key_pem.expose_secret().to_owned(),
        };
        Ok(ConnectOptions::new(address.parse()?, trust).with_identity(identity))
    }
}
