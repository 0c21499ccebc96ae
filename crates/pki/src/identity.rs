//! Who a certificate says its holder is, and when it should be renewed.

use crate::issue::BACKDATE;
use crate::{PkiError, pem};
use jiff::Timestamp;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

/// What the user name of a node starts with.
pub const NODE_USER_PREFIX: &str = "system:node:";
/// The group every node is in.
pub const NODES_GROUP: &str = "system:nodes";
/// The group that may do everything.
pub const MASTERS_GROUP: &str = "system:masters";

/// The holder of a certificate. Whether the certificate may be believed is TLS's question: ask only about one whose
/// chain was verified against the cluster's CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The common name.
    pub user: String,
    /// The organizations, in their order.
    pub groups: Vec<String>,
    /// When it was made, which is long after it begins to be valid.
    pub issued_at: Timestamp,
    /// Valid until.
    pub not_after: Timestamp,
}

impl PeerIdentity {
    /// The node's name, if the holder is a node: user `system:node:NAME` in group `system:nodes`.
    pub fn node_name(&self) -> Option<&str> {
        let name = self
            .user
            .strip_prefix(NODE_USER_PREFIX)
            .filter(|name| !name.is_empty())?;
        self.groups
            .iter()
            .any(|group| group == NODES_GROUP)
            .then_some(name)
    }
}

/// Reads a certificate's subject and validity.
pub fn peer_identity(certificate: &[u8]) -> Result<PeerIdentity, PkiError> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| PkiError::Der {
        what: "certificate",
        why: error.to_string(),
    })?;
    let text = |attribute: &AttributeTypeAndValue<'_>| {
        attribute
            .as_str()
            .map(str::to_owned)
            .map_err(|_| PkiError::Der {
                what: "subject",
                why: "a name is not text".to_owned(),
            })
    };
    let subject = parsed.subject();
    // The last one counts, as in Go's crypto/x509, which Kubernetes reads names with.
    let user = subject
        .iter_common_name()
        .last()
        .map(text)
        .transpose()?
        .filter(|user| !user.is_empty());
    Ok(PeerIdentity {
        user: user.ok_or(PkiError::NoUser)?,
        groups: subject
            .iter_organization()
            .map(text)
            .collect::<Result<_, _>>()?,
        issued_at: timestamp(
            (parsed.validity().not_before.timestamp()).saturating_add_unsigned(BACKDATE.as_secs()),
        ),
        not_after: timestamp(parsed.validity().not_after.timestamp()),
    })
}

/// [`peer_identity`] of the first certificate of a PEM text: what an agent asks about its own.
pub fn identity_of_pem(text: &str) -> Result<PeerIdentity, PkiError> {
    peer_identity(&pem::certificates(text)?[0])
}

/// When to ask for a new certificate: at 80 % of its life, give or take 10 % by `jitter` (0 to 1, drawn by the caller
/// once per certificate), so that nodes that joined together do not return together.
pub fn renew_at(issued_at: Timestamp, not_after: Timestamp, jitter: f64) -> Timestamp {
    if not_after <= issued_at {
        return not_after;
    }
    let life_seconds = (not_after.as_second() - issued_at.as_second()) as f64;
    let share = 0.7 + 0.2 * jitter.clamp(0.0, 1.0);
    timestamp(
        issued_at
            .as_second()
            .saturating_add((life_seconds * share).round() as i64),
    )
}

/// A certificate's time, held to what a [`Timestamp`] can say.
pub(crate) fn timestamp(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(if seconds < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_one_by_name_and_group() {
        let peer = |user: &str, groups: &[&str]| PeerIdentity {
            user: user.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            issued_at: Timestamp::UNIX_EPOCH,
            not_after: Timestamp::UNIX_EPOCH,
        };
        assert_eq!(
            peer("system:node:a", &["system:nodes"]).node_name(),
            Some("a")
        );
        assert_eq!(
            peer("system:node:a", &["x", "system:nodes"]).node_name(),
            Some("a")
        );
        assert_eq!(peer("system:node:a", &[]).node_name(), None);
        assert_eq!(peer("system:node:", &["system:nodes"]).node_name(), None);
        assert_eq!(peer("ana", &["system:nodes"]).node_name(), None);
    }

    #[test]
    fn renewal_is_at_four_fifths_of_the_life_with_jitter() {
        let (start, end) = (timestamp(1_000_000), timestamp(1_001_000));
        assert_eq!(renew_at(start, end, 0.5).as_second(), 1_000_800);
        assert_eq!(renew_at(start, end, 0.0).as_second(), 1_000_700);
        assert_eq!(renew_at(start, end, 1.0).as_second(), 1_000_900);
        assert_eq!(renew_at(start, end, 7.0).as_second(), 1_000_900);
        assert_eq!(
            renew_at(end, start, 0.5),
            start,
            "a life that ends before it starts is over at once"
        );
    }

    #[test]
    fn bytes_that_are_no_certificate_are_an_error() {
        assert!(peer_identity(b"hello").is_err());
        assert!(peer_identity(&[]).is_err());
    }
}
