//! The codec from outside: what is accepted, what is refused, and in which words.

use serde_json::json;

use super::*;
use crate::kind;

mod manifests;
mod properties;

fn daemon(container_extra: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: DaemonSet\nmetadata:\n  name: demo\nspec:\n  selector:\n    matchLabels:\n      app: \
         demo\n  template:\n    metadata:\n      labels:\n        app: demo\n    spec:\n      containers:\n      - name: \
         main\n        image: busybox:1\n{container_extra}"
    )
}

fn strict(text: &str) -> Result<Decoded, DecodeError> {
    decode(&kind::DAEMON_SET, text.as_bytes(), FieldValidation::Strict)
}

fn as_json(text: &str) -> String {
    read_tree(text.as_bytes()).unwrap().value.to_string()
}

#[test]
fn case_b41_an_unquoted_number_is_named_with_its_path_and_the_cure() {
    let yaml = daemon("        env:\n        - name: PORT\n          value: 8001\n");
    let wanted = "DaemonSet in version \"v1\" cannot be handled as a DaemonSet: \
                  spec.template.spec.containers[0].env[0].value: 8001 is a number, a string is expected: quote it";
    for text in [yaml.clone(), as_json(&yaml)] {
        for validation in [
            FieldValidation::Strict,
            FieldValidation::Warn,
            FieldValidation::Ignore,
        ] {
            let error = decode(&kind::DAEMON_SET, text.as_bytes(), validation).unwrap_err();
            assert_eq!(error.to_string(), wanted);
        }
    }
}

#[test]
fn case_b47_a_key_given_twice_is_named_with_its_path() {
    let yaml = daemon(
        "        env:\n        - {name: A, value: one}\n        env:\n        - {name: B, value: two}\n",
    );
    let json_text = r#"{"metadata":{"name":"demo"},"spec":{"template":{"spec":{"containers":[{"name":"main","env":[],"env":[]}]}}}}"#;
    for text in [yaml.as_str(), json_text] {
        assert_eq!(
            strict(text).unwrap_err().to_string(),
            "DaemonSet in version \"v1\" cannot be handled as a DaemonSet: strict decoding error: duplicate field \
             \"spec.template.spec.containers[0].env\""
        );
        let warned = decode(&kind::DAEMON_SET, text.as_bytes(), FieldValidation::Warn).unwrap();
        assert_eq!(
            warned.warnings,
            ["duplicate field \"spec.template.spec.containers[0].env\""]
        );
        let silent = decode(&kind::DAEMON_SET, text.as_bytes(), FieldValidation::Ignore).unwrap();
        assert!(silent.warnings.is_empty());
        assert_eq!(silent.object, warned.object);
    }
    let kept = decode(&kind::DAEMON_SET, yaml.as_bytes(), FieldValidation::Warn)
        .unwrap()
        .object;
    assert_eq!(
        kept.at("/spec/template/spec/containers/0/env"),
        Some(&json!([{"name": "B", "value": "two"}]))
    );
}

#[test]
fn case_b51_each_unquoted_env_value_is_refused_or_taken_as_through_kubectl() {
    for (value, wanted) in [
        ("yes", Some("true is a boolean")),
        ("on", Some("true is a boolean")),
        ("off", Some("false is a boolean")),
        ("1e3", Some("1000 is a number")),
        ("0123", Some("83 is a number")),
        ("1_000", Some("1000 is a number")),
        ("~", None),
        ("null", None),
        ("2001-01-01", None),
    ] {
        let text = daemon(&format!(
            "        env:\n        - name: A\n          value: {value}\n"
        ));
        match (strict(&text), wanted) {
            (Ok(decoded), None) => {
                let env = decoded
                    .object
                    .text_at("/spec/template/spec/containers/0/env/0/value");
                assert_eq!(
                    env,
                    if value.starts_with('2') { value } else { "" },
                    "{value}"
                );
            }
            (Err(error), Some(read)) => {
                let place = "spec.template.spec.containers[0].env[0].value";
                let tail = format!("{place}: {read}, a string is expected: quote it");
                assert!(error.to_string().ends_with(&tail), "{value}: {error}");
            }
            (outcome, _) => panic!("{value}: {outcome:?}"),
        }
    }
}

