//! Join tokens: `muster1.<id>.<secret>.<ca hash>`.
//!
//! `<id>.<secret>` is a Kubernetes bootstrap token (`[a-z0-9]{6}.[a-z0-9]{16}`): it tells the server who may join. The
//! CA hash tells the joining node which server to believe, before it has anything else to go by.

use crate::ca::{CaHash, CaHashError};
use rand::{CryptoRng, Rng};
use secrecy::{ExposeSecret, SecretString};
use std::fmt;
use subtle::ConstantTimeEq;

/// What every token of this form starts with.
pub const PREFIX: &str = "muster1";
const ID_CHARACTERS: usize = 6;
/// What Kubernetes makes and takes; longer secrets are read too.
const SECRET_CHARACTERS: usize = 16;
const MAX_SECRET_CHARACTERS: usize = 128;
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// A join token. Its `Debug` shows the id and the hash, never the secret.
#[derive(Clone)]
pub struct JoinToken {
    id: String,
    secret: SecretString,
    ca_hash: CaHash,
}

/// What is wrong with a text that should be a join token. Never quotes the secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Nothing there.
    #[error("the join token is empty")]
    Empty,
    /// It starts with something else.
    #[error("a join token starts with \"muster1.\"; this one does not")]
    WrongPrefix,
    /// It is a bootstrap token, without the CA hash.
    #[error(
        "this is only the <id>.<secret> half of a join token: the whole one reads muster1.<id>.<secret>.<ca hash>"
    )]
    OnlyBootstrap,
    /// A part is missing at the end.
    #[error("the join token is cut short: its {0} is missing")]
    Truncated(&'static str),
    /// There is more than four parts.
    #[error("the join token has {0} parts, not 4: muster1.<id>.<secret>.<ca hash>")]
    TooManyParts(usize),
    /// A part has the wrong length.
    #[error("the join token's {part} has {found} characters, not {wanted}")]
    Length {
        /// Which part.
        part: &'static str,
        /// How many it has.
        found: usize,
        /// How many it should have.
        wanted: &'static str,
    },
    /// A character that cannot be there.
    #[error("the join token's {0} may hold only a-z and 0-9")]
    Character(&'static str),
    /// The last part is no CA hash.
    #[error("the join token is damaged: {0}")]
    Hash(#[from] CaHashError),
}

impl JoinToken {
    /// A new token for the cluster with this CA.
    pub fn generate<R: CryptoRng>(rng: &mut R, ca_hash: CaHash) -> Self {
        let mut text = |count: usize| -> String {
            (0..count)
                .map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]))
                .collect()
        };
        Self {
            id: text(ID_CHARACTERS),
            secret: SecretString::from(text(SECRET_CHARACTERS)),
            ca_hash,
        }
    }

    /// Reads a token; white space around it is ignored.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(TokenError::Empty);
        }
        let parts: Vec<&str> = text.split('.').collect();
        if parts[0] != PREFIX {
            let bootstrap =
                parts.len() == 2 && check_id(parts[0]).is_ok() && check_secret(parts[1]).is_ok();
            return Err(if bootstrap {
                TokenError::OnlyBootstrap
            } else {
                TokenError::WrongPrefix
            });
        }
        if parts.len() > 4 {
            return Err(TokenError::TooManyParts(parts.len()));
        }
        let part = |index: usize, name: &'static str| match parts.get(index) {
            Some(&part) if !part.is_empty() => Ok(part),
            _ => Err(TokenError::Truncated(name)),
        };
        let (id, secret, hash) = (part(1, "id")?, part(2, "secret")?, part(3, "CA hash")?);
        check_id(id)?;
        check_secret(secret)?;
        Ok(Self {
            id: id.to_owned(),
            secret: SecretString::from(secret),
            ca_hash: hash.parse()?,
        })
    }

    /// The public half: names the token in lists and logs.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The secret half.
    pub fn secret(&self) -> &SecretString {
        &self.secret
    }

    /// The hash of the CA that the server's certificate must come from.
    pub fn ca_hash(&self) -> CaHash {
        self.ca_hash
    }

    /// The whole token, to be shown once to whoever joins a node.
    pub fn text(&self) -> SecretString {
        SecretString::from(format!(
            "{PREFIX}.{}.{}.{}",
            self.id,
            self.secret.expose_secret(),
            self.ca_hash
        ))
    }

    /// `<id>.<secret>`: what the node sends to the server, as a bearer token.
    pub fn bootstrap(&self) -> SecretString {
        SecretString::from(format!("{}.{}", self.id, self.secret.expose_secret()))
    }
}

/// Reads the `<id>.<secret>` that a joining node sends.
pub fn parse_bootstrap(text: &str) -> Result<(String, SecretString), TokenError> {
    let (id, secret) = text
        .trim()
        .split_once('.')
        .ok_or(TokenError::Truncated("secret"))?;
    check_id(id)?;
    check_secret(secret)?;
    Ok((id.to_owned(), SecretString::from(secret)))
}

/// Whether two secrets are the same. How long it takes tells nothing but their lengths.
pub fn secrets_equal(a: &SecretString, b: &SecretString) -> bool {
    a.expose_secret()
        .as_bytes()
        .ct_eq(b.expose_secret().as_bytes())
        .into()
}

