//! What the manifest drops goes, what it says comes, what others set stays.

use proptest::prelude::*;

use super::*;
use crate::kind;
use crate::patch::strategic;

fn daemon(containers: Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "demo", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "demo"}},
            "template": {"metadata": {"labels": {"app": "demo"}}, "spec": {"containers": containers}},
        },
    })
}

/// As the server stores it: with fields that no manifest has.
fn stored(mut object: Value) -> Value {
    object["metadata"]["uid"] = json!("u");
    object["metadata"]["labels"] = json!({"others": "1"});
    object["spec"]["revisionHistoryLimit"] = json!(10);
    object["spec"]["template"]["spec"]["dnsPolicy"] = json!("ClusterFirst");
    if let Some(list) = object["spec"]["template"]["spec"]["containers"].as_array_mut() {
        for container in list {
            container["imagePullPolicy"] = json!("Always");
        }
    }
    object
}

fn containers_patch(last: Value, modified: Value, current: Value) -> Value {
    let patch = three_way(
        &kind::DAEMON_SET,
        Some(&daemon(last)),
        &daemon(modified),
        &stored(daemon(current)),
    );
    patch
        .pointer("/spec/template/spec")
        .cloned()
        .unwrap_or(patch)
}

#[test]
fn api_007_applying_the_same_again_is_an_empty_patch() {
    let manifest = Object::from_value(daemon(
        json!([{"name": "main", "image": "busybox:1", "env": [{"name": "A", "value": "1"}]}]),
    ))
    .unwrap();
    let current = Object::from_value(stored(annotated(&manifest).into_tree())).unwrap();
    assert_eq!(patch_for(&kind::DAEMON_SET, &manifest, &current), json!({}));
}

#[test]
fn null_asks_for_absence_except_where_the_server_decides() {
    let manifest = json!({"metadata": {"creationTimestamp": null}, "spec": {"a": null, "b": null}, "status": {}});
    let current =
        json!({"metadata": {"creationTimestamp": "t"}, "spec": {"a": 1}, "status": {"x": 1}});
    assert_eq!(
        three_way(&kind::DAEMON_SET, None, &manifest, &current),
        json!({"spec": {"a": null}})
    );
}

#[test]
fn api_008_the_image_changes_and_env_has_b_and_not_a() {
    let one = json!([{"name": "main", "image": "busybox:1", "env": [{"name": "A", "value": "1"}]}]);
    let two = json!([{"name": "main", "image": "busybox:2", "env": [{"name": "B", "value": "2"}]}]);
    assert_eq!(
        containers_patch(one.clone(), two, one),
        json!({
            "$setElementOrder/containers": [{"name": "main"}],
            "containers": [{
                "name": "main",
                "image": "busybox:2",
                "$setElementOrder/env": [{"name": "B"}],
                "env": [{"name": "B", "value": "2"}, {"$patch": "delete", "name": "A"}],
            }],
        })
    );
}

#[test]
fn what_the_manifest_never_named_stays() {
    let main = |extra: Value| {
        let mut container = json!({"name": "main", "image": "i"});
        container
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        json!([container])
    };
    let sidecar_added_by_others =
        json!([{"name": "main", "image": "i"}, {"name": "injected", "image": "x"}]);
    let (last, modified) = (main(json!({"tty": true})), main(json!({})));
    assert_eq!(
        containers_patch(last.clone(), modified.clone(), sidecar_added_by_others),
        json!({})
    );
    assert_eq!(
        containers_patch(last.clone(), modified, last),
        json!({"$setElementOrder/containers": [{"name": "main"}], "containers": [{"name": "main", "tty": null}]})
    );
}

#[test]
fn a_dropped_mapping_and_a_dropped_list_are_deleted() {
    let mut last = daemon(json!([]));
    last["metadata"]["annotations"] = json!({"a": "1"});
    last["spec"]["template"]["spec"]["tolerations"] = json!([{"key": "x"}]);
    let patch = three_way(&kind::DAEMON_SET, Some(&last), &daemon(json!([])), &last);
    assert_eq!(
        patch,
        json!({"metadata": {"annotations": null}, "spec": {"template": {"spec": {"tolerations": null}}}})
    );
    assert_eq!(
        three_way(&kind::DAEMON_SET, None, &daemon(json!([])), &last),
        json!({})
    );
}

#[test]
fn a_volume_that_changes_its_source_loses_the_old_one() {
    let pod = |volume: Value| json!({"spec": {"volumes": [volume]}});
    let old = pod(json!({"name": "v", "emptyDir": {}}));
    let new = pod(json!({"name": "v", "hostPath": {"path": "/x"}}));
    for last in [None, Some(&old)] {
        let patch = three_way(&kind::POD, last, &new, &old);
        assert_eq!(
            patch["spec"]["volumes"],
            json!([{"name": "v", "$retainKeys": ["hostPath", "name"], "hostPath": {"path": "/x"}}])
        );
        assert_eq!(strategic::apply(&kind::POD, &old, &patch).unwrap(), new);
    }
}

