//! Join tokens as Kubernetes keeps them: bootstrap-token Secrets in `kube-system`, so that making, listing and
//! revoking one needs no API of its own. Here is how such a Secret looks; who may join is not decided here.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use crate::kind::SECRET;
use crate::object::{NamespacedName, Object};
use crate::time::{Timestamp, to_seconds_text};

/// Where the Secrets lie.
pub const NAMESPACE: &str = "kube-system";
/// Their type.
pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";

/// Fields of the Secret's data.
pub mod field {
    /// The token's public half.
    pub const ID: &str = "token-id";
    /// The token's private half.
    pub const SECRET: &str = "token-secret";
    /// Until when it is good, RFC 3339; absent: for ever.
    pub const EXPIRATION: &str = "expiration";
    /// What it is for, for people.
    pub const DESCRIPTION: &str = "description";
    /// `true`: it is good for joining.
    pub const USAGE: &str = "usage-bootstrap-authentication";
}

/// The Secret of the token with this id.
pub fn key(id: &str) -> NamespacedName {
    NamespacedName::new(NAMESPACE, format!("bootstrap-token-{id}"))
}

/// The Secret of a join token. `expires`: `None` is for ever; `description` may be empty.
pub fn secret(id: &str, secret: &str, expires: Option<Timestamp>, description: &str) -> Object {
    let expires = expires.map(to_seconds_text).unwrap_or_default();
    let fields = [
        (field::ID, id),
        (field::SECRET, secret),
        (field::USAGE, "true"),
        (field::EXPIRATION, &expires),
        (field::DESCRIPTION, description),
    ];
    let data: Map<String, Value> = fields
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(field, text)| (field.to_owned(), BASE64.encode(text).into()))
        .collect();
    let key = key(id);
    let tree = json!({
        "metadata": {"name": key.name, "namespace": key.namespace},
        "type": SECRET_TYPE,
        "data": data,
    });
    let mut object = Object::from_value(tree).expect("the tree above is a mapping");
    object.set_kind(&SECRET);
    object
}

/// A field of such a Secret's data; `None`: absent, or no text.
pub fn read(secret: &Object, field: &str) -> Option<String> {
    let encoded = secret.at("/data")?.get(field)?.as_str()?;
    String::from_utf8(BASE64.decode(encoded).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_kept_as_a_bootstrap_secret() {
        let until: Timestamp = "2026-01-31T10:00:00Z".parse().unwrap();
        let kept = secret("abcdef", "0123456789abcdef", Some(until), "two");
        assert_eq!(kept.namespaced_name(), key("abcdef"));
        assert_eq!(kept.name(), "bootstrap-token-abcdef");
        assert_eq!(
            (
                kept.namespace(),
                kept.text_at("/type"),
                kept.text_at("/kind")
            ),
            ("kube-system", "bootstrap.kubernetes.io/token", "Secret")
        );
        let fields = [
            (field::ID, "abcdef"),
            (field::SECRET, "0123456789abcdef"),
            (field::USAGE, "true"),
            (field::EXPIRATION, "2026-01-31T10:00:00Z"),
            (field::DESCRIPTION, "two"),
        ];
        for (field, text) in fields {
            assert_eq!(read(&kept, field).as_deref(), Some(text), "{field}");
        }
        let kept = secret("abcdef", "0123456789abcdef", None, "");
        assert_eq!(read(&kept, field::EXPIRATION), None);
        assert_eq!(read(&kept, field::DESCRIPTION), None);
    }
}
