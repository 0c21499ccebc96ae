//! Environment variables and where their values come from.

use super::super::view::{Faults, View};
use super::resources;
use crate::field_path::FieldError;
use crate::names;

const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const SOURCES: [&str; 5] = [
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
    "fileKeyRef",
];
const ONE_SOURCE: &str = "must specify one of: `configMapKeyRef`, `fieldRef`, `fileKeyRef`, `resourceFieldRef` or `secretKeyRef`";
const TOO_MANY_SOURCES: &str = "may not have more than one field specified at a time";

pub(super) fn check(container: &View, faults: &mut Faults) {
    for variable in container.child("env").items() {
        variable
            .child("name")
            .require_text(names::check_env_name, faults);
        let source = variable.child("valueFrom");
        if source.is_present() {
            check_source(&source, !variable.child("value").is_empty(), faults);
        }
    }
    for source in container.child("envFrom").items() {
        source
            .child("prefix")
            .check_text(names::check_env_name, faults);
        let given: Vec<View> = ["configMapRef", "secretRef"]
            .map(|name| source.child(name))
            .into_iter()
            .filter(View::is_present)
            .collect();
        for reference in &given {
            reference
                .child("name")
                .require_text(names::check_subdomain, faults);
        }
        match given.len() {
            0 => faults
                .push(source.invalid_text("must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => faults.push(source.invalid_text(TOO_MANY_SOURCES)),
        }
    }
}

fn check_source(source: &View, has_value: bool, faults: &mut Faults) {
    let given = SOURCES
        .iter()
        .filter(|name| source.child(name).is_present())
        .count();
    let field = source.child("fieldRef");
    if field.is_present() {
        check_field(&field, &ENV_FIELDS, faults);
    }
    let resource = source.child("resourceFieldRef");
    if resource.is_present() {
        resources::check_reference(&resource, false, faults);
    }
    for name in ["configMapKeyRef", "secretKeyRef"] {
        let reference = source.child(name);
        if reference.is_present() {
            reference.child("name").require(faults);
            reference
                .child("key")
                .require_text(names::check_config_key, faults);
        }
    }
    if given == 0 {
        faults.push(source.invalid_text(ONE_SOURCE));
    }
    if has_value && given != 0 {
        faults.push(source.invalid_text("may not be specified when `value` is not empty"));
    } else if given > 1 {
        faults.push(source.invalid_text(TOO_MANY_SOURCES));
    }
}

/// A reference to a field of the pod: one of `plain`, or a label or annotation by `['KEY']`.
pub(super) fn check_field(reference: &View, plain: &[&str], faults: &mut Faults) {
    let path = reference.child("fieldPath");
    if path.is_empty() {
        faults.push(path.required(""));
        return;
    }
    let subscripted = path
        .text()
        .strip_suffix("']")
        .and_then(|text| text.split_once("['"));
    let Some((map, key)) = subscripted else {
        path.check_one_of(plain, faults);
        return;
    };
    let details = match map {
        "metadata.labels" => names::check_qualified_name(key),
        "metadata.annotations" => names::check_qualified_name(&key.to_ascii_lowercase()),
        _ => {
            faults.push(FieldError::invalid(
                path.path(),
                &map.into(),
                "does not support subscript",
            ));
            return;
        }
    };
    faults.extend(
        details
            .iter()
            .map(|detail| FieldError::invalid(path.path(), &key.into(), detail)),
    );
}
