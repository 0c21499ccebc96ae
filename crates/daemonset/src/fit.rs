//! Whether a node fits what a template asks of it (spec/daemonset.md 6): the node's name and labels, its taints, and
//! nothing else.

use std::collections::BTreeMap;

use muster_model::affinity;
use muster_model::k8s::api::core::v1::{Affinity, PodSpec, Taint, Toleration};
use muster_model::reason::taint as taint_key;
use muster_model::taint::{NO_EXECUTE, NO_SCHEDULE, first_untolerated, with_automatic};

use crate::facts::{NodeFacts, Rules};
use crate::verdict::No;

/// What a template asks of a node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Wants {
    /// Its `nodeName`.
    pub node_name: Option<String>,
    /// Its `nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// Its affinity; only required node affinity is looked at.
    pub affinity: Option<Affinity>,
    /// Its tolerations and the automatic ones.
    pub tolerations: Vec<Toleration>,
}

/// Whether a node should run a daemon (create it), and whether it may keep one.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// Create one if there is none.
    pub run: bool,
    /// Leave one that is there.
    pub keep: bool,
    /// Nothing but what the server itself says of the node keeps it from running one: its agent is out of reach, or not
    /// ready.
    pub cut_off: bool,
    /// Why not to run.
    pub why_not: Option<No>,
}

/// Should `node` run the daemon, may it keep it (spec/daemonset.md 6)? Conditions, capacity and other pods play
/// no part.
pub fn fit(rules: &Rules, node: &NodeFacts) -> Fit {
    rules.wants.fit(node)
}

/// Not one that the server puts on a node by itself, for what its agent says or does not say.
fn is_a_persons(taint: &&Taint) -> bool {
    ![taint_key::UNREACHABLE, taint_key::NOT_READY].contains(&taint.key.as_str())
}

impl Wants {
    /// What a pod spec asks, with the tolerations that every daemon pod has by itself.
    pub fn of(pod: PodSpec) -> Self {
        Self {
            node_name: pod.node_name.filter(|name| !name.is_empty()),
            node_selector: pod.node_selector.unwrap_or_default(),
            affinity: pod.affinity,
            tolerations: with_automatic(
                &pod.tolerations.unwrap_or_default(),
                pod.host_network.unwrap_or(false),
            ),
        }
    }

    /// The same for any template.
    pub fn fit(&self, node: &NodeFacts) -> Fit {
        let never = |why| Fit {
            run: false,
            keep: false,
            cut_off: false,
            why_not: Some(why),
        };
        if let Some(wanted) = self
            .node_name
            .as_ref()
            .filter(|wanted| *wanted != node.name.as_str())
        {
            return never(No::OtherNode {
                wanted: wanted.clone(),
            });
        }
        let mismatch = affinity::mismatch(
            node.name.as_str(),
            &node.labels,
            Some(&self.node_selector),
            self.affinity.as_ref(),
        );
        if let Some(mismatch) = mismatch {
            return never(No::NotSelected(mismatch));
        }
        let untolerated =
            |effects: &[&str]| first_untolerated(&node.taints, &self.tolerations, effects);
        // The taint that drives away is told first: it is the one that costs a running pod.
        if let Some(taint) = untolerated(&[NO_EXECUTE]) {
            return never(No::Untolerated {
                taint: taint.clone(),
            });
        }
        if let Some(taint) = untolerated(&[NO_SCHEDULE]) {
            let others: Vec<Taint> = node.taints.iter().filter(is_a_persons).cloned().collect();
            return Fit {
                run: false,
                keep: true,
                cut_off: first_untolerated(&others, &self.tolerations, &[NO_SCHEDULE]).is_none(),
                why_not: Some(No::Untolerated {
                    taint: taint.clone(),
                }),
            };
        }
        Fit {
            run: true,
            keep: true,
            cut_off: false,
            why_not: None,
        }
    }
}
