//! Three-way apply: what a manifest changes, given what it said last time and what is stored.
//!
//! This is the client's side of `kubectl apply`, so that `muster apply` and `kubectl apply` can alternate on the same
//! objects (spec/kube-api.md 9, client-side apply flow). What the manifest says wins over what is stored; what it said
//! last time and says no more is deleted; what others set and it never named stays.
//!
//! The patch is a strategic merge patch, the smallest that gets there; `{}` when nothing changes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::codec::kubectl_json;
use crate::kind::Kind;
use crate::object::Object;
use crate::patch::schema::{Field, ListRule, Place};
use crate::patch::strategic::{DELETE_SCALARS, ELEMENT_ORDER, PATCH, RETAIN_KEYS};

/// The annotation that holds what the manifest said last time.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Metadata that only the server sets. Tools write `creationTimestamp: null`; it asks for nothing.
const SERVER_OWNED: &[&str] = &[
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "uid",
];

/// The text of the annotation for a manifest: its compact JSON and a line feed, byte for byte as kubectl writes it
/// (the annotation itself left out, an empty `annotations` mapping always present).
pub fn last_applied_annotation(manifest: &Object) -> String {
    let mut plain = manifest.clone();
    plain.remove_annotation(LAST_APPLIED);
    plain
        .metadata_mut()
        .entry("annotations")
        .or_insert_with(|| json!({}));
    kubectl_json(plain.tree()) + "\n"
}

/// The whole of client-side apply for an object that exists (the manifest's namespace is filled in by then): writes the annotation into the manifest, takes what was
/// said last time from the stored object, and returns the patch to send. An unreadable annotation counts as none.
pub fn patch_for(kind: &Kind, manifest: &Object, current: &Object) -> Value {
    let last: Option<Value> = current
        .annotation(LAST_APPLIED)
        .and_then(|text| serde_json::from_str(text).ok());
    three_way(
        kind,
        last.as_ref(),
        annotated(manifest).tree(),
        current.tree(),
    )
}

/// The manifest with its own text in the annotation: what is created when the object does not exist yet.
pub fn annotated(manifest: &Object) -> Object {
    let mut annotated = manifest.clone();
    annotated.set_annotation(LAST_APPLIED, &last_applied_annotation(manifest));
    annotated
}

/// The strategic merge patch that brings `current` to what `modified` says, deleting what `last_applied` had and
/// `modified` has not. `{}` when there is nothing to do.
pub fn three_way(
    kind: &Kind,
    last_applied: Option<&Value>,
    modified: &Value,
    current: &Value,
) -> Value {
    let (Some(modified), Some(current)) = (modified.as_object(), current.as_object()) else {
        return json!({});
    };
    let last = last_applied.and_then(Value::as_object);
    Value::Object(map_patch(Place::of(kind), last, modified, current))
}

fn map_patch(
    place: Place,
    last: Option<&Map<String, Value>>,
    modified: &Map<String, Value>,
    current: &Map<String, Value>,
) -> Map<String, Value> {
    let mut patch = Map::new();
    for (name, wanted) in modified {
        if place == Place::Metadata && wanted.is_null() && SERVER_OWNED.contains(&name.as_str()) {
            continue;
        }
        let last = last.and_then(|last| last.get(name));
        field_patch(
            place.field(name),
            name,
            last,
            wanted,
            current.get(name),
            &mut patch,
        );
    }
    for name in last.into_iter().flat_map(Map::keys) {
        if !modified.contains_key(name) && current.contains_key(name) {
            patch.insert(name.clone(), Value::Null);
        }
    }
    patch
}

fn field_patch(
    field: Field,
    name: &str,
    last: Option<&Value>,
    wanted: &Value,
    current: Option<&Value>,
    patch: &mut Map<String, Value>,
) {
    match (wanted, current) {
        (wanted, Some(current)) if wanted == current => {}
        // A null in the manifest asks for the field to be absent.
        (Value::Null, None) => {}
        (Value::Object(wanted), Some(Value::Object(current))) => {
            let below = map_patch(
                field.place,
                last.and_then(Value::as_object),
                wanted,
                current,
            );
            if !below.is_empty() {
                patch.insert(name.to_owned(), Value::Object(below));
            }
        }
        (Value::Array(wanted), Some(Value::Array(current))) => {
            let last = last
                .and_then(Value::as_array)
                .map(Vec::as_slice)
                .unwrap_or_default();
            match field.list {
                ListRule::ByKey(key) => element_patch(
                    field,
                    key,
                    name,
                    &Lists {
                        last,
                        wanted,
                        current,
                    },
                    patch,
                ),
                ListRule::Scalars => scalar_patch(name, last, wanted, current, patch),
                ListRule::Atomic => {
                    patch.insert(name.to_owned(), Value::Array(wanted.clone()));
                }
            }
        }
        (wanted, _) => {
            patch.insert(name.to_owned(), wanted.clone());
        }
    }
}

