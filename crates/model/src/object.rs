//! An object as its JSON tree, with accessors for what every kind has.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::codec::kubectl_json;
use crate::kind::{self, Kind};

/// A Kubernetes object: its JSON tree. Keys are in code point order (the map is sorted), so the compact
/// text of [`Object::to_bytes`] is canonical: equal objects have equal bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Object {
    tree: Value,
}

/// Why a JSON tree is not an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// The document is a list, a number, a text, ... instead of a mapping.
    #[error("expected an object (a mapping), found {found}")]
    NotAMapping {
        /// What was found, in words.
        found: &'static str,
    },
    /// The typed view could not be made.
    #[error("{path}: {message}")]
    WrongType {
        /// Path of the field, such as `spec.template.spec.containers[0].env[0].value`; empty when unknown.
        path: String,
        /// What was expected and found.
        message: String,
    },
}

/// Namespace and name: what identifies an object of a kind at one time. `namespace` is empty for
/// cluster-scoped kinds. Ordered by namespace, then name, as lists are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct NamespacedName {
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl NamespacedName {
    /// Of both parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// An owner reference, as far as Muster acts on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    /// `apps/v1`.
    pub api_version: String,
    /// `DaemonSet`.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's uid: what the reference really means.
    pub uid: String,
    /// Whether the owner is the managing controller; at most one reference of an object is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub controller: bool,
    /// Whether a foreground deletion of the owner waits for this object.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub block_owner_deletion: bool,
}

impl Object {
    /// Takes a tree that is a mapping.
    pub fn from_value(tree: Value) -> Result<Self, ObjectError> {
        if tree.is_object() {
            Ok(Self { tree })
        } else {
            Err(ObjectError::NotAMapping {
                found: type_name(&tree),
            })
        }
    }

    /// The object of a typed value, with its `apiVersion` and `kind` set.
    pub fn from_typed<T: Serialize>(kind: &Kind, typed: &T) -> Result<Self, ObjectError> {
        let tree = serde_json::to_value(typed).map_err(|error| ObjectError::WrongType {
            path: String::new(),
            message: error.to_string(),
        })?;
        let mut object = Self::from_value(tree)?;
        object.set_kind(kind);
        Ok(object)
    }

