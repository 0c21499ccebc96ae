//! Whether two trees say the same, as Kubernetes' typed comparison sees it.

use std::collections::BTreeSet;

use serde_json::Value;

/// Mappings whose keys are the author's own: empty is the same as absent, but every entry counts.
const OPEN_MAPS: &[&str] = &[
    "labels",
    "annotations",
    "matchLabels",
    "nodeSelector",
    "limits",
    "requests",
    "overhead",
    "capacity",
    "allocatable",
    "data",
    "binaryData",
];

/// Fields whose zero value Kubernetes does not keep apart from absence.
const ZERO_IS_ABSENT: &[&str] = &[
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "stdin",
    "stdinOnce",
    "tty",
    "readOnly",
    "unschedulable",
    "hostPort",
    "initialDelaySeconds",
    "minReadySeconds",
];

/// Whether two values (both already defaulted) mean the same: `null`, an empty list, an empty text, an empty
/// map of labels and the like are as good as nothing; the order of lists counts.
pub fn semantically_equal(a: Option<&Value>, b: Option<&Value>) -> bool {
    same("", a.unwrap_or(&Value::Null), b.unwrap_or(&Value::Null))
}

fn same(key: &str, a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) if OPEN_MAPS.contains(&key) => x == y,
        (Value::Object(x), Value::Object(y)) => {
            let keys: BTreeSet<&String> = x.keys().chain(y.keys()).collect();
            keys.into_iter().all(|key| {
                let (a, b) = (
                    x.get(key).unwrap_or(&Value::Null),
                    y.get(key).unwrap_or(&Value::Null),
                );
                same(key, a, b)
            })
        }
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(a, b)| same("", a, b))
        }
        _ => a == b || (is_absent(key, a) && is_absent(key, b)),
    }
}

fn is_absent(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty() && OPEN_MAPS.contains(&key),
        Value::Bool(flag) => !flag && ZERO_IS_ABSENT.contains(&key),
        Value::Number(number) => number.as_i64() == Some(0) && ZERO_IS_ABSENT.contains(&key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_says_nothing_is_nothing() {
        let equal = [
            (json!({"env": []}), json!({})),
            (json!({"labels": {}}), json!({"labels": null})),
            (
                json!({"hostNetwork": false, "minReadySeconds": 0}),
                json!({}),
            ),
            (
                json!({"containers": [{"workingDir": ""}]}),
                json!({"containers": [{}]}),
            ),
        ];
        for (a, b) in equal {
            assert!(semantically_equal(Some(&a), Some(&b)), "{a} {b}");
            assert!(semantically_equal(Some(&b), Some(&a)), "{b} {a}");
        }
        let different = [
            (json!({"emptyDir": {}}), json!({})),
            (json!({"labels": {"a": ""}}), json!({"labels": {}})),
            (json!({"runAsNonRoot": false}), json!({})),
            (json!({"runAsUser": 0}), json!({})),
            (json!({"args": ["a", "b"]}), json!({"args": ["b", "a"]})),
            (json!({"args": ["a"]}), json!({})),
        ];
        for (a, b) in different {
            assert!(!semantically_equal(Some(&a), Some(&b)), "{a} {b}");
            assert!(!semantically_equal(Some(&b), Some(&a)), "{b} {a}");
        }
    }
}
