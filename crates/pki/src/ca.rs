//! The cluster's certificate authority: made once, then loaded from what the caller kept.

use crate::{PkiError, issue, pem};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData,
};
use rustls_pki_types::CertificateDer;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use x509_parser::prelude::{FromDer, X509Certificate};

/// How long a CA lives: ten years, as the tools around Kubernetes have it.
pub const CA_VALIDITY: Duration = Duration::from_secs(3650 * 86_400);

/// A CA with its key: signs servers, people and nodes. P-256.
pub struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
    certificate: CertificateDer<'static>,
    key_pem: SecretString,
    not_after: Timestamp,
}

/// SHA-256 over a CA certificate's DER bytes, written as 64 lower-case hex digits. What a join token carries, so
/// that a node knows its server before it trusts anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CaHash([u8; 32]);

/// The text is no [`CaHash`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaHashError {
    /// Too short or too long.
    #[error("the CA hash has {0} characters, not 64{hint}", hint = if *.0 < 64 { ": it is cut short" } else { "" })]
    Length(usize),
    /// A character that is no hex digit.
    #[error("the CA hash has {0:?} in it, which is no hex digit")]
    NotHex(char),
}

impl CertificateAuthority {
    /// A new CA for a cluster of this name, valid from a little before `now` for [`CA_VALIDITY`].
    pub fn generate(cluster_name: &str, now: Timestamp) -> Result<Self, PkiError> {
        let key = KeyPair::generate().map_err(PkiError::crypto("make the CA's key"))?;
        let mut params = CertificateParams::default();
        issue::set_validity(&mut params, now, CA_VALIDITY);
        issue::set_serial(&mut params);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        params.distinguished_name = DistinguishedName::new();
        // The time keeps the names of a rebuilt cluster's CAs apart; TLS libraries look issuers up by name.
        params.distinguished_name.push(
            DnType::CommonName,
            format!("{cluster_name}-ca@{}", now.as_second()),
        );
        let certificate = params
            .self_signed(&key)
            .map_err(PkiError::crypto("sign the CA certificate"))?;
        Self::from_pem(&certificate.pem(), &SecretString::from(key.serialize_pem()))
    }

    /// The CA of these PEM texts. The key must be PKCS #8 (`BEGIN PRIVATE KEY`) and belong to the certificate, and
    /// the certificate must be allowed to sign. An expired CA loads: see [`Self::not_after`].
    pub fn from_pem(certificate_pem: &str, key_pem: &SecretString) -> Result<Self, PkiError> {
        let certificate = pem::certificates(certificate_pem)?.swap_remove(0);
        // Read as PEM first: rcgen's own error for a malformed block is vaguer.
        pem::private_key(key_pem.expose_secret())?;
        let key = KeyPair::from_pem(key_pem.expose_secret()).map_err(|_| PkiError::Der {
            what: "CA private key",
            why: "not a PKCS #8 key of a kind that is supported (ECDSA P-256 or P-384, Ed25519)"
                .to_owned(),
        })?;
        let (_, parsed) =
            X509Certificate::from_der(&certificate).map_err(|error| PkiError::Der {
                what: "CA certificate",
                why: error.to_string(),
            })?;
        if !parsed.is_ca() {
            return Err(PkiError::NotACa {
                subject: parsed.subject().to_string(),
            });
        }
        if parsed.public_key().subject_public_key.data.as_ref() != key.der_bytes() {
            return Err(PkiError::KeyMismatch);
        }
        let not_after = crate::identity::timestamp(parsed.validity().not_after.timestamp());
        let issuer =
            Issuer::from_ca_cert_der(&certificate, key).map_err(PkiError::crypto("load the CA"))?;
        Ok(Self {
            issuer,
            certificate_pem: certificate_pem.to_owned(),
            certificate,
            key_pem: key_pem.clone(),
            not_after,
        })
    }

    /// The certificate, for everybody.
    pub fn cert_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The certificate's bytes: the root that servers and clients trust.
    pub fn cert_der(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The private key, to be kept where only the server can read it.
    pub fn key_pem(&self) -> SecretString {
        self.key_pem.clone()
    }

    /// What join tokens carry.
    pub fn hash(&self) -> CaHash {
        CaHash::of(&self.certificate)
    }

    /// When it expires.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    pub(crate) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority")
            .field("hash", &self.hash())
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl CaHash {
    /// The hash of this certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for CaHash {
    type Err = CaHashError;

    fn from_str(text: &str) -> Result<Self, CaHashError> {
        if let Some(odd) = text.chars().find(|c| !c.is_ascii_hexdigit()) {
            return Err(CaHashError::NotHex(odd));
        }
        if text.len() != 64 {
            return Err(CaHashError::Length(text.len()));
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digit = |c: u8| char::from(c).to_digit(16).unwrap_or_default() as u8;
            *byte = digit(pair[0]) << 4 | digit(pair[1]);
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-31T10:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_ca_loads_from_what_it_wrote() {
        let ca = CertificateAuthority::generate("lab", now()).unwrap();
        let again = CertificateAuthority::from_pem(ca.cert_pem(), &ca.key_pem()).unwrap();
        assert_eq!(again.hash(), ca.hash());
        assert_eq!(ca.not_after(), "2036-01-29T10:00:00Z".parse().unwrap());
    }

    #[test]
    fn two_cas_differ() {
        let (a, b) = (
            CertificateAuthority::generate("lab", now()).unwrap(),
            CertificateAuthority::generate("lab", now()).unwrap(),
        );
        assert_ne!(a.hash(), b.hash());
        let wrong = CertificateAuthority::from_pem(a.cert_pem(), &b.key_pem()).unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "the private key does not belong to the CA certificate"
        );
    }

    #[test]
    fn a_server_certificate_is_no_ca() {
        let ca = CertificateAuthority::generate("lab", now()).unwrap();
        let server = issue::issue_server(&ca, &[], now()).unwrap();
        let wrong = CertificateAuthority::from_pem(&server.cert_pem, &server.key_pem).unwrap_err();
        assert!(matches!(wrong, PkiError::NotACa { .. }), "{wrong}");
    }

    #[test]
    fn the_hash_is_the_sha256_of_the_der_and_survives_text() {
        let ca = CertificateAuthority::generate("lab", now()).unwrap();
        let text = ca.hash().to_string();
        assert_eq!(text.len(), 64);
        assert_eq!(text.parse::<CaHash>().unwrap(), ca.hash());
        assert_eq!(
            text[1..].parse::<CaHash>().unwrap_err().to_string(),
            "the CA hash has 63 characters, not 64: it is cut short"
        );
        assert_eq!(
            "xyz".parse::<CaHash>().unwrap_err(),
            CaHashError::NotHex('x')
        );
    }

    #[test]
    fn debug_does_not_show_the_key() {
        let ca = CertificateAuthority::generate("lab", now()).unwrap();
        assert!(!format!("{ca:?}").contains("PRIVATE"));
    }
}
