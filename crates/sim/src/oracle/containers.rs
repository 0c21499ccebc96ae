//! What runs on the engines: no more than one pod's containers per node and DaemonSet, and none ends without a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_agent::runtime::memory::MemoryEngine;
use muster_agent::runtime::{ContainerState, labels};

use crate::seen::Seen;

/// How long a former surge explains two pods on a node.
const SURGE_LEAVES: Duration = Duration::from_secs(300);

/// A running main container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Runs {
    pub(crate) pod: String,
    pub(crate) node: String,
}

/// The running containers of pods, sandboxes left out, by id.
pub(crate) fn running<'a>(
    engines: impl Iterator<Item = &'a Arc<MemoryEngine>>,
) -> BTreeMap<String, Runs> {
    let mut found = BTreeMap::new();
    for engine in engines {
        engine.inspect(|container| {
            let label = |key: &str| container.labels.get(key).map_or("", String::as_str);
            if matches!(container.state, ContainerState::Running { .. })
                && label(labels::TYPE) != labels::TYPE_SANDBOX
            {
                let node = label(labels::NODE).to_owned();
                let runs = Runs {
                    pod: label(labels::POD_UID).to_owned(),
                    node: node.clone(),
                };
                found.insert(format!("{node}/{}", container.id.0), runs);
            }
        });
    }
    found
}

/// Invariant 1 on the engines.
pub(crate) fn crowded(seen: &Seen, running: &BTreeMap<String, Runs>) -> Vec<String> {
    let mut places: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for runs in running.values() {
        if let Some(pod) = seen.ever.get(&runs.pod) {
            places
                .entry((&runs.node, &pod.owner))
                .or_default()
                .insert(&pod.name);
        }
    }
    let most = |owner: &str| {
        let surged = seen.set_of(owner).and_then(|set| set.surged);
        let now = seen.now().mono;
        match seen.set_of(owner) {
            Some(set) if matches!(set.manner, crate::objects::Manner::Surge(_)) => 2,
            Some(_) if surged.is_none_or(|at| now.saturating_sub(at) > SURGE_LEAVES) => 1,
            _ => 2,
        }
    };
    places
        .into_iter()
        .filter(|((_, owner), pods)| pods.len() > most(owner))
        .map(|((node, _), pods)| {
            format!(
                "containers of {} pods of one DaemonSet run on {node}: {pods:?}",
                pods.len()
            )
        })
        .collect()
}

/// Invariant 4, and more: a container that ran at the last look and does not now has a reason: its pod has to go, its image
/// ends by itself, or the scenario ended it (`ended`).
pub(crate) fn ended_for_no_reason(
    seen: &Seen,
    before: &BTreeMap<String, Runs>,
    running: &BTreeMap<String, Runs>,
    ended: &BTreeSet<String>,
    ends_by_itself: impl Fn(&str) -> bool,
) -> Vec<String> {
    let gone = before.iter().filter(|(id, _)| !running.contains_key(*id));
    gone.filter(|(id, _)| !ended.contains(*id))
        .filter_map(|(_, runs)| {
            let pod = seen.ever.get(&runs.pod)?;
            let stays = seen
                .pods
                .get(&pod.name)
                .is_some_and(|now| now.uid == pod.uid && !now.terminating && !now.is_over());
            (stays && !ends_by_itself(&pod.image)).then(|| {
                format!(
                    "a container of pod {} on {} ended, and nobody had a reason to end it",
                    pod.name, runs.node
                )
            })
        })
        .collect()
}
