//! Helpers of the tests of single kinds, the small kinds, and what holds for any tree.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::codec::{self, FieldValidation, read_manifests};
use crate::defaults;
use crate::kind::KINDS;

/// An object as it comes to validation: defaulted.
pub(super) fn defaulted(kind: &Kind, tree: Value) -> Object {
    let mut object = Object::from_value(tree).unwrap();
    defaults::apply(kind, &mut object);
    object
}

/// The faults of a create, as texts.
pub(super) fn faults(kind: &Kind, tree: Value) -> Vec<String> {
    texts(&create(kind, &defaulted(kind, tree)))
}

/// The faults of an update, as texts.
pub(super) fn update_faults(kind: &Kind, new: Value, old: Value) -> Vec<String> {
    texts(&update(kind, &defaulted(kind, new), &defaulted(kind, old)))
}

pub(super) fn texts(faults: &[FieldError]) -> Vec<String> {
    faults.iter().map(ToString::to_string).collect()
}

/// A tree with one value replaced (or added) at a JSON pointer whose parent exists.
pub(super) fn with(mut tree: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = tree.pointer_mut(parent).unwrap();
    match parent {
        Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
        _ => parent[key] = value,
    }
    tree
}

fn named(tree: Value) -> Value {
    let mut whole = json!({"metadata": {"name": "x", "namespace": "default"}});
    whole
        .as_object_mut()
        .unwrap()
        .extend(tree.as_object().unwrap().clone());
    whole
}

