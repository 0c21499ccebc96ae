//! Join tokens: which of those kept as Secrets ([`bootstrap_token`]) lets a machine join.

use muster_model::bootstrap_token::{self, SECRET_TYPE, field};
use muster_model::kind::SECRET;
use muster_model::object::Object;
use muster_model::time::{self, Timestamp};
use muster_pki::JoinToken;
use muster_pki::token::{parse_bootstrap, secrets_equal};
use secrecy::{ExposeSecret, SecretString};

use crate::cache::Cache;
use crate::status::ApiError;

/// The Secret of a join token. `expires`: `None` is for ever.
pub fn secret(token: &JoinToken, expires: Option<Timestamp>, description: &str) -> Object {
    bootstrap_token::secret(
        token.id(),
        token.secret().expose_secret(),
        expires,
        description,
    )
}

/// Whether this token lets a machine join now; its id. Takes both forms: the whole token and `<id>.<secret>`.
pub(crate) fn check(cache: &Cache, text: &str, now: Timestamp) -> Result<String, ApiError> {
    let (id, given) = read(text)?;
    let key = bootstrap_token::key(&id);
    let unknown = || {
        ApiError::unauthorized_because(format!(
            "the join token {id} is not known to this server: it was deleted, or it is of another cluster"
        ))
    };
    let stored = cache.get(&SECRET, &key).ok_or_else(unknown)?;
    let object = stored.object();
    let text = |name: &str| bootstrap_token::read(object, name);
    if object.text_at("/type") != SECRET_TYPE || text(field::ID).as_deref() != Some(id.as_str()) {
        return Err(unknown());
    }
    let kept = SecretString::from(text(field::SECRET).unwrap_or_default());
    if kept.expose_secret().is_empty() || !secrets_equal(&given, &kept) {
        return Err(ApiError::unauthorized_because(format!(
            "the secret of join token {id} is wrong"
        )));
    }
    if let Some(text) = text(field::EXPIRATION) {
        // A time that cannot be read must not make a token eternal.
        let expires = time::parse(&text);
        if expires.is_none_or(|expires| expires <= now) {
            return Err(ApiError::unauthorized_because(format!(
                "the join token {id} expired at {text}"
            )));
        }
    }
    if text(field::USAGE).as_deref() != Some("true") {
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
