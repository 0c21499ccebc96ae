use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::testing::{pod_from, pod_with};

fn objects(list: &[(Needed, Value)]) -> ObjectSet {
    let found = |(needed, tree): &(Needed, Value)| {
        (
            needed.clone(),
            Lookup::Found(Arc::new(Object::from_value(tree.clone()).unwrap())),
        )
    };
    ObjectSet(list.iter().map(found).collect())
}

fn build_env(container: Value, set: &ObjectSet) -> Result<Vec<(String, String)>, String> {
    let mut container = container;
    container["name"] = json!("c");
    let pod = pod_with(
        "p",
        json!({"serviceAccountName": "sa", "containers": [container]}),
    );
    build(&pod, &pod.containers()[0], "172.17.0.2", set).map(|env| env.variables)
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[test]
fn na_030_expansion_is_one_pass_over_known_names() {
    let env = [pair("A", "1"), pair("B", "$(A)")];
    for (text, wanted) in [
        ("$(A)", "1"),
        ("$$(A)", "$(A)"),
        ("$(NOPE)", "$(NOPE)"),
        ("${A} $A", "${A} $A"),
        ("$(B)", "$(A)"),
        ("x$", "x$"),
        ("$(A", "$(A"),
        ("$$$(A)", "$1"),
        ("é$(A)é", "é1é"),
    ] {
        assert_eq!(expand(text, &env), wanted, "{text}");
    }
}

#[test]
fn na_032_a_variable_sees_what_was_defined_before_it() {
    let env = json!([{"name": "B", "value": "$(A)x"}, {"name": "A", "value": "1"}, {"name": "C", "value": "$(A)x"}]);
    let built = build_env(json!({"env": env}), &ObjectSet::default()).unwrap();
    assert_eq!(built, [pair("B", "$(A)x"), pair("A", "1"), pair("C", "1x")]);
}

#[test]
fn na_033_field_references_tell_the_pod_about_itself() {
    let paths = [
        ("metadata.name", "p"),
        ("metadata.namespace", "default"),
        ("metadata.uid", "UID-p"),
        ("metadata.labels['app']", "web"),
        ("metadata.labels['nope']", ""),
        ("spec.nodeName", "n1"),
        ("status.hostIP", "10.0.0.1"),
        ("status.podIP", "172.17.0.2"),
    ];
    let env: Vec<Value> = paths
        .iter()
        .enumerate()
        .map(|(i, (path, _))| json!({"name": format!("V{i}"), "valueFrom": {"fieldRef": {"fieldPath": path}}}))
        .collect();
    let pod = pod_from(json!({
        "metadata": {"name": "p", "namespace": "default", "uid": "UID-p", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "env": env}]}}));
    let built = build(
        &pod,
        &pod.containers()[0],
        "172.17.0.2",
        &ObjectSet::default(),
    )
    .unwrap();
    let values: Vec<_> = built
        .variables
        .iter()
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!(values, paths.map(|(_, value)| value));
}

#[test]
fn na_034_resource_references_are_divided_and_rounded_up() {
    let reference = |resource: &str, divisor: &str| {
        let selector = json!({"resource": resource, "divisor": divisor});
        let container = json!({
            "resources": {"limits": {"cpu": "250m"}, "requests": {"memory": "64Mi"}},
            "env": [{"name": "V", "valueFrom": {"resourceFieldRef": selector}}]});
        build_env(container, &ObjectSet::default()).unwrap()[0]
            .1
            .clone()
    };
    assert_eq!(reference("limits.cpu", "1"), "1");
    assert_eq!(reference("limits.cpu", "1m"), "250");
    assert_eq!(reference("limits.cpu", "0"), "1");
    assert_eq!(reference("requests.memory", "1Mi"), "64");
    assert_eq!(
        reference("limits.memory", "1"),
        (3996_i64 << 20).to_string()
    );
    assert_eq!(reference("requests.ephemeral-storage", "1"), "0");
}

#[test]
fn na_035_a_missing_object_or_key_is_named() {
    let from_map = |name: &str, key: &str, optional: bool| {
        let reference = json!({"name": name, "key": key, "optional": optional});
        let set = objects(&[(Needed::config_map("m"), json!({"data": {"k": "v"}}))]);
        build_env(
            json!({"env": [{"name": "V", "valueFrom": {"configMapKeyRef": reference}}]}),
            &set,
        )
    };
    assert_eq!(from_map("m", "k", false), Ok(vec![pair("V", "v")]));
    assert_eq!(
        from_map("x", "k", false),
        Err("configmap \"x\" not found".into())
    );
    assert_eq!(
        from_map("m", "z", false),
        Err("couldn't find key z in ConfigMap default/m".into())
    );
    assert_eq!(from_map("x", "k", true), Ok(Vec::new()));
    assert_eq!(from_map("m", "z", true), Ok(Vec::new()));
    let secret =
        json!({"env": [{"name": "V", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]});
    assert_eq!(
        build_env(secret.clone(), &ObjectSet::default()),
        Err("secret \"s\" not found".into())
    );
    let set = objects(&[(
        Needed::secret("s"),
        json!({"kind": "Secret", "data": {"k": "c2VjcmV0"}}),
    )]);
    assert_eq!(build_env(secret, &set), Ok(vec![pair("V", "secret")]));
}

#[test]
fn na_036_prefixed_maps_lose_to_explicit_variables() {
    let set = objects(&[(
        Needed::config_map("m"),
        json!({"data": {"a": "1", "b": "2", "c d=": "3"}}),
    )]);
    let container = json!({
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "m"}}],
        "env": [{"name": "P_a", "value": "own"}]});
    assert_eq!(
        build_env(container.clone(), &set).unwrap(),
        [pair("P_a", "own"), pair("P_b", "2")]
    );
    let mut container = container;
    container["name"] = json!("c");
    let pod = pod_with("p", json!({"containers": [container]}));
    let skipped = build(&pod, &pod.containers()[0], "", &set).unwrap().skipped;
    assert_eq!(
        skipped,
        [
            "Keys [c d=] from the EnvFrom configMap default/m were skipped since they are considered invalid environment variable names."
        ]
    );
}

#[test]
fn what_a_container_reads_is_known_beforehand() {
    let container = json!({
        "name": "c",
        "envFrom": [{"secretRef": {"name": "s"}}],
        "env": [{"name": "V", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]});
    let pod = pod_with("p", json!({"containers": [container]}));
    assert_eq!(
        needed(pod.containers()),
        BTreeSet::from([Needed::config_map("m"), Needed::secret("s")])
    );
}
