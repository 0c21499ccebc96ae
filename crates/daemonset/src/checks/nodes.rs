//! What the nodes that there are now make of a DaemonSet.

use std::collections::BTreeMap;

use muster_model::affinity::Mismatch;
use muster_model::field_path::FieldPath;
use muster_model::policy::Check;
use muster_model::taint::taint_text;

use super::{Finding, listed};
use crate::facts::{NodeFacts, Rules};
use crate::fit::fit;
use crate::verdict::{No, Verdict};

/// Judges a DaemonSet by the cluster's nodes; each comes with whether it is Ready. Without nodes nothing is found:
/// a cluster begins empty.
///
/// A node that the selector leaves out is meant to be left out, unless all are.
pub fn of_nodes<'a>(
    rules: &Rules,
    nodes: impl IntoIterator<Item = (&'a NodeFacts, bool)>,
) -> Vec<Finding> {
    // By sentence: the first refusal that reads so, the first node that makes it, all nodes that do.
    let mut tainted: BTreeMap<String, (No, Vec<&str>)> = BTreeMap::new();
    let mut unmatched: BTreeMap<String, (No, Vec<&str>)> = BTreeMap::new();
    let mut matches_some = false;
    for (node, is_ready) in nodes {
        let why = fit(rules, node).why_not;
        let unmatching = matches!(why, Some(No::NotSelected(_) | No::OtherNode { .. }));
        matches_some |= !unmatching;
        let Some(why) = why else { continue };
        if !unmatching && !is_ready {
            continue;
        }
        let kept_away = if unmatching {
            &mut unmatched
        } else {
            &mut tainted
        };
        let entry = kept_away.entry(why.sentence());
        let (_, names) = entry.or_insert_with(|| (why, Vec::new()));
        names.push(node.name.as_str());
    }
    let mut found: Vec<Finding> = tainted.into_values().map(untolerated).collect();
    if !matches_some && !unmatched.is_empty() {
        found.push(matches_none(unmatched));
    }
    found
}

fn untolerated((why, nodes): (No, Vec<&str>)) -> Finding {
    let verb = if nodes.len() == 1 { "node" } else { "nodes" };
    let sentence = format!(
        "{} ready {verb} will have no pod ({}): {}",
        nodes.len(),
        listed(&nodes),
        why.sentence()
    );
    let fix = match &why {
        No::Untolerated { taint } if nodes.len() > 1 => format!(
            "tolerate {} in spec.template.spec.tolerations, or take the taint off these nodes",
            taint_text(taint)
        ),
        _ => fix(why, nodes[0]),
    };
    Finding {
        check: Check::UntoleratedTaints,
        field: FieldPath::of("spec.template.spec.tolerations"),
        sentence,
        fix,
    }
}

fn matches_none(unmatched: BTreeMap<String, (No, Vec<&str>)>) -> Finding {
    let count: usize = unmatched.values().map(|(_, nodes)| nodes.len()).sum();
    let whys: Vec<String> = unmatched
        .iter()
        .map(|(why, (_, nodes))| format!("{why} ({})", listed(nodes)))
        .collect();
    let sentence = match count {
        1 => format!(
            "the one node there is will have no pod: {}",
            whys.join("; ")
        ),
        _ => format!("none of {count} nodes will have a pod: {}", whys.join("; ")),
    };
    let (why, nodes) = unmatched
        .into_values()
        .next()
        .expect("the caller saw that there is one");
    let field = match &why {
        No::OtherNode { .. } => "spec.template.spec.nodeName",
        No::NotSelected(Mismatch::NodeSelector { .. }) => "spec.template.spec.nodeSelector",
        _ => "spec.template.spec.affinity.nodeAffinity",
    };
    Finding {
        check: Check::MatchesNoNode,
        field: FieldPath::of(field),
        sentence,
        fix: fix(why, nodes[0]),
    }
}

fn fix(why: No, node: &str) -> String {
    let verdict = Verdict::No {
        why,
        pod: None,
        stays: false,
    };
    verdict.fix(node)
}
