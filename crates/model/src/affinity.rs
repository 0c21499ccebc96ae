//! `nodeSelector` and required node affinity: does a node match, and if not, what failed
//! (spec/daemonset.md 8). Preferred terms and pod affinity are not looked at.

use std::collections::BTreeMap;
use std::fmt;

use crate::k8s::api::core::v1::{Affinity, NodeSelectorRequirement, NodeSelectorTerm};
use crate::names::check_qualified_name;

/// The only field that `matchFields` knows.
pub const NAME_FIELD: &str = "metadata.name";

/// Why a node does not match. As text it is a clause: `node selector disk=ssd not matched`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    /// A pair of `nodeSelector` that the node does not have.
    NodeSelector {
        /// The label's key.
        key: String,
        /// The value asked for.
        value: String,
        /// What the node has under that key.
        found: Option<String>,
    },
    /// Required node affinity is there but has no term that could match any node.
    NoTerms,
    /// No term matched; the first thing that failed in each term, in the terms' order.
    Terms(Vec<TermMismatch>),
}

/// What failed in one term of required node affinity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TermMismatch {
    /// The term's place in `nodeSelectorTerms`, from 0.
    pub term: usize,
    /// The requirement that failed, as text: `color In [blue]`.
    pub requirement: String,
    /// The requirement can match no node at all (unknown operator, wrong number of values, ...).
    pub broken: bool,
    /// The label that would satisfy this requirement, when one label would.
    pub wanted_label: Option<(String, String)>,
}

