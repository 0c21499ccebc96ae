//! The facts of a ControllerRevision.

use std::sync::Arc;

use muster_model::object::Object;
use muster_model::reason::{annotation, label};
use muster_model::time::Timestamp;
use serde_json::Value;

use crate::course::TakenBack;
use crate::revision;

/// A ControllerRevision that a DaemonSet owns (or has just adopted).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RevisionFacts {
    /// Its name.
    pub name: String,
    /// Its number in the history.
    pub number: i64,
    /// Label `controller-revision-hash`; `None` when it lacks one.
    pub hash: Option<String>,
    /// Its `data`, as canonical text.
    pub data: String,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// Since when it is the current one again, after others were; `None`: it was not.
    pub revived: Option<Timestamp>,
    /// The template that it keeps.
    pub template: Arc<Value>,
    /// It was available everywhere once.
    pub proven: bool,
    /// Why its rollout was stopped.
    pub failed: Option<Arc<str>>,
    /// How an earlier revision took its place by itself when it had failed.
    pub taken_back: Option<TakenBack>,
    /// Through how many waves somebody let it pass.
    pub promoted: usize,
    /// How often `rollout resume` had it tried again.
    pub tried_again: u32,
}

impl RevisionFacts {
    /// The facts of a stored ControllerRevision. Nothing in it can fail: what is missing is empty.
    pub fn from_object(object: &Object) -> Self {
        Self {
            name: object.name().to_owned(),
            number: object
                .at("/revision")
                .and_then(Value::as_i64)
                .unwrap_or_default(),
            hash: object
                .label(label::CONTROLLER_REVISION_HASH)
                .map(str::to_owned),
            data: object
                .at("/data")
                .map(revision::canonical_text)
                .unwrap_or_default(),
            created: object
                .at("/metadata/creationTimestamp")
                .and_then(|t| t.as_str()?.parse().ok()),
            revived: object
                .annotation(annotation::CURRENT_SINCE)
                .and_then(|time| time.parse().ok()),
            template: Arc::new(
                object
                    .at("/data/spec/template")
                    .map(revision::template)
                    .unwrap_or_default(),
            ),
            proven: object
                .annotation(annotation::AVAILABLE_EVERYWHERE)
                .is_some(),
            failed: object.annotation(annotation::FAILED).map(Arc::from),
            taken_back: object
                .annotation(annotation::TAKEN_BACK)
                .and_then(TakenBack::parse),
            promoted: match object.annotation(annotation::PROMOTED) {
                Some("all") => usize::MAX,
                Some(number) => number.parse().unwrap_or_default(),
                None => 0,
            },
            tried_again: object
                .annotation(annotation::TRY)
                .and_then(|number| number.parse().ok())
                .unwrap_or_default(),
        }
    }
}
