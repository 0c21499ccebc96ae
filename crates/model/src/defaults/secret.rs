//! Defaults of Secrets: the type, and `stringData` folded into `data`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{default_text, mapping, mapping_or_new};
use crate::object::Object;

pub(super) fn apply(object: &mut Object) {
    let tree = object.tree_mut();
    default_text(tree, "type", "Opaque");
    let Some(texts) = mapping(tree, "stringData").cloned() else {
        return;
    };
    if !texts.values().all(Value::is_string) {
        return;
    }
    let Some(data) = mapping_or_new(tree, "data") else {
        return;
    };
    for (key, text) in &texts {
        let encoded = STANDARD.encode(text.as_str().unwrap_or_default());
        data.insert(key.clone(), encoded.into());
    }
    tree.remove("stringData");
}