fn cluster(tree: Value) -> Value {
    let mut whole = named(tree);
    whole["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("namespace");
    whole
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

#[test]
fn names_are_judged_by_their_kind() {
    let kind = &kind::CONFIG_MAP;
    assert_eq!(faults(kind, named(json!({}))), [""; 0]);
    assert_eq!(
        faults(kind, json!({"metadata": {}})),
        [
            "metadata.name: Required value: name or generateName is required",
            "metadata.namespace: Required value"
        ]
    );
    assert_eq!(
        faults(
            kind,
            json!({"metadata": {"generateName": "x-", "namespace": "default"}})
        ),
        [""; 0]
    );
    assert_eq!(
        faults(
            kind,
            json!({"metadata": {"name": "A", "namespace": "default"}})
        ),
        [format!("metadata.name: Invalid value: \"A\": {SUBDOMAIN}")]
    );
    assert_eq!(
        faults(
            kind,
            json!({"metadata": {"name": "a.b", "namespace": "default"}})
        ),
        [""; 0]
    );
    let dotted = faults(&kind::NAMESPACE, json!({"metadata": {"name": "a.b"}}));
    assert!(
        dotted[0]
            .starts_with("metadata.name: Invalid value: \"a.b\": a lowercase RFC 1123 label must"),
        "{dotted:?}"
    );
    assert_eq!(
        faults(
            &kind::NODE,
            json!({"metadata": {"name": "n", "namespace": "default"}})
        ),
        ["metadata.namespace: Forbidden: not allowed on this type"]
    );
}

#[test]
fn metadata_rules_hold_for_every_kind() {
    let with_metadata = |more: Value| {
        let mut tree = named(json!({}));
        tree["metadata"]
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        tree
    };
    let one = |more: Value| {
        let mut found = faults(&kind::CONFIG_MAP, with_metadata(more));
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    };
    assert!(
        one(json!({"labels": {"a b": "c"}}))
            .starts_with("metadata.labels: Invalid value: \"a b\": name part must consist of")
    );
    assert!(
        one(json!({"labels": {"a": "-"}}))
            .starts_with("metadata.labels: Invalid value: \"-\": a valid label must be")
    );
    assert!(
        one(json!({"annotations": {"a/b/c": ""}}))
            .starts_with("metadata.annotations: Invalid value: \"a/b/c\": a qualified name")
    );
    assert_eq!(
        one(json!({"finalizers": ["x"]})),
        "metadata.finalizers: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified"
    );
    assert_eq!(
        one(json!({"finalizers": ["orphan", "foregroundDeletion"]})),
        "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizers orphan and foregroundDeletion cannot be both set"
    );
    let owner = |name: &str, controller: bool| json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": "u", "controller": controller});
    assert_eq!(
        faults(
            &kind::CONFIG_MAP,
            with_metadata(json!({"ownerReferences": [owner("a", true), owner("b", false)]}))
        ),
        [""; 0]
    );
    assert!(
        one(json!({"ownerReferences": [owner("a", true), owner("b", true)]})).ends_with(
            "Only one reference can have Controller set to true. Found \"true\" in references for DaemonSet/a and DaemonSet/b"
        )
    );
    assert_eq!(
        faults(
            &kind::CONFIG_MAP,
            with_metadata(json!({"ownerReferences": [{}]}))
        ),
        [
            "metadata.ownerReferences[0].apiVersion: Invalid value: \"\": version must not be empty",
            "metadata.ownerReferences[0].kind: Invalid value: \"\": kind must not be empty",
            "metadata.ownerReferences[0].name: Invalid value: \"\": name must not be empty",
            "metadata.ownerReferences[0].uid: Invalid value: \"\": uid must not be empty",
        ]
    );
}

#[test]
fn what_identifies_an_object_may_not_change() {
    let old = json!({"metadata": {"name": "x", "namespace": "default", "uid": "1", "creationTimestamp": "2026-01-31T10:00:00Z"}});
    assert_eq!(
        update_faults(&kind::CONFIG_MAP, old.clone(), old.clone()),
        [""; 0]
    );
    assert_eq!(
        update_faults(&kind::CONFIG_MAP, named(json!({})), old.clone()),
        [""; 0]
    );
    let new = json!({"metadata": {"name": "y", "namespace": "other", "uid": "2", "creationTimestamp": "2026-01-31T11:00:00Z"}});
    assert_eq!(
        update_faults(&kind::CONFIG_MAP, new, old),
        [
            "metadata.name: Invalid value: \"y\": field is immutable",
            "metadata.namespace: Invalid value: \"other\": field is immutable",
            "metadata.uid: Invalid value: \"2\": field is immutable",
            "metadata.creationTimestamp: Invalid value: \"2026-01-31T11:00:00Z\": field is immutable",
        ]
    );
    let deleted = json!({"metadata": {"name": "x", "namespace": "default", "deletionTimestamp": "2026-01-31T10:00:00Z", "finalizers": ["a/b"]}});
    let new = with(
        deleted.clone(),
        "/metadata/finalizers",
        json!(["a/b", "c/d"]),
    );
    assert_eq!(
        update_faults(&kind::CONFIG_MAP, new, deleted),
        [
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"c/d\"}"
        ]
    );
}

#[test]
fn case_b71_sizes_are_bounded_and_named() {
    let big = "x".repeat(300_000);
    let applied = json!({
        "metadata": {"name": "x", "namespace": "default", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": big}},
        "data": {"a": big}
    });
    assert_eq!(
        faults(&kind::CONFIG_MAP, applied),
        ["metadata.annotations: Too long: must have at most 262144 bytes"]
    );
    assert_eq!(
        faults(&kind::CONFIG_MAP, named(json!({"data": {"a": big}}))),
        [""; 0]
    );
    let limit = 1024 * 1024;
    assert_eq!(
        faults(
            &kind::CONFIG_MAP,
            named(json!({"data": {"a": "x".repeat(limit)}}))
        ),
        [""; 0]
    );
    assert_eq!(
        faults(
            &kind::CONFIG_MAP,
            named(json!({"data": {"a": "x".repeat(limit + 1)}}))
        ),
        ["data: Too long: must have at most 1048576 bytes"]
    );
    assert_eq!(
        faults(
            &kind::SECRET,
            named(json!({"stringData": {"a": "x".repeat(limit + 1)}}))
        ),
        ["data: Too long: must have at most 1048576 bytes"]
    );
}

#[test]
fn configuration_keys_and_immutability() {
    let found = faults(
        &kind::CONFIG_MAP,
        named(json!({"data": {"a/b": "", "c": ""}, "binaryData": {"c": "eA==", "d": "?"}})),
    );
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("data[a/b]: Invalid value: \"a/b\": a valid config key must"));
    assert_eq!(
        found[1],
        "data[c]: Invalid value: \"c\": duplicate of key present in binaryData"
    );
    assert_eq!(
        found[2],
        "binaryData[d]: Invalid value: \"?\": must be base64 text"
    );
    assert_eq!(
        faults(
            &kind::SECRET,
            named(json!({"data": {"password": "hunter2!"}}))
        ),
        ["data[password]: Invalid value: \"<secret contents redacted>\": must be base64 text"],
        "a secret's value never appears"
    );
    assert_eq!(
        faults(
            &kind::SECRET,
            named(json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}))
        ),
        ["data[tls.key]: Required value"]
    );
    let old = named(json!({"immutable": true, "data": {"a": "1"}}));
    assert_eq!(
        update_faults(&kind::CONFIG_MAP, old.clone(), old.clone()),
        [""; 0]
    );
    assert_eq!(
        update_faults(&kind::CONFIG_MAP, named(json!({"data": {"a": "2"}})), old),
        [
            "immutable: Forbidden: field is immutable when `immutable` is set",
            "data: Forbidden: field is immutable when `immutable` is set"
        ]
    );
    assert_eq!(
        update_faults(
            &kind::SECRET,
            named(json!({"type": "a"})),
            named(json!({"type": "b"}))
        ),
        ["type: Invalid value: \"a\": field is immutable"]
    );
}

