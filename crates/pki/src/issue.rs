//! Certificates that the CA signs: its server's, people's, and nodes'.

use crate::identity::{NODE_USER_PREFIX, NODES_GROUP};
use crate::{CertificateAuthority, PkiError, der, pem};
use jiff::Timestamp;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType, SerialNumber, SubjectPublicKeyInfo,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::{ExposeSecret, SecretString};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

/// How long a server certificate lives. The server makes itself a new one at each start and before it expires.
pub const SERVER_VALIDITY: Duration = Duration::from_secs(365 * 86_400);
/// How long a node's certificate lives, by default; the agent renews it (see [`crate::identity::renew_at`]).
pub const NODE_VALIDITY: Duration = Duration::from_secs(365 * 86_400);
/// How long a person's certificate lives, by default.
pub const CLIENT_VALIDITY: Duration = Duration::from_secs(365 * 86_400);

/// The names every server certificate has, whatever the machine is called. Clients that reach the server by an address
/// the certificate does not name ask for `muster-server`.
pub const SERVER_NAMES: [&str; 4] = ["muster-server", "localhost", "127.0.0.1", "::1"];

/// Certificates begin this long before they are made: a machine without a clock of its own, which believes itself in some
/// year before this one until it has reached a time server, is not cut off. A new key is no safer for beginning late.
pub(crate) const BACKDATE: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Requests are small; a larger text is not read.
const MAX_REQUEST_BYTES: usize = 16 * 1024;

/// The longest user or group name; a node's user name has at most 265 bytes.
const MAX_NAME_BYTES: usize = 512;

/// The last second that both X.509 and [`Timestamp`] can say, late on 9999-12-30.
const LAST_SECOND: i64 = 253_402_207_200;

/// A certificate and its private key.
#[derive(Debug, Clone)]
pub struct Issued {
    /// The certificate; a server's has the CA's behind it.
    pub cert_pem: String,
    /// The key, PKCS #8.
    pub key_pem: SecretString,
}

impl Issued {
    /// The certificate chain as rustls takes it.
    pub fn chain(&self) -> Result<Vec<CertificateDer<'static>>, PkiError> {
        pem::certificates(&self.cert_pem)
    }

    /// The key as rustls takes it.
    pub fn key(&self) -> Result<PrivateKeyDer<'static>, PkiError> {
        pem::private_key(self.key_pem.expose_secret())
    }
}

/// A TLS server's certificate for these DNS names and IP addresses, and always for [`SERVER_NAMES`], with the CA's
/// own certificate behind it.
pub fn issue_server(
    ca: &CertificateAuthority,
    names: &[String],
    now: Timestamp,
) -> Result<Issued, PkiError> {
    let mut params = leaf(now, SERVER_VALIDITY, ExtendedKeyUsagePurpose::ServerAuth);
    let mut seen = BTreeSet::new();
    for name in names.iter().map(String::as_str).chain(SERVER_NAMES) {
        if seen.insert(name) {
            params.subject_alt_names.push(server_name(name)?);
        }
    }
    params
        .distinguished_name
        .push(DnType::CommonName, SERVER_NAMES[0]);
    let key = KeyPair::generate().map_err(PkiError::crypto("make a server key"))?;
    let certificate = params
        .signed_by(&key, ca.issuer())
        .map_err(PkiError::crypto("sign a server certificate"))?;
    Ok(Issued {
        // The CA is sent along: a joining node knows nothing but its hash, and looks for it in the chain.
        cert_pem: certificate.pem() + ca.cert_pem(),
        key_pem: SecretString::from(key.serialize_pem()),
    })
}

/// A person's (or a program's) client certificate: the user as common name, each group as an organization.
/// Not for nodes: they keep their keys to themselves and send a request.
pub fn issue_client(
    ca: &CertificateAuthority,
    user: &str,
    groups: &[String],
    now: Timestamp,
    validity: Duration,
) -> Result<Issued, PkiError> {
    let key = KeyPair::generate().map_err(PkiError::crypto("make a client key"))?;
    let cert_pem = sign_client(ca, &key, user, groups, now, validity)?;
    Ok(Issued {
        cert_pem,
        key_pem: SecretString::from(key.serialize_pem()),
    })
}

/// A node's request: a fresh key and proof of holding it. The subject is a placeholder: the server decides the name.
/// Returns the request's PEM text and the key's.
pub fn make_csr() -> Result<(String, SecretString), PkiError> {
    let key = KeyPair::generate().map_err(PkiError::crypto("make a node key"))?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "muster-agent");
    let request = params
        .serialize_request(&key)
        .map_err(PkiError::crypto("write a certificate request"))?;
    let text = request
        .pem()
        .map_err(PkiError::crypto("write a certificate request"))?;
    Ok((text, SecretString::from(key.serialize_pem())))
}

