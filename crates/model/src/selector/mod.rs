//! Label and field selectors: parse, match (spec/kube-api.md 8).

mod field;
mod label;

pub use self::field::{FieldOp, FieldSelector, FieldTerm};
pub use self::label::Selector;

/// Longest selector text that is read; a longer one is refused before it is looked at.
const MAX_SELECTOR_BYTES: usize = 64 * 1024;

/// Why a selector can't be used. Every variant is the caller's mistake (400 BadRequest).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The text or the operator of a label requirement is not valid.
    #[error("unable to parse requirement: {0}")]
    Requirement(String),
    /// The text of a field selector is not valid.
    #[error("invalid field selector: {0}")]
    FieldSyntax(String),
    /// The kind can't be selected by this field.
    #[error("field label not supported: {0}")]
    UnsupportedField(String),
}
