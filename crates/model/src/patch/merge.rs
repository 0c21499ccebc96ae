//! Merge patch, RFC 7386: mappings merge, `null` deletes, everything else replaces.

use serde_json::Value;

use super::{PatchError, expect_mapping};

/// Applies the patch. Anything but a mapping is [`PatchError::Malformed`]: it would leave no object behind.
pub fn apply(original: &Value, patch: &Value) -> Result<Value, PatchError> {
    expect_mapping(patch)?;
    let mut patched = original.clone();
    json_patch::merge(&mut patched, patch);
    Ok(patched)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn mappings_merge_null_deletes_and_the_rest_replaces() {
        let original = json!({"a": {"b": 1, "c": 2}, "l": [1, 2], "t": "x"});
        let patch = json!({"a": {"b": null, "d": {"e": null, "f": 3}}, "l": [3], "n": null});
        let wanted = json!({"a": {"c": 2, "d": {"f": 3}}, "l": [3], "t": "x"});
        assert_eq!(apply(&original, &patch).unwrap(), wanted);
        assert_eq!(apply(&original, &json!({})).unwrap(), original);
        assert_eq!(
            apply(&original, &json!([1])).unwrap_err().to_string(),
            "the patch is not valid: expected a mapping, found a list"
        );
    }
}
