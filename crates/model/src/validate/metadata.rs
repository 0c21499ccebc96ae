//! The usual object rules: names, labels, annotations, owner references, finalizers.

use super::view::{Faults, View};
use crate::field_path::FieldError;
use crate::kind::{self, Kind};
use crate::names;
use crate::reason::finalizer;

/// Bytes of all keys and values of an object's annotations.
const MAX_ANNOTATION_BYTES: usize = 262_144;

pub(super) fn check(kind: &Kind, root: &View, faults: &mut Faults) {
    let metadata = root.child("metadata");
    let (name, prefix) = (metadata.child("name"), metadata.child("generateName"));
    let check_name = name_rule(kind);
    if !prefix.is_empty() {
        let details = names::check_prefix(prefix.text(), check_name);
        faults.extend(details.iter().map(|detail| prefix.invalid_text(detail)));
    }
    if name.is_empty() && prefix.is_empty() {
        faults.push(name.required("name or generateName is required"));
    }
    name.check_text(check_name, faults);
    let namespace = metadata.child("namespace");
    if kind.namespaced {
        namespace.require_text(names::check_label, faults);
    } else if !namespace.is_empty() {
        faults.push(namespace.forbidden("not allowed on this type"));
    }
    metadata.child("generation").check_not_negative(faults);
    check_labels(&metadata.child("labels"), faults);
    check_annotations(&metadata.child("annotations"), faults);
    check_owners(&metadata.child("ownerReferences"), faults);
    check_finalizers(&metadata.child("finalizers"), faults);
}

pub(super) fn check_update(new: &View, old: &View, faults: &mut Faults) {
    let (new, old) = (new.child("metadata"), old.child("metadata"));
    if old.child("deletionTimestamp").is_present() {
        let before: Vec<&str> = old
            .child("finalizers")
            .items()
            .iter()
            .map(View::text)
            .collect();
        let added: Vec<String> = (new.child("finalizers").items().iter())
            .filter(|finalizer| !before.contains(&finalizer.text()))
            .map(|finalizer| format!("{:?}", finalizer.text()))
            .collect();
        if !added.is_empty() {
            faults.push(new.child("finalizers").forbidden(&format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            )));
        }
    }
    for field in ["name", "namespace", "uid", "creationTimestamp"] {
        new.child(field).check_unchanged(&old.child(field), faults);
    }
}

/// Keys and values of labels, also those of a node selector.
pub(super) fn check_labels(labels: &View, faults: &mut Faults) {
    for (key, value) in labels.entries() {
        check_label_key(labels, key, faults);
        let details = names::check_label_value(value.text());
        faults.extend(
            details
                .iter()
                .map(|detail| FieldError::invalid(labels.path(), value.shown(), detail)),
        );
    }
}

pub(super) fn check_annotations(annotations: &View, faults: &mut Faults) {
    let mut size = 0;
    for (key, value) in annotations.entries() {
        let details = names::check_qualified_name(&key.to_ascii_lowercase());
        faults.extend(
            details
                .iter()
                .map(|detail| FieldError::invalid(annotations.path(), &key.into(), detail)),
        );
        size += key.len() + value.text().len();
    }
    if size > MAX_ANNOTATION_BYTES {
        let detail = format!("must have at most {MAX_ANNOTATION_BYTES} bytes");
        faults.push(FieldError::too_long(annotations.path(), &detail));
    }
}

fn check_label_key(labels: &View, key: &str, faults: &mut Faults) {
    let details = names::check_qualified_name(key);
    faults.extend(
        details
            .iter()
            .map(|detail| FieldError::invalid(labels.path(), &key.into(), detail)),
    );
}

fn check_owners(owners: &View, faults: &mut Faults) {
    let mut controller: Option<String> = None;
    for owner in owners.items() {
        for (field, detail) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "kind must not be empty"),
            ("name", "name must not be empty"),
            ("uid", "uid must not be empty"),
        ] {
            if owner.child(field).is_empty() {
                faults.push(owner.child(field).invalid_text(detail));
            }
        }
        let (version, kind) = (owner.child("apiVersion").text(), owner.child("kind").text());
        if kind == kind::EVENT.kind && version == kind::EVENT.version {
            faults.push(owner.invalid("/v1, Kind=Event is disallowed from being an owner"));
        }
        if owner.child("controller").is_true() {
            let named = format!("{kind}/{}", owner.child("name").text());
            match &controller {
                None => controller = Some(named),
                Some(first) => faults.push(owners.invalid(&format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {named}"
                ))),
            }
        }
    }
}

pub(super) fn check_finalizers(finalizers: &View, faults: &mut Faults) {
    const STANDARD: [&str; 3] = [
        finalizer::KUBERNETES,
        finalizer::ORPHAN,
        finalizer::FOREGROUND,
    ];
    let items = finalizers.items();
    for item in &items {
        let name = item.text();
        let details = names::check_qualified_name(name);
        faults.extend(
            details
                .iter()
                .map(|detail| FieldError::invalid(finalizers.path(), &name.into(), detail)),
        );
        if details.is_empty() && !name.contains('/') && !STANDARD.contains(&name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            faults.push(FieldError::invalid(finalizers.path(), &name.into(), detail));
        }
    }
    let has = |name: &str| items.iter().any(|item| item.text() == name);
    if has(finalizer::ORPHAN) && has(finalizer::FOREGROUND) {
        let detail = format!(
            "finalizers {} and {} cannot be both set",
            finalizer::ORPHAN,
            finalizer::FOREGROUND
        );
        faults.push(finalizers.invalid(&detail));
    }
}

fn name_rule(kind: &Kind) -> fn(&str) -> Vec<String> {
    if *kind == kind::NAMESPACE {
        names::check_label
    } else if kind.group == "rbac.authorization.k8s.io" {
        check_path_segment
    } else {
        names::check_subdomain
    }
}

/// Names of roles and bindings: whatever can be one segment of a path, such as `system:node`.
fn check_path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ['/', '%']
        .iter()
        .filter(|c| name.contains(**c))
        .map(|c| format!("may not contain '{c}'"))
        .collect()
}