impl Mismatch {
    /// A label, key and value, that the node lacks and that would close this gap, when there is a simple one.
    pub fn wanted_label(&self) -> Option<(&str, &str)> {
        match self {
            Self::NodeSelector { key, value, .. } => Some((key, value)),
            Self::NoTerms => None,
            Self::Terms(terms) => terms
                .iter()
                .find_map(|term| term.wanted_label.as_ref())
                .map(|(key, value)| (key.as_str(), value.as_str())),
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeSelector { key, value, .. } => {
                write!(f, "node selector {key}={value} not matched")
            }
            Self::NoTerms => {
                f.write_str("required node affinity has no term that could match a node")
            }
            Self::Terms(terms) => {
                f.write_str("required node affinity not matched: ")?;
                for (index, term) in terms.iter().enumerate() {
                    if index > 0 {
                        f.write_str(", nor ")?;
                    }
                    f.write_str(&term.requirement)?;
                    if term.broken {
                        f.write_str(" (which matches nothing)")?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// Why the node `name` with `labels` does not match; `None` when it does. Both `node_selector` and the required
/// part of `affinity` must match; what is absent matches all nodes.
pub fn mismatch(
    name: &str,
    labels: &BTreeMap<String, String>,
    node_selector: Option<&BTreeMap<String, String>>,
    affinity: Option<&Affinity>,
) -> Option<Mismatch> {
    for (key, value) in node_selector.into_iter().flatten() {
        if labels.get(key) != Some(value) {
            return Some(Mismatch::NodeSelector {
                key: key.clone(),
                value: value.clone(),
                found: labels.get(key).cloned(),
            });
        }
    }
    let required = affinity?
        .node_affinity
        .as_ref()?
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let mut failed = Vec::new();
    for (index, term) in required.node_selector_terms.iter().enumerate() {
        if is_empty(term) {
            continue;
        }
        match term_mismatch(index, term, name, labels) {
            None => return None,
            Some(mismatch) => failed.push(mismatch),
        }
    }
    Some(if failed.is_empty() {
        Mismatch::NoTerms
    } else {
        Mismatch::Terms(failed)
    })
}

/// The name of the one node that required affinity pins a pod to by `matchFields: metadata.name In [NODE]`;
/// `None` when it does not pin it to one (spec/daemonset.md 10.1).
pub fn pinned_node(affinity: Option<&Affinity>) -> Option<&str> {
    let required = affinity?
        .node_affinity
        .as_ref()?
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    required.node_selector_terms.iter().find_map(|term| {
        term.match_fields
            .iter()
            .flatten()
            .find_map(|field| match field.values.as_deref() {
                Some([only]) if field.key == NAME_FIELD && field.operator == "In" => {
                    Some(only.as_str())
                }
                _ => None,
            })
    })
}

/// A requirement as text: `color In [blue, green]`, `disk Exists`.
pub fn requirement_text(requirement: &NodeSelectorRequirement) -> String {
    let values = requirement.values.as_deref().unwrap_or_default();
    if values.is_empty() {
        format!("{} {}", requirement.key, requirement.operator)
    } else {
        format!(
            "{} {} [{}]",
            requirement.key,
            requirement.operator,
            values.join(", ")
        )
    }
}

fn is_empty(term: &NodeSelectorTerm) -> bool {
    term.match_expressions.as_ref().is_none_or(Vec::is_empty)
        && term.match_fields.as_ref().is_none_or(Vec::is_empty)
}

enum Outcome {
    Match,
    NoMatch,
    Broken,
}

fn term_mismatch(
    index: usize,
    term: &NodeSelectorTerm,
    name: &str,
    labels: &BTreeMap<String, String>,
) -> Option<TermMismatch> {
    let fields = term
        .match_fields
        .iter()
        .flatten()
        .map(|r| (r, on_field(r, name), false));
    let expressions = term
        .match_expressions
        .iter()
        .flatten()
        .map(|r| (r, on_labels(r, labels), true));
    let mut first_failed = None;
    for (requirement, outcome, on_label) in fields.chain(expressions) {
        let failed = |broken: bool| TermMismatch {
            term: index,
            requirement: requirement_text(requirement),
            broken,
            wanted_label: (on_label && !broken)
                .then(|| wanted_label(requirement))
                .flatten(),
        };
        match outcome {
            Outcome::Match => {}
            Outcome::NoMatch => first_failed = first_failed.or_else(|| Some(failed(false))),
            // A broken requirement is told before a plain mismatch: no node can ever satisfy the term.
            Outcome::Broken => return Some(failed(true)),
        }
    }
    first_failed
}

fn wanted_label(requirement: &NodeSelectorRequirement) -> Option<(String, String)> {
    let value = requirement
        .values
        .as_ref()
        .and_then(|values| values.first());
    match (requirement.operator.as_str(), value) {
        ("In", Some(value)) => Some((requirement.key.clone(), value.clone())),
        ("Exists", _) => Some((requirement.key.clone(), String::new())),
        _ => None,
    }
}

fn on_field(requirement: &NodeSelectorRequirement, name: &str) -> Outcome {
    let Some([only]) = requirement.values.as_deref() else {
        return Outcome::Broken;
    };
    if requirement.key != NAME_FIELD {
        return Outcome::Broken;
    }
    match requirement.operator.as_str() {
        "In" => matched(only == name),
        "NotIn" => matched(only != name),
        _ => Outcome::Broken,
    }
}

fn on_labels(requirement: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> Outcome {
    let values = requirement.values.as_deref().unwrap_or_default();
    let found = labels.get(&requirement.key);
    if !check_qualified_name(&requirement.key).is_empty() {
        return Outcome::Broken;
    }
    match (requirement.operator.as_str(), values) {
        ("In", [_, ..]) => matched(found.is_some_and(|value| values.contains(value))),
        ("NotIn", [_, ..]) => matched(found.is_none_or(|value| !values.contains(value))),
        ("Exists", []) => matched(found.is_some()),
        ("DoesNotExist", []) => matched(found.is_none()),
        (operator @ ("Gt" | "Lt"), [bound]) => {
            let Ok(bound) = bound.parse::<i64>() else {
                return Outcome::Broken;
            };
            let found = found.and_then(|value| value.parse::<i64>().ok());
            matched(found.is_some_and(|found| {
                if operator == "Gt" {
                    found > bound
                } else {
                    found < bound
                }
            }))
        }
        _ => Outcome::Broken,
    }
}

fn matched(yes: bool) -> Outcome {
    if yes {
        Outcome::Match
    } else {
        Outcome::NoMatch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn required(terms: Value) -> Affinity {
        serde_json::from_value(json!({
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        }))
        .unwrap()
    }

    fn matches(terms: Value, node: &str, pairs: &[(&str, &str)]) -> bool {
        mismatch(node, &labels(pairs), None, Some(&required(terms))).is_none()
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}])
    }

    #[test]
    fn every_pair_of_the_node_selector_must_be_on_the_node() {
        let selector = labels(&[("disk", "ssd")]);
        let found = mismatch("n1", &labels(&[("disk", "hdd")]), Some(&selector), None).unwrap();
        assert_eq!(found.to_string(), "node selector disk=ssd not matched");
        assert_eq!(found.wanted_label(), Some(("disk", "ssd")));
        assert_eq!(
            mismatch("n1", &labels(&[("disk", "ssd")]), Some(&selector), None),
            None
        );
        assert_eq!(mismatch("n1", &labels(&[]), Some(&labels(&[])), None), None);
    }

    #[test]
    fn operators_on_labels() {
        type Case = (
            &'static str,
            &'static str,
            &'static [&'static str],
            &'static [(&'static str, &'static str)],
            bool,
        );
        let cases: [Case; 17] = [
            ("color", "In", &["blue"], &[("color", "blue")], true),
            ("color", "In", &["blue"], &[("color", "red")], false),
            ("color", "In", &["blue"], &[], false),
            ("color", "NotIn", &["blue"], &[("color", "blue")], false),
            ("color", "NotIn", &["blue"], &[], true),
            ("color", "Exists", &[], &[("color", "")], true),
            ("color", "Exists", &[], &[], false),
            ("color", "DoesNotExist", &[], &[], true),
            ("color", "DoesNotExist", &[], &[("color", "x")], false),
            ("cpus", "Gt", &["4"], &[("cpus", "8")], true),
            ("cpus", "Gt", &["4"], &[("cpus", "4")], false),
            ("cpus", "Gt", &["4"], &[("cpus", "x")], false),
            ("cpus", "Gt", &["4"], &[], false),
            ("cpus", "Lt", &["4"], &[("cpus", "3")], true),
            ("cpus", "Lt", &["abc"], &[("cpus", "3")], false),
            ("cpus", "Near", &["4"], &[("cpus", "4")], false),
            ("cpus", "Exists", &["4"], &[("cpus", "4")], false),
        ];
        for (key, operator, values, pairs, expected) in cases {
            let found = matches(expression(key, operator, values), "n1", pairs);
            assert_eq!(found, expected, "{key} {operator} {values:?} on {pairs:?}");
        }
    }

    #[test]
    fn terms_are_ored_and_their_parts_anded() {
        let blue =
            json!({"matchExpressions": [{"key": "color", "operator": "In", "values": ["blue"]}]});
        let red =
            json!({"matchExpressions": [{"key": "color", "operator": "In", "values": ["red"]}]});
        let on_blue: &[(&str, &str)] = &[("color", "blue")];
        assert!(matches(json!([red, blue]), "n1", on_blue));
        assert!(!matches(json!([]), "n1", on_blue), "no terms: no node");
        assert!(
            !matches(json!([{}]), "n1", on_blue),
            "an empty term matches nothing"
        );
        assert!(
            matches(json!([{}, blue]), "n1", on_blue),
            "an empty term is skipped"
        );
        let both = json!([{
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
            "matchExpressions": [{"key": "color", "operator": "In", "values": ["red"]}],
        }]);
        assert!(
            !matches(both, "n1", on_blue),
            "fields match, expressions do not"
        );
    }

    #[test]
    fn a_broken_term_does_not_hide_a_good_one() {
        let terms = json!([
            {"matchExpressions": [{"key": "cpus", "operator": "Gt", "values": ["abc"]}]},
            {"matchExpressions": [{"key": "color", "operator": "Exists"}]},
        ]);
        assert!(matches(terms.clone(), "n1", &[("color", "x")]));
        let found = mismatch("n1", &labels(&[]), None, Some(&required(terms))).unwrap();
        assert_eq!(
            found.to_string(),
            "required node affinity not matched: cpus Gt [abc] (which matches nothing), nor color Exists"
        );
    }

    #[test]
    fn fields_know_the_name_of_the_node() {
        let field = |key: &str, operator: &str, values: &[&str]| json!([{"matchFields": [{"key": key, "operator": operator, "values": values}]}]);
        assert!(matches(field("metadata.name", "In", &["n2"]), "n2", &[]));
        assert!(!matches(field("metadata.name", "In", &["n2"]), "n1", &[]));
        assert!(matches(field("metadata.name", "NotIn", &["n2"]), "n1", &[]));
        assert!(!matches(
            field("metadata.name", "In", &["n1", "n2"]),
            "n1",
            &[]
        ));
        assert!(!matches(field("metadata.uid", "In", &["n1"]), "n1", &[]));
        assert_eq!(
            pinned_node(Some(&required(field("metadata.name", "In", &["n2"])))),
            Some("n2")
        );
        assert_eq!(
            pinned_node(Some(&required(field("metadata.name", "NotIn", &["n2"])))),
            None
        );
        assert_eq!(pinned_node(None), None);
    }
}
