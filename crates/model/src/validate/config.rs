//! ConfigMaps and Secrets: key names, total size, immutability.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::view::{Faults, View};
use crate::defaults::semantically_equal;
use crate::field_path::FieldError;
use crate::names;

/// Bytes of all values together.
const MAX_BYTES: usize = 1024 * 1024;
const IMMUTABLE: &str = "field is immutable when `immutable` is set";

pub(super) fn check_config_map(root: &View, faults: &mut Faults) {
    let (data, binary) = (root.child("data"), root.child("binaryData"));
    let mut size = 0;
    for (key, value) in data.entries() {
        check_key(key, &value, faults);
        if binary.child(key).is_present() {
            faults.push(FieldError::invalid(
                value.path(),
                &key.into(),
                "duplicate of key present in binaryData",
            ));
        }
        size += value.text().len();
    }
    for (key, value) in binary.entries() {
        check_key(key, &value, faults);
        size += decoded_length(&value, value.shown(), faults);
    }
    check_size(&data, size, faults);
}

pub(super) fn check_config_map_update(new: &View, old: &View, faults: &mut Faults) {
    check_immutable(new, old, &["data", "binaryData"], faults);
}

pub(super) fn check_secret(root: &View, faults: &mut Faults) {
    let data = root.child("data");
    let mut size = 0;
    for (key, value) in data.entries() {
        check_key(key, &value, faults);
        size += decoded_length(&value, &"<secret contents redacted>".into(), faults);
    }
    check_size(&data, size, faults);
    let needed: &[&str] = match root.child("type").text() {
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        _ => &[],
    };
    for key in needed {
        if !data.child(key).is_present() {
            faults.push(FieldError::required(data.path().key(key), ""));
        }
    }
}

pub(super) fn check_secret_update(new: &View, old: &View, faults: &mut Faults) {
    new.child("type")
        .check_unchanged(&old.child("type"), faults);
    check_immutable(new, old, &["data"], faults);
}

fn check_key(key: &str, value: &View, faults: &mut Faults) {
    let details = names::check_config_key(key);
    faults.extend(
        details
            .iter()
            .map(|detail| FieldError::invalid(value.path(), &key.into(), detail)),
    );
}

fn decoded_length(value: &View, shown: &Value, faults: &mut Faults) -> usize {
    match STANDARD.decode(value.text()) {
        Ok(bytes) => bytes.len(),
        Err(_) => {
            faults.push(FieldError::invalid(
                value.path(),
                shown,
                "must be base64 text",
            ));
            value.text().len()
        }
    }
}

fn check_size(data: &View, size: usize, faults: &mut Faults) {
    if size > MAX_BYTES {
        faults.push(FieldError::too_long(
            data.path(),
            &format!("must have at most {MAX_BYTES} bytes"),
        ));
    }
}

fn check_immutable(new: &View, old: &View, fields: &[&str], faults: &mut Faults) {
    if !old.child("immutable").is_true() {
        return;
    }
    if !new.child("immutable").is_true() {
        faults.push(new.child("immutable").forbidden(IMMUTABLE));
    }
    for field in fields {
        let (now, before) = (new.child(field), old.child(field));
        let both_empty = now.is_empty() && before.is_empty();
        if !both_empty && !semantically_equal(now.value(), before.value()) {
            faults.push(now.forbidden(IMMUTABLE));
        }
    }
}
