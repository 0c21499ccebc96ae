//! JSON and YAML in and out: several documents, `List` kinds, unknown and duplicate fields with their paths,
//! input limits.
//!
//! ```text
//! bytes --json/yaml--> Tree (value, duplicate keys) --typed--> Object + unknown fields + wrong types
//! ```
//!
//! What is kept of an object is the tree that was sent, less the fields its kind does not have. The typed
//! view only judges it. YAML is read by one rule, the one kubectl has, so that both send the same objects.

mod json;
mod limits;
mod manifest;
mod read;
mod scalar;
mod text;
mod typed;
mod unacted;
mod write;
mod yaml;

use std::str::FromStr;

use serde_json::Value;

pub(crate) use self::limits::{MAX_DEPTH, depth_exceeds};
use self::limits::{MAX_FAULTS_NAMED, MAX_PATH_SHOWN, clipped};
pub use self::manifest::{Document, ManifestError, read_manifests};
pub use self::read::{ReadError, Tree, read_tree};
pub(crate) use self::text::describe;
pub use self::unacted::unacted_fields;
pub use self::write::{kubectl_json, to_yaml};
use crate::kind::Kind;
use crate::object::{Object, type_name};

/// What is done about unknown and duplicate fields (spec/kube-api.md 9, fieldValidation).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// They are dropped silently.
    Ignore,
    /// They are dropped and named in warnings. What a server does when nothing was asked for.
    #[default]
    Warn,
    /// They are an error.
    Strict,
}

/// The value of the query parameter `fieldValidation` is none of `Ignore`, `Warn`, `Strict`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "fieldValidation: Unsupported value: {0:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""
)]
pub struct UnknownFieldValidation(String);

impl FromStr for FieldValidation {
    type Err = UnknownFieldValidation;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" | "Warn" => Ok(Self::Warn),
            "Ignore" => Ok(Self::Ignore),
            "Strict" => Ok(Self::Strict),
            other => Err(UnknownFieldValidation(other.to_owned())),
        }
    }
}

/// An object that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The object: `apiVersion` and `kind` are set, unknown fields are gone, quantities are text.
    pub object: Object,
    /// Sentences for the author, such as `unknown field "spec.foo"`; empty unless [`FieldValidation::Warn`].
    pub warnings: Vec<String>,
}

/// Why bytes are no object of the expected kind. Every variant is the sender's mistake (400 BadRequest).
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// Neither JSON nor YAML, or over a limit.
    #[error("the object provided is unrecognized: {0}")]
    Unreadable(#[from] ReadError),
    /// The document is a list, a number, ... instead of a mapping.
    #[error(
        "{kind} in version {version:?} cannot be handled as a {kind}: expected an object (a mapping), found {found}"
    )]
    NotAMapping {
        /// The expected kind.
        kind: &'static str,
        /// The expected version.
        version: &'static str,
        /// What was found, in words.
        found: &'static str,
    },
    /// The object says that it is of another kind or version.
    #[error("the {what} in the data ({found}) does not match the expected {what} ({expected})")]
    OtherKind {
        /// `kind` or `API version`.
        what: &'static str,
        /// What the object says.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// A field has a value of the wrong type.
    #[error("{kind} in version {version:?} cannot be handled as a {kind}: {path}: {detail}")]
    WrongType {
        /// The kind.
        kind: &'static str,
        /// Its version.
        version: &'static str,
        /// The field, such as `spec.template.spec.containers[0].env[0].value`.
        path: String,
        /// `8001 is a number, a string is expected: quote it`.
        detail: String,
    },
    /// There are unknown or duplicate fields and the validation is strict.
    #[error("{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}", faults.join(", "))]
    Strict {
        /// The kind.
        kind: &'static str,
        /// Its version.
        version: &'static str,
        /// `unknown field "spec.foo"`, `duplicate field "spec.x"`.
        faults: Vec<String>,
    },
}

/// Reads one object of the kind from JSON or YAML.
pub fn decode(
    kind: &Kind,
    bytes: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, DecodeError> {
    let Tree { value, duplicates } = read_tree(bytes)?;
    decode_tree(kind, value, &duplicates, validation)
}

/// Judges a tree that is already there, such as the outcome of a patch, as [`decode`] does.
pub fn decode_value(
    kind: &Kind,
    value: Value,
    validation: FieldValidation,
) -> Result<Decoded, DecodeError> {
    decode_tree(kind, value, &[], validation)
}

/// As [`decode_value`], with the paths of keys that were given twice in the text the tree was read from.
pub fn decode_tree(
    kind: &Kind,
    value: Value,
    duplicates: &[String],
    validation: FieldValidation,
) -> Result<Decoded, DecodeError> {
    if depth_exceeds(&value, MAX_DEPTH) {
        return Err(ReadError::without_position(limits::too_deep()).into());
    }
    let found = type_name(&value);
    let Ok(mut object) = Object::from_value(value) else {
        return Err(DecodeError::NotAMapping {
            kind: kind.kind,
            version: kind.version,
            found,
        });
    };
    expect_kind(kind, &mut object)?;
    let unknown = typed::check(kind, &mut object).map_err(|fault| DecodeError::WrongType {
        kind: kind.kind,
        version: kind.version,
        path: fault.path,
        detail: fault.detail,
    })?;
    let faults = name_faults(&unknown, duplicates);
    match validation {
        FieldValidation::Strict if !faults.is_empty() => Err(DecodeError::Strict {
            kind: kind.kind,
            version: kind.version,
            faults,
        }),
        FieldValidation::Warn => Ok(Decoded {
            object,
            warnings: faults,
        }),
        _ => Ok(Decoded {
            object,
            warnings: Vec::new(),
        }),
    }
}

fn expect_kind(kind: &Kind, object: &mut Object) -> Result<(), DecodeError> {
    let said = |pointer: &str| match object.at(pointer) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) if text.is_empty() => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => Some(other.to_string()),
    };
    let pairs = [
        ("API version", said("/apiVersion"), kind.api_version()),
        ("kind", said("/kind"), kind.kind.into()),
    ];
    for (what, found, expected) in pairs {
        if let Some(found) = found.filter(|found| *found != expected) {
            return Err(DecodeError::OtherKind {
                what,
                found,
                expected,
            });
        }
    }
    object.set_kind(kind);
    Ok(())
}

fn name_faults(unknown: &[String], duplicates: &[String]) -> Vec<String> {
    let mut faults: Vec<String> = unknown
        .iter()
        .map(|path| format!("unknown field {:?}", clipped(path, MAX_PATH_SHOWN)))
        .chain(
            duplicates
                .iter()
                .map(|path| format!("duplicate field {path:?}")),
        )
        .take(MAX_FAULTS_NAMED)
        .collect();
    if unknown.len() + duplicates.len() > MAX_FAULTS_NAMED {
        faults.push("and more".to_owned());
    }
    faults
}

#[cfg(test)]
mod tests;