#[test]
fn api_018_an_unknown_field_is_refused_when_strict() {
    let text = daemon("") + "  foo: 1\n";
    assert_eq!(
        strict(&text).unwrap_err().to_string(),
        "DaemonSet in version \"v1\" cannot be handled as a DaemonSet: strict decoding error: unknown field \"spec.foo\""
    );
}

#[test]
fn api_019_an_unknown_field_is_dropped_with_a_warning_otherwise() {
    let text = daemon("        imagee: x\n        nothing: null\n") + "  foo: {}\n";
    let warned = decode(&kind::DAEMON_SET, text.as_bytes(), FieldValidation::Warn).unwrap();
    assert_eq!(
        warned.warnings,
        [
            "unknown field \"spec.foo\"",
            "unknown field \"spec.template.spec.containers[0].imagee\"",
            "unknown field \"spec.template.spec.containers[0].nothing\"",
        ]
    );
    assert_eq!(warned.object, strict(&daemon("")).unwrap().object);
    let silent = decode(&kind::DAEMON_SET, text.as_bytes(), FieldValidation::Ignore).unwrap();
    assert_eq!(
        (silent.object, silent.warnings),
        (warned.object, Vec::new())
    );
}

#[test]
fn of_many_faults_the_first_hundred_are_named() {
    let many: String = (0..300).map(|n| format!("  foo{n}: 1\n")).collect();
    let warned = decode(
        &kind::DAEMON_SET,
        (daemon("") + &many).as_bytes(),
        FieldValidation::Warn,
    )
    .unwrap();
    assert_eq!(warned.warnings.len(), 101);
    assert_eq!(warned.warnings[100], "and more");
}

