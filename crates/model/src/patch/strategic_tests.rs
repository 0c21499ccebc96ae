//! What `kubectl patch --local --type strategic` of kubectl 1.32 made of the same object and patches.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::kind;

fn pod() -> Value {
    json!({
        "metadata": {
            "name": "x",
            "finalizers": ["a.b/1", "a.b/2", "a.b/3"],
            "labels": {"l": "1", "m": "2"},
        },
        "spec": {
            "containers": [
                {
                    "name": "a",
                    "image": "i",
                    "args": ["x", "z"],
                    "env": [
                        {"name": "A", "value": "1"},
                        {"name": "B", "value": "2"},
                        {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    ],
                    "ports": [
                        {"containerPort": 53, "protocol": "TCP"},
                        {"containerPort": 53, "protocol": "UDP"},
                        {"containerPort": 80},
                    ],
                },
                {"name": "b", "image": "i"},
            ],
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "hostPath": {"path": "/w"}}],
        },
    })
}

/// Applies the patch and shows the part at the pointer.
fn patched(patch: Value, pointer: &str) -> Value {
    let outcome = apply(&kind::POD, &pod(), &patch).unwrap();
    outcome
        .pointer(pointer)
        .cloned()
        .unwrap_or(json!("(absent)"))
}

fn names(list: &Value, key: &str) -> Vec<String> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|element| match element.get(key).unwrap_or(element) {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
        .collect()
}

#[test]
fn lists_merge_by_key_and_keep_what_the_patch_does_not_name() {
    let containers = patched(
        json!({"spec": {"containers": [{"name": "b", "image": "j"}, {"name": "c", "image": "k"}]}}),
        "/spec/containers",
    );
    assert_eq!(names(&containers, "name"), ["a", "b", "c"]);
    assert_eq!(containers[0], pod()["spec"]["containers"][0]);
    assert_eq!(containers[1], json!({"name": "b", "image": "j"}));
    let volumes = patched(
        json!({"spec": {"volumes": [{"name": "n", "emptyDir": {}}]}}),
        "/spec/volumes",
    );
    assert_eq!(names(&volumes, "name"), ["n", "v", "w"]);
}

#[test]
fn atomic_lists_are_replaced() {
    let tolerations = patched(
        json!({"spec": {"tolerations": [{"key": "b"}]}}),
        "/spec/tolerations",
    );
    assert_eq!(tolerations, json!([{"key": "b"}]));
    let args = patched(
        json!({"spec": {"containers": [{"name": "a", "args": ["q"]}]}}),
        "/spec/containers/0/args",
    );
    assert_eq!(args, json!(["q"]));
}

#[test]
fn null_deletes_a_key_and_leaves_nothing_behind() {
    let labels = patched(
        json!({"metadata": {"labels": {"l": null, "zz": null, "k": "v"}}}),
        "/metadata/labels",
    );
    assert_eq!(labels, json!({"m": "2", "k": "v"}));
    let selector = patched(
        json!({"spec": {"nodeSelector": {"a": null, "b": "c"}}}),
        "/spec/nodeSelector",
    );
    assert_eq!(selector, json!({"b": "c"}));
    assert_eq!(
        patched(json!({"spec": {"containers": null}}), "/spec/containers"),
        json!("(absent)")
    );
    let env = json!({"spec": {"containers": [{"name": "a", "env": [{"name": "C", "value": "x", "valueFrom": null}]}]}});
    assert_eq!(
        patched(env, "/spec/containers/0/env/2"),
        json!({"name": "C", "value": "x"})
    );
}

#[test]
fn the_element_order_is_set_as_asked() {
    let order = |spec: Value| {
        names(
            &patched(json!({ "spec": spec }), "/spec/containers"),
            "name",
        )
    };
    let set = "$setElementOrder/containers";
    assert_eq!(
        order(json!({set: [{"name": "b"}, {"name": "a"}]})),
        ["b", "a"]
    );
    assert_eq!(
        order(
            json!({set: [{"name": "c"}, {"name": "a"}], "containers": [{"name": "c", "image": "k"}]})
        ),
        ["c", "a", "b"]
    );
    let env = json!({"spec": {"containers": [{
        "name": "a",
        "env": [{"$patch": "delete", "name": "A"}, {"name": "D", "value": "4"}],
        "$setElementOrder/env": [{"name": "D"}, {"name": "B"}, {"name": "C"}],
    }]}});
    assert_eq!(
        names(&patched(env, "/spec/containers/0/env"), "name"),
        ["D", "B", "C"]
    );
    let refused =
        json!({"spec": {set: [{"name": "b"}], "containers": [{"name": "a", "image": "zz"}]}});
    assert!(matches!(
        apply(&kind::POD, &pod(), &refused),
        Err(PatchError::Malformed(_))
    ));
}

