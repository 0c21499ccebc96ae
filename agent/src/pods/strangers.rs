//! What is left of pods that no longer exist: containers and directories (spec/node-agent.md 22 and 26).

use std::collections::BTreeMap;

use muster_model::object::Object;
use serde_json::json;

use super::{Pods, uid_of};
use crate::facts::{Life, PodFacts};
use crate::runtime::{ContainerView, labels};
use crate::worker::memory::WorkerMemory;

impl Pods {
    /// Removes the directories of pods that are gone, such as a crash leaves behind. Pods that the runtime still shows
    /// keep theirs until they are stopped.
    pub(super) fn clear_directories(&mut self) {
        let (Some(state), Some(at_start)) = (&self.shared.config.state_dir, &self.at_start) else {
            return;
        };
        let Ok(entries) = std::fs::read_dir(state.join("pods")) else {
            return;
        };
        for entry in entries.filter_map(Result::ok) {
            let uid = entry.file_name().to_string_lossy().into_owned();
            let waits = self.successors.values().any(|object| object.uid() == uid);
            if self.workers.contains_key(&uid) || at_start.contains(&uid) || waits {
                continue;
            }
            if let Err(error) = crate::volume::tear_down(&entry.path()) {
                tracing::warn!(%uid, %error, "the directory of a pod that is gone could not be removed");
            }
        }
    }

    /// Containers whose pod is in no list are stopped with the grace of their labels.
    pub(super) fn retire_strangers(&mut self, containers: Vec<ContainerView>) {
        let mut by_uid: BTreeMap<String, Vec<ContainerView>> = BTreeMap::new();
        for container in containers {
            by_uid
                .entry(uid_of(&container))
                .or_default()
                .push(container);
        }
        for (uid, containers) in by_uid {
            let waits = self.successors.values().any(|object| object.uid() == uid);
            if uid.is_empty() || self.workers.contains_key(&uid) || waits {
                continue;
            }
            let Some(first) = containers.first() else {
                continue;
            };
            let label = |key: &str| {
                first
                    .labels
                    .get(key)
                    .map(String::as_str)
                    .unwrap_or_default()
            };
            let grace: i64 = label(labels::TERMINATION_GRACE_PERIOD)
                .parse()
                .unwrap_or(30);
            let tree = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "uid": uid, "name": label(labels::POD_NAME), "namespace": label(labels::POD_NAMESPACE),
                },
                "spec": {"containers": [], "terminationGracePeriodSeconds": grace},
            });
            let facts = Object::from_value(tree)
                .and_then(|object| PodFacts::new(object, self.shared.host()));
            let Ok(mut facts) = facts else { continue };
            tracing::info!(pod = %facts.full_name(), "containers of a pod that no longer exists are stopped");
            facts.life = Life::Removed;
            self.spawn(facts, WorkerMemory::default(), None, Some(containers));
        }
    }
}
