//! Who the server must be, and who we are: the TLS side of a connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use muster_model::time::SharedClock;
use muster_pki::CaHash;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

/// The name every server certificate carries. It is what is verified, so that any address will do: the
/// CA says who the server is, not the network.
pub const SERVER_NAME: &str = "muster-server";

/// A client certificate and its key.
#[derive(Clone)]
pub struct Identity {
    /// The certificate, with the chain behind it if there is one, as PEM.
    pub cert_pem: String,
    /// Its private key as PEM. Never printed.
    pub key_pem: String,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("cert_pem", &self.cert_pem)
            .finish_non_exhaustive()
    }
}

/// How the server is recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Its certificate is signed by this CA (PEM, one or more certificates).
    Ca(String),
    /// Its chain contains a CA certificate whose DER has this SHA-256. For joining, when the token is all
    /// that is known.
    CaHash(CaHash),
}

/// What is wrong with the certificates at hand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MaterialError {
    /// The CA text holds no certificate.
    #[error("the CA certificate cannot be read: {0}")]
    Ca(String),
    /// The client certificate cannot be read.
    #[error("the client certificate cannot be read: {0}")]
    Certificate(String),
    /// The client key cannot be read.
    #[error("the client key cannot be read: {0}")]
    Key(String),
    /// Certificate and key do not belong together, or are of an unknown kind.
    #[error("the client certificate and key cannot be used: {0}")]
    Unusable(String),
}

/// A clock, as the TLS library asks for it: certificates are judged by the same time as everything else.
struct ClockTime(SharedClock);

impl fmt::Debug for ClockTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClockTime")
    }
}

impl TimeProvider for ClockTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// The rustls configuration for a connection; certificates are judged at the time of `clock`.
pub fn client_config(
    trust: &Trust,
    identity: Option<&Identity>,
    clock: SharedClock,
) -> Result<ClientConfig, MaterialError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::Ca(pem) => {
            let roots = roots_of(certificates(pem).map_err(MaterialError::Ca)?)?;
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .map_err(|error| MaterialError::Ca(error.to_string()))?
        }
        Trust::CaHash(hash) => Arc::new(PinnedCa {
            hash: *hash,
            provider: Arc::clone(&provider),
        }),
    };
    let builder = ClientConfig::builder_with_details(provider, Arc::new(ClockTime(clock)))
        .with_safe_default_protocol_versions()
        .map_err(|error| MaterialError::Unusable(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain = certificates(&identity.cert_pem).map_err(MaterialError::Certificate)?;
            let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())
                .map_err(|error| MaterialError::Key(error.to_string()))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| MaterialError::Unusable(error.to_string()))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    if found.is_empty() {
        Err("no certificate in it".to_owned())
    } else {
        Ok(found)
    }
}

fn roots_of(certificates: Vec<CertificateDer<'static>>) -> Result<RootCertStore, MaterialError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots
            .add(certificate)
            .map_err(|error| MaterialError::Ca(error.to_string()))?;
    }
    Ok(roots)
}

/// Accepts a chain that leads to the one CA with this hash. The server must send its CA along.
#[derive(Debug)]
struct PinnedCa {
    hash: CaHash,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedCa {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let ca = intermediates
            .iter()
            .find(|certificate| CaHash::of(certificate) == self.hash)
            .ok_or(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer,
            ))?;
        let roots = roots_of(vec![ca.clone().into_owned()])
            .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
        // The whole check again with that CA as the only root: the hash alone proves nothing about the rest.
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
