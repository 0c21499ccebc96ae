//! Defaults, one file per kind (spec/daemonset.md 3).
//!
//! [`apply`] runs on every write, before validation, and twice is the same as once. It works on the tree: what
//! has a wrong type is left as it is, for validation to refuse.

pub mod daemonset;
mod namespace;
mod node;
mod pod;
mod priority_class;
mod secret;
mod semantic;

use serde_json::{Map, Value};

use crate::kind::{self, Kind};
use crate::object::Object;
use crate::quantity::Quantity;

pub use semantic::semantically_equal;

type Mapping = Map<String, Value>;

/// Fills in what the author left out. A `null` counts as left out and is dropped.
pub fn apply(kind: &Kind, object: &mut Object) {
    for (key, value) in object.tree_mut().iter_mut() {
        // These hold the author's own keys, where a null is content (ControllerRevision) or a fault (the rest).
        if !matches!(key.as_str(), "data" | "binaryData" | "stringData") {
            drop_nulls(value);
        }
    }
    if *kind == kind::DAEMON_SET {
        daemonset::apply(object);
    } else if *kind == kind::POD {
        pod::apply(object);
    } else if *kind == kind::NODE {
        node::apply(object);
    } else if *kind == kind::NAMESPACE {
        namespace::apply(object);
    } else if *kind == kind::SECRET {
        secret::apply(object);
    } else if *kind == kind::PRIORITY_CLASS {
        priority_class::apply(object);
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, child| !child.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// The mapping at `key`, if there is one.
fn mapping<'a>(parent: &'a mut Mapping, key: &str) -> Option<&'a mut Mapping> {
    parent.get_mut(key)?.as_object_mut()
}

/// The mapping at `key`, made when absent; `None` when something else is there.
fn mapping_or_new<'a>(parent: &'a mut Mapping, key: &str) -> Option<&'a mut Mapping> {
    parent
        .entry(key)
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
}

/// The mappings of the list at `key`.
fn items<'a>(parent: &'a mut Mapping, key: &str) -> impl Iterator<Item = &'a mut Mapping> {
    parent
        .get_mut(key)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

fn default_value(parent: &mut Mapping, key: &str, value: impl Into<Value>) {
    if parent.get(key).is_none_or(Value::is_null) {
        parent.insert(key.to_owned(), value.into());
    }
}

/// For fields whose empty text means 'not given'.
fn default_text(parent: &mut Mapping, key: &str, text: &str) {
    if parent
        .get(key)
        .is_none_or(|value| value.is_null() || value == "")
    {
        parent.insert(key.to_owned(), text.into());
    }
}

/// For fields whose 0 means 'not given'.
fn default_number(parent: &mut Mapping, key: &str, number: i64) {
    if parent
        .get(key)
        .is_none_or(|value| value.is_null() || value == 0)
    {
        parent.insert(key.to_owned(), number.into());
    }
}

