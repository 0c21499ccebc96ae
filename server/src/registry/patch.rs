//! Patches: an edit made of the caller's text.

use std::sync::Arc;

use bytes::Bytes;
use muster_model::kind::Kind;
use muster_model::object::{NamespacedName, Object};
use muster_model::patch::PatchForm;
use parking_lot::Mutex;

use super::Registry;
use super::write::{Precondition, Write, WriteOptions, Written};
use crate::admit;
use crate::auth::Caller;
use crate::status::ApiError;

impl Registry {
    /// Patches an object. A `metadata.resourceVersion` inside the patch is a precondition.
    pub async fn patch(
        &self,
        caller: &Caller,
        kind: &'static Kind,
        key: NamespacedName,
        patch: (PatchForm, Bytes),
        status: bool,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let (form, patch) = patch;
        if patch.len() > admit::MAX_BODY_BYTES {
            return Err(ApiError::too_large(admit::MAX_BODY_BYTES));
        }
        let validation = options.field_validation;
        // The edit may run several times; the last run's warnings are those of what was stored.
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&warnings);
        let edit = move |object: &mut Object| {
            let mut base = object.clone();
            base.metadata_mut().remove("resourceVersion");
            let patched = admit::patch(kind, &base, form, &patch)?;
            let (patched, found) = admit::recheck(kind, patched, validation)?;
            *noted.lock() = found;
            check_names(object, &patched)?;
            *object = patched;
            Ok(())
        };
        let write = if status {
            Write::edit_status(kind, key, Precondition::default(), edit)
        } else {
            Write::edit(kind, key, Precondition::default(), edit)
        };
        let mut written = self.write(caller, write.dry_run(options.dry_run)).await?;
        let mut all = std::mem::take(&mut *warnings.lock());
        all.append(&mut written.warnings);
        written.warnings = all;
        Ok(written)
    }
}

/// A patch may not turn an object into another one.
fn check_names(old: &Object, new: &Object) -> Result<(), ApiError> {
    if new.name() != old.name() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            new.name(),
            old.name()
        )));
    }
    if new.namespace() != old.namespace() {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