#[test]
fn a_new_element_takes_the_slot_of_a_deleted_one_when_an_order_is_set() {
    let volumes = |spec: Value| names(&patched(json!({ "spec": spec }), "/spec/volumes"), "name");
    let swap = json!([{"name": "n", "emptyDir": {}}, {"$patch": "delete", "name": "v"}]);
    assert_eq!(
        volumes(json!({"volumes": swap, "$setElementOrder/volumes": [{"name": "n"}]})),
        ["w", "n"]
    );
    assert_eq!(volumes(json!({"volumes": swap})), ["n", "w"]);
}

#[test]
fn a_directive_deletes_or_replaces() {
    let containers =
        |list: Value| patched(json!({"spec": {"containers": list}}), "/spec/containers");
    assert_eq!(
        names(
            &containers(json!([{"$patch": "delete", "name": "a"}])),
            "name"
        ),
        ["b"]
    );
    assert_eq!(
        names(
            &containers(json!([{"$patch": "delete", "name": "nope"}])),
            "name"
        ),
        ["a", "b"]
    );
    assert_eq!(
        containers(json!([{"$patch": "replace"}, {"name": "z", "image": "q"}])),
        json!([{"name": "z", "image": "q"}])
    );
    assert_eq!(
        containers(json!([{"$patch": "delete", "name": "a"}, {"$patch": "replace"}])),
        json!([])
    );
    let merged = containers(json!([{"$patch": "merge", "name": "b", "image": "m"}]));
    assert_eq!(merged[1], json!({"name": "b", "image": "m"}));
    let labels = |map: Value| patched(json!({"metadata": {"labels": map}}), "/metadata/labels");
    assert_eq!(
        labels(json!({"$patch": "replace", "n": "3"})),
        json!({"n": "3"})
    );
    assert_eq!(labels(json!({"$patch": "delete"})), json!({}));
    let fresh = patched(
        json!({"spec": {"securityContext": {"$patch": "replace", "runAsUser": 5}}}),
        "/spec/securityContext",
    );
    assert_eq!(fresh, json!({"runAsUser": 5}));
}

#[test]
fn retained_keys_drop_the_others() {
    let volume =
        json!({"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}});
    let volumes = patched(json!({"spec": {"volumes": [volume]}}), "/spec/volumes");
    assert_eq!(volumes[0], json!({"name": "v", "hostPath": {"path": "/x"}}));
    let fresh = json!({"name": "n", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x", "type": null}});
    let volumes = patched(json!({"spec": {"volumes": [fresh]}}), "/spec/volumes");
    assert_eq!(volumes[0], json!({"name": "n", "hostPath": {"path": "/x"}}));
    let spec = patched(
        json!({"spec": {"$retainKeys": ["containers"], "containers": [{"name": "b"}]}}),
        "/spec",
    );
    assert_eq!(
        spec.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["containers"]
    );
    let bad = json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "hostPath": {"path": "/x"}}]}});
    assert!(matches!(
        apply(&kind::POD, &pod(), &bad),
        Err(PatchError::Malformed(_))
    ));
}

#[test]
fn scalar_lists_are_sets() {
    let finalizers = |metadata: Value| {
        names(
            &patched(json!({ "metadata": metadata }), "/metadata/finalizers"),
            "",
        )
    };
    let (set, delete) = (
        "$setElementOrder/finalizers",
        "$deleteFromPrimitiveList/finalizers",
    );
    assert_eq!(
        finalizers(json!({"finalizers": ["a.b/4", "a.b/1"]})),
        ["a.b/4", "a.b/1", "a.b/2", "a.b/3"]
    );
    assert_eq!(finalizers(json!({delete: ["a.b/2"]})), ["a.b/1", "a.b/3"]);
    assert_eq!(
        finalizers(json!({set: ["a.b/3", "a.b/1"], delete: ["a.b/2"]})),
        ["a.b/3", "a.b/1"]
    );
    assert_eq!(
        finalizers(json!({set: ["a.b/9", "a.b/1"], "finalizers": ["a.b/9"]})),
        ["a.b/9", "a.b/1", "a.b/2", "a.b/3"]
    );
}

