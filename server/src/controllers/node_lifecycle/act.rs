//! What the node controller does to objects, and what it then tells people.

use muster_model::k8s::api::core::v1::{NodeCondition, Taint};
use muster_model::kind::{NODE, POD};
use muster_model::object::Object;
use muster_model::reason::condition;
use muster_model::time::{self, Timestamp};
use serde_json::{Value, json};

use super::judge::{Health, merged};
use super::{COMPONENT, EVICTOR};
use crate::cache::Stored;
use crate::controllers::pod_gc::{disruption_target, set_condition};
use crate::events::Note;
use crate::registry::{DeleteOptions, Precondition, Write};

/// A write, and the event to record when it was stored.
pub(super) struct Act {
    pub(super) write: Write,
    pub(super) note: Option<Note>,
}

/// The version is compared: the agent's own report must win, and is judged anew.
pub(super) fn set_conditions(node: &Stored, conditions: &[NodeCondition]) -> Act {
    let message = format!("Node {} status is now: NodeNotReady", node.name());
    let note = (Health::of(conditions) == Health::Unknown)
        .then(|| Note::normal(COMPONENT, node.object(), "NodeNotReady", message));
    let conditions = json!(conditions);
    let precondition = Precondition::version(node);
    let write = Write::edit_status(&NODE, node.key.clone(), precondition, move |object| {
        if let Some(status) = mapping(object, "status") {
            status.insert("conditions".into(), conditions.clone());
        }
        Ok(())
    });
    Act { write, note }
}

/// Merged into whatever taints there are when it is stored: people's own are never lost.
pub(super) fn set_taints(node: &Stored, ours: Vec<Taint>) -> Act {
    let precondition = Precondition::uid(node.uid());
    let write = Write::edit(&NODE, node.key.clone(), precondition, move |object| {
        let Some(spec) = mapping(object, "spec") else {
            return Ok(());
        };
        let present = spec.get("taints").cloned().unwrap_or_else(|| json!([]));
        let Ok(present) = serde_json::from_value::<Vec<Taint>>(present) else {
            return Ok(());
        };
        let taints = merged(&present, &ours);
        if taints.is_empty() {
            spec.remove("taints");
        } else {
            spec.insert("taints".into(), json!(taints));
        }
        Ok(())
    });
    Act { write, note: None }
}

/// Turns a pod's Ready to False and touches nothing else of it; `None`: it is not Ready anyway.
pub(super) fn mark_not_ready(pod: &Stored, now: Timestamp) -> Option<Act> {
    let is_ready = |c: &Value| c["type"] == condition::READY && c["status"] == "True";
    let conditions = pod.object().at("/status/conditions")?.as_array()?;
    if !conditions.iter().any(is_ready) {
        return None;
    }
    let since = time::to_seconds_text(now);
    let precondition = Precondition::uid(pod.uid());
    let write = Write::edit_status(&POD, pod.key.clone(), precondition, move |object| {
        let conditions = mapping(object, "status")
            .and_then(|status| status.get_mut("conditions"))
            .and_then(Value::as_array_mut);
        for ready in conditions.into_iter().flatten().filter(|c| is_ready(c)) {
            ready["status"] = "False".into();
            ready["lastTransitionTime"] = since.clone().into();
        }
        Ok(())
    });
    let message = "Node is not ready";
    let note = Note::warning(COMPONENT, pod.object(), "NodeNotReady", message);
    Some(Act {
        write,
        note: Some(note),
    })
}

/// Says why, then deletes with the pod's own grace.
pub(super) fn evict(pod: &Stored, now: Timestamp) -> [Act; 2] {
    let precondition = Precondition::uid(pod.uid());
    let mark = Write::edit_status(&POD, pod.key.clone(), precondition, move |object| {
        if let Some(status) = mapping(object, "status") {
            let message = "Taint manager: deleting due to NoExecute taint";
            let conditions = status.entry("conditions").or_insert_with(|| json!([]));
            let condition = disruption_target("DeletionByTaintManager", message, now);
            set_condition(conditions, condition);
        }
        Ok(())
    });
    let options = DeleteOptions {
        precondition: Precondition::uid(pod.uid()),
        ..DeleteOptions::default()
    };
    let message = format!("Marking for deletion Pod {}", pod.key);
    let note = Note::normal(EVICTOR, pod.object(), "TaintManagerEviction", message);
    [
        Act {
            write: mark,
            note: None,
        },
        Act {
            write: Write::delete(&POD, pod.key.clone(), options),
            note: Some(note),
        },
    ]
}

fn mapping<'a>(
    object: &'a mut Object,
    field: &str,
) -> Option<&'a mut serde_json::Map<String, Value>> {
    let value = object.tree_mut().entry(field).or_insert_with(|| json!({}));
    value.as_object_mut()
}
