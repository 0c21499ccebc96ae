//! The three patch forms: JSON patch, merge patch, strategic merge patch (spec/kube-api.md 9).
//!
//! A patch is applied to the tree and the outcome is judged like any other object
//! ([`crate::codec::decode_value`]): a patch that leaves a wrong type behind is refused there.

pub mod json;
pub mod merge;
pub(crate) mod schema;
pub mod strategic;

use serde_json::Value;

use crate::codec::read_tree;
use crate::kind::Kind;

/// Why a patch can't be applied. Nothing of it has been applied then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself is not valid (400 BadRequest).
    #[error("the patch is not valid: {0}")]
    Malformed(String),
    /// The patch is valid and does not fit the object (422 Invalid).
    #[error("the patch can't be applied: {0}")]
    Unprocessable(String),
}

/// The form of a patch, which a request names by its content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PatchForm {
    /// `application/json-patch+json`: a list of operations, RFC 6902.
    Json,
    /// `application/merge-patch+json`: RFC 7386.
    Merge,
    /// `application/strategic-merge-patch+json`: lists merge by key.
    Strategic,
}

impl PatchForm {
    /// The form with this content type (parameters such as `; charset=utf-8` are ignored).
    pub fn from_content_type(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            _ => None,
        }
    }

    /// The content type of the form.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
        }
    }
}

/// Applies a patch of any form, given as the text that was sent.
pub fn apply(
    form: PatchForm,
    kind: &Kind,
    original: &Value,
    patch: &[u8],
) -> Result<Value, PatchError> {
    match form {
        PatchForm::Json => json::apply(original, patch),
        PatchForm::Merge => merge::apply(original, &parse(patch)?),
        PatchForm::Strategic => strategic::apply(kind, original, &parse(patch)?),
    }
}

/// Reads the text of a merge patch or a strategic merge patch.
pub fn parse(patch: &[u8]) -> Result<Value, PatchError> {
    read_tree(patch)
        .map(|tree| tree.value)
        .map_err(|error| PatchError::Malformed(error.to_string()))
}

fn expect_mapping(patch: &Value) -> Result<&serde_json::Map<String, Value>, PatchError> {
    patch.as_object().ok_or_else(|| {
        PatchError::Malformed(format!(
            "expected a mapping, found {}",
            crate::object::type_name(patch)
        ))
    })
}
