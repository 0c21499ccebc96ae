//! Every other kind: its metadata, and the rest as YAML. Secrets show sizes, never contents.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use muster_model::kind::SECRET;
use muster_model::object::Object;
use muster_model::time::Timestamp;
use serde_json::Value;

use super::tabs::Text;
use super::{annotations, events, head, labels, text};
use crate::failure::Outcome;
use crate::output::yaml;

/// The description of any object.
pub(crate) fn describe(object: &Object, happened: &[Object], now: Timestamp) -> Outcome<String> {
    let mut out = Text::default();
    head(&mut out, object);
    labels(&mut out, "Labels", &object.tree()["metadata"]["labels"]);
    annotations(
        &mut out,
        "Annotations",
        &object.tree()["metadata"]["annotations"],
    );
    out.line(0, format!("API Version:\t{}", object.api_version()));
    out.line(0, format!("Kind:\t{}", object.kind_name()));
    out.line(
        0,
        format!(
            "Created:\t{}",
            object.text_at("/metadata/creationTimestamp")
        ),
    );
    if let Some(time) = object.deletion_timestamp() {
        out.line(0, format!("Being Deleted Since:\t{time}"));
        out.line(
            0,
            format!("Finalizers:\t{}", object.finalizers().join(", ")),
        );
    }
    if let Some(owner) = object.controller() {
        out.line(0, format!("Controlled By:\t{}/{}", owner.kind, owner.name));
    }
    let mut rest = object.tree().clone();
    if let Some(map) = rest.as_object_mut() {
        for known in ["apiVersion", "kind", "metadata"] {
            map.remove(known);
        }
        if object.kind() == Some(&SECRET) {
            secret(&mut out, map);
        }
        if !map.is_empty() {
            out.line(0, yaml::to_text(&rest)?.trim_end().replace('\t', "    "));
        }
    }
    events::events(&mut out, happened, now);
    Ok(out.render())
}

fn secret(out: &mut Text, map: &mut serde_json::Map<String, Value>) {
    out.line(
        0,
        format!(
            "Type:\t{}",
            map.remove("type").as_ref().map(text).unwrap_or_default()
        ),
    );
    let data = map.remove("data");
    out.line(0, "Data:");
    for (key, value) in data.iter().filter_map(Value::as_object).flatten() {
        let size = BASE64_STANDARD
            .decode(text(value))
            .map(|bytes| bytes.len())
            .unwrap_or_default();
        out.line(1, format!("{key}:\t{size} bytes"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_secret_is_never_shown() {
        let mut object = Object::from_value(
            json!({"metadata": {"name": "s", "namespace": "default"}, "type": "Opaque",
            "data": {"password": BASE64_STANDARD.encode("hunter2")}}),
        )
        .unwrap();
        object.set_kind(&SECRET);
        let text = describe(&object, &[], "2026-01-31T10:00:10Z".parse().unwrap()).unwrap();
        assert!(text.contains("password:  7 bytes"), "{text}");
        assert!(!text.contains(&BASE64_STANDARD.encode("hunter2")), "{text}");
    }
}
