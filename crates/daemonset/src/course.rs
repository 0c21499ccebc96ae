//! Where a DaemonSet stands in its history: has the current revision proven itself, has it failed, and what is there to
//! fall back to.

use std::sync::Arc;

use muster_model::k8s::api::core::v1::PodTemplateSpec;
use muster_model::object::Object;
use muster_model::time::{Timestamp, to_seconds_text};
use serde_json::{Map, Value, json};

use crate::facts::{DaemonFacts, RevisionFacts};
use crate::fit::Wants;

/// The type of the condition in the DaemonSet's status.
pub const CONDITION: &str = "RolloutFailed";

/// Where a DaemonSet stands.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Course {
    /// Number of the current revision in the history.
    pub number: i64,
    /// It was available everywhere once: nothing about it is held back any more.
    pub proven: bool,
    /// Why its rollout was stopped, unless it was available everywhere after all.
    pub failed: Option<Arc<str>>,
    /// Through how many waves somebody let it pass.
    pub promoted: usize,
    /// The older revision to fall back to; `None`: there is none, or the current one has proven itself.
    pub stable: Option<Arc<Stable>>,
    /// The revision that failed last, when the present one came right after it.
    pub fell_back_from: Option<(i64, Arc<str>)>,
}

/// An older revision that nodes may fall back to.
#[derive(Debug, Clone, PartialEq)]
pub struct Stable {
    /// Its ControllerRevision.
    pub revision_name: String,
    /// Its number in the history.
    pub number: i64,
    /// Its hash.
    pub hash: String,
    /// Its template.
    pub template: Arc<Value>,
    /// It was available everywhere once.
    pub proven: bool,
    /// What it asks of a node.
    pub wants: Wants,
}

impl Course {
    /// Where a DaemonSet with this history stands when the named revision is the current one. Costs a look at each
    /// revision, and the reading of one template. It depends on nothing else, so that it is looked at again only when the
    /// history or the template changes.
    pub(crate) fn of(history: &[RevisionFacts], current: &str) -> Self {
        let Some(target) = history.iter().find(|revision| revision.name == current) else {
            return Self {
                stable: fallback(history, current),
                ..Self::default()
            };
        };
        let last_failed = history
            .iter()
            .filter(|revision| revision.name != current && revision.number + 1 == target.number)
            // A newer one is no way back: it is somebody's next try.
            .filter(|revision| target.created <= revision.created)
            .find_map(|revision| Some((revision.number, revision.failed.clone()?)));
        Self {
            number: target.number,
            proven: target.proven,
            failed: target.failed.clone().filter(|_| !target.proven),
            promoted: target.promoted,
            stable: if target.proven {
                None
            } else {
                fallback(history, current)
            },
            fell_back_from: last_failed,
        }
    }
}

/// The newest older revision that was available everywhere; when none was, the newest that has not failed.
fn fallback(history: &[RevisionFacts], current: &str) -> Option<Arc<Stable>> {
    let revision = history
        .iter()
        .filter(|revision| revision.name != current)
        .filter(|revision| revision.proven || revision.failed.is_none())
        .max_by_key(|revision| (revision.proven, revision.number))?;
    let typed: PodTemplateSpec = serde_json::from_value((*revision.template).clone()).ok()?;
    let pod = typed.spec.unwrap_or_default();
    Some(Arc::new(Stable {
        revision_name: revision.name.clone(),
        number: revision.number,
        hash: revision
            .hash
            .clone()
            .unwrap_or_else(|| revision.name.clone()),
        template: Arc::clone(&revision.template),
        proven: revision.proven,
        wants: Wants::of(pod),
    }))
}

/// What the status says about a failed rollout: the condition [`CONDITION`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Whether a rollout failed and nothing has replaced it.
    pub holds: bool,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

impl Condition {
    /// What the status should say; `None`: nothing, neither now nor so far.
    pub(crate) fn wanted(daemon: &DaemonFacts) -> Option<Self> {
        let course = &daemon.course;
        let said = |holds, reason: &str, message| {
            let reason = reason.to_owned();
            Some(Self {
                holds,
                reason,
                message,
            })
        };
        if let Some(why) = daemon.failed() {
            let message = format!("revision {}: {why}", course.number);
            return said(true, "RolloutHalted", message);
        }
        if let Some((number, why)) = &course.fell_back_from {
            let message = format!(
                "revision {number}: {why}; revision {} took its place",
                course.number
            );
            return said(true, "RolledBack", message);
        }
        daemon.condition.as_ref()?;
        said(false, "NoFailure", String::new())
    }

    /// As a DaemonSet's status has it.
    pub fn from_object(daemon: &Object) -> Option<Self> {
        let conditions = daemon.at("/status/conditions")?.as_array()?;
        let found = conditions
            .iter()
            .find(|condition| condition.get("type").and_then(Value::as_str) == Some(CONDITION))?;
        let text = |field: &str| {
            found
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        Some(Self {
            holds: text("status") == "True",
            reason: text("reason"),
            message: text("message"),
        })
    }

    /// Writes it into a DaemonSet's status beside the conditions of others; its time moves when it turns true or
    /// false.
    pub fn write_into(&self, daemon: &mut Object, now: Timestamp) {
        let turned = Self::from_object(daemon).is_none_or(|before| before.holds != self.holds);
        let status = daemon
            .tree_mut()
            .entry("status")
            .or_insert_with(|| Value::Object(Map::new()));
        let Some(status) = status.as_object_mut() else {
            return;
        };
        let conditions = status.entry("conditions").or_insert_with(|| json!([]));
        let Some(conditions) = conditions.as_array_mut() else {
            return;
        };
        let ours =
            |condition: &Value| condition.get("type").and_then(Value::as_str) == Some(CONDITION);
        let mut fresh = json!({
            "type": CONDITION, "status": if self.holds { "True" } else { "False" },
            "reason": self.reason, "message": self.message, "lastTransitionTime": to_seconds_text(now),
        });
        match conditions.iter_mut().find(|condition| ours(condition)) {
            Some(found) => {
                if !turned && let Some(since) = found.get("lastTransitionTime") {
                    fresh["lastTransitionTime"] = since.clone();
                }
                *found = fresh;
            }
            None => conditions.push(fresh),
        }
    }
}
