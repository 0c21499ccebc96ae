//! The admission chain's rules of form, in one place: decode, default, validate, warn.
//!
//! Everything here comes from `muster_model`; this file only says in which order it is asked, and turns its
//! errors into answers.

use muster_model::codec;
use muster_model::field_path::FieldError;
use muster_model::kind::Kind;
use muster_model::object::Object;
use serde_json::Value;

use crate::registry::PatchType;
use crate::status::ApiError;

pub use muster_model::codec::FieldValidation;

/// Largest request body and largest object, in bytes (spec/kube-api.md 11).
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// Reads an object of a kind from JSON or YAML. What is unknown or duplicate comes back as warnings, or as a
/// 400, as `validation` says.
pub fn decode(
    kind: &'static Kind,
    bytes: &[u8],
    validation: FieldValidation,
) -> Result<(Object, Vec<String>), ApiError> {
    if bytes.len() > MAX_BODY_BYTES {
        return Err(ApiError::too_large(MAX_BODY_BYTES));
    }
    let decoded = codec::decode(kind, bytes, validation).map_err(|error| ApiError::bad_request(error.to_string()))?;
    Ok((decoded.object, decoded.warnings))
}

/// Judges an object that was made by a patch as if it had been received.
pub(crate) fn recheck(
    kind: &'static Kind,
    object: Object,
    validation: FieldValidation,
) -> Result<(Object, Vec<String>), ApiError> {
    let decoded = codec::decode_value(kind, object.into_tree(), validation)
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    Ok((decoded.object, decoded.warnings))
}

/// Reads a patch, JSON or YAML.
pub fn decode_patch(bytes: &[u8]) -> Result<Value, ApiError> {
    if bytes.len() > MAX_BODY_BYTES {
        return Err(ApiError::too_large(MAX_BODY_BYTES));
    }
    let tree = codec::read_tree(bytes).map_err(|error| ApiError::bad_request(error.to_string()))?;
    Ok(tree.value)
}

/// Fills in what the author left out.
pub(crate) fn default(kind: &'static Kind, object: &mut Object) {
    muster_model::defaults::apply(kind, object);
}

/// What is wrong with a new object.
pub(crate) fn validate_create(kind: &'static Kind, object: &Object) -> Vec<FieldError> {
    { let _ = (kind, object); Vec::new() }
}

/// What is wrong with a change.
pub(crate) fn validate_update(kind: &'static Kind, new: &Object, old: &Object) -> Vec<FieldError> {
    { let _ = (kind, new, old); Vec::new() }
}

/// What is wrong with a change of status.
pub(crate) fn validate_status(kind: &'static Kind, new: &Object, old: &Object) -> Vec<FieldError> {
    { let _ = (kind, new, old); Vec::new() }
}

/// What the author should know: fields nobody acts on, odd but legal values.
pub(crate) fn warnings(kind: &'static Kind, object: &Object) -> Vec<String> {
    let all = codec::unacted_fields(kind, object);
    all
}

/// Applies a patch.
pub(crate) fn patch(
    _kind: &'static Kind,
    _base: &Object,
    _form: PatchType,
    _patch: &Value,
) -> Result<Object, ApiError> {
    Err(ApiError::method_not_allowed())
}
