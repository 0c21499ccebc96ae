//! What is still to be done before the cluster is at rest as it should be.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::time::Moment;
use serde_json::Value;

use super::containers::Runs;
use super::fit;
use crate::objects::{Manner, PodSeen, SetSeen};
use crate::seen::Seen;

/// Everything that is not as it must be once nothing is broken any more; empty: at rest.
pub(crate) fn missing(seen: &Seen, running: &BTreeMap<String, Runs>, now: Moment) -> Vec<String> {
    let mut wrong = Vec::new();
    for node in seen.nodes.values().filter(|node| node.ready != "True") {
        wrong.push(format!("node {} is not Ready", node.name));
    }
    for set in seen.sets.values() {
        if set.terminating {
            wrong.push(format!("{} is still being deleted", set.name));
        } else {
            of_set(seen, set, now, &mut wrong);
        }
    }
    let mut runs: BTreeMap<&str, usize> = BTreeMap::new();
    for container in running.values() {
        *runs.entry(&container.pod).or_default() += 1;
        let pod = seen.ever.get(&container.pod);
        let there = pod.is_some_and(|pod| {
            seen.pods
                .get(&pod.name)
                .is_some_and(|now| now.uid == pod.uid)
        });
        if !there {
            let name = pod.map_or("nobody", |pod| &pod.name);
            wrong.push(format!(
                "a container of {name} still runs on {}",
                container.node
            ));
        }
    }
    for pod in seen.pods.values() {
        let count = runs.get(pod.uid.as_str()).copied().unwrap_or(0);
        if seen.set_of(&pod.owner).is_none() {
            wrong.push(format!("pod {} belongs to no DaemonSet", pod.name));
        } else if count != 1 {
            wrong.push(format!("pod {} has {count} running containers", pod.name));
        }
    }
    wrong
}

fn of_set(seen: &Seen, set: &SetSeen, now: Moment, wrong: &mut Vec<String>) {
    let newest = seen.newest(&set.uid);
    let hash = newest.map_or("", |revision| revision.hash.as_str());
    let mut counted = Counted::default();
    for node in seen.nodes.values() {
        let fit = fit::of(set, node);
        let pods: Vec<&PodSeen> = seen.pods_on(&set.uid, &node.name).collect();
        let available = pods
            .iter()
            .any(|pod| pod.is_available(set.min_ready_seconds, now));
        let current = pods.iter().any(|pod| pod.hash == hash);
        counted.add(fit, &pods, available, current);
        let names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
        if fit.run && (pods.len() != 1 || !available) {
            wrong.push(format!(
                "{} on {}: {names:?}, available: {available}",
                set.name, node.name
            ));
        } else if fit.run && !current && set.manner != Manner::OnDelete {
            wrong.push(format!(
                "{} on {}: {names:?} is not of {hash}",
                set.name, node.name
            ));
        } else if !fit.keep && !pods.is_empty() {
            wrong.push(format!(
                "{} on {}: {names:?} should not be there",
                set.name, node.name
            ));
        } else if pods.len() > 1 {
            wrong.push(format!(
                "{} on {}: {names:?} are too many",
                set.name, node.name
            ));
        }
    }
    counted.compare(set, wrong);
    history(seen, set, hash, wrong);
}

/// The status, counted again.
#[derive(Debug, Default)]
struct Counted {
    desired: i64,
    current: i64,
    misscheduled: i64,
    ready: i64,
    updated: i64,
    available: i64,
}

impl Counted {
    fn add(&mut self, fit: fit::Fit, pods: &[&PodSeen], available: bool, current: bool) {
        let is = i64::from;
        self.desired += is(fit.run);
        self.current += is(fit.run && !pods.is_empty());
        self.misscheduled += is(!fit.run && !pods.is_empty());
        self.ready += is(fit.run && pods.iter().any(|pod| pod.ready));
        self.updated += is(fit.run && current);
        self.available += is(fit.run && available);
    }

    fn compare(&self, set: &SetSeen, wrong: &mut Vec<String>) {
        let pairs = [
            ("observedGeneration", set.generation),
            ("desiredNumberScheduled", self.desired),
            ("currentNumberScheduled", self.current),
            ("numberMisscheduled", self.misscheduled),
            ("numberReady", self.ready),
            ("updatedNumberScheduled", self.updated),
            ("numberAvailable", self.available),
            ("numberUnavailable", self.desired - self.available),
        ];
        for (field, counted) in pairs {
            let said = set.status.get(field).and_then(Value::as_i64).unwrap_or(0);
            if said != counted {
                wrong.push(format!(
                    "{}: {field} is {said}, counted {counted}",
                    set.name
                ));
            }
        }
    }
}

/// No more old revisions than the limit, but for those that pods are still of, and the one that tells of a failure.
fn history(seen: &Seen, set: &SetSeen, hash: &str, wrong: &mut Vec<String>) {
    let in_use: BTreeSet<&str> = seen
        .pods
        .values()
        .filter(|pod| pod.owner == set.uid)
        .map(|pod| pod.hash.as_str())
        .collect();
    let old: Vec<_> = seen
        .revisions
        .values()
        .filter(|revision| revision.owner == set.uid && revision.hash != hash)
        .collect();
    let newest = seen.newest(&set.uid).map_or(0, |newest| newest.number);
    let unused = old
        .iter()
        .filter(|revision| !in_use.contains(revision.hash.as_str()))
        .filter(|revision| !(revision.taken_back && revision.number + 1 == newest))
        .count();
    if old.len() > set.history_limit && unused > 0 {
        wrong.push(format!(
            "{}: {} old revisions, {unused} of them not in use, {} allowed",
            set.name,
            old.len(),
            set.history_limit
        ));
    }
    for hash in in_use {
        if !seen
            .revisions
            .values()
            .any(|revision| revision.owner == set.uid && revision.hash == hash)
        {
            wrong.push(format!("{}: revision {hash} is in use and gone", set.name));
        }
    }
}
