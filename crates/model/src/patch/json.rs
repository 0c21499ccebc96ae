//! JSON patch, RFC 6902.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use super::PatchError;
use crate::codec::{MAX_DEPTH, depth_exceeds};

/// Most operations of one patch, as in Kubernetes.
const MAX_OPERATIONS: usize = 10_000;

/// Most that `copy` operations may add, in bytes of JSON text: a few copies double an object each.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Applies the operations in order. A failed `test` or a missing path is [`PatchError::Unprocessable`].
pub fn apply(original: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let Patch(operations) =
        serde_json::from_slice(patch).map_err(|error| PatchError::Malformed(error.to_string()))?;
    if operations.len() > MAX_OPERATIONS {
        let found = operations.len();
        return Err(PatchError::Malformed(format!(
            "it has {found} operations; at most {MAX_OPERATIONS} are applied"
        )));
    }
    let mut patched = original.clone();
    let mut copied = 0;
    for (position, operation) in operations.iter().enumerate() {
        let refuse = |why: &str| {
            PatchError::Unprocessable(format!(
                "operation {} ({} {}): {why}",
                position + 1,
                verb(operation),
                operation.path()
            ))
        };
        if let PatchOperation::Copy(copy) = operation {
            copied += patched
                .pointer(copy.from.as_str())
                .map_or(0, |value| value.to_string().len());
            if copied > MAX_COPIED_BYTES {
                return Err(refuse("it copies too much"));
            }
        }
        json_patch::patch_unsafe(&mut patched, std::slice::from_ref(operation))
            .map_err(|error| refuse(&error.kind.to_string()))?;
        // Each operation can only deepen the tree a little; a tree checked each time can't outgrow the stack.
        let depth = operation.path().as_str().matches('/').count();
        let is_too_deep = match operation {
            PatchOperation::Test(_) | PatchOperation::Remove(_) => false,
            _ => {
                depth > MAX_DEPTH || {
                    // "-" has become the last element; its depth is that of the list's longest branch.
                    let target = patched.pointer(operation.path().as_str());
                    target.map_or_else(
                        || depth_exceeds(&patched, MAX_DEPTH),
                        |value| depth_exceeds(value, MAX_DEPTH - depth),
                    )
                }
            }
        };
        if is_too_deep {
            return Err(refuse("it nests lists and mappings too deep"));
        }
    }
    if !patched.is_object() {
        return Err(PatchError::Unprocessable(
            "it leaves no object behind".to_owned(),
        ));
    }
    Ok(patched)
}

fn verb(operation: &PatchOperation) -> &'static str {
    match operation {
        PatchOperation::Add(_) => "add",
        PatchOperation::Remove(_) => "remove",
        PatchOperation::Replace(_) => "replace",
        PatchOperation::Move(_) => "move",
        PatchOperation::Copy(_) => "copy",
        PatchOperation::Test(_) => "test",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn patched(patch: Value) -> Result<Value, PatchError> {
        apply(
            &json!({"a": {"b": [1, 2]}, "c": "x"}),
            patch.to_string().as_bytes(),
        )
    }

    #[test]
    fn every_operation_works() {
        let patch = json!([
            {"op": "test", "path": "/c", "value": "x"},
            {"op": "add", "path": "/a/b/-", "value": 3},
            {"op": "replace", "path": "/a/b/0", "value": 0},
            {"op": "copy", "from": "/a/b", "path": "/d"},
            {"op": "move", "from": "/c", "path": "/a/e~1f"},
            {"op": "remove", "path": "/a/b/1"},
        ]);
        assert_eq!(
            patched(patch).unwrap(),
            json!({"a": {"b": [0, 3], "e/f": "x"}, "d": [0, 2, 3]})
        );
        assert_eq!(
            patched(json!([])).unwrap(),
            json!({"a": {"b": [1, 2]}, "c": "x"})
        );
    }

    #[test]
    fn a_failed_test_or_a_missing_path_does_not_fit_the_object() {
        for (patch, wanted) in [
            (
                json!([{"op": "test", "path": "/c", "value": "y"}]),
                "operation 1 (test /c): value did not match",
            ),
            (
                json!([{"op": "remove", "path": "/x"}]),
                "operation 1 (remove /x): path is invalid",
            ),
            (
                json!([{"op": "add", "path": "/x/y", "value": 1}]),
                "operation 1 (add /x/y): path is invalid",
            ),
            (
                json!([{"op": "add", "path": "/a/b/9", "value": 1}]),
                "operation 1 (add /a/b/9): path is invalid",
            ),
            (
                json!([{"op": "copy", "from": "/x", "path": "/y"}]),
                "operation 1 (copy /y): \"from\" path is invalid",
            ),
            (
                json!([{"op": "replace", "path": "", "value": 1}]),
                "it leaves no object behind",
            ),
        ] {
            assert_eq!(
                patched(patch).unwrap_err(),
                PatchError::Unprocessable(wanted.to_owned())
            );
        }
    }

    #[test]
    fn what_is_no_patch_is_malformed() {
        for patch in [
            json!({}),
            json!([{"op": "jump", "path": "/a"}]),
            json!([{"op": "add", "path": "a", "value": 1}]),
        ] {
            assert!(matches!(patched(patch), Err(PatchError::Malformed(_))));
        }
        let many = vec![json!({"op": "test", "path": "/c", "value": "x"}); MAX_OPERATIONS + 1];
        assert!(matches!(
            patched(json!(many)),
            Err(PatchError::Malformed(_))
        ));
    }

    #[test]
    fn neither_doubling_nor_nesting_gets_far() {
        let mut doubling = vec![json!({"op": "add", "path": "/c", "value": "x".repeat(1000)})];
        doubling
            .extend((0..60).map(|n| json!({"op": "copy", "from": "", "path": format!("/k{n}")})));
        assert!(matches!(
            patched(json!(doubling)),
            Err(PatchError::Unprocessable(_))
        ));
        let nesting = vec![json!({"op": "copy", "from": "/a", "path": "/a/a"}); 9000];
        assert!(matches!(
            patched(json!(nesting)),
            Err(PatchError::Unprocessable(_))
        ));
        let path = |n: usize| "/0".repeat(n);
        let deep: Vec<Value> = (0..9000)
            .map(|n| json!({"op": "add", "path": format!("/a/b{}", path(n)), "value": []}))
            .collect();
        assert!(matches!(
            patched(json!(deep)),
            Err(PatchError::Unprocessable(_))
        ));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = apply(&json!({"a": [1]}), &bytes);
        }

        #[test]
        fn no_operations_panic(
            operations in prop::collection::vec(
                (
                    prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test"]),
                    "(/(a|b|0|1|-|~0|)){0,4}",
                    "(/(a|b|0|1|-|~0|)){0,4}",
                ),
                0..12,
            )
        ) {
            let patch: Vec<Value> = operations
                .into_iter()
                .map(|(op, path, from)| json!({"op": op, "path": path, "from": from, "value": {"a": [0]}}))
                .collect();
            let _ = apply(&json!({"a": [[1], {"b": 2}], "b": {"a": 1}}), json!(patch).to_string().as_bytes());
        }
    }
}