#[test]
fn two_ports_of_one_number_collide_as_in_kubectl() {
    let ports = |list: Value| {
        patched(
            json!({"spec": {"containers": [{"name": "a", "ports": list}]}}),
            "/spec/containers/0/ports",
        )
    };
    assert_eq!(
        ports(json!([{"containerPort": 53, "hostPort": 1}])),
        json!([
            {"containerPort": 53, "hostPort": 1, "protocol": "TCP"},
            {"containerPort": 53, "protocol": "UDP"},
            {"containerPort": 80},
        ])
    );
    assert_eq!(
        ports(json!([{"containerPort": 53, "$patch": "delete"}])),
        json!([{"containerPort": 80}])
    );
}

#[test]
fn a_patch_that_does_not_fit_is_refused() {
    let error = |patch: Value| apply(&kind::POD, &pod(), &patch).unwrap_err();
    assert_eq!(
        error(json!({"spec": {"containers": [{"image": "q"}]}})),
        PatchError::Unprocessable(
            r#"map: {"image":"q"} does not contain declared merge key: name"#.to_owned()
        )
    );
    for patch in [
        json!({"spec": {"containers": [["a"]]}}),
        json!({"spec": {"containers": ["a"]}}),
    ] {
        assert!(matches!(error(patch), PatchError::Unprocessable(_)));
    }
    for patch in [json!([]), json!("x"), json!({"spec": {"$patch": "foo"}})] {
        assert!(matches!(error(patch), PatchError::Malformed(_)));
    }
}

#[test]
fn a_revision_puts_its_template_in_place_of_the_present_one() {
    let daemon = json!({"spec": {"template": {"metadata": {"labels": {"new": "1"}}, "spec": {"containers": [
        {"name": "main", "image": "busybox:2", "env": [{"name": "B", "value": "2"}]}, {"name": "extra"},
    ]}}, "minReadySeconds": 3}});
    let template = json!({"metadata": {"labels": {"old": "1"}}, "spec": {"containers": [
        {"name": "main", "image": "busybox:1"},
    ]}});
    let mut patch = json!({"spec": {"template": template}});
    patch["spec"]["template"]["$patch"] = json!("replace");
    let outcome = apply(&kind::DAEMON_SET, &daemon, &patch).unwrap();
    assert_eq!(
        outcome,
        json!({"spec": {"template": template, "minReadySeconds": 3}})
    );
}

/// Trees that look a little like pods, so that merges and directives meet.
fn tree() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(json!(null)),
        Just(json!("a")),
        Just(json!("replace")),
        Just(json!("delete")),
        Just(json!(1)),
        Just(json!(true)),
    ];
    let key = prop::sample::select(vec![
        "spec",
        "metadata",
        "containers",
        "env",
        "ports",
        "name",
        "containerPort",
        "finalizers",
        "volumes",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$setElementOrder/env",
        "$deleteFromPrimitiveList/finalizers",
    ]);
    scalar.prop_recursive(6, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|map| map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn no_patch_panics(original in tree(), patch in tree()) {
        let _ = apply(&kind::POD, &original, &patch);
        let _ = apply(&kind::DAEMON_SET, &pod(), &patch);
    }

    #[test]
    fn the_empty_patch_changes_nothing(original in tree()) {
        if original.is_object() {
            prop_assert_eq!(apply(&kind::POD, &original, &json!({})).unwrap(), original);
        }
    }

    #[test]
    fn what_was_applied_once_changes_nothing_when_applied_again(image in "[a-c]", name in "[a-d]", swap: bool) {
        let order = if swap { json!([{"name": name}, {"name": "a"}]) } else { json!([{"name": "a"}, {"name": name}]) };
        let patch = json!({"spec": {
            "containers": [{"name": name, "image": image}],
            "$setElementOrder/containers": order,
        }});
        let once = apply(&kind::POD, &pod(), &patch).unwrap();
        prop_assert_eq!(apply(&kind::POD, &once, &patch).unwrap(), once);
    }
}
