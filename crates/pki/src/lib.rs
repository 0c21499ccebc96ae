//! The cluster's own public key infrastructure: one CA, the certificates it signs, join tokens, and kubeconfig
//! text. Works on bytes: no network, no files, and no clock (the time is an argument).
//!
//! ```text
//! server, first start   CertificateAuthority::generate -> ca.crt, ca.key (kept by the caller)
//!                       issue_server -> the TLS certificate it listens with
//! operator              JoinToken::generate(ca.hash()) -> text to paste on a node
//!                       issue_client -> kubeconfig::write -> what kubectl and muster read
//! node, joining         JoinToken::parse -> trusts the server whose CA has this hash
//!                       make_csr -> sent to the server -> sign_node_csr -> certificate of system:node:NAME
//! server, each request  peer_identity(the client's certificate) -> user and groups
//! ```
//!
//! ```
//! use muster_pki::{CertificateAuthority, issue, peer_identity, pem};
//! let now = "2026-01-31T10:00:00Z".parse().unwrap();
//! let ca = CertificateAuthority::generate("lab", now)?;
//! let (csr, _key) = issue::make_csr()?;
//! let certificate = issue::sign_node_csr(&ca, &csr, "pi-3", now, issue::NODE_VALIDITY)?;
//! let peer = peer_identity(&pem::certificates(&certificate)?[0])?;
//! assert_eq!(peer.user, "system:node:pi-3");
//! assert_eq!(peer.node_name(), Some("pi-3"));
//! # Ok::<(), muster_pki::PkiError>(())
//! ```

pub mod ca;
mod der;
pub mod identity;
pub mod issue;
pub mod kubeconfig;
pub mod pem;
pub mod token;

pub use ca::{CaHash, CertificateAuthority};
pub use identity::{PeerIdentity, peer_identity, renew_at};
pub use issue::Issued;
pub use kubeconfig::Kubeconfig;
pub use token::JoinToken;

/// Why a certificate could not be made, read or signed. Carries no secret.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// Text that should hold a certificate, key or request in PEM form does not.
    #[error("not a {what} in PEM form: {why}")]
    Pem {
        /// What was expected: `certificate`, `private key`, `certificate request`.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The DER bytes inside are not what they claim to be.
    #[error("could not read the {what}: {why}")]
    Der {
        /// What was read.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A certificate given as CA may not sign.
    #[error("the certificate of {subject} is no CA certificate")]
    NotACa {
        /// Its subject.
        subject: String,
    },
    /// A CA's key does not belong to its certificate.
    #[error("the private key does not belong to the CA certificate")]
    KeyMismatch,
    /// The signature of a request does not verify: whoever sent it does not hold the key.
    #[error("the signature of the certificate request does not verify")]
    BadRequestSignature,
    /// A name to be put into a certificate is malformed.
    #[error("{name:?} cannot be the {what} of a certificate: {why}")]
    InvalidName {
        /// What it was to be: `user`, `group`, `node name`, `server name`.
        what: &'static str,
        /// The name.
        name: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// A certificate names nobody.
    #[error("the certificate has no common name, so it says of no user")]
    NoUser,
    /// The cryptography library refused.
    #[error("could not {step}")]
    Crypto {
        /// What was tried.
        step: &'static str,
        /// Its reason.
        #[source]
        source: rcgen::Error,
    },
}

impl PkiError {
    pub(crate) fn crypto(step: &'static str) -> impl FnOnce(rcgen::Error) -> Self {
        move |source| Self::Crypto { step, source }
    }
}
