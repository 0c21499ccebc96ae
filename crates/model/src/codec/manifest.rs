//! Manifest files: several documents, `List` kinds, and faults with their place.

use std::fmt;

use serde_json::Value;

use super::read::{Located, ReadError, Tree, read_all};
use crate::object::{Object, type_name};

/// One object of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The object as written; not yet judged by its kind ([`super::decode_tree`] does).
    pub object: Object,
    /// The number of its document in the file, from 1. The items of one `List` share it.
    pub number: usize,
    /// The line at which the document starts, from 1.
    pub line: usize,
    /// Paths of keys given twice.
    pub duplicates: Vec<String>,
}

/// Why a manifest can't be read: the file's name, the place, the fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestError {
    /// The name of the file as the caller gave it.
    pub source_name: String,
    /// The fault.
    pub fault: ReadError,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source_name, self.fault)
    }
}

impl std::error::Error for ManifestError {}

/// Reads every object of a manifest, JSON or YAML. Empty documents are skipped; the items of a `List`, or of
/// another `...List`, take its place. One fault refuses the whole file.
pub fn read_manifests(source_name: &str, bytes: &[u8]) -> Result<Vec<Document>, ManifestError> {
    let fail = |fault| ManifestError {
        source_name: source_name.to_owned(),
        fault,
    };
    let mut documents = Vec::new();
    for (index, Located { tree, line }) in read_all(bytes).map_err(fail)?.into_iter().enumerate() {
        let Tree { value, duplicates } = tree;
        if value.is_null() {
            continue;
        }
        let document = |value: Value, duplicates| {
            let found = type_name(&value);
            match Object::from_value(value) {
                Ok(object) => Ok(Document {
                    object,
                    number: index + 1,
                    line,
                    duplicates,
                }),
                Err(_) => Err(ReadError::at(
                    line,
                    0,
                    format!("expected an object (a mapping), found {found}"),
                )),
            }
        };
        match split_list(value) {
            Ok((items, item_kind)) => {
                for (position, mut item) in items.into_iter().enumerate() {
                    if let (Some((api_version, kind)), Some(map)) =
                        (&item_kind, item.as_object_mut())
                    {
                        map.entry("apiVersion")
                            .or_insert_with(|| api_version.clone().into());
                        map.entry("kind").or_insert_with(|| kind.clone().into());
                    }
                    let prefix = format!("items[{position}].");
                    let own = duplicates
                        .iter()
                        .filter_map(|path| path.strip_prefix(&prefix))
                        .map(str::to_owned);
                    documents.push(document(item, own.collect()).map_err(fail)?);
                }
            }
            Err(value) => documents.push(document(value, duplicates).map_err(fail)?),
        }
    }
    Ok(documents)
}

/// The items of a list, with the version and kind that items of a typed list need not repeat. Anything else is
/// handed back.
#[expect(
    clippy::type_complexity,
    reason = "read in one place, four lines below its only caller"
)]
fn split_list(mut value: Value) -> Result<(Vec<Value>, Option<(String, String)>), Value> {
    let text = |field: &str| {
        value
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let Some(item_kind) = kind.strip_suffix("List") else {
        return Err(value);
    };
    match value.get_mut("items") {
        Some(Value::Array(items)) => {
            let items = std::mem::take(items);
            Ok((
                items,
                (!item_kind.is_empty()).then(|| (api_version, item_kind.to_owned())),
            ))
        }
        _ => Err(value),
    }
}
