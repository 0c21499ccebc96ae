//! The typed view as a judge: wrong types, unknown fields, and the tree without them.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::limits::clipped;
use crate::k8s::api::apps::v1::{ControllerRevision, DaemonSet};
use crate::k8s::api::coordination::v1::Lease;
use crate::k8s::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod, Secret, ServiceAccount};
use crate::k8s::api::scheduling::v1::PriorityClass;
use crate::kind::{self, Kind};
use crate::object::{Object, type_name};
use crate::policy::DaemonSetPolicy;

/// A field of the wrong type.
#[derive(Debug)]
pub(crate) struct WrongType {
    pub(crate) path: String,
    pub(crate) detail: String,
}

/// What a typed reading found: the paths of unknown fields, and the value written out again.
type Reading = Result<(Vec<String>, Value), (Vec<Segment>, String)>;

type Reader = fn(&Value) -> Reading;

/// Each kind with the type that reads it.
static TYPES: &[(&Kind, Reader)] = &[
    (&kind::NAMESPACE, round_trip::<Namespace>),
    (&kind::NODE, round_trip::<Node>),
    (&kind::POD, round_trip::<Pod>),
    (&kind::EVENT, round_trip::<Event>),
    (&kind::CONFIG_MAP, round_trip::<ConfigMap>),
    (&kind::SECRET, round_trip::<Secret>),
    (&kind::SERVICE_ACCOUNT, round_trip::<ServiceAccount>),
    (&kind::DAEMON_SET, round_trip::<DaemonSet>),
    (&kind::CONTROLLER_REVISION, round_trip::<ControllerRevision>),
    (&kind::LEASE, round_trip::<Lease>),
    (&kind::PRIORITY_CLASS, round_trip::<PriorityClass>),
    (&kind::DAEMON_SET_POLICY, round_trip::<DaemonSetPolicy>),
];

/// Mappings of texts to texts: `null` there is the empty text, as in Kubernetes.
const TEXT_MAPS: &[&str] = &[
    "/metadata/labels",
    "/metadata/annotations",
    "/spec/selector/matchLabels",
    "/spec/nodeSelector",
    "/stringData",
];

/// Judges the object and takes off what its kind does not have: unknown fields and nulls. Quantities given as
/// numbers become text. Returns the paths of the unknown fields.
pub(crate) fn check(kind: &Kind, object: &mut Object) -> Result<Vec<String>, WrongType> {
    let Some((_, read)) = TYPES.iter().find(|(known, _)| *known == kind) else {
        return Ok(Vec::new());
    };
    let mut tree = Value::Object(std::mem::take(object.tree_mut()));
    fill_text_maps(kind, &mut tree);
    let outcome = read(&tree);
    let checked = match outcome {
        Ok((unknown, known)) => {
            keep_known(&mut tree, known);
            Ok(unknown)
        }
        Err((path, message)) => {
            let detail = explain(kind, value_at(&tree, &path), &path, &message);
            Err(WrongType {
                path: path_text(&path),
                detail,
            })
        }
    };
    if let Value::Object(map) = tree {
        *object.tree_mut() = map;
    }
    checked
}

fn round_trip<T: DeserializeOwned + Serialize>(tree: &Value) -> Reading {
    let mut unknown = Vec::new();
    let mut note = |path: serde_ignored::Path<'_>| unknown.push(ignored_path(&path));
    let mut track = serde_path_to_error::Track::new();
    let reader = serde_path_to_error::Deserializer::new(
        serde_ignored::Deserializer::new(tree, &mut note),
        &mut track,
    );
    let read = T::deserialize(reader);
    match read {
        Ok(typed) => match serde_json::to_value(&typed) {
            Ok(known) => Ok((unknown, known)),
            Err(error) => Err((Vec::new(), error.to_string())),
        },
        Err(error) => Err((track.path().iter().cloned().collect(), error.to_string())),
    }
}

fn path_text(path: &[Segment]) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => text.push_str(&format!("[{index}]")),
            Segment::Map { key } => push_key(&mut text, key),
            Segment::Enum { variant } => push_key(&mut text, variant),
            Segment::Unknown => {}
        }
    }
    if text.is_empty() {
        ".".to_owned()
    } else {
        text
    }
}

fn value_at<'v>(tree: &'v Value, path: &[Segment]) -> Option<&'v Value> {
    path.iter().try_fold(tree, |value, segment| match segment {
        Segment::Seq { index } => value.get(index),
        Segment::Map { key } => value.get(key),
        Segment::Enum { .. } | Segment::Unknown => None,
    })
}

