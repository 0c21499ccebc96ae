//! A DaemonSet as a person asks about it: every node's verdict, computed from the cache with the same pure
//! functions that the controller uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_daemonset::facts::FactsError;
use muster_daemonset::{
    Claim, DaemonFacts, NodeFacts, NodeName, Placement, PodFacts, RevisionFacts, Verdict,
    claim_object, place, place_gone, revision,
};
use muster_model::k8s::api::apps::v1::DaemonSet;
use muster_model::k8s::api::core::v1::{Node, Pod};
use muster_model::kind::{CONTROLLER_REVISION, DAEMON_SET, Kind, NODE, POD, SERVICE_ACCOUNT};
use muster_model::object::{NamespacedName, Object};
use muster_model::pod_status::Availability;
use muster_model::reason::condition;
use muster_model::time::Timestamp;

use crate::cache::{Cache, Stored};
use crate::grpc::Advice;
use crate::status::ApiError;

/// Nodes named in one warning at most.
const NODES_NAMED: usize = 5;

/// One DaemonSet with all that belongs to it, at one moment.
pub(crate) struct DaemonView {
    pub(crate) facts: DaemonFacts,
    /// Oldest number first.
    pub(crate) history: Vec<(RevisionFacts, Arc<Stored>)>,
    pods: BTreeMap<NodeName, Vec<PodFacts>>,
    now: Timestamp,
}

/// One node's row.
pub(crate) struct Row {
    pub(crate) node: NodeName,
    pub(crate) placement: Placement,
    /// The pod that speaks for the node.
    pub(crate) pod: Option<PodFacts>,
}

impl DaemonView {
    /// Looks at a stored DaemonSet.
    pub(crate) fn of(cache: &Cache, stored: &Stored, now: Timestamp) -> Result<Self, ApiError> {
        let typed = stored
            .typed::<DaemonSet>()
            .map_err(|error| ApiError::internal(error.to_string()))?;
        let mut facts = DaemonFacts::from_typed(&typed, stored.object()).map_err(unreadable)?;
        let mine = |object: &Object| claim_object(&facts, object) == Claim::Mine;
        let mut history = Vec::new();
        let mut pods: BTreeMap<NodeName, Vec<PodFacts>> = BTreeMap::new();
        for owned in cache.owned_by(stored.uid()) {
            if !mine(owned.object()) {
                continue;
            }
            if *owned.kind == CONTROLLER_REVISION {
                history.push((RevisionFacts::from_object(owned.object()), owned));
            } else if *owned.kind == POD
                && let Ok(typed) = owned.typed::<Pod>()
            {
                let pod = PodFacts::from_typed(&typed);
                if let Some(node) = pod.node.clone() {
                    pods.entry(node).or_default().push(pod);
                }
            }
        }
        history.sort_by_key(|(revision, _)| revision.number);
        let revisions: Vec<RevisionFacts> = history
            .iter()
            .map(|(revision, _)| revision.clone())
            .collect();
        facts.rules.target = revision::settle(&facts, &revisions).target;
        Ok(Self {
            facts,
            history,
            pods,
            now,
        })
    }

    /// Every node's row, in order of names; nodes that are gone and still have pods come with them.
    pub(crate) fn rows(&self, cache: &Cache) -> Vec<Row> {
        let mut rows = BTreeMap::new();
        for stored in cache.list(&NODE).items {
            let Ok(typed) = stored.typed::<Node>() else {
                continue;
            };
            let node = NodeFacts::from_typed(&typed);
            let pods = self.pods.get(&node.name).map_or(&[][..], Vec::as_slice);
            let placement = place(&self.facts, &node, pods, None, self.now);
            rows.insert(node.name.clone(), self.row(node.name, placement, pods));
        }
        for (node, pods) in &self.pods {
            if !rows.contains_key(node)
                && let Some(placement) = place_gone(pods)
            {
                rows.insert(node.clone(), self.row(node.clone(), placement, pods));
            }
        }
        rows.into_values().collect()
    }

    fn row(&self, node: NodeName, placement: Placement, pods: &[PodFacts]) -> Row {
        let name = placement.verdict.pod();
        let pod = pods.iter().find(|pod| Some(&*pod.name) == name).cloned();
        Row {
            node,
            placement,
            pod,
        }
    }

    /// Whether a pod counts as available now.
    pub(crate) fn is_available(&self, pod: &PodFacts) -> bool {
        pod.availability(&self.facts.rules, self.now) == Availability::Available
    }

    /// The nodes that a rollout still waits for, and why.
    pub(crate) fn waiting(&self, cache: &Cache) -> Vec<String> {
        self.rows(cache)
            .into_iter()
            .filter(|row| {
                row.placement.verdict.should_run()
                    && !matches!(row.placement.verdict, Verdict::Runs { .. })
            })
            .map(|row| format!("{}: {}", row.node, row.placement.verdict.sentence()))
            .collect()
    }
}

fn unreadable(error: FactsError) -> ApiError {
    ApiError::internal(error.to_string())
}

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
