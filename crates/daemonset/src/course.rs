//! Where a DaemonSet stands in its history: has the current revision proven itself, has it failed, and what is there to
//! fall back to.

use std::fmt;
use std::sync::Arc;

use muster_model::k8s::api::core::v1::PodTemplateSpec;
use muster_model::object::Object;
use muster_model::reason::annotation;
use muster_model::time::{Timestamp, to_seconds_text};
use serde_json::{Map, Value, json};

use crate::facts::{DaemonFacts, RevisionFacts};
use crate::fit::Wants;
use crate::revision::hash;

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
    /// The revision that failed last, when the present one took its place by itself (`on-failure: rollback`).
    pub fell_back_from: Option<FellBack>,
}

/// A failed revision whose place an earlier one took by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct FellBack {
    /// The failed ControllerRevision.
    pub revision_name: String,
    /// Its number.
    pub number: i64,
    /// Why it failed.
    pub why: Arc<str>,
    /// How it was taken back.
    pub taken_back: TakenBack,
}

/// What is noted on a failed revision when an earlier one takes its place: to which ControllerRevision the template went
/// back, and by which manifest it was, so that a manifest that is applied later tells that somebody knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenBack {
    /// The name of the ControllerRevision that took its place.
    pub to: String,
    /// Hash of the manifest that was applied last before.
    manifest: String,
}

impl TakenBack {
    /// What is noted when `daemon` goes back to `stable`.
    pub fn now(daemon: &DaemonFacts, stable: &Stable) -> Self {
        Self {
            to: stable.revision_name.clone(),
            manifest: manifest_hash(daemon),
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (to, manifest) = text.split_once(' ')?;
        Some(Self {
            to: to.to_owned(),
            manifest: manifest.to_owned(),
        })
    }
}

impl fmt::Display for TakenBack {
    /// As the annotation has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.to, self.manifest)
    }
}

fn manifest_hash(daemon: &DaemonFacts) -> String {
    let applied = daemon.annotations.get(annotation::LAST_APPLIED);
    hash(applied.map_or("", String::as_str), None)
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
        let taken_back = history
            .iter()
            .filter(|revision| revision.name != current && revision.number + 1 == target.number)
            .find_map(FellBack::of)
            // An earlier template that a person put back is no failure of the present one.
            .filter(|failed| failed.taken_back.to == current);
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
            fell_back_from: taken_back,
        }
    }
}

impl FellBack {
    fn of(revision: &RevisionFacts) -> Option<Self> {
        Some(Self {
            revision_name: revision.name.clone(),
            number: revision.number,
            why: revision.failed.clone()?,
            taken_back: revision.taken_back.clone()?,
        })
    }

    /// What was taken back last and nobody knows of yet. Where a manifest was applied since, its author does: it left the
    /// template as it is, and one of the failed template would not have.
    pub fn untold(daemon: &DaemonFacts) -> Option<&Self> {
        let failed = daemon.course.fell_back_from.as_ref()?;
        (failed.taken_back.manifest == manifest_hash(daemon)).then_some(failed)
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
    pub fn wanted(daemon: &DaemonFacts) -> Option<Self> {
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
        if let Some(failed) = FellBack::untold(daemon) {
            let message = format!(
                "revision {}: {}; revision {} took its place",
                failed.number, failed.why, course.number
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
