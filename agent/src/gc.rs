//! Which dead containers are collected (spec/node-agent.md 22). Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::runtime::{ContainerId, ContainerView, labels};
use crate::worker::view::{attempt, is_dead};

/// The dead containers to remove: of a pod that still exists all but the newest dead one per name (for the former log),
/// and dead sandboxes but the newest. Pods that are gone are their workers' business.
pub fn garbage(listed: &[ContainerView], pods: &BTreeSet<String>) -> Vec<ContainerId> {
    let mut groups: BTreeMap<(&str, &str, &str), Vec<&ContainerView>> = BTreeMap::new();
    for container in listed {
        let label = |key: &str| {
            container
                .labels
                .get(key)
                .map(String::as_str)
                .unwrap_or_default()
        };
        let (uid, name, kind) = (
            label(labels::POD_UID),
            label(labels::CONTAINER_NAME),
            label(labels::TYPE),
        );
        if pods.contains(uid) {
            groups.entry((uid, kind, name)).or_default().push(container);
        }
    }
    let mut garbage = Vec::new();
    for ((_, kind, _), mut group) in groups {
        group
            .sort_by_key(|container| std::cmp::Reverse((attempt(container), container.created_at)));
        let spare = if kind == labels::TYPE_SANDBOX {
            // The newest sandbox stays, dead or not: the worker compares with it.
            group
                .into_iter()
                .skip(1)
                .filter(|c| is_dead(c))
                .collect::<Vec<_>>()
        } else {
            group.into_iter().filter(|c| is_dead(c)).skip(1).collect()
        };
        garbage.extend(spare.into_iter().map(|container| container.id.clone()));
    }
    garbage
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{ContainerState, Labels};

    fn container(uid: &str, kind: &str, attempt: u32, running: bool) -> ContainerView {
        let started_at = "2026-01-31T10:00:00Z".parse().unwrap();
        let labels: Labels = [
            (labels::POD_UID, uid),
            (labels::TYPE, kind),
            (labels::CONTAINER_NAME, "c"),
            (labels::RESTART_COUNT, &attempt.to_string()),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
        ContainerView {
            id: ContainerId(format!("{uid}-{kind}-{attempt}")),
            name: String::new(),
            labels,
            image_id: String::new(),
            created_at: started_at,
            state: match running {
                true => ContainerState::Running { started_at, pid: 1 },
                false => ContainerState::Exited {
                    started_at,
                    finished_at: started_at,
                    exit_code: 1,
                    oom_killed: false,
                    message: String::new(),
                },
            },
            ip: None,
            log_path: None,
        }
    }

    #[test]
    fn na_105_one_dead_container_of_a_name_is_kept() {
        let mut listed: Vec<_> = (0..9)
            .map(|n| container("u", labels::TYPE_CONTAINER, n, false))
            .collect();
        listed.push(container("u", labels::TYPE_CONTAINER, 9, true));
        listed.extend([
            container("u", labels::TYPE_SANDBOX, 0, false),
            container("u", labels::TYPE_SANDBOX, 1, true),
        ]);
        listed.push(container("stranger", labels::TYPE_CONTAINER, 0, false));
        let pods = BTreeSet::from(["u".to_owned()]);
        let gone = garbage(&listed, &pods);
        assert_eq!(gone.len(), 9);
        assert!(!gone.contains(&ContainerId("u-container-8".into())));
        assert!(gone.contains(&ContainerId("u-podsandbox-0".into())));
        listed.retain(|c| !gone.contains(&c.id));
        assert!(garbage(&listed, &pods).is_empty());
    }
}
