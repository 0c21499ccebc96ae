//! Who this node is: its credentials, and the file by which a renamed or reused host is noticed.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use muster_client::join::{JoinError, JoinOptions, NodeCredentials, join, renew};
use muster_client::{ConnectError, ConnectOptions, Connection, Dial, ServerAddress};
use muster_model::time::SharedClock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::checkpoint;

/// How the agent reaches its server. The agent calls it for each new connection.
pub trait Connect: Send + Sync + 'static {
    /// A connection that carries the node's identity.
    fn connect(&self) -> BoxFuture<'_, Result<Connection, DialError>>;

    /// Looks after the credentials while a connection lives on: called from time to time. By default there is nothing to
    /// look after.
    fn maintain<'a>(&'a self, _connection: &'a Connection) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl<F> Connect for F
where
    F: Fn() -> BoxFuture<'static, Result<Connection, DialError>> + Send + Sync + 'static,
{
    fn connect(&self) -> BoxFuture<'_, Result<Connection, DialError>> {
        self()
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No way to the server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The node could not join.
    #[error("cannot join: {0}")]
    Join(#[from] JoinError),
    /// The token is none.
    #[error("the join token cannot be used: {0}")]
    Token(String),
    /// Neither credentials nor a token.
    #[error("this node has no credentials yet; start it with a join token")]
    NoToken,
    /// Credentials could not be kept.
    #[error("cannot keep the node's credentials in {path}: {source}")]
    Keep {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The usual [`Connect`]: credentials from the state directory, or a join with a token the first time; several addresses
/// are tried in turn. Credentials are renewed in good time.
pub struct ServerConnector {
    addresses: Vec<ServerAddress>,
    token: Option<String>,
    node_name: String,
    machine_id: String,
    directory: PathBuf,
    clock: SharedClock,
    dial: Option<Arc<dyn Dial>>,
    next: Mutex<usize>,
}

impl ServerConnector {
    /// For this node; credentials live in `state_dir/credentials`.
    pub fn new(
        addresses: Vec<ServerAddress>,
        token: Option<String>,
        node_name: &str,
        machine_id: &str,
        state_dir: &Path,
        clock: SharedClock,
    ) -> Self {
        Self {
            addresses,
            token,
            node_name: node_name.to_owned(),
            machine_id: machine_id.to_owned(),
            directory: state_dir.join("credentials"),
            clock,
            dial: None,
            next: Mutex::new(0),
        }
    }

    /// Reaches every address through this dialer.
    #[must_use]
    pub fn with_dialer(mut self, dial: Arc<dyn Dial>) -> Self {
        self.dial = Some(dial);
        self
    }

    async fn open(&self) -> Result<Connection, DialError> {
        let address = {
            let mut next = self.next.lock();
            let index = *next % self.addresses.len().max(1);
            *next = index + 1;
            self.addresses.get(index).cloned()
        };
        let Some(address) = address else {
            return Err(DialError::NoToken);
        };
        let credentials = match self.load() {
            Some(credentials) => credentials,
            None => {
                let credentials = self.join(&address).await?;
                self.keep(&credentials)?;
                credentials
            }
        };
        let connection = Connection::open(&self.options(&address, &credentials)).await?;
        // The address works: it is the first choice the next time.
        *self.next.lock() = self
            .addresses
            .iter()
            .position(|a| *a == address)
            .unwrap_or(0);
        if let Some(fresh) = self.renewed(&connection, &credentials).await? {
            return Ok(Connection::open(&self.options(&address, &fresh)).await?);
        }
        Ok(connection)
    }

    /// Fresh credentials, kept, when the present ones are old and the server gives some.
    async fn renewed(
        &self,
        connection: &Connection,
        credentials: &NodeCredentials,
    ) -> Result<Option<NodeCredentials>, DialError> {
        if !self.is_old(credentials) {
            return Ok(None);
        }
        match renew(connection, &self.node_name).await {
            Ok(fresh) => {
                self.keep(&fresh)?;
                tracing::info!(node = %self.node_name, "the certificate was renewed");
                Ok(Some(fresh))
            }
            Err(error) => {
                tracing::warn!(node = %self.node_name, %error, "the certificate could not be renewed");
                Ok(None)
            }
        }
    }

    fn options(&self, address: &ServerAddress, credentials: &NodeCredentials) -> ConnectOptions {
        let options = ConnectOptions::new(address.clone(), credentials.trust())
            .with_identity(credentials.identity());
        self.dialed(options)
    }

    fn dialed(&self, options: ConnectOptions) -> ConnectOptions {
        let options = options.with_clock(self.clock.clone());
        match &self.dial {
            Some(dial) => options.with_dialer(Arc::clone(dial)),
            None => options,
        }
    }

    async fn join(&self, address: &ServerAddress) -> Result<NodeCredentials, DialError> {
        let token = self.token.as_deref().ok_or(DialError::NoToken)?;
        let mut options =
            JoinOptions::new(address.clone(), token, &self.node_name, &self.machine_id)
                .map_err(|error| DialError::Token(error.to_string()))?;
        options.connect = self.dialed(options.connect);
        let credentials = join(&options).await?;
        tracing::info!(node = %self.node_name, server = %address, "joined");
        Ok(credentials)
    }

    /// Past two thirds of the certificate's life.
    fn is_old(&self, credentials: &NodeCredentials) -> bool {
        muster_pki::identity::identity_of_pem(&credentials.cert_pem).is_ok_and(|peer| {
            self.clock.now() >= muster_pki::identity::renew_at(peer.issued_at, peer.not_after, 0.0)
        })
    }

    fn load(&self) -> Option<NodeCredentials> {
        let read = |name: &str| {
            fs::read_to_string(self.directory.join(name))
                .ok()
                .filter(|text| !text.is_empty())
        };
        Some(NodeCredentials {
            cert_pem: read("node.crt")?,
            key_pem: read("node.key")?,
            ca_pem: read("ca.crt")?,
        })
    }

    fn keep(&self, credentials: &NodeCredentials) -> Result<(), DialError> {
        // The certificate comes last: without it the set is not there.
        let parts = [
            ("ca.crt", &credentials.ca_pem),
            ("node.key", &credentials.key_pem),
            ("node.crt", &credentials.cert_pem),
        ];
        let keep = |name: &str, text: &str| -> io::Result<()> {
            let tmp = self.directory.join(format!("{name}.tmp"));
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&tmp)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&tmp, self.directory.join(name))
        };
        let all = || -> io::Result<()> {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&self.directory)?;
            parts.iter().try_for_each(|(name, text)| keep(name, text))
        };
        all().map_err(|source| DialError::Keep {
            path: self.directory.clone(),
            source,
        })
    }
}

