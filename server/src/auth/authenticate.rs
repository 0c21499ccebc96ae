//! From a credential to a [`Caller`].

use muster_pki::PkiError;
use rustls_pki_types::CertificateDer;

use super::Caller;

/// Who a TLS peer is. The certificate has already been verified against our CA by the handshake: its common
/// name is the user, its organizations are the groups. No certificate: anonymous.
pub fn from_peer_certificate(certificate: Option<&CertificateDer<'_>>) -> Result<Caller, PkiError> {
    let Some(certificate) = certificate else {
        return Ok(Caller::anonymous());
    };
    let peer = muster_pki::peer_identity(certificate)?;
    Ok(Caller::authenticated(peer.user, peer.groups))
}
