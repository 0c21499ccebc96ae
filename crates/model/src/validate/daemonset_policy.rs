//! DaemonSetPolicies: checks and levels by their names, namespaces that can be found.

use super::selector;
use super::view::{Faults, View};
use crate::names;
use crate::policy::{Check, Level};

pub(super) fn check(root: &View, faults: &mut Faults) {
    let spec = root.child("spec");
    check_namespaces(&spec.child("namespaces"), faults);
    let checks = spec.child("checks");
    if checks.is_empty() {
        faults.push(checks.required(&format!(
            "name at least one check and what is done about it, such as {}: Refuse; there are {}",
            Check::NoReadinessProbe.name(),
            Check::NAMES.join(", ")
        )));
    }
    for (name, level) in checks.entries() {
        if Check::named(name).is_none() {
            faults.push(level.unknown_key(name, Check::NAMES));
        } else if Level::named(level.text()).is_none() {
            faults.push(level.not_supported(Level::NAMES));
        }
    }
}

fn check_namespaces(namespaces: &View, faults: &mut Faults) {
    if !namespaces.is_present() {
        return;
    }
    let (listed, chosen) = (namespaces.child("names"), namespaces.child("selector"));
    if listed.is_empty() && !chosen.is_present() {
        faults.push(namespaces.required(
            "give `names` or a `selector`; a policy for all namespaces leaves `namespaces` out",
        ));
    }
    let mut seen = Vec::new();
    for name in listed.items() {
        name.require_text(names::check_label, faults);
        if seen.contains(&name.text()) {
            faults.push(name.duplicate());
        }
        seen.push(name.text());
    }
    selector::check(&chosen, faults);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{create, update};
    use crate::kind::DAEMON_SET_POLICY;
    use crate::object::Object;

    fn policy(spec: Value) -> Object {
        let tree = json!({
            "apiVersion": "muster.dev/v1", "kind": "DaemonSetPolicy", "metadata": {"name": "strict"}, "spec": spec,
        });
        Object::from_value(tree).unwrap()
    }

    fn faults(spec: Value) -> Vec<String> {
        let faults = create(&DAEMON_SET_POLICY, &policy(spec));
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_policy_names_checks_levels_and_namespaces_that_there_can_be() {
        let fine = json!({
            "namespaces": {"names": ["prod", "edge"], "selector": {"matchLabels": {"tier": "prod"}}},
            "checks": {"NoReadinessProbe": "Refuse", "LatestTag": "Warn", "OnDelete": "Ignore"},
        });
        assert_eq!(faults(fine.clone()), [""; 0]);
        assert_eq!(faults(json!({"checks": {"NoHistory": "Refuse"}})), [""; 0]);
        let wrong = json!({
            "namespaces": {"names": ["Prod", "edge", "edge"], "selector": {
                "matchExpressions": [{"key": "tier", "operator": "Like", "values": ["x"]}],
            }},
            "checks": {"NoProbe": "Refuse", "OnDelete": "refuse"},
        });
        assert_eq!(
            faults(wrong.clone()),
            [
                "spec.namespaces.names[0]: Invalid value: \"Prod\": a lowercase RFC 1123 label must consist of lower case \
                 alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  \
                 or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                "spec.namespaces.names[2]: Duplicate value: \"edge\"",
                "spec.namespaces.selector.matchExpressions[0].operator: Invalid value: \"Like\": not a valid selector operator",
                "spec.checks[NoProbe]: Unsupported value: \"NoProbe\": supported values: \"UntoleratedTaints\", \
                 \"MatchesNoNode\", \"NoReadinessProbe\", \"NoResourceRequests\", \"OnDelete\", \"NoHistory\", \"LatestTag\", \
                 \"HostPortSurge\", \"HostPathWithoutType\", \"UnknownAnnotation\"",
                "spec.checks[OnDelete]: Unsupported value: \"refuse\": supported values: \"Ignore\", \"Warn\", \"Refuse\"",
            ]
        );
        let refused = update(&DAEMON_SET_POLICY, &policy(wrong), &policy(fine));
        assert_eq!(refused.len(), 5, "an update is judged as a creation is");
    }

    #[test]
    fn a_policy_that_says_nothing_is_a_slip() {
        let told = faults(json!({"namespaces": {}}));
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].starts_with("spec.namespaces: Required value: give `names` or a `selector`"),
            "{told:?}"
        );
        assert!(
            told[1].starts_with("spec.checks: Required value: name at least one check"),
            "{told:?}"
        );
        assert_eq!(faults(Value::Null).len(), 1);
    }
}
