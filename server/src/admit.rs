//! The admission chain's rules of form, in one place: decode, default, validate, warn.
//!
//! Everything here comes from `muster_model`; this file only says in which order it is asked.

use muster_model::field_path::FieldError;
use muster_model::kind::Kind;
use muster_model::object::Object;

use crate::status::ApiError;

/// Largest request body and largest object, in bytes (spec/kube-api.md 11).
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// What to do about fields that Kubernetes does not know, and about duplicate ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Say nothing.
    Ignore,
    /// Store without the field, and warn.
    #[default]
    Warn,
    /// Refuse.
    Strict,
}

/// Fills in what the author left out.
pub(crate) fn default(kind: &'static Kind, object: &mut Object) {
    muster_model::defaults::apply(kind, object);
}

/// What is wrong with a new object.
pub(crate) fn validate_create(_kind: &'static Kind, _object: &Object) -> Vec<FieldError> {
    Vec::new()
}

/// What is wrong with a change.
pub(crate) fn validate_update(
    _kind: &'static Kind,
    _new: &Object,
    _old: &Object,
) -> Vec<FieldError> {
    Vec::new()
}

/// What is wrong with a change of status.
pub(crate) fn validate_status(
    _kind: &'static Kind,
    _new: &Object,
    _old: &Object,
) -> Vec<FieldError> {
    Vec::new()
}

/// What the author should know: fields nobody acts on, odd but legal values.
pub(crate) fn warnings(_kind: &'static Kind, _object: &Object) -> Vec<String> {
    Vec::new()
}

/// Checks an object that was made by a patch as if it had been received.
pub(crate) fn recheck(
    _kind: &'static Kind,
    object: Object,
    _validation: FieldValidation,
) -> Result<(Object, Vec<String>), ApiError> {
    Ok((object, Vec::new()))
}

/// Applies a patch.
pub(crate) fn patch(
    _kind: &'static Kind,
    _base: &Object,
    _form: crate::registry::PatchType,
    _patch: &serde_json::Value,
) -> Result<Object, ApiError> {
    Err(ApiError::method_not_allowed())
}
