//! A pod as the runtime shows it.

use std::collections::BTreeMap;

use muster_model::time::Timestamp;

use crate::runtime::labels;
use crate::runtime::{ContainerId, ContainerState, ContainerView};

/// The containers of one pod, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodView {
    /// Sandboxes, newest attempt first.
    pub sandboxes: Vec<ContainerView>,
    /// By container name, newest attempt first.
    pub containers: BTreeMap<String, Vec<ContainerView>>,
    /// When the engine was last seen to stop, if it was (spec/node-agent.md 28).
    pub engine_stopped_at: Option<Timestamp>,
    /// Last words of dead containers (spec/node-agent.md 20.3).
    pub messages: BTreeMap<ContainerId, String>,
}

impl PodView {
    /// Sorts out what a list shows of the pod `uid`; everything else is left out.
    pub fn of(uid: &str, listed: impl IntoIterator<Item = ContainerView>) -> Self {
        let mut view = Self::default();
        for container in listed {
            if container.labels.get(labels::POD_UID).map(String::as_str) != Some(uid) {
                continue;
            }
            if container.labels.get(labels::TYPE).map(String::as_str) == Some(labels::TYPE_SANDBOX)
            {
                view.sandboxes.push(container);
            } else if let Some(name) = container.labels.get(labels::CONTAINER_NAME).cloned() {
                view.containers.entry(name).or_default().push(container);
            }
        }
        let newest_first = |list: &mut Vec<ContainerView>| {
            list.sort_by(|a, b| {
                (attempt(b), b.created_at, &b.id).cmp(&(attempt(a), a.created_at, &a.id))
            });
        };
        newest_first(&mut view.sandboxes);
        view.containers.values_mut().for_each(newest_first);
        view
    }

    /// The newest container of this name.
    pub fn newest(&self, name: &str) -> Option<&ContainerView> {
        self.containers.get(name)?.first()
    }

    /// The newest dead container of this name, behind the newest one.
    pub fn predecessor(&self, name: &str) -> Option<&ContainerView> {
        self.containers
            .get(name)?
            .iter()
            .skip(1)
            .find(|c| is_dead(c))
    }

    /// The newest sandbox, when it runs.
    pub fn running_sandbox(&self) -> Option<&ContainerView> {
        self.sandboxes.first().filter(|sandbox| is_running(sandbox))
    }

    /// Every container of the pod, sandboxes last.
    pub fn all(&self) -> impl Iterator<Item = &ContainerView> {
        self.containers.values().flatten().chain(&self.sandboxes)
    }

    /// Every running container that is no sandbox, with its name.
    pub fn running(&self) -> impl Iterator<Item = (&str, &ContainerView)> {
        self.containers
            .iter()
            .flat_map(|(name, list)| list.iter().map(move |c| (name.as_str(), c)))
            .filter(|(_, c)| is_running(c))
    }

    /// Ids of everything shown.
    pub fn ids(&self) -> impl Iterator<Item = &ContainerId> {
        self.all().map(|container| &container.id)
    }
}

/// Its restart count or sandbox number.
pub fn attempt(container: &ContainerView) -> u32 {
    container
        .labels
        .get(labels::RESTART_COUNT)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// Whether it runs.
pub fn is_running(container: &ContainerView) -> bool {
    matches!(container.state, ContainerState::Running { .. })
}

/// Whether it ran (or was tried) and ended.
pub fn is_dead(container: &ContainerView) -> bool {
    matches!(
        container.state,
        ContainerState::Exited { .. } | ContainerState::StartFailed { .. }
    )
}

/// When it ended and with what; a start that failed counts as an end at its making (spec/node-agent.md 11.5).
pub fn end_of(container: &ContainerView) -> Option<(Timestamp, i32)> {
    match &container.state {
        ContainerState::Exited {
            finished_at,
            exit_code,
            ..
        } => Some((*finished_at, *exit_code)),
        ContainerState::StartFailed { exit_code, .. } => Some((container.created_at, *exit_code)),
        _ => None,
    }
}
