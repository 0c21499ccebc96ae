//! How long pods of a DaemonSet take to start, by those that it has.

use jiff::SignedDuration;
use muster_daemonset::PodFacts;
use muster_model::k8s::api::core::v1::{ContainerStatus, Pod};

/// What takes longer is no start: the pod was ready before, and is ready again since its node came back, say. A pod tells
/// only when it turned Ready last.
const LONGEST_START: SignedDuration = SignedDuration::from_mins(10);

/// The longest that one of these pods took from its creation until it was ready. Those that were not ready in one go do
/// not count. `None`: there is no other.
pub(super) fn slowest<P: AsRef<Pod>>(pods: impl Iterator<Item = P>) -> Option<SignedDuration> {
    let slowest = pods.filter_map(|pod| start_of(pod.as_ref())).max()?;
    // Timestamps are whole seconds: what took less than one took up to one.
    Some(slowest.max(SignedDuration::from_secs(1)))
}

fn start_of(pod: &Pod) -> Option<SignedDuration> {
    let facts = PodFacts::from_typed(pod);
    let took = facts.ready_since?.duration_since(facts.created?);
    let in_one_go = !took.is_negative() && took <= LONGEST_START && !has_restarted(pod);
    in_one_go.then_some(took)
}

/// Whether a container that a pod needs to be ready was started more than once. Init containers that end are no such:
/// one that is tried until it passes is part of the start.
fn has_restarted(pod: &Pod) -> bool {
    let Some(status) = &pod.status else {
        return false;
    };
    let init = pod.spec.iter().flat_map(|spec| &spec.init_containers);
    let stays = |status: &&ContainerStatus| {
        init.clone().flatten().any(|container| {
            container.name == status.name && container.restart_policy.as_deref() == Some("Always")
        })
    };
    let init_statuses = status.init_container_statuses.iter().flatten();
    let statuses = status.container_statuses.iter().flatten();
    statuses
        .chain(init_statuses.filter(stays))
        .any(|status| status.restart_count > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    /// A pod that was made at 10:00 on the first of May.
    fn pod(ready: &str, restarts: i32) -> Value {
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": ready});
        json!({
            "metadata": {"name": "p", "namespace": "default", "creationTimestamp": "2026-05-01T10:00:00Z"},
            "spec": {
                "initContainers": [{"name": "init"}, {"name": "side", "restartPolicy": "Always"}],
                "containers": [{"name": "c"}],
            },
            "status": {
                "conditions": [ready],
                "containerStatuses": [{"name": "c", "restartCount": restarts, "ready": true, "image": "", "imageID": ""}],
                "initContainerStatuses": [
                    {"name": "init", "restartCount": 0, "ready": true, "image": "", "imageID": ""},
                    {"name": "side", "restartCount": 0, "ready": true, "image": "", "imageID": ""},
                ],
            },
        })
    }

    fn seconds(pods: &[Value]) -> Option<i64> {
        let pods = pods
            .iter()
            .map(|pod| Arc::new(serde_json::from_value::<Pod>(pod.clone()).unwrap()));
        slowest(pods).map(|took| took.as_secs())
    }

    #[test]
    fn the_slowest_start_counts_and_one_below_a_second_is_one() {
        let (at_once, slow) = (
            pod("2026-05-01T10:00:00Z", 0),
            pod("2026-05-01T10:00:12Z", 0),
        );
        assert_eq!(seconds(&[at_once.clone(), slow]), Some(12));
        assert_eq!(seconds(&[at_once]), Some(1));
    }

    #[test]
    fn pods_that_turned_ready_again_say_nothing_of_a_start() {
        let normal = pod("2026-05-01T10:00:07Z", 0);
        // Its node was out of reach nine days later, its container crashed, the clock was set back.
        let node_was_away = pod("2026-05-10T10:00:00Z", 0);
        let crashed = pod("2026-05-01T10:01:00Z", 1);
        let before = pod("2026-05-01T09:00:00Z", 0);
        let mut sidecar_crashed = pod("2026-05-01T10:01:00Z", 0);
        sidecar_crashed["status"]["initContainerStatuses"][1]["restartCount"] = 1.into();
        let odd = [node_was_away, crashed, before, sidecar_crashed];
        assert_eq!(seconds(&odd), None);
        let mut init_tried_again = pod("2026-05-01T10:00:09Z", 0);
        init_tried_again["status"]["initContainerStatuses"][0]["restartCount"] = 1.into();
        assert_eq!(seconds(&[&odd[..], &[normal]].concat()), Some(7));
        assert_eq!(seconds(&[&odd[..], &[init_tried_again]].concat()), Some(9));
    }
}