fn check_id(id: &str) -> Result<(), TokenError> {
    check_characters("id", id)?;
    if id.len() != ID_CHARACTERS {
        return Err(TokenError::Length {
            part: "id",
            found: id.len(),
            wanted: "6",
        });
    }
    Ok(())
}

fn check_secret(secret: &str) -> Result<(), TokenError> {
    check_characters("secret", secret)?;
    if !(SECRET_CHARACTERS..=MAX_SECRET_CHARACTERS).contains(&secret.len()) {
        return Err(TokenError::Length {
            part: "secret",
            found: secret.len(),
            wanted: "16 to 128",
        });
    }
    Ok(())
}

fn check_characters(part: &'static str, text: &str) -> Result<(), TokenError> {
    if text.bytes().all(|b| ALPHABET.contains(&b)) {
        Ok(())
    } else {
        Err(TokenError::Character(part))
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({PREFIX}.{}.****.{})", self.id, self.ca_hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use rustls_pki_types::CertificateDer;

    fn token(seed: u64) -> JoinToken {
        let hash = CaHash::of(&CertificateDer::from(vec![1, 2, 3]));
        JoinToken::generate(&mut StdRng::seed_from_u64(seed), hash)
    }

    #[test]
    fn a_token_survives_its_text() {
        let token = token(1);
        let text = token.text();
        let again = JoinToken::parse(&format!("  {}\n", text.expose_secret())).unwrap();
        assert_eq!(again.id(), token.id());
        assert_eq!(again.ca_hash(), token.ca_hash());
        assert!(secrets_equal(again.secret(), token.secret()));
        assert_eq!(text.expose_secret().len(), 7 + 1 + 6 + 1 + 16 + 1 + 64);
    }

    #[test]
    fn the_half_is_a_kubernetes_bootstrap_token() {
        let token = token(2);
        let half = token.bootstrap();
        let (id, secret) = parse_bootstrap(half.expose_secret()).unwrap();
        assert_eq!((id.as_str(), id.len()), (token.id(), 6));
        assert_eq!(secret.expose_secret().len(), 16);
        assert!(
            half.expose_secret()
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.')
        );
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let good = token(3).text().expose_secret().to_owned();
        let hash = good.rsplit_once('.').unwrap().1.to_owned();
        let cases = [
            ("", "the join token is empty"),
            (
                "abcdef.0123456789abcdef.x.y",
                "a join token starts with \"muster1.\"; this one does not",
            ),
            (
                "abcdef.0123456789abcdef",
                "this is only the <id>.<secret> half of a join token: the whole one reads muster1.<id>.<secret>.<ca hash>",
            ),
            ("muster1", "the join token is cut short: its id is missing"),
            (
                "muster1.abcdef",
                "the join token is cut short: its secret is missing",
            ),
            (
                "muster1.abcdef.0123456789abcdef",
                "the join token is cut short: its CA hash is missing",
            ),
            (
                "muster1.abcdef.0123456789abcdef.",
                "the join token is cut short: its CA hash is missing",
            ),
            (
                &good[..good.len() - 2],
                "the join token is damaged: the CA hash has 62 characters, not 64: it is cut short",
            ),
            (
                &format!("muster1.abc.0123456789abcdef.{hash}"),
                "the join token's id has 3 characters, not 6",
            ),
            (
                &format!("muster1.abcdeF.0123456789abcdef.{hash}"),
                "the join token's id may hold only a-z and 0-9",
            ),
            (
                &format!("muster1.abcdef.0123.{hash}"),
                "the join token's secret has 4 characters, not 16 to 128",
            ),
            (
                &format!("{good}.x"),
                "the join token has 5 parts, not 4: muster1.<id>.<secret>.<ca hash>",
            ),
            (
                &format!(
                    "muster1.abcdef.0123456789abcdef.{}",
                    hash.replace(|c: char| c.is_ascii_digit(), "g")
                ),
                "the join token is damaged: the CA hash has 'g' in it, which is no hex digit",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(
                JoinToken::parse(text).unwrap_err().to_string(),
                message,
                "{text}"
            );
        }
    }

    #[test]
    fn debug_and_errors_never_show_the_secret() {
        let token = token(4);
        let secret = token.secret().expose_secret().to_owned();
        assert!(!format!("{token:?}").contains(&secret));
        let broken = token.text().expose_secret()[..40].to_owned();
        let error = JoinToken::parse(&broken).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(&secret));
    }

    proptest::proptest! {
        #[test]
        fn noise_is_an_error_and_never_a_panic(text in ".*", tail in "(muster1|[a-z0-9.é]{0,40})") {
            proptest::prop_assert!(JoinToken::parse(&text).is_err());
            let broken = ["muster1.", &tail].concat();
            proptest::prop_assert!(JoinToken::parse(&broken).is_err());
            let _ = parse_bootstrap(&text);
        }
    }

    #[test]
    fn secrets_of_other_length_or_text_differ() {
        let secret = |text: &str| SecretString::from(text);
        assert!(secrets_equal(&secret("abc"), &secret("abc")));
        assert!(!secrets_equal(&secret("abc"), &secret("abd")));
        assert!(!secrets_equal(&secret("abc"), &secret("abcd")));
    }
}
