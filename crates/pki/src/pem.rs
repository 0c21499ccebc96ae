//! PEM text to the DER forms that rustls takes.

use crate::PkiError;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer, PrivateKeyDer};

/// Every certificate of the text, in its order. At least one.
pub fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let found = CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| wrong("certificate", &error))?;
    if found.is_empty() {
        return Err(wrong("certificate", &pem::Error::NoItemsFound));
    }
    Ok(found)
}

/// The first private key of the text: PKCS #8 (`PRIVATE KEY`), SEC 1 or PKCS #1.
pub fn private_key(text: &str) -> Result<PrivateKeyDer<'static>, PkiError> {
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| wrong("private key", &error))
}

pub(crate) fn request(text: &str) -> Result<CertificateSigningRequestDer<'static>, PkiError> {
    CertificateSigningRequestDer::from_pem_slice(text.as_bytes())
        .map_err(|error| wrong("certificate request", &error))
}

pub(crate) fn write_certificate(der: &[u8]) -> String {
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let body = BASE64.encode(der);
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

/// The library's error quotes the offending line, which may be part of a key: only its kind is told.
fn wrong(what: &'static str, error: &pem::Error) -> PkiError {
    let why = match error {
        pem::Error::MissingSectionEnd { .. } => "its END line is missing: the text is cut short",
        pem::Error::IllegalSectionStart { .. } => "its BEGIN line is malformed",
        pem::Error::Base64Decode(_) => "its contents are not base64",
        pem::Error::NoItemsFound => "no such block found",
        _ => "it could not be read",
    };
    PkiError::Pem {
        what,
        why: why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_pem_says_what_is_wrong() {
        let cases = [
            ("", "not a certificate in PEM form: no such block found"),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n",
                "not a certificate in PEM form: its END line is missing: the text is cut short",
            ),
            (
                "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n",
                "not a certificate in PEM form: its contents are not base64",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(certificates(text).unwrap_err().to_string(), message);
        }
    }
}
