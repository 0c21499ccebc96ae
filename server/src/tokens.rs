//! Join tokens: kept as Kubernetes bootstrap-token Secrets in `kube-system`, so that making, listing and
//! revoking one needs no API of its own.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use muster_model::kind::SECRET;
use muster_model::object::{NamespacedName, Object};
use muster_model::time::{self, Timestamp};
use muster_pki::JoinToken;
use muster_pki::token::{parse_bootstrap, secrets_equal};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use crate::cache::Cache;
use crate::status::ApiError;

/// Where bootstrap tokens lie.
pub const NAMESPACE: &str = "kube-system";
/// The type of their Secrets.
pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
/// What precedes a token's id in its Secret's name.
pub const NAME_PREFIX: &str = "bootstrap-token-";

/// The Secret of a join token. `expires`: `None` is for ever.
pub fn secret(token: &JoinToken, expires: Option<Timestamp>, description: &str) -> Object {
    let mut data = json!({
        "token-id": BASE64.encode(token.id()),
        "token-secret": BASE64.encode(token.secret().expose_secret()),
        "usage-bootstrap-authentication": BASE64.encode("true"),
    });
    if let Some(expires) = expires {
        data["expiration"] = BASE64.encode(time::to_seconds_text(expires)).into();
    }
    if !description.is_empty() {
        data["description"] = BASE64.encode(description).into();
    }
    let tree = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": format!("{NAME_PREFIX}{}", token.id()), "namespace": NAMESPACE},
        "type": SECRET_TYPE,
        "data": data,
    });
    Object::from_value(tree).expect("the tree above is a mapping")
}

/// Whether this token lets a machine join now; its id. Takes both forms: the whole token and `<id>.<secret>`.
pub(crate) fn check(cache: &Cache, text: &str, now: Timestamp) -> Result<String, ApiError> {
    let (id, given) = read(text)?;
    let key = NamespacedName::new(NAMESPACE, format!("{NAME_PREFIX}{id}"));
    let unknown = || {
        ApiError::unauthorized_because(format!(
            "the join token {id} is not known to this server: it was deleted, or it is of another cluster"
        ))
    };
    let stored = cache.get(&SECRET, &key).ok_or_else(unknown)?;
    let object = stored.object();
    let text = |field: &str| {
        let encoded = object
            .at("/data")
            .and_then(|data| data.get(field))
            .and_then(|value| value.as_str())?;
        String::from_utf8(BASE64.decode(encoded).ok()?).ok()
    };
    if object.text_at("/type") != SECRET_TYPE || text("token-id").as_deref() != Some(id.as_str()) {
        return Err(unknown());
    }
    let kept = SecretString::from(text("token-secret").unwrap_or_default());
    if kept.expose_secret().is_empty() || !secrets_equal(&given, &kept) {
        return Err(ApiError::unauthorized_because(format!(
            "the secret of join token {id} is wrong"
        )));
    }
    if let Some(text) = text("expiration") {
        // A time that cannot be read must not make a token eternal.
        let expires = time::parse(&text);
        if expires.is_none_or(|expires| expires <= now) {
            return Err(ApiError::unauthorized_because(format!(
                "the join token {id} expired at {text}"
            )));
        }
    }
    if text("usage-bootstrap-authentication").as_deref() != Some("true") {
        return Err(ApiError::unauthorized_because(format!(
            "the join token {id} is not meant for joining: usage-bootstrap-authentication is not \"true\""
        )));
    }
    Ok(id)
}

fn read(text: &str) -> Result<(String, SecretString), ApiError> {
    match JoinToken::parse(text) {
        Ok(token) => Ok((token.id().to_owned(), token.secret().clone())),
        Err(error) => {
            parse_bootstrap(text).map_err(|_| ApiError::unauthorized_because(error.to_string()))
        }
    }
}
