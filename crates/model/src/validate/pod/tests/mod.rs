//! The pod rules, one table a part.

mod containers;
mod spec;

use serde_json::{Value, json};

use crate::kind::POD;
use crate::validate::tests::{faults, with};

fn base() -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "containers": [{"name": "c", "image": "i:1"}],
            "volumes": [{"name": "v", "hostPath": {"path": "/var/lib"}}]
        }
    })
}

/// Each row: pointer, value, and the faults without `spec.`.
fn check(rows: &[(&str, Value, &[&str])]) {
    for (pointer, value, expected) in rows {
        let found = faults(&POD, with(base(), pointer, value.clone()));
        let expected: Vec<String> = expected
            .iter()
            .map(|fault| format!("spec.{fault}"))
            .collect();
        assert_eq!(found, expected, "{pointer} {value}");
    }
}
