//! What the author of a DaemonSet is told at once, when it is written, and what a policy refuses.
//!
//! The checks are [`muster_daemonset::checks`]; the policies of the namespace say what each finding means
//! ([`Ruling`]). Parts of the server write what they must: they are neither told nor refused, so that no policy can
//! stand in the way of a rollback that the controller makes by itself.

use muster_daemonset::checks::{Finding, of_annotations, of_nodes, of_template};
use muster_daemonset::{DaemonFacts, NodeFacts};
use muster_model::defaults::semantically_equal;
use muster_model::field_path::FieldError;
use muster_model::k8s::api::apps::v1::DaemonSet;
use muster_model::k8s::api::core::v1::Node;
use muster_model::kind::{NODE, SERVICE_ACCOUNT};
use muster_model::object::{NamespacedName, Object};
use muster_model::policy::{Level, Ruling};
use muster_model::reason::condition;

use crate::cache::Cache;
use crate::registry::daemonset_policy;

/// What is said to the author of a write.
#[derive(Debug, Default)]
pub(crate) struct Advice {
    /// Why it is refused.
    pub(crate) faults: Vec<FieldError>,
    /// What he should know.
    pub(crate) warnings: Vec<String>,
}

/// Judges a new DaemonSet, or what a change of one touches.
pub(crate) fn judge(daemon: &Object, old: Option<&Object>, cache: &Cache) -> Advice {
    let mut advice = Advice::default();
    let mut found = Vec::new();
    if old.is_none_or(|old| is_judged_anew(daemon, old)) {
        advice.warnings = missing_account(daemon, cache);
        found = of_pods(daemon, cache);
    }
    let known = old.map(of_annotations).unwrap_or_default();
    found.extend(
        of_annotations(daemon)
            .into_iter()
            .filter(|finding| !known.contains(finding)),
    );
    if found.is_empty() {
        return advice;
    }
    let ruling = daemonset_policy::ruling(cache, daemon.namespace());
    for finding in found {
        match ruling.level(finding.check) {
            Level::Ignore => {}
            Level::Warn => advice.warnings.push(finding.to_string()),
            Level::Refuse => advice.faults.push(refusal(&finding, &ruling)),
        }
    }
    advice
}

/// What the pods will come to, and how they are replaced.
fn of_pods(daemon: &Object, cache: &Cache) -> Vec<Finding> {
    let Ok(typed) = daemon.typed::<DaemonSet>() else {
        return Vec::new();
    };
    let Ok(facts) = DaemonFacts::from_typed(&typed, daemon) else {
        return Vec::new();
    };
    let nodes: Vec<(NodeFacts, bool)> = cache
        .list(&NODE)
        .items
        .iter()
        .filter_map(|stored| stored.typed::<Node>().ok())
        .map(|node| (NodeFacts::from_typed(&node), is_ready(&node)))
        .collect();
    let mut found = of_nodes(
        &facts.rules,
        nodes.iter().map(|(node, ready)| (node, *ready)),
    );
    found.extend(of_template(&typed));
    found
}

/// Whether a change touches what most checks look at: the pods and how they are replaced. A label, an annotation, a
/// restart (which marks the template's metadata) and the rollout's controls do not. Annotations are looked at besides.
pub(crate) fn is_judged_anew(new: &Object, old: &Object) -> bool {
    [
        "/spec/template/spec",
        "/spec/updateStrategy",
        "/spec/revisionHistoryLimit",
    ]
    .into_iter()
    .any(|pointer| !semantically_equal(new.at(pointer), old.at(pointer)))
}

fn refusal(finding: &Finding, ruling: &Ruling) -> FieldError {
    let by = ruling.policy(finding.check).unwrap_or("default");
    FieldError::forbidden(
        finding.field.clone(),
        &format!(
            "{} [{}, refused by DaemonSetPolicy {by}]",
            finding.told(),
            finding.check.name()
        ),
    )
}

/// Pods run without their account; where somebody counts on it, better to know.
fn missing_account(daemon: &Object, cache: &Cache) -> Vec<String> {
    let name = daemon.text_at("/spec/template/spec/serviceAccountName");
    let key = NamespacedName::new(daemon.namespace(), name);
    if name.is_empty() || cache.get(&SERVICE_ACCOUNT, &key).is_some() {
        return Vec::new();
    }
    vec![format!(
        "spec.template.spec.serviceAccountName: there is no service account {key}; the pods run, without its rights"
    )]
}

fn is_ready(node: &Node) -> bool {
    node.status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|found| found.type_ == condition::READY && found.status == "True")
}