/// The elements of a list by their key. Of several with the same key (two protocols on one port) the n-th belongs to
/// the n-th of the other list.
struct ByKey<'l>(BTreeMap<String, Vec<&'l Map<String, Value>>>);

impl<'l> ByKey<'l> {
    fn of(list: &'l [Value], key: &str) -> Self {
        let mut elements: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for element in list {
            if let (Some(fields), Some(identity)) = (element.as_object(), element.get(key)) {
                elements
                    .entry(identity.to_string())
                    .or_default()
                    .push(fields);
            }
        }
        Self(elements)
    }

    fn find(&self, identity: &Value, nth: usize) -> Option<&'l Map<String, Value>> {
        self.0.get(&identity.to_string())?.get(nth).copied()
    }
}

/// What a merging list was, shall be, and is.
struct Lists<'l> {
    last: &'l [Value],
    wanted: &'l [Value],
    current: &'l [Value],
}

fn element_patch(
    field: Field,
    key: &str,
    name: &str,
    lists: &Lists<'_>,
    patch: &mut Map<String, Value>,
) {
    let Lists {
        last,
        wanted,
        current,
    } = lists;
    let (last_by_key, current_by_key) = (ByKey::of(last, key), ByKey::of(current, key));
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut changes = Vec::new();
    let mut order = Vec::new();
    for element in *wanted {
        let (Some(fields), Some(identity)) = (element.as_object(), element.get(key)) else {
            // Without its key the element can't be merged: whoever applies the patch says so.
            changes.push(element.clone());
            continue;
        };
        let count = seen.entry(identity.to_string()).or_default();
        let nth = *count;
        *count += 1;
        order.push(json!({ key: identity }));
        let Some(existing) = current_by_key.find(identity, nth) else {
            changes.push(element.clone());
            continue;
        };
        let mut change = map_patch(
            field.place,
            last_by_key.find(identity, nth),
            fields,
            existing,
        );
        let has_foreign_key = existing.keys().any(|key| !fields.contains_key(key));
        if field.retain_keys && has_foreign_key && !change.is_empty() {
            change.retain(|_, value| !value.is_null());
            change.insert(RETAIN_KEYS.to_owned(), fields.keys().cloned().collect());
        }
        if !change.is_empty() {
            change.insert(key.to_owned(), identity.clone());
            changes.push(Value::Object(change));
        }
    }
    for identity in last.iter().filter_map(|element| element.get(key)) {
        if !seen.contains_key(&identity.to_string()) && current_by_key.find(identity, 0).is_some() {
            changes.push(json!({ PATCH: "delete", key: identity }));
        }
    }
    let identities = |list: &[Value]| -> Vec<Value> {
        list.iter().filter_map(|e| e.get(key).cloned()).collect()
    };
    insert_list(
        name,
        changes,
        order,
        &identities(wanted),
        &identities(current),
        patch,
    );
}

fn scalar_patch(
    name: &str,
    last: &[Value],
    wanted: &[Value],
    current: &[Value],
    patch: &mut Map<String, Value>,
) {
    let added: Vec<Value> = wanted
        .iter()
        .filter(|element| !current.contains(element))
        .cloned()
        .collect();
    let gone: Vec<Value> = last
        .iter()
        .filter(|element| !wanted.contains(element) && current.contains(element))
        .cloned()
        .collect();
    let is_changed = !gone.is_empty();
    if is_changed {
        patch.insert(format!("{DELETE_SCALARS}{name}"), Value::Array(gone));
    }
    insert_list(name, added, wanted.to_vec(), wanted, current, patch);
    if is_changed {
        patch
            .entry(format!("{ELEMENT_ORDER}{name}"))
            .or_insert_with(|| Value::Array(wanted.to_vec()));
    }
}

/// Puts the changes of a list into the patch, with the order if the elements change or stand in another one.
fn insert_list(
    name: &str,
    changes: Vec<Value>,
    order: Vec<Value>,
    wanted: &[Value],
    current: &[Value],
    patch: &mut Map<String, Value>,
) {
    let present = |list: &[Value], other: &[Value]| -> Vec<String> {
        let other: BTreeSet<String> = other.iter().map(Value::to_string).collect();
        list.iter()
            .map(Value::to_string)
            .filter(|identity| other.contains(identity))
            .collect()
    };
    let is_reordered = present(wanted, current) != present(current, wanted);
    if changes.is_empty() && !is_reordered {
        return;
    }
    patch.insert(format!("{ELEMENT_ORDER}{name}"), Value::Array(order));
    if !changes.is_empty() {
        patch.insert(name.to_owned(), Value::Array(changes));
    }
}

#[cfg(test)]
mod tests;
