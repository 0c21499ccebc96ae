//! From a credential to a [`Caller`].

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use muster_pki::PkiError;
use rustls_pki_types::CertificateDer;

use super::Caller;
use crate::status::ApiError;

/// Who a TLS peer is. The certificate has already been verified against our CA by the handshake: its common
/// name is the user, its organizations are the groups. No certificate: anonymous.
pub fn from_peer_certificate(certificate: Option<&CertificateDer<'_>>) -> Result<Caller, PkiError> {
    let Some(certificate) = certificate else {
        return Ok(Caller::anonymous());
    };
    let peer = muster_pki::peer_identity(certificate)?;
    Ok(Caller::authenticated(peer.user, peer.groups))
}

/// Refuses every request that shows a token: none is known to this server yet (people and nodes have
/// certificates), and who shows a credential that is not valid must not pass for a stranger
/// (spec/kube-api.md 14). The joining token travels in its request, not here.
pub(crate) async fn refuse_tokens(request: Request, next: Next) -> Response {
    if !request.headers().contains_key(AUTHORIZATION) {
        return next.run(request).await;
    }
    let content = request.headers().get(CONTENT_TYPE);
    if content.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc")) {
        tonic::Status::from(ApiError::unauthorized()).into_http::<axum::body::Body>()
    } else {
        ApiError::unauthorized().into_response()
    }
}