    /// Reads stored or received JSON text that is known to be an object.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ObjectError> {
        let tree: Value =
            serde_json::from_slice(bytes).map_err(|error| ObjectError::WrongType {
                path: String::new(),
                message: error.to_string(),
            })?;
        Self::from_value(tree)
    }

    /// Compact JSON with sorted keys, byte for byte as Kubernetes writes it: kubectl compares the bytes of a
    /// ControllerRevision's `data` with its own (spec/daemonset.md 13.1).
    pub fn to_bytes(&self) -> Vec<u8> {
        kubectl_json(&self.tree).into_bytes()
    }

    /// The typed view. Fields that the type does not know are dropped from the view, not from the object.
    pub fn typed<T: DeserializeOwned>(&self) -> Result<T, ObjectError> {
        T::deserialize(&self.tree).map_err(|error| ObjectError::WrongType {
            path: String::new(),
            message: error.to_string(),
        })
    }

    /// The tree.
    pub fn tree(&self) -> &Value {
        &self.tree
    }

    /// The tree, to be changed. It must stay a mapping; everything below is free.
    pub fn tree_mut(&mut self) -> &mut Map<String, Value> {
        self.tree
            .as_object_mut()
            .expect("an Object is made of a mapping and never replaced by another type")
    }

    /// The tree itself.
    pub fn into_tree(self) -> Value {
        self.tree
    }

    /// The value at a JSON pointer such as `/spec/template`.
    pub fn at(&self, pointer: &str) -> Option<&Value> {
        self.tree.pointer(pointer)
    }

    /// The text at a JSON pointer; empty when absent or no text.
    pub fn text_at(&self, pointer: &str) -> &str {
        self.at(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// `apiVersion`; empty when absent.
    pub fn api_version(&self) -> &str {
        self.text_at("/apiVersion")
    }

    /// `kind`; empty when absent.
    pub fn kind_name(&self) -> &str {
        self.text_at("/kind")
    }

    /// The served kind this object says it is of.
    pub fn kind(&self) -> Option<&'static Kind> {
        kind::by_api_version(self.api_version(), self.kind_name())
    }

    /// Sets `apiVersion` and `kind`.
    pub fn set_kind(&mut self, kind: &Kind) {
        let tree = self.tree_mut();
        tree.insert("apiVersion".into(), kind.api_version().into());
        tree.insert("kind".into(), kind.kind.into());
    }

    /// `metadata.name`; empty when absent.
    pub fn name(&self) -> &str {
        self.text_at("/metadata/name")
    }

    /// `metadata.namespace`; empty when absent.
    pub fn namespace(&self) -> &str {
        self.text_at("/metadata/namespace")
    }

    /// Namespace and name together.
    pub fn namespaced_name(&self) -> NamespacedName {
        NamespacedName::new(self.namespace(), self.name())
    }

    /// `metadata.uid`; empty before the server gave one.
    pub fn uid(&self) -> &str {
        self.text_at("/metadata/uid")
    }

    /// `metadata.resourceVersion`; empty when absent.
    pub fn resource_version(&self) -> &str {
        self.text_at("/metadata/resourceVersion")
    }

    /// `metadata.generation`; 0 when absent.
    pub fn generation(&self) -> i64 {
        self.at("/metadata/generation")
            .and_then(Value::as_i64)
            .unwrap_or_default()
    }

    /// `metadata.deletionTimestamp`, RFC 3339; `None` while the object is not being deleted.
    pub fn deletion_timestamp(&self) -> Option<&str> {
        self.at("/metadata/deletionTimestamp")
            .and_then(Value::as_str)
    }

    /// Whether the object is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.deletion_timestamp().is_some()
    }

    /// `metadata.labels`.
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.text_map("/metadata/labels")
    }

    /// One label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.at("/metadata/labels")?.get(key)?.as_str()
    }

    /// `metadata.annotations`.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        self.text_map("/metadata/annotations")
    }

    /// One annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.at("/metadata/annotations")?.get(key)?.as_str()
    }

    /// `metadata.finalizers`, in order.
    pub fn finalizers(&self) -> Vec<&str> {
        self.at("/metadata/finalizers")
            .and_then(Value::as_array)
            .map(|list| list.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default()
    }

    /// `metadata.ownerReferences`; unreadable entries are left out.
    pub fn owner_references(&self) -> Vec<OwnerReference> {
        self.at("/metadata/ownerReferences")
            .and_then(Value::as_array)
            .map(|list| {
                list.iter()
                    .filter_map(|r| OwnerReference::deserialize(r).ok())
                    .collect()
            })
            .unwrap_or_default()
    }

    /// The reference of the managing controller.
    pub fn controller(&self) -> Option<OwnerReference> {
        self.owner_references()
            .into_iter()
            .find(|reference| reference.controller)
    }

    /// `metadata`, made when absent (or when it is not a mapping).
    pub fn metadata_mut(&mut self) -> &mut Map<String, Value> {
        let metadata = self
            .tree_mut()
            .entry("metadata")
            .or_insert_with(|| Value::Object(Map::new()));
        if !metadata.is_object() {
            *metadata = Value::Object(Map::new());
        }
        metadata.as_object_mut().expect("made a mapping just above")
    }

    /// Sets a label.
    pub fn set_label(&mut self, key: &str, value: &str) {
        self.metadata_map_mut("labels")
            .insert(key.to_owned(), value.into());
    }

    /// Sets an annotation.
    pub fn set_annotation(&mut self, key: &str, value: &str) {
        self.metadata_map_mut("annotations")
            .insert(key.to_owned(), value.into());
    }

    /// Takes an annotation off.
    pub fn remove_annotation(&mut self, key: &str) {
        self.metadata_map_mut("annotations").remove(key);
        if self.metadata_map_mut("annotations").is_empty() {
            self.metadata_mut().remove("annotations");
        }
    }

    fn metadata_map_mut(&mut self, field: &str) -> &mut Map<String, Value> {
        let map = self
            .metadata_mut()
            .entry(field)
            .or_insert_with(|| Value::Object(Map::new()));
        if !map.is_object() {
            *map = Value::Object(Map::new());
        }
        map.as_object_mut().expect("made a mapping just above")
    }

    fn text_map(&self, pointer: &str) -> BTreeMap<String, String> {
        self.at(pointer)
            .and_then(Value::as_object)
            .map(|map| {
                map.iter()
                    .filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())))
                    .collect()
            })
            .unwrap_or_default()
    }
}

/// What a JSON value is, in a user's words.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing (null)",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_written_in_code_point_order() {
        let object = Object::from_value(json!({"z": 1, "a": {"y": 1, "b": 2}})).unwrap();
        assert_eq!(object.to_bytes(), br#"{"a":{"b":2,"y":1},"z":1}"#);
    }

    #[test]
    fn text_is_escaped_as_kubernetes_does() {
        let object = Object::from_value(json!({"args": ["a && b > c"]})).unwrap();
        assert_eq!(
            object.to_bytes(),
            br#"{"args":["a \u0026\u0026 b \u003e c"]}"#
        );
        assert_eq!(Object::from_bytes(&object.to_bytes()).unwrap(), object);
    }

    #[test]
    fn a_list_is_no_object() {
        let error = Object::from_value(json!([1])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "expected an object (a mapping), found a list"
        );
    }
}
