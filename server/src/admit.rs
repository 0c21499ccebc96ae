//! The admission chain's rules of form, in one place: decode, default, validate, warn.
//!
//! Everything here comes from `muster_model`; this file only says in which order it is asked, and turns its
//! errors into answers.

use muster_model::codec;
use muster_model::field_path::FieldError;
use muster_model::kind::Kind;
use muster_model::object::Object;
use muster_model::patch::{self, PatchError, PatchForm};
use muster_model::validate;

use crate::status::{ApiError, Reason};

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
    let decoded = codec::decode(kind, bytes, validation)
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
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

/// Fills in what the author left out.
pub(crate) fn default(kind: &'static Kind, object: &mut Object) {
    muster_model::defaults::apply(kind, object);
}

/// What is wrong with a new object.
pub(crate) fn validate_create(kind: &'static Kind, object: &Object) -> Vec<FieldError> {
    validate::create(kind, object)
}

/// What is wrong with a change.
pub(crate) fn validate_update(kind: &'static Kind, new: &Object, old: &Object) -> Vec<FieldError> {
    validate::update(kind, new, old)
}

/// What is wrong with a change of status.
pub(crate) fn validate_status(kind: &'static Kind, new: &Object, old: &Object) -> Vec<FieldError> {
    validate::update_status(kind, new, old)
}

/// What the author should know: fields nobody acts on, odd but legal values.
pub(crate) fn warnings(kind: &'static Kind, object: &Object) -> Vec<String> {
    let mut all = codec::unacted_fields(kind, object);
    all.extend(validate::warnings(kind, object));
    all
}

/// Applies a patch. What comes out is not judged yet: see [`recheck`].
pub(crate) fn patch(
    kind: &'static Kind,
    base: &Object,
    form: PatchForm,
    text: &[u8],
) -> Result<Object, ApiError> {
    let tree = patch::apply(form, kind, base.tree(), text).map_err(|error| match error {
        PatchError::Malformed(_) => ApiError::bad_request(error.to_string()),
        PatchError::Unprocessable(_) => ApiError::new(
            Reason::Invalid,
            format!(
                "{} \"{}\" is invalid: {error}",
                kind.qualified_kind(),
                base.name()
            ),
        )
        .about(kind, base.name()),
    })?;
    Object::from_value(tree).map_err(|error| ApiError::bad_request(error.to_string()))
}