#[test]
fn ds_097_the_data_of_a_controller_revision_is_immutable() {
    let kind = &kind::CONTROLLER_REVISION;
    let old = named(json!({"data": {"spec": 1}, "revision": 1}));
    assert_eq!(
        update_faults(
            kind,
            named(json!({"data": {"spec": 1}, "revision": 3})),
            old.clone()
        ),
        [""; 0]
    );
    let new = defaulted(kind, named(json!({"data": {"spec": 2}, "revision": 1})));
    let found = update(kind, &new, &defaulted(kind, old));
    assert_eq!(
        texts(&found),
        ["data: Invalid value: {\"spec\":2}: field is immutable"]
    );
    assert_eq!(
        invalid_message(kind, "x", &found),
        "ControllerRevision.apps \"x\" is invalid: data: Invalid value: {\"spec\":2}: field is immutable"
    );
    assert_eq!(
        faults(kind, named(json!({"revision": -1}))),
        [
            "data: Required value: data is mandatory",
            "revision: Invalid value: -1: must be greater than or equal to 0"
        ]
    );
}

#[test]
fn nodes_have_well_formed_unique_taints() {
    let node = |taints: Value| faults(&kind::NODE, cluster(json!({"spec": {"taints": taints}})));
    assert_eq!(
        node(
            json!([{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute", "value": "v"}])
        ),
        [""; 0]
    );
    let found = node(
        json!([{"key": "a b", "effect": "NoSchedule"}, {"key": "b"}, {"key": "c", "effect": "Never"}, {"key": "b"}]),
    );
    assert_eq!(found.len(), 5, "{found:?}");
    assert!(
        found[0].starts_with("spec.taints[0].key: Invalid value: \"a b\": name part must consist")
    );
    assert_eq!(found[1], "spec.taints[1].effect: Required value");
    assert_eq!(
        found[2],
        "spec.taints[2].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\""
    );
    assert_eq!(
        found[4],
        "spec.taints[3]: Duplicate value: {\"key\":\"b\"}: taints must be unique by key and effect pair"
    );
    assert_eq!(
        faults(
            &kind::NODE,
            cluster(json!({"status": {"capacity": {"cpu": "-1"}, "allocatable": {}}}))
        ),
        ["status.capacity[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"]
    );
}

#[test]
fn the_small_kinds_have_their_rules() {
    assert_eq!(
        faults(
            &kind::PRIORITY_CLASS,
            cluster(json!({"value": 1_000_000_001}))
        ),
        ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"]
    );
    let system = json!({"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000});
    assert_eq!(faults(&kind::PRIORITY_CLASS, system.clone()), [""; 0]);
    assert_eq!(
        faults(
            &kind::PRIORITY_CLASS,
            with(system.clone(), "/value", json!(7))
        ),
        [
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only"
        ]
    );
    assert_eq!(
        update_faults(
            &kind::PRIORITY_CLASS,
            cluster(json!({"value": 2})),
            cluster(json!({"value": 1}))
        ),
        ["value: Forbidden: may not be changed in an update."]
    );
    assert_eq!(
        faults(
            &kind::LEASE,
            named(json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}))
        ),
        [
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"
        ]
    );
    assert_eq!(
        faults(
            &kind::EVENT,
            named(json!({"involvedObject": {"namespace": "other"}, "type": "Loud"}))
        ),
        [
            "involvedObject.namespace: Invalid value: \"other\": does not match event.namespace",
            "type: Unsupported value: \"Loud\": supported values: \"Normal\", \"Warning\""
        ]
    );
    assert_eq!(faults(&kind::SERVICE_ACCOUNT, named(json!({}))), [""; 0]);
    let terminating = json!({"metadata": {"name": "n", "deletionTimestamp": "2026-01-31T10:00:00Z"}, "status": {"phase": "Active"}});
    let namespace = defaulted(&kind::NAMESPACE, terminating);
    assert_eq!(
        texts(&update_status(&kind::NAMESPACE, &namespace, &namespace)),
        [
            "status.phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty"
        ]
    );
}

#[test]
fn several_faults_are_one_message_with_brackets() {
    let faults = [
        FieldError::required(crate::field_path::FieldPath::of("spec.a"), ""),
        FieldError::required(crate::field_path::FieldPath::of("spec.b"), "why"),
    ];
    assert_eq!(
        invalid_message(&kind::DAEMON_SET, "web", &faults),
        "DaemonSet.apps \"web\" is invalid: [spec.a: Required value, spec.b: Required value: why]"
    );
    assert_eq!(
        invalid_message(&kind::POD, "p", &faults[..1]),
        "Pod \"p\" is invalid: spec.a: Required value"
    );
}

#[test]
fn the_examples_are_accepted_exactly_as_they_are() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut judged = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let name = path.display().to_string();
        for document in read_manifests(&name, &std::fs::read(&path).unwrap()).unwrap() {
            let kind = document.object.kind().unwrap();
            let decoded = codec::decode_tree(
                kind,
                document.object.into_tree(),
                &document.duplicates,
                FieldValidation::Strict,
            );
            let mut tree = decoded.unwrap().object.into_tree();
            if kind.namespaced && tree.pointer("/metadata/namespace").is_none() {
                tree["metadata"]["namespace"] = json!("default");
            }
            let object = defaulted(kind, tree);
            assert_eq!(texts(&create(kind, &object)), [""; 0], "{name}");
            assert_eq!(warnings(kind, &object), [""; 0], "{name}");
            judged += 1;
        }
    }
    assert!(judged >= 2, "the examples are where they were");
}

proptest! {
    #[test]
    fn any_tree_is_judged_without_a_panic(
        metadata in defaults::tests::trees(), spec in defaults::tests::trees(), more in defaults::tests::trees()
    ) {
        let pod = json!({"metadata": metadata, "spec": spec});
        let daemon = json!({"metadata": metadata, "spec": {"template": pod, "selector": more, "updateStrategy": more}});
        let other = json!({"metadata": metadata, "spec": spec, "data": more, "status": more, "value": more});
        for kind in KINDS {
            for tree in [&pod, &daemon, &other, &more] {
                let Ok(raw) = Object::from_value(tree.clone()) else { continue };
                let filled = defaulted(kind, tree.clone());
                for object in [&raw, &filled] {
                    create(kind, object);
                    update(kind, object, &filled);
                    update_status(kind, object, &raw);
                    warnings(kind, object);
                }
            }
        }
    }
}