fn ignored_path(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", ignored_path(parent)),
        Path::Map { parent, key } => {
            let mut text = ignored_path(parent);
            push_key(&mut text, key);
            text
        }
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => ignored_path(parent),
    }
}

fn push_key(text: &mut String, key: &str) {
    if !text.is_empty() {
        text.push('.');
    }
    text.push_str(key);
}

/// `8001 is a number, a string is expected: quote it`.
fn explain(kind: &Kind, value: Option<&Value>, path: &[Segment], message: &str) -> String {
    let Some(value) = value else {
        return message.to_owned();
    };
    let shown = shown(kind, path, value);
    let expected = message
        .rsplit_once("expected ")
        .map(|(_, expected)| expected_in_words(expected));
    match expected {
        Some(expected) if message.starts_with("invalid type: ") => {
            let found = match value {
                Value::Null => "nothing (null) is given".to_owned(),
                _ if shown.is_empty() => format!("{} is given", type_name(value)),
                _ => format!("{shown} is {}", type_name(value)),
            };
            let is_scalar = matches!(value, Value::Bool(_) | Value::Number(_));
            let hint = if is_scalar && expected == "a string" {
                ": quote it"
            } else {
                ""
            };
            format!("{found}, {expected} is expected{hint}")
        }
        Some(_) if message.starts_with("invalid value: integer") => {
            format!("{shown} is out of range")
        }
        // A value of the right type that can't be read. The reader's words may repeat it, so not for a secret.
        _ if shown.is_empty() => "the value can't be read".to_owned(),
        _ => format!("{shown}: {message}"),
    }
}

/// The value as text, cut to a readable length; empty for collections and for what may be secret.
fn shown(kind: &Kind, path: &[Segment], value: &Value) -> String {
    let is_secret = *kind == kind::SECRET
        && matches!(path.first(), Some(Segment::Map { key }) if key == "data" || key == "stringData");
    if is_secret || value.is_array() || value.is_object() {
        return String::new();
    }
    clipped(&value.to_string(), 80)
}

fn expected_in_words(expected: &str) -> String {
    let expected = expected.trim_end_matches('.');
    match expected {
        "i32" | "i64" | "u32" | "u64" | "int32" | "int64" => "an integer".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a mapping".to_owned(),
        "Quantity" => "a quantity (such as \"100m\" or \"64Mi\")".to_owned(),
        "IntOrString" => "an integer or a string".to_owned(),
        "Time" | "MicroTime" => "a time (RFC 3339)".to_owned(),
        name if name.starts_with(|c: char| c.is_ascii_uppercase()) => "a mapping".to_owned(),
        other => other.to_owned(),
    }
}

fn fill_text_maps(kind: &Kind, tree: &mut Value) {
    let fill = |map: Option<&mut Value>| {
        for value in map
            .and_then(Value::as_object_mut)
            .into_iter()
            .flat_map(|map| map.values_mut())
        {
            if value.is_null() {
                *value = Value::String(String::new());
            }
        }
    };
    for pointer in TEXT_MAPS {
        fill(tree.pointer_mut(pointer));
    }
    if *kind == kind::CONFIG_MAP || *kind == kind::SECRET {
        fill(tree.pointer_mut("/data"));
    }
    if *kind == kind::DAEMON_SET {
        for pointer in TEXT_MAPS {
            fill(tree.pointer_mut(&format!("/spec/template{pointer}")));
        }
    }
}

/// Keeps of the tree what the typed value has as well. Where the two differ in type (a quantity given as a number),
/// the typed value has the canonical form.
fn keep_known(tree: &mut Value, known: Value) {
    match (tree, known) {
        (Value::Object(map), Value::Object(mut known)) => {
            map.retain(|key, value| match known.remove(key) {
                Some(known) => {
                    keep_known(value, known);
                    true
                }
                None => false,
            })
        }
        (Value::Array(list), Value::Array(known)) if list.len() == known.len() => {
            list.iter_mut()
                .zip(known)
                .for_each(|(value, known)| keep_known(value, known));
        }
        (tree, known) if std::mem::discriminant(tree) != std::mem::discriminant(&known) => {
            *tree = known
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_type() {
        for kind in kind::KINDS {
            assert!(TYPES.iter().any(|(known, _)| known == kind), "{kind}");
        }
    }
}
