//! The server's side of TLS: its certificate, which can be renewed while it runs, and whom it trusts.

use std::sync::Arc;
use std::time::Duration;

use muster_model::time::SharedClock;
use muster_pki::{CertificateAuthority, Issued, PkiError};
use parking_lot::RwLock;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::UnixTime;

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate or key cannot be read.
    #[error("could not read the server's certificate")]
    Pki(#[from] PkiError),
    /// The TLS library refused.
    #[error("could not set TLS up: {0}")]
    Library(String),
}

/// The certificate that new connections are shown. Cheap to clone.
#[derive(Clone)]
pub struct ServerIdentity {
    current: Arc<RwLock<Arc<CertifiedKey>>>,
}

impl ServerIdentity {
    /// Of this certificate.
    pub fn new(issued: &Issued) -> Result<Self, TlsError> {
        Ok(Self {
            current: Arc::new(RwLock::new(Arc::new(certified(issued)?))),
        })
    }

    /// Shows another certificate from the next connection on.
    pub fn replace(&self, issued: &Issued) -> Result<(), TlsError> {
        let next = Arc::new(certified(issued)?);
        *self.current.write() = next;
        Ok(())
    }
}

impl std::fmt::Debug for ServerIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerIdentity")
    }
}

impl ResolvesServerCert for ServerIdentity {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read()))
    }
}

/// The server's clock, as the TLS library asks for it: certificates are judged by the same time as the rest.
struct ClockTime(SharedClock);

impl std::fmt::Debug for ClockTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClockTime")
    }
}

impl TimeProvider for ClockTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

fn certified(issued: &Issued) -> Result<CertifiedKey, TlsError> {
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(issued.chain()?, issued.key()?, &provider)
        .map_err(|error| TlsError::Library(error.to_string()))
}

/// TLS 1.2 and 1.3; a client certificate is optional, and when it is shown it must be one of our CA.
pub fn server_config(
    ca: &CertificateAuthority,
    identity: ServerIdentity,
    clock: SharedClock,
) -> Result<Arc<ServerConfig>, TlsError> {
    let library = |error: &dyn std::fmt::Display| TlsError::Library(error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots
        .add(ca.cert_der().clone())
        .map_err(|error| library(&error))?;
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(|error| library(&error))?;
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(ClockTime(clock)))
        .with_safe_default_protocol_versions()
        .map_err(|error| library(&error))?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(identity));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