#[test]
fn finalizers_are_a_set() {
    let object = |list: Value| json!({"metadata": {"finalizers": list}});
    let patch = three_way(
        &kind::POD,
        Some(&object(json!(["a/1", "b/2"]))),
        &object(json!(["b/2", "c/3"])),
        &object(json!(["a/1", "b/2", "others/4"])),
    );
    assert_eq!(
        patch["metadata"],
        json!({
            "finalizers": ["c/3"],
            "$deleteFromPrimitiveList/finalizers": ["a/1"],
            "$setElementOrder/finalizers": ["b/2", "c/3"],
        })
    );
}

#[test]
fn an_order_alone_is_a_change() {
    let (ab, ba) = (
        json!([{"name": "a"}, {"name": "b"}]),
        json!([{"name": "b"}, {"name": "a"}]),
    );
    let patch = containers_patch(ab.clone(), ba, ab);
    assert_eq!(
        patch,
        json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]})
    );
}

#[test]
fn two_protocols_on_one_port_stay_unchanged() {
    let last = json!([{"name": "dns", "ports": [
        {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}, {"containerPort": 80},
    ]}]);
    let mut current = last.clone();
    current[0]["ports"][2]["protocol"] = json!("TCP");
    assert_eq!(containers_patch(last.clone(), last, current), json!({}));
}

#[test]
fn the_annotation_is_what_kubectl_writes() {
    let manifest = Object::from_value(json!({
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "x", "namespace": "default"},
        "data": {"b": "<a href=\"x\">&\u{2028}\t\u{8}\u{1f}é", "a": 1e21, "c": 1e-7, "d": 1.5, "e": 12345678901234567890f64},
    }))
    .unwrap();
    let text = last_applied_annotation(&manifest);
    assert_eq!(
        text,
        "{\"apiVersion\":\"v1\",\"data\":{\"a\":1e+21,\"b\":\"\\u003ca href=\\\"x\\\"\\u003e\\u0026\\u2028\\t\\b\\u001fé\",\
         \"c\":1e-7,\"d\":1.5,\"e\":12345678901234567000},\"kind\":\"ConfigMap\",\"metadata\":{\"annotations\":{},\
         \"name\":\"x\",\"namespace\":\"default\"}}\n"
    );
    assert_eq!(last_applied_annotation(&annotated(&manifest)), text);
}

fn fields() -> impl Strategy<Value = Map<String, Value>> {
    let value = prop::sample::select(vec!["1", "2", "3"]);
    let env = prop::collection::btree_map(
        prop::sample::select(vec!["A", "B", "C"]),
        value.clone(),
        0..4,
    );
    let container = (
        env,
        prop::option::of(value.clone()),
        prop::option::of(prop::collection::vec(value.clone(), 0..3)),
    );
    let containers =
        prop::collection::btree_map(prop::sample::select(vec!["a", "b", "c"]), container, 0..4);
    let labels = prop::collection::btree_map(prop::sample::select(vec!["k", "l"]), value, 0..3);
    (containers, labels, any::<bool>()).prop_map(|(containers, labels, backwards)| {
        let mut list: Vec<Value> = containers
            .into_iter()
            .map(|(name, (env, image, args))| {
                let env: Vec<Value> = env
                    .into_iter()
                    .map(|(n, v)| json!({"name": n, "value": v}))
                    .collect();
                let mut container = json!({"name": name, "env": env});
                if let Some(image) = image {
                    container["image"] = json!(image);
                }
                if let Some(args) = args {
                    container["args"] = json!(args);
                }
                container
            })
            .collect();
        if backwards {
            list.reverse();
        }
        let mut object = Map::new();
        object.insert("metadata".to_owned(), json!({ "labels": labels }));
        object.insert("spec".to_owned(), json!({ "containers": list }));
        object
    })
}

/// Whether everything that `wanted` says is so in `found`; named elements by name, in the same order.
fn holds(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => wanted
            .iter()
            .all(|(key, value)| found.get(key).is_some_and(|found| holds(value, found))),
        (Value::Array(wanted), Value::Array(found))
            if wanted.iter().all(|e| e.get("name").is_some()) =>
        {
            let names: Vec<&Value> = wanted.iter().map(|e| &e["name"]).collect();
            let kept: Vec<&Value> = found
                .iter()
                .filter(|e| names.contains(&&e["name"]))
                .collect();
            kept.len() == wanted.len()
                && wanted
                    .iter()
                    .zip(kept)
                    .all(|(wanted, found)| holds(wanted, found))
        }
        _ => wanted == found,
    }
}

proptest! {
    #[test]
    fn the_patch_reaches_what_the_manifest_says(last in fields(), modified in fields(), current in fields()) {
        let (last, modified, current) = (Value::Object(last), Value::Object(modified), Value::Object(current));
        let patch = three_way(&kind::POD, Some(&last), &modified, &current);
        let outcome = strategic::apply(&kind::POD, &current, &patch).unwrap();
        prop_assert!(holds(&modified, &outcome), "{outcome}");
        // What was said last time and is no longer said is gone.
        for container in last["spec"]["containers"].as_array().unwrap() {
            let named = |tree: &Value| {
                tree["spec"]["containers"].as_array().unwrap().iter().any(|c| c["name"] == container["name"])
            };
            prop_assert!(named(&modified) || !named(&outcome), "{outcome}");
        }
        // And then there is nothing left to do.
        prop_assert_eq!(three_way(&kind::POD, Some(&modified), &modified, &outcome), json!({}));
    }
}
