//! The rows of the table, one by one and together.

use serde_json::json;

use super::super::tests::{defaulted, faults, texts, update_faults, with};
use super::*;
use crate::codec::{FieldValidation, decode_value};
use crate::kind::DAEMON_SET;
use crate::validate::{create, invalid_message, update_status};

const EMPTY: [&str; 0] = [];
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

fn base() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "img:1"}]}
            }
        }
    })
}

fn rolling(unavailable: Value, surge: Value) -> Vec<String> {
    let strategy = json!({"maxUnavailable": unavailable, "maxSurge": surge});
    faults(
        &DAEMON_SET,
        with(base(), "/spec/updateStrategy/rollingUpdate", strategy),
    )
}

#[test]
fn ds_107_each_row_of_the_table_gives_its_fault() {
    assert_eq!(faults(&DAEMON_SET, base()), EMPTY);
    let expression = |expression: Value| json!({"matchLabels": {"app": "web"}, "matchExpressions": [expression]});
    let rows = [
        (
            "/metadata/namespace",
            json!(""),
            vec!["metadata.namespace: Required value"],
        ),
        (
            "/spec/selector",
            expression(json!({"key": "app", "operator": "In", "values": []})),
            vec![
                "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ],
        ),
        (
            "/spec/selector",
            expression(json!({"key": "app", "operator": "Exists", "values": ["x"]})),
            vec![
                "spec.selector.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ],
        ),
        (
            "/spec/selector",
            expression(json!({"key": "app", "operator": "Gt", "values": ["1"]})),
            vec![
                "spec.selector.matchExpressions[0].operator: Invalid value: \"Gt\": not a valid selector operator",
            ],
        ),
        (
            "/spec/template/metadata/labels",
            json!({"app": "other"}),
            vec![
                "spec.template.metadata.labels: Invalid value: {\"app\":\"other\"}: `selector` does not match template `labels`",
            ],
        ),
        (
            "/spec/selector",
            json!({}),
            vec!["spec.selector: Invalid value: {}: empty selector is invalid for daemonset"],
        ),
        (
            "/spec/template/spec/containers",
            json!([]),
            vec!["spec.template.spec.containers: Required value"],
        ),
        (
            "/spec/template/spec/restartPolicy",
            json!("Never"),
            vec![
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            ],
        ),
        (
            "/spec/template/spec/activeDeadlineSeconds",
            json!(5),
            vec![
                "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in DaemonSet is not Supported",
            ],
        ),
        (
            "/spec/minReadySeconds",
            json!(-1),
            vec!["spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            "/spec/updateStrategy",
            json!({"type": "X"}),
            vec![
                "spec.updateStrategy: Unsupported value: {\"Type\":\"X\",\"RollingUpdate\":null}: supported values: \"RollingUpdate\", \"OnDelete\"",
            ],
        ),
        (
            "/spec/revisionHistoryLimit",
            json!(-1),
            vec![
                "spec.revisionHistoryLimit: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
        ("/spec/revisionHistoryLimit", json!(0), vec![]),
    ];
    for (pointer, value, expected) in rows {
        assert_eq!(
            faults(&DAEMON_SET, with(base(), pointer, value)),
            expected,
            "{pointer}"
        );
    }
    let mut undefaulted = defaulted(&DAEMON_SET, base()).into_tree();
    undefaulted["spec"]["updateStrategy"] = json!({"type": "RollingUpdate"});
    assert_eq!(
        texts(&create(
            &DAEMON_SET,
            &crate::object::Object::from_value(undefaulted).unwrap()
        )),
        ["spec.updateStrategy.rollingUpdate: Required value"]
    );
}

#[test]
fn ds_107_several_faults_come_in_table_order() {
    let mut tree = base();
    tree["metadata"]["name"] = json!("Web");
    tree["spec"]["template"]["metadata"]["labels"] = json!({"app": "b"});
    tree["spec"]["template"]["spec"]["containers"][0]["image"] = json!("");
    tree["spec"]["template"]["spec"]["restartPolicy"] = json!("OnFailure");
    tree["spec"]["template"]["spec"]["activeDeadlineSeconds"] = json!(1);
    tree["spec"]["minReadySeconds"] = json!(-2);
    tree["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] = json!(1);
    tree["spec"]["revisionHistoryLimit"] = json!(-3);
    let found = faults(&DAEMON_SET, tree);
    assert!(
        found[0]
            .starts_with("metadata.name: Invalid value: \"Web\": a lowercase RFC 1123 subdomain")
    );
    assert_eq!(
        found[1..],
        [
            "spec.template.metadata.labels: Invalid value: {\"app\":\"b\"}: `selector` does not match template `labels`",
            "spec.template.spec.containers[0].image: Required value",
            "spec.template.spec.restartPolicy: Unsupported value: \"OnFailure\": supported values: \"Always\"",
            "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in DaemonSet is not Supported",
            "spec.minReadySeconds: Invalid value: -2: must be greater than or equal to 0",
            "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero",
            "spec.revisionHistoryLimit: Invalid value: -3: must be greater than or equal to 0",
        ]
    );
}

#[test]
fn ds_107_the_selector_is_immutable() {
    let mut new = base();
    new["spec"]["selector"] = json!({"matchLabels": {"app": "b"}});
    new["spec"]["template"]["metadata"]["labels"] = json!({"app": "b"});
    let found = update_faults(&DAEMON_SET, new, base());
    assert_eq!(
        found,
        ["spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"b\"}}: field is immutable"]
    );
    let mut new = base();
    new["spec"]["selector"]["matchExpressions"] = json!([]);
    new["spec"]["template"]["spec"]["containers"][0]["name"] = json!("renamed");
    new["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    new["spec"]["minReadySeconds"] = json!(5);
    assert_eq!(update_faults(&DAEMON_SET, new, base()), EMPTY);
}

#[test]
fn ds_108_unavailable_and_surge_are_one_or_the_other() {
    const FIELD: &str = "spec.updateStrategy.rollingUpdate";
    let mut tree = base();
    tree["spec"]["updateStrategy"] = json!({"rollingUpdate": {"maxSurge": 1}});
    let found = create(&DAEMON_SET, &defaulted(&DAEMON_SET, tree));
    assert_eq!(
        invalid_message(&DAEMON_SET, "web", &found),
        "DaemonSet.apps \"web\" is invalid: spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"
    );
    for (unavailable, surge) in [
        (json!(0), json!(0)),
        (json!("0%"), json!("0%")),
        (json!(0), json!("0%")),
    ] {
        let expected =
            format!("{FIELD}.maxUnavailable: Required value: cannot be 0 when maxSurge is 0");
        assert_eq!(rolling(unavailable, surge), [expected]);
    }
    assert_eq!(
        rolling(json!("101%"), json!(0)),
        [format!(
            "{FIELD}.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%"
        )]
    );
    assert_eq!(
        rolling(json!("5"), json!(0)),
        [format!(
            "{FIELD}.maxUnavailable: Invalid value: \"5\": {PERCENT}"
        )]
    );
    assert_eq!(
        rolling(json!(-1), json!(0)),
        [format!(
            "{FIELD}.maxUnavailable: Invalid value: -1: must be greater than or equal to 0"
        )]
    );
    assert_eq!(
        rolling(json!("x"), json!(0)),
        [
            format!("{FIELD}.maxUnavailable: Invalid value: \"x\": {PERCENT}"),
            format!("{FIELD}.maxUnavailable: Required value: cannot be 0 when maxSurge is 0")
        ]
    );
    for (unavailable, surge) in [
        (json!("0%"), json!("10%")),
        (json!(0), json!(1)),
        (json!("100%"), json!(0)),
        (json!(100_000), json!(0)),
        (json!(0), json!(100_000)),
    ] {
        assert_eq!(rolling(unavailable, surge), EMPTY);
    }
    let mut tree = base();
    tree["spec"]["updateStrategy"] =
        json!({"type": "OnDelete", "rollingUpdate": {"maxUnavailable": -5}});
    assert_eq!(
        faults(&DAEMON_SET, tree),
        EMPTY,
        "OnDelete does not look at it"
    );
}

#[test]
fn case_b49_three_wrong_selectors_have_three_messages() {
    let mut absent = base();
    absent["spec"].as_object_mut().unwrap().remove("selector");
    let decoded = decode_value(&DAEMON_SET, absent, FieldValidation::Strict).unwrap();
    let absent = decoded.object.into_tree();
    assert_eq!(
        faults(&DAEMON_SET, absent),
        [
            "spec.selector: Required value",
            "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`"
        ]
    );
    assert_eq!(
        faults(&DAEMON_SET, with(base(), "/spec/selector", json!({}))),
        ["spec.selector: Invalid value: {}: empty selector is invalid for daemonset"]
    );
    assert_eq!(
        faults(
            &DAEMON_SET,
            with(
                base(),
                "/spec/selector/matchLabels",
                json!({"app": "other"})
            )
        ),
        [
            "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`"
        ]
    );
}

#[test]
fn selectors_match_by_labels_and_expressions() {
    let matching = [
        json!([{"key": "app", "operator": "In", "values": ["a", "web"]}]),
        json!([{"key": "app", "operator": "NotIn", "values": ["a"]}]),
        json!([{"key": "none", "operator": "NotIn", "values": ["a"]}]),
        json!([{"key": "app", "operator": "Exists"}, {"key": "none", "operator": "DoesNotExist"}]),
    ];
    for expressions in matching {
        let selector = json!({"matchExpressions": expressions});
        assert_eq!(
            faults(
                &DAEMON_SET,
                with(base(), "/spec/selector", selector.clone())
            ),
            EMPTY,
            "{selector}"
        );
    }
    let other = [
        json!([{"key": "app", "operator": "In", "values": ["a"]}]),
        json!([{"key": "app", "operator": "NotIn", "values": ["web"]}]),
        json!([{"key": "none", "operator": "Exists"}]),
        json!([{"key": "app", "operator": "DoesNotExist"}]),
    ];
    for expressions in other {
        let selector = json!({"matchExpressions": expressions});
        assert_eq!(
            faults(
                &DAEMON_SET,
                with(base(), "/spec/selector", selector.clone())
            )
            .len(),
            1,
            "{selector}"
        );
    }
}

#[test]
fn a_status_counts_upwards_from_nothing() {
    let status = |status: Value| defaulted(&DAEMON_SET, with(base(), "/status", status));
    let old = status(json!({"collisionCount": 2}));
    assert_eq!(
        texts(&update_status(
            &DAEMON_SET,
            &status(json!({"numberReady": 1, "collisionCount": 2})),
            &old
        )),
        EMPTY
    );
    assert_eq!(
        texts(&update_status(
            &DAEMON_SET,
            &status(json!({"numberReady": -1, "observedGeneration": -2})),
            &old
        )),
        [
            "status.numberReady: Invalid value: -1: must be greater than or equal to 0",
            "status.observedGeneration: Invalid value: -2: must be greater than or equal to 0",
            "status.collisionCount: Invalid value: 0: cannot be decremented",
        ]
    );
}

#[test]
fn an_unknown_strategy_is_shown_whole() {
    let strategy = json!({"type": "X", "rollingUpdate": {"maxUnavailable": "10%"}});
    assert_eq!(
        faults(&DAEMON_SET, with(base(), "/spec/updateStrategy", strategy)),
        [
            "spec.updateStrategy: Unsupported value: {\"Type\":\"X\",\"RollingUpdate\":{\"MaxUnavailable\":\"10%\",\"MaxSurge\":0}}: supported values: \"RollingUpdate\", \"OnDelete\""
        ]
    );
}
