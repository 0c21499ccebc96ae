//! The few DER forms the certificate library cannot write.
//!
//! Kubernetes reads a user's groups from the organizations of the subject, one O attribute per group. rcgen keeps
//! one value per attribute type, so the subject is written here and put into the unsigned part of a certificate,
//! which is then signed.

use crate::PkiError;
use rcgen::SigningKey;
use x509_parser::prelude::{FromDer, X509Certificate};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const BIT_STRING: u8 = 0x03;
const UTF8_STRING: u8 = 0x0c;
/// OBJECT IDENTIFIER 2.5.4.3
const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];
/// OBJECT IDENTIFIER 2.5.4.10
const ORGANIZATION: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x0a];

/// A subject: the groups as organizations, then the user as common name (the order Kubernetes tools write).
pub(crate) fn subject(user: &str, groups: &[String]) -> Vec<u8> {
    let mut names = Vec::new();
    for group in groups {
        names.extend(attribute(&ORGANIZATION, group));
    }
    names.extend(attribute(&COMMON_NAME, user));
    element(SEQUENCE, &names)
}

/// The certificate with another subject, signed anew. `certificate` was written by rcgen a moment ago.
pub(crate) fn with_subject(
    certificate: &[u8],
    subject: &[u8],
    key: &impl SigningKey,
) -> Result<Vec<u8>, PkiError> {
    let unreadable = |why: String| PkiError::Der {
        what: "certificate just made",
        why,
    };
    let (_, parsed) =
        X509Certificate::from_der(certificate).map_err(|error| unreadable(error.to_string()))?;
    let unsigned = parsed.tbs_certificate.as_ref();
    let old = parsed.tbs_certificate.subject.as_raw();
    let body_start = header_length(unsigned).ok_or_else(|| unreadable("no header".to_owned()))?;
    // The issuer may equal the old subject byte for byte, so the place is found by address, not by contents.
    let start = old.as_ptr().addr() - unsigned.as_ptr().addr();
    let body = [
        &unsigned[body_start..start],
        subject,
        &unsigned[start + old.len()..],
    ]
    .concat();
    let unsigned = element(SEQUENCE, &body);

    let signature = key
        .sign(&unsigned)
        .map_err(PkiError::crypto("sign a certificate"))?;
    let outer_start =
        header_length(certificate).ok_or_else(|| unreadable("no header".to_owned()))?;
    let algorithm_start = outer_start + parsed.tbs_certificate.as_ref().len();
    let algorithm = first_element(&certificate[algorithm_start..])
        .ok_or_else(|| unreadable("no algorithm".to_owned()))?;
    // A bit string starts with the number of unused bits in its last byte.
    let signature = element(BIT_STRING, &[&[0], signature.as_slice()].concat());
    Ok(element(
        SEQUENCE,
        &[unsigned.as_slice(), algorithm, &signature].concat(),
    ))
}

fn attribute(kind: &[u8], text: &str) -> Vec<u8> {
    let value = element(UTF8_STRING, text.as_bytes());
    element(SET, &element(SEQUENCE, &[kind, &value].concat()))
}

fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = contents.len();
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let skip = bytes.iter().take_while(|byte| **byte == 0).count();
        out.push(0x80 | (bytes.len() - skip) as u8);
        out.extend(&bytes[skip..]);
    }
    out.extend(contents);
    out
}

/// How many bytes tag and length take.
fn header_length(der: &[u8]) -> Option<usize> {
    let first = *der.get(1)?;
    Some(if first < 0x80 {
        2
    } else {
        2 + usize::from(first & 0x7f)
    })
}

fn first_element(der: &[u8]) -> Option<&[u8]> {
    let header = header_length(der)?;
    let length = if header == 2 {
        usize::from(der[1])
    } else {
        der.get(2..header)?.iter().try_fold(0_usize, |sum, byte| {
            sum.checked_mul(256)?.checked_add(usize::from(*byte))
        })?
    };
    der.get(..header.checked_add(length)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_in_the_shortest_form() {
        assert_eq!(element(0x04, &[7]), [0x04, 1, 7]);
        assert_eq!(element(0x04, &[0; 127])[..2], [0x04, 0x7f]);
        assert_eq!(element(0x04, &[0; 128])[..3], [0x04, 0x81, 0x80]);
        assert_eq!(element(0x04, &[0; 300])[..4], [0x04, 0x82, 0x01, 0x2c]);
    }

    #[test]
    fn the_first_element_ends_where_its_length_says() {
        let mut der = element(0x04, &[1; 200]);
        let length = der.len();
        der.extend([9, 9, 9]);
        assert_eq!(first_element(&der).map(<[u8]>::len), Some(length));
        assert_eq!(first_element(&der[..100]), None);
    }
}