/// Signs a node's request. Only its key is used: the subject is `system:node:NAME` in `system:nodes`, the certificate
/// is good for client authentication and nothing else, whatever the request asks for. `node_name` is the name that
/// the caller has authenticated.
pub fn sign_node_csr(
    ca: &CertificateAuthority,
    csr_pem: &str,
    node_name: &str,
    now: Timestamp,
    validity: Duration,
) -> Result<String, PkiError> {
    check_node_name(node_name)?;
    if csr_pem.len() > MAX_REQUEST_BYTES {
        return Err(PkiError::Pem {
            what: "certificate request",
            why: format!("longer than {MAX_REQUEST_BYTES} bytes"),
        });
    }
    let request = pem::request(csr_pem)?;
    let unreadable = |why: String| PkiError::Der {
        what: "certificate request",
        why,
    };
    let (rest, parsed) = X509CertificationRequest::from_der(&request)
        .map_err(|error| unreadable(error.to_string()))?;
    if !rest.is_empty() {
        return Err(unreadable("something follows it".to_owned()));
    }
    parsed
        .verify_signature()
        .map_err(|_| PkiError::BadRequestSignature)?;
    let key = SubjectPublicKeyInfo::from_der(parsed.certification_request_info.subject_pki.raw)
        .map_err(PkiError::crypto("use the key of a certificate request"))?;
    let user = format!("{NODE_USER_PREFIX}{node_name}");
    sign_client(ca, &key, &user, &[NODES_GROUP.to_owned()], now, validity)
}

fn sign_client(
    ca: &CertificateAuthority,
    key: &impl PublicKeyData,
    user: &str,
    groups: &[String],
    now: Timestamp,
    validity: Duration,
) -> Result<String, PkiError> {
    check_name("user", user)?;
    groups
        .iter()
        .try_for_each(|group| check_name("group", group))?;
    let params = leaf(now, validity, ExtendedKeyUsagePurpose::ClientAuth);
    let draft = params
        .signed_by(key, ca.issuer())
        .map_err(PkiError::crypto("sign a client certificate"))?;
    let signed = der::with_subject(draft.der(), &der::subject(user, groups), ca.issuer().key())?;
    Ok(pem::write_certificate(&signed))
}

fn leaf(now: Timestamp, validity: Duration, usage: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut params = CertificateParams::default();
    set_validity(&mut params, now, validity);
    set_serial(&mut params);
    params.distinguished_name = DistinguishedName::new();
    params.is_ca = rcgen::IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params
}

pub(crate) fn set_validity(params: &mut CertificateParams, now: Timestamp, validity: Duration) {
    let at = |seconds: i64| {
        let seconds = u64::try_from(seconds.clamp(0, LAST_SECOND)).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    params.not_before = at(now.as_second().saturating_sub_unsigned(BACKDATE.as_secs()));
    params.not_after = at(now.as_second().saturating_add_unsigned(validity.as_secs()));
}

/// 16 random bytes, positive. The library's default is a hash of the key, and a renewed certificate may keep its key.
pub(crate) fn set_serial(params: &mut CertificateParams) {
    let mut serial: [u8; 16] = rand::random();
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
}

fn check_name(what: &'static str, name: &str) -> Result<(), PkiError> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > MAX_NAME_BYTES {
        "it is longer than 512 bytes"
    } else if name.chars().any(char::is_control) {
        "it has control characters"
    } else {
        return Ok(());
    };
    Err(PkiError::InvalidName {
        what,
        name: name.to_owned(),
        why,
    })
}

/// A DNS-1123 subdomain, as Node objects are named: the name becomes a user name, and a slash or colon in it would
/// read as somebody else's.
fn check_node_name(name: &str) -> Result<(), PkiError> {
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    if name.len() <= 253 && name.split('.').all(label) {
        return Ok(());
    }
    let why = "it must be at most 253 lower-case letters, digits, '-' and '.', starting and ending with a letter or digit";
    Err(PkiError::InvalidName {
        what: "node name",
        name: name.to_owned(),
        why,
    })
}

fn server_name(name: &str) -> Result<SanType, PkiError> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let rest = name.strip_prefix("*.").unwrap_or(name);
    let invalid = || PkiError::InvalidName {
        what: "server name",
        name: name.to_owned(),
        why: "it is neither a DNS name nor an IP address (no scheme, no port)",
    };
    if name.len() > 253 || !rest.split('.').all(label) {
        return Err(invalid());
    }
    Ok(SanType::DnsName(name.try_into().map_err(|_| invalid())?))
}

#[cfg(test)]
#[path = "issue_tests.rs"]
mod tests;
