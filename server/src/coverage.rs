//! What the author of a DaemonSet is told at once, when it is stored: which nodes will have no pod of it.

use std::collections::BTreeMap;

use muster_daemonset::{DaemonFacts, NodeFacts, Verdict};
use muster_model::k8s::api::core::v1::Node;
use muster_model::kind::{DAEMON_SET, Kind, NODE, SERVICE_ACCOUNT};
use muster_model::object::{NamespacedName, Object};
use muster_model::reason::condition;

use crate::cache::Cache;
use crate::grpc::Advice;

/// Nodes named in one warning at most.
const NODES_NAMED: usize = 5;

/// Tells the author of a DaemonSet which ready nodes will be left without a pod, why, and what would help.
pub(crate) struct Coverage {
    pub(crate) cache: Cache,
}

impl Advice for Coverage {
    fn about(&self, kind: &'static Kind, object: &Object) -> Vec<String> {
        if *kind != DAEMON_SET {
            return Vec::new();
        }
        let Ok(daemon) = DaemonFacts::from_object(object) else {
            return Vec::new();
        };
        let mut warnings = self.missing_account(object);
        // What keeps nodes away -> those nodes, and what would help on the first.
        let mut left_out: BTreeMap<String, (Vec<String>, String)> = BTreeMap::new();
        for stored in self.cache.list(&NODE).items {
            let Ok(node) = stored.typed::<Node>() else {
                continue;
            };
            if !is_ready(&node) {
                continue;
            }
            let facts = NodeFacts::from_typed(&node);
            let Some(why) = muster_daemonset::place::fit(&daemon.rules, &facts).why_not else {
                continue;
            };
            let sentence = why.sentence();
            let verdict = Verdict::No {
                why,
                pod: None,
                stays: false,
            };
            let (nodes, fix) = left_out.entry(sentence).or_default();
            if nodes.is_empty() {
                *fix = verdict.fix(facts.name.as_str());
            }
            nodes.push(facts.name.to_string());
        }
        let left_out = left_out.into_iter();
        warnings.extend(left_out.map(|(why, (nodes, fix))| warning(&why, &nodes, &fix)));
        warnings
    }
}

impl Coverage {
    /// Pods run without their account; where somebody counts on it, better to know.
    fn missing_account(&self, daemon: &Object) -> Vec<String> {
        let name = daemon.text_at("/spec/template/spec/serviceAccountName");
        let key = NamespacedName::new(daemon.namespace(), name);
        if name.is_empty() || self.cache.get(&SERVICE_ACCOUNT, &key).is_some() {
            return Vec::new();
        }
        vec![format!(
            "spec.template.spec.serviceAccountName: there is no service account {key}; the pods run, without its rights"
        )]
    }
}

fn warning(why: &str, nodes: &[String], fix: &str) -> String {
    let (verb, named) = (
        if nodes.len() == 1 { "node" } else { "nodes" },
        nodes.len().min(NODES_NAMED),
    );
    let mut list = nodes[..named].join(", ");
    if nodes.len() > named {
        list.push_str(&format!(" and {} more", nodes.len() - named));
    }
    let advice = if fix.is_empty() {
        String::new()
    } else {
        format!("; to change that, {fix}")
    };
    format!(
        "{} ready {verb} will have no pod ({list}): {why}{advice}",
        nodes.len()
    )
}

fn is_ready(node: &Node) -> bool {
    node.status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|found| found.type_ == condition::READY && found.status == "True")
}
