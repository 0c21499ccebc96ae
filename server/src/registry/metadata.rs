//! The metadata that the server owns, and what a write may do to it (spec/kube-api.md 9).

use muster_model::field_path::{FieldError, FieldPath};
use muster_model::kind::Kind;
use muster_model::object::Object;
use serde_json::{Map, Value};

use super::write::Propagation;

/// Puts the metadata that the server owns back to what is stored.
pub(super) fn carry_over(kind: &Kind, new: &mut Object, old: &Object) {
    new.set_kind(kind);
    let stored = old.at("/metadata").and_then(Value::as_object);
    let metadata = new.metadata_mut();
    metadata.remove("resourceVersion");
    metadata.remove("selfLink");
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
    ] {
        match stored.and_then(|stored| stored.get(field)) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.remove(field),
        };
    }
    if !metadata.contains_key("managedFields")
        && let Some(fields) = stored.and_then(|stored| stored.get("managedFields"))
    {
        metadata.insert("managedFields".to_owned(), fields.clone());
    }
    prune_empty(metadata);
}

/// Absent, null and empty mean the same for labels and their kin: only one of them is stored.
pub(super) fn prune_empty(metadata: &mut Map<String, Value>) {
    metadata.retain(|_, value| match value {
        Value::Null => false,
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    });
}

pub(super) fn keep_all_but_status(new: &mut Object, old: &Object) {
    let own = |key: &str| matches!(key, "metadata" | "status");
    let tree = new.tree_mut();
    tree.retain(|key, value| match key.as_str() {
        "status" => !value.is_null(),
        key => own(key) || old.tree().get(key).is_some(),
    });
    // Most writes of a status start from the stored object: what is the same already need not be copied.
    for (key, value) in old.tree().as_object().into_iter().flatten() {
        if !own(key) && tree.get(key) != Some(value) {
            tree.insert(key.clone(), value.clone());
        }
    }
    // Who owns an object is no matter of its status.
    let owners = old.at("/metadata/ownerReferences").cloned();
    match owners {
        Some(owners) => new.metadata_mut().insert("ownerReferences".into(), owners),
        None => new.metadata_mut().remove("ownerReferences"),
    };
}

/// Whether two versions differ in nothing but the version itself.
pub(super) fn is_same(new: &Object, old: &Object) -> bool {
    let metadata = |object| Object::at(object, "/metadata");
    same_but(metadata(new), metadata(old), &["resourceVersion"])
        && same_but(Some(new.tree()), Some(old.tree()), &["metadata"])
}

/// Whether two mappings are equal, these keys left out.
pub(crate) fn same_but(old: Option<&Value>, new: Option<&Value>, but: &[&str]) -> bool {
    let (Some(Value::Object(old)), Some(Value::Object(new))) = (old, new) else {
        return old == new;
    };
    let counted = |(key, _): &(&String, &Value)| !but.contains(&key.as_str());
    old.iter().filter(counted).eq(new.iter().filter(counted))
}

pub(super) fn copy_field(field: &str, new: &mut Object, old: &Object) {
    match old.tree().get(field) {
        Some(value) => new.tree_mut().insert(field.to_owned(), value.clone()),
        None => new.tree_mut().remove(field),
    };
}

pub(super) fn bump_generation(new: &mut Object, old: &Object) {
    let next = old.generation().saturating_add(1);
    new.metadata_mut().insert("generation".into(), next.into());
}

pub(super) fn added_finalizers(new: &Object, old: &Object) -> Vec<FieldError> {
    if !old.is_terminating() {
        return Vec::new();
    }
    let known = old.finalizers();
    let added: Vec<&str> = new
        .finalizers()
        .into_iter()
        .filter(|name| !known.contains(name))
        .collect();
    if added.is_empty() {
        return Vec::new();
    }
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers {}",
        serde_json::json!(added)
    );
    vec![FieldError::forbidden(
        FieldPath::of("metadata.finalizers"),
        &detail,
    )]
}

pub(super) fn set_propagation(object: &mut Object, propagation: Option<Propagation>) {
    use muster_model::reason::finalizer::{FOREGROUND, ORPHAN};
    let wanted = match propagation {
        None => return,
        Some(Propagation::Background) => None,
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Orphan) => Some(ORPHAN),
    };
    let mut finalizers: Vec<Value> = object
        .finalizers()
        .into_iter()
        .filter(|name| *name != FOREGROUND && *name != ORPHAN)
        .map(Value::from)
        .collect();
    finalizers.extend(wanted.map(Value::from));
    if finalizers.is_empty() {
        object.metadata_mut().remove("finalizers");
    } else {
        object
            .metadata_mut()
            .insert("finalizers".into(), finalizers.into());
    }
}
