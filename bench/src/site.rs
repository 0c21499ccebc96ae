//! Where a benchmark takes place: a directory with a CA, a server over it, and ways to reach that.

use std::ffi::OsString;
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

    /// Starts an agent over Docker in a process of its own.
    pub(crate) async fn start_agent(&self, address: &str, node: &str) -> anyhow::Result<Part> {
        let arguments = ["agent", "--server", address, "--node", node, "--dir"];
        let mut arguments: Vec<OsString> = arguments.map(OsString::from).to_vec();
        arguments.push(self.directory.as_os_str().to_owned());
        let (agent, _) = Part::start(&arguments).await?;
        Ok(agent)
    }

    /// Starts `muster server` over this directory; answers its address.
    pub(crate) async fn start_muster_server(
        &self,
        muster: &Path,
    ) -> anyhow::Result<(Part, String)> {
        let directory = self.directory.as_os_str().to_owned();
        let arguments = [
            "server",
            "--listen",
            "127.0.0.1:0",
            "--cluster-name",
            "bench",
        ];
        let mut arguments: Vec<OsString> = arguments.map(OsString::from).to_vec();
        arguments.extend(["--data-dir".into(), directory]);
        Part::start_server(muster, &arguments).await
    }

    /// Starts `muster agent` for a node that has joined already.
    pub(crate) fn start_muster_agent(
        &self,
        muster: &Path,
        address: &str,
        node: &str,
    ) -> anyhow::Result<Part> {
        let state = self.directory.join("agent");
        let credentials = state.join("credentials");
        std::fs::create_dir_all(&credentials)?;
        let identity = self
            .node(address, node)?
            .identity
            .context("a node has an identity")?;
        std::fs::write(credentials.join("ca.crt"), self.ca.cert_pem())?;
        std::fs::write(credentials.join("node.key"), identity.key_pem)?;
        std::fs::write(credentials.join("node.crt"), identity.cert_pem)?;
        let arguments = [
            "agent",
            "--server",
            address,
            "--node-name",
            node,
            "--node-ip",
            "127.0.0.1",
        ];
        let mut arguments: Vec<OsString> = arguments.map(OsString::from).to_vec();
        arguments.extend(["--state-dir".into(), state.into_os_string()]);
        Part::start_agent(muster, &arguments)
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