impl Connect for ServerConnector {
    fn maintain<'a>(&'a self, connection: &'a Connection) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(credentials) = self.load() else {
                return;
            };
            // The connection at hand goes on with the old certificate; the next one takes the new one.
            if let Err(error) = self.renewed(connection, &credentials).await {
                tracing::warn!(node = %self.node_name, %error, "the renewed certificate could not be kept");
            }
        })
    }

    fn connect(&self) -> BoxFuture<'_, Result<Connection, DialError>> {
        Box::pin(async move {
            let limit = Duration::from_secs(60);
            match tokio::time::timeout(limit, self.open()).await {
                Ok(opened) => opened,
                Err(_) => Err(DialError::Token(
                    "the server did not answer within 60 s".into(),
                )),
            }
        })
    }
}

/// `identity.json`: what this state directory belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct IdentityFile {
    /// The node's name.
    pub(crate) node_name: String,
    /// The machine's id when it was first used.
    pub(crate) machine_id: String,
    /// Uid of the Node object.
    #[serde(default)]
    pub(crate) node_uid: String,
    /// Identity of the server's data.
    #[serde(default)]
    pub(crate) cluster_id: String,
    /// The boot at the last start.
    #[serde(default)]
    pub(crate) boot_id: String,
}

impl IdentityFile {
    /// Of a state directory; `None` the first time, or when it cannot be trusted.
    pub(crate) fn load(state_dir: &Path) -> Option<Self> {
        checkpoint::read(&state_dir.join("identity.json")).ok()
    }

    /// Writes it.
    pub(crate) fn store(&self, state_dir: &Path) -> io::Result<()> {
        checkpoint::write(&state_dir.join("identity.json"), self)
    }
}
