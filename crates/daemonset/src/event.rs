//! The words of the controller's events (spec/daemonset.md 9 and 10).

use muster_model::reason::daemonset_event as reason;

use crate::facts::NodeName;
use crate::place::{DeleteWhy, PodRef};

/// An event about a DaemonSet, of the component `daemonset-controller`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// `Warning` instead of `Normal`.
    pub warning: bool,
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// A pod was created.
pub fn created(pod: &str) -> Note {
    normal(reason::SUCCESSFUL_CREATE, format!("Created pod: {pod}"))
}

/// A pod could not be created.
pub fn create_failed(error: &str) -> Note {
    warning(reason::FAILED_CREATE, format!("Error creating: {error}"))
}

/// A pod was deleted.
pub fn deleted(pod: &str) -> Note {
    normal(reason::SUCCESSFUL_DELETE, format!("Deleted pod: {pod}"))
}

/// A pod could not be deleted.
pub fn delete_failed(error: &str) -> Note {
    warning(reason::FAILED_DELETE, format!("Error deleting: {error}"))
}

/// The stored selector is empty.
pub fn selecting_all() -> Note {
    let message = "This daemon set is selecting all pods. A non-empty selector is required.";
    warning(reason::SELECTING_ALL, message.to_owned())
}

/// The rollout of a revision was stopped.
pub fn halted(number: i64, why: &str) -> Note {
    warning(
        reason::ROLLOUT_FAILED,
        format!("Stopped the rollout of revision {number}: {why}"),
    )
}

/// The template is that of an earlier revision again.
pub fn rolled_back(to: i64, from: i64, why: &str) -> Note {
    warning(
        reason::ROLLED_BACK,
        format!("Rolled back to the template of revision {to}: revision {from}: {why}"),
    )
}

/// What is told before a pod that ended is deleted; `None` for other deletions.
pub(crate) fn before_delete(
    namespace: &str,
    pod: &PodRef,
    node: &NodeName,
    why: DeleteWhy,
) -> Option<Note> {
    let name = &pod.name;
    match why {
        DeleteWhy::Failed => Some(warning(
            reason::FAILED_DAEMON_POD,
            format!(
                "Found failed daemon pod {namespace}/{name} on node {node}, will try to kill it"
            ),
        )),
        DeleteWhy::Succeeded => Some(normal(
            reason::SUCCEEDED_DAEMON_POD,
            format!(
                "Found succeeded daemon pod {namespace}/{name} on node {node}, will try to delete it"
            ),
        )),
        DeleteWhy::Misplaced
        | DeleteWhy::Excess
        | DeleteWhy::NoSuchNode
        | DeleteWhy::Replaced
        | DeleteWhy::Outdated
        | DeleteWhy::Failing => None,
    }
}

fn normal(reason: &'static str, message: String) -> Note {
    Note {
        warning: false,
        reason,
        message,
    }
}

fn warning(reason: &'static str, message: String) -> Note {
    Note {
        warning: true,
        reason,
        message,
    }
}
