//! Trading a join token for a node's certificate, and that certificate for a fresh one.

use std::fmt;

use muster_pki::token::TokenError;
use muster_pki::{JoinToken, issue};
use muster_proto::v1;
use secrecy::{ExposeSecret, SecretString};

use crate::address::ServerAddress;
use crate::connect::{ConnectError, ConnectOptions};
use crate::connection::Connection;
use crate::error::ClientError;
use crate::tls::{Identity, Trust};

/// What a join needs.
#[derive(Debug, Clone)]
pub struct JoinOptions {
    /// Where the server is and how it is recognised: by the CA hash of the token. No identity.
    pub connect: ConnectOptions,
    /// The node's name.
    pub node_name: String,
    /// What tells this machine from another of the same name.
    pub machine_id: String,
    bootstrap: SecretString,
}

impl JoinOptions {
    /// Of a whole token (`muster1.<id>.<secret>.<ca hash>`).
    pub fn new(
        address: ServerAddress,
        token: &str,
        node_name: &str,
        machine_id: &str,
    ) -> Result<Self, TokenError> {
        let token = JoinToken::parse(token)?;
        Ok(Self {
            connect: ConnectOptions::new(address, Trust::CaHash(token.ca_hash())),
            node_name: node_name.to_owned(),
            machine_id: machine_id.to_owned(),
            bootstrap: token.bootstrap(),
        })
    }
}

/// A node's own certificate, key and the CA it trusts from now on. All PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeCredentials {
    /// The certificate for `system:node:NAME`.
    pub cert_pem: String,
    /// Its private key; made here, never sent anywhere.
    pub key_pem: String,
    /// The server's CA.
    pub ca_pem: String,
}

impl fmt::Debug for NodeCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeCredentials")
            .field("cert_pem", &self.cert_pem)
            .finish_non_exhaustive()
    }
}

impl NodeCredentials {
    /// For [`ConnectOptions::with_identity`].
    pub fn identity(&self) -> Identity {
        Identity {
            cert_pem: self.cert_pem.clone(),
            key_pem: self.key_pem.clone(),
        }
    }

    /// For [`ConnectOptions::new`].
    pub fn trust(&self) -> Trust {
        Trust::Ca(self.ca_pem.clone())
    }
}

/// Why there is no certificate.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JoinError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server does not accept the token.
    #[error(
        "the server does not accept the join token ({0}): make a new one with `muster token create` on the server"
    )]
    Token(String),
    /// The node name is taken by another machine, or not allowed.
    #[error("the server does not let this machine join as {node:?}: {reason}")]
    Refused {
        /// The name asked for.
        node: String,
        /// The server's words.
        reason: String,
    },
    /// Any other trouble with the call.
    #[error(transparent)]
    Call(ClientError),
    /// The key or the request could not be made.
    #[error("cannot make a certificate request for node {node:?}: {reason}")]
    Request {
        /// The name asked for.
        node: String,
        /// Why.
        reason: String,
    },
}

impl JoinError {
    /// Whether to try again later with the same token.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_retryable(),
            Self::Call(error) => error.is_retryable(),
            Self::Token(_) | Self::Refused { .. } | Self::Request { .. } => false,
        }
    }
}

/// Joins: makes a key and a request, and has it signed for the token.
pub async fn join(options: &JoinOptions) -> Result<NodeCredentials, JoinError> {
    let (csr_pem, key_pem) = certificate_request(&options.node_name)?;
    let connection = Connection::open(&options.connect).await?;
    let message = v1::JoinRequest {
        token: options.bootstrap.expose_secret().to_owned(),
        node_name: options.node_name.clone(),
        csr_pem,
        machine_id: options.machine_id.clone(),
    };
    let request = connection.request(message);
    match connection.nodes().join(request).await {
        Ok(reply) => Ok(credentials(reply.into_inner(), key_pem)),
        Err(status) => Err(refusal(connection.fault(&status), &options.node_name)),
    }
}

/// A fresh certificate with a fresh key for the node whose identity `connection` carries.
pub async fn renew(connection: &Connection, node_name: &str) -> Result<NodeCredentials, JoinError> {
    let (csr_pem, key_pem) = certificate_request(node_name)?;
    let request = connection.request(v1::RenewRequest { csr_pem });
    match connection.nodes().renew(request).await {
        Ok(reply) => Ok(credentials(reply.into_inner(), key_pem)),
        Err(status) => Err(refusal(connection.fault(&status), node_name)),
    }
}

fn credentials(reply: v1::JoinReply, key_pem: String) -> NodeCredentials {
    NodeCredentials {
        cert_pem: reply.certificate_pem,
        key_pem,
        ca_pem: reply.ca_pem,
    }
}

fn refusal(error: ClientError, node: &str) -> JoinError {
    match error {
        ClientError::Connect(error) => JoinError::Connect(error),
        ClientError::Api(failure) if failure.code == 401 => JoinError::Token(failure.message),
        ClientError::Api(failure) if matches!(failure.code, 400 | 403 | 409 | 422) => {
            JoinError::Refused {
                node: node.to_owned(),
                reason: failure.message,
            }
        }
        other => JoinError::Call(other),
    }
}

/// A key and a signing request, both PEM.
fn certificate_request(node: &str) -> Result<(String, String), JoinError> {
    match issue::make_csr() {
        Ok((csr, key)) => Ok((csr, key.expose_secret().to_owned())),
        Err(error) => Err(JoinError::Request {
            node: node.to_owned(),
            reason: error.to_string(),
        }),
    }
}
