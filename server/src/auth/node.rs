//! What a node's agent may touch: its own Node, the pods bound to it, and what those pods name.

use muster_model::kind::Kind;
use muster_model::object::Object;

use super::Caller;
use crate::status::ApiError;

/// What a node may create, judged by content.
pub(crate) fn admit_create(
    _caller: &Caller,
    _kind: &'static Kind,
    _object: &Object,
) -> Result<(), ApiError> {
    Ok(())
}