#[test]
fn known_fields_stay_as_they_were_written() {
    let tree = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "demo", "creationTimestamp": null, "labels": {"a": null}},
        "spec": {
            "selector": {"matchLabels": {"app": "demo"}},
            "template": {"metadata": {"creationTimestamp": null}, "spec": {
                "containers": [{"name": "main", "resources": {"limits": {"cpu": 1, "memory": "64Mi"}}, "args": []}],
                "volumes": [{"name": "x", "emptyDir": {}}],
            }},
            "updateStrategy": {"rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 0}},
        },
        "status": {},
    });
    let decoded = decode_value(&kind::DAEMON_SET, tree, FieldValidation::Strict)
        .unwrap()
        .object
        .into_tree();
    assert_eq!(
        decoded["metadata"],
        json!({"name": "demo", "labels": {"a": ""}})
    );
    let pod = &decoded["spec"]["template"]["spec"];
    assert_eq!(
        pod["containers"][0]["resources"]["limits"],
        json!({"cpu": "1", "memory": "64Mi"})
    );
    assert_eq!(pod["containers"][0]["args"], json!([]));
    assert_eq!(pod["volumes"][0]["emptyDir"], json!({}));
    assert_eq!(
        decoded["spec"]["updateStrategy"],
        json!({"rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 0}})
    );
}

#[test]
fn the_data_of_a_revision_is_free_form() {
    let data = json!({"spec": {"template": {"$patch": "replace", "x": null}}});
    let tree = json!({"metadata": {"name": "r"}, "revision": 1, "data": data});
    let decoded = decode_value(&kind::CONTROLLER_REVISION, tree, FieldValidation::Strict).unwrap();
    assert_eq!(decoded.object.at("/data"), Some(&data));
}

#[test]
fn the_kind_must_be_the_expected_one() {
    let error = |tree| {
        decode_value(&kind::POD, tree, FieldValidation::Strict)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(json!({"apiVersion": "apps/v1", "kind": "Pod"})),
        "the API version in the data (apps/v1) does not match the expected API version (v1)"
    );
    assert_eq!(
        error(json!({"apiVersion": "v1", "kind": "Node"})),
        "the kind in the data (Node) does not match the expected kind (Pod)"
    );
    assert_eq!(
        error(json!([1])),
        "Pod in version \"v1\" cannot be handled as a Pod: expected an object (a mapping), found a list"
    );
    let filled = decode(
        &kind::POD,
        b"{\"metadata\":{\"name\":\"a\"}}",
        FieldValidation::Strict,
    )
    .unwrap()
    .object;
    assert_eq!((filled.api_version(), filled.kind_name()), ("v1", "Pod"));
}

#[test]
fn a_wrong_type_is_said_in_a_users_words() {
    let tail = |kind, tree| match decode_value(kind, tree, FieldValidation::Ignore).unwrap_err() {
        DecodeError::WrongType { path, detail, .. } => format!("{path}: {detail}"),
        other => other.to_string(),
    };
    for (tree, wanted) in [
        (
            json!({"spec": {"minReadySeconds": "5"}}),
            "spec.minReadySeconds: \"5\" is a string, an integer is expected",
        ),
        (
            json!({"spec": []}),
            "spec: a list is given, a mapping is expected",
        ),
        (
            json!({"spec": {"template": {"spec": {"containers": {}}}}}),
            "spec.template.spec.containers: a mapping is given, a list is expected",
        ),
        (
            json!({"spec": {"template": {"spec": {"containers": [null]}}}}),
            "spec.template.spec.containers[0]: nothing (null) is given, a mapping is expected",
        ),
        (
            json!({"spec": {"template": {"spec": {"hostNetwork": "yes"}}}}),
            "spec.template.spec.hostNetwork: \"yes\" is a string, a boolean is expected",
        ),
        (
            json!({"metadata": {"labels": {"example.com/a.b": true}}}),
            "metadata.labels.example.com/a.b: true is a boolean, a string is expected: quote it",
        ),
        (
            json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": true}}}}),
            "spec.updateStrategy.rollingUpdate.maxUnavailable: true is a boolean, an integer or a string is expected",
        ),
        (
            json!({"metadata": 5}),
            "metadata: 5 is a number, a mapping is expected",
        ),
    ] {
        assert_eq!(tail(&kind::DAEMON_SET, tree), wanted);
    }
    let secret = tail(&kind::SECRET, json!({"stringData": {"password": 12345}}));
    assert_eq!(
        secret,
        "stringData.password: a number is given, a string is expected: quote it"
    );
    let secret = tail(&kind::SECRET, json!({"data": {"password": "hunter2!"}}));
    assert!(!secret.contains("hunter2"), "{secret}");
}

#[test]
fn a_value_that_can_not_be_read_is_shown_with_the_reason() {
    let tail =
        |tree| match decode_value(&kind::DAEMON_SET, tree, FieldValidation::Ignore).unwrap_err() {
            DecodeError::WrongType { path, detail, .. } => format!("{path}: {detail}"),
            other => other.to_string(),
        };
    assert_eq!(
        tail(json!({"spec": {"minReadySeconds": 99_999_999_999i64}})),
        "spec.minReadySeconds: 99999999999 is out of range"
    );
    let time = tail(json!({"metadata": {"creationTimestamp": "yesterday"}}));
    assert!(
        time.starts_with("metadata.creationTimestamp: \"yesterday\": "),
        "{time}"
    );
}

#[test]
fn long_paths_given_twice_often_are_cut() {
    let text = format!(
        "{{\"{}\": {{{}\"a\": 1}}}}",
        "k".repeat(100_000),
        "\"a\": 1, ".repeat(10_000)
    );
    let tree = read_tree(text.as_bytes()).unwrap();
    assert_eq!(tree.duplicates.len(), 101);
    assert!(tree.duplicates.iter().all(|path| path.len() < 600));
}