/// Writes the quantities of a resource list in canonical form, no finer than thousandths, as they are kept.
fn canonical_quantities(parent: &mut Mapping, key: &str) {
    for value in mapping(parent, key).into_iter().flat_map(Map::values_mut) {
        if let Ok(quantity) = Quantity::from_json(value) {
            *value = quantity.round_to_milli().to_string().into();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::kind::KINDS;
    use proptest::prelude::*;
    use serde_json::json;

    /// Trees that use the field names defaults look at, with values of any type below them.
    pub(crate) fn trees() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3i64..70_000).prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            proptest::sample::select(vec![
                "",
                "a",
                "RollingUpdate",
                "OnDelete",
                "img:latest",
                "0.5",
                "1Gi",
                "10%",
                "Never",
                "TCP",
                "/x/../y",
                "é",
                "In",
                "Exists",
                "NoExecute",
                "a b",
            ])
            .prop_map(Value::from),
        ];
        leaf.prop_recursive(8, 200, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map(proptest::sample::select(FIELDS), inner, 0..6)
                    .prop_map(|map| {
                        Value::Object(map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
                    }),
            ]
        })
    }

    pub(crate) const FIELDS: &[&str] = &[
        "metadata",
        "spec",
        "template",
        "containers",
        "initContainers",
        "volumes",
        "name",
        "image",
        "env",
        "ports",
        "containerPort",
        "hostPort",
        "hostNetwork",
        "resources",
        "limits",
        "requests",
        "cpu",
        "memory",
        "livenessProbe",
        "httpGet",
        "lifecycle",
        "postStart",
        "valueFrom",
        "fieldRef",
        "projected",
        "sources",
        "hostPath",
        "configMap",
        "secret",
        "emptyDir",
        "updateStrategy",
        "rollingUpdate",
        "maxUnavailable",
        "maxSurge",
        "type",
        "selector",
        "matchLabels",
        "matchExpressions",
        "key",
        "operator",
        "values",
        "labels",
        "annotations",
        "tolerations",
        "affinity",
        "nodeAffinity",
        "nodeSelectorTerms",
        "ownerReferences",
        "finalizers",
        "taints",
        "effect",
        "data",
        "stringData",
        "binaryData",
        "status",
        "capacity",
        "securityContext",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
        "volumeMounts",
        "mountPath",
        "subPath",
        "path",
        "items",
        "downwardAPI",
        "serviceAccountToken",
    ];

    proptest! {
        #[test]
        fn defaults_twice_are_defaults_once(tree in trees(), metadata in trees(), spec in trees()) {
            for kind in KINDS {
                let whole = json!({"metadata": metadata, "spec": spec, "status": tree});
                for value in [whole, tree.clone()] {
                    let Ok(mut object) = Object::from_value(value) else { continue };
                    apply(kind, &mut object);
                    let once = object.clone();
                    apply(kind, &mut object);
                    prop_assert_eq!(&object, &once);
                }
            }
        }
    }

    #[test]
    fn a_wrongly_typed_tree_is_left_alone() {
        let tree = json!({"spec": {"template": [1], "updateStrategy": "x"}, "metadata": 3});
        for kind in KINDS {
            let mut object = Object::from_value(tree.clone()).unwrap();
            apply(kind, &mut object);
            assert_eq!(object.at("/spec/template"), Some(&json!([1])));
            assert_eq!(object.at("/metadata"), Some(&json!(3)));
        }
    }

    #[test]
    fn a_null_is_as_good_as_nothing() {
        let tree = json!({"spec": {"template": {"metadata": {"creationTimestamp": null}}}});
        let mut object = Object::from_value(tree).unwrap();
        apply(&kind::DAEMON_SET, &mut object);
        assert_eq!(object.at("/spec/template/metadata"), Some(&json!({})));
    }

    #[test]
    fn each_kind_has_its_own_defaults() {
        let given = |kind: &Kind, tree: Value| {
            let mut object = Object::from_value(tree).unwrap();
            apply(kind, &mut object);
            object.into_tree()
        };
        assert_eq!(
            given(&kind::NAMESPACE, json!({"metadata": {"name": "n1"}})),
            json!({
                "metadata": {"name": "n1", "labels": {"kubernetes.io/metadata.name": "n1"}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}
            })
        );
        assert_eq!(
            given(
                &kind::NAMESPACE,
                json!({"metadata": {"name": "n1", "deletionTimestamp": "2026-01-31T10:00:00Z"}})
            ),
            json!({
                "metadata": {"name": "n1", "deletionTimestamp": "2026-01-31T10:00:00Z",
                    "labels": {"kubernetes.io/metadata.name": "n1"}},
                "status": {"phase": "Terminating"}
            }),
            "a namespace that is going away does not get its finalizer back"
        );
        assert_eq!(
            given(
                &kind::SECRET,
                json!({"data": {"a": "eA=="}, "stringData": {"a": "new", "b": ""}})
            ),
            json!({"type": "Opaque", "data": {"a": "bmV3", "b": ""}})
        );
        assert_eq!(
            given(&kind::PRIORITY_CLASS, json!({"value": 5})),
            json!({"value": 5, "preemptionPolicy": "PreemptLowerPriority"})
        );
        assert_eq!(
            given(
                &kind::NODE,
                json!({"status": {"capacity": {"cpu": "0.5", "memory": "1024Mi"}}})
            ),
            json!({"spec": {}, "status": {
                "capacity": {"cpu": "500m", "memory": "1Gi"}, "allocatable": {"cpu": "500m", "memory": "1Gi"}
            }})
        );
        for kind in [
            &kind::LEASE,
            &kind::EVENT,
            &kind::CONFIG_MAP,
            &kind::CONTROLLER_REVISION,
        ] {
            let tree = json!({"metadata": {"name": "x"}, "data": {"a": null}});
            assert_eq!(given(kind, tree.clone()), tree);
        }
    }
}
