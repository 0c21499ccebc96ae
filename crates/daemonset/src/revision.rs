//! ControllerRevisions: the history of the template (spec/daemonset.md 13).

use std::collections::BTreeMap;

use muster_model::codec::kubectl_json;
use muster_model::kind;
use muster_model::object::Object;
use muster_model::reason::{annotation, label};
use serde_json::{Map, Value, json};

use crate::control::OnFailure;
use crate::course::Course;
use crate::facts::{Attempt, DaemonFacts, RevisionFacts, Target};
use crate::pod::owner_reference;
use crate::tally::Placements;

/// A JSON value as compact text with keys in code point order and Go's escapes: the form in which `data` is
/// kept, hashed and compared.
pub fn canonical_text(value: &Value) -> String {
    kubectl_json(value)
}

/// The `data` of a template's revision: the patch that puts the template back.
pub fn data(template: &Value) -> Value {
    let mut template = template.clone();
    tidy(&mut template);
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("creationTimestamp");
    }
    if let Some(fields) = template.as_object_mut() {
        fields.insert("$patch".to_owned(), "replace".into());
    }
    json!({"spec": {"template": template}})
}

/// The template that a revision's `data` puts back: its patch without the directive.
pub fn template(patch: &Value) -> Value {
    let mut template = patch.clone();
    if let Some(fields) = template.as_object_mut() {
        fields.remove("$patch");
    }
    template
}

/// Maps of text that the API leaves out when they are empty; other empty mappings mean something
/// (`emptyDir: {}`, `resources: {}`).
const MAPS: [&str; 9] = [
    "labels",
    "annotations",
    "nodeSelector",
    "matchLabels",
    "limits",
    "requests",
    "overhead",
    "volumeAttributes",
    "options",
];

/// Leaves out empty optional fields the way the API writes them: nulls, empty lists, empty maps of text.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(tidy);
            fields.retain(|key, value| !is_left_out(key, value));
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

fn is_left_out(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && MAPS.contains(&key),
        _ => false,
    }
}

/// The hash of a template's `data` text: FNV-1a over the text and, when set, the collision count in 8 bytes,
/// in decimal, each digit written as a letter or digit that makes no words.
pub fn hash(data_text: &str, collision_count: Option<i32>) -> String {
    const OFFSET_BASIS: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    const DIGITS: [char; 10] = ['4', '5', '6', '7', '8', '9', 'b', 'c', 'd', 'f'];
    let count = collision_count.map(|count| i64::from(count).to_le_bytes());
    let bytes = data_text.bytes().chain(count.into_iter().flatten());
    let sum = bytes.fold(OFFSET_BASIS, |sum, byte| {
        (sum ^ u32::from(byte)).wrapping_mul(PRIME)
    });
    let digit = |digit: u8| DIGITS[usize::from(digit - b'0')];
    sum.to_string().bytes().map(digit).collect()
}

/// A revision to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRevision {
    /// Its name.
    pub name: String,
    /// Its hash.
    pub hash: String,
    /// Its number.
    pub number: i64,
}

/// What has to be done to the history before pods are placed, and what the current revision is afterwards.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settlement {
    /// The current revision. `since` is when it was created, or last became the current one again; `None` when it is to be
    /// created now.
    pub target: Target,
    /// Create this one.
    pub create: Option<NewRevision>,
    /// Revisions without a hash label: (name, hash to give it).
    pub label: Vec<(String, String)>,
    /// Give this revision this number.
    pub renumber: Option<(String, i64)>,
    /// Duplicates of the current one: revisions to delete, by name.
    pub delete: Vec<String>,
    /// Hashes of duplicates: pods that carry one get the current hash.
    pub relabel: Vec<String>,
    /// Where the DaemonSet stands.
    pub course: Course,
}

impl Settlement {
    /// Whether the history is as it should be.
    pub fn is_settled(&self) -> bool {
        self.create.is_none()
            && self.label.is_empty()
            && self.renumber.is_none()
            && self.delete.is_empty()
            && self.relabel.is_empty()
    }
}

/// Finds the current revision among the claimed ones, or says how to make it (spec/daemonset.md 13.3).
pub fn settle(daemon: &DaemonFacts, history: &[RevisionFacts]) -> Settlement {
    let text = canonical_text(&data(&daemon.template));
    let mut settlement = Settlement::default();
    let unlabelled = history.iter().filter(|revision| revision.hash.is_none());
    settlement.label = unlabelled
        .map(|revision| (revision.name.clone(), revision.name.clone()))
        .collect();
    settlement.label.sort();
    let (mut same, old): (Vec<_>, Vec<_>) =
        history.iter().partition(|revision| revision.data == text);
    let wanted = old
        .iter()
        .map(|revision| revision.number)
        .max()
        .unwrap_or(0)
        + 1;
    same.sort_by(|a, b| b.number.cmp(&a.number).then_with(|| a.name.cmp(&b.name)));
    let Some((kept, duplicates)) = same.split_first() else {
        let hash = hash(&text, daemon.collision_count);
        let name = format!("{}-{hash}", daemon.id.name);
        settlement.target = Target {
            hash: hash.clone(),
            revision_name: name.clone(),
            attempt: Attempt {
                number: wanted,
                again: 0,
            },
            since: None,
        };
        settlement.create = Some(NewRevision {
            name: name.clone(),
            hash,
            number: wanted,
        });
        settlement.course = Course::of(history, &name);
        return settlement;
    };
    let hash_of = |revision: &RevisionFacts| {
        revision
            .hash
            .clone()
            .unwrap_or_else(|| revision.name.clone())
    };
    let target = Target {
        hash: hash_of(kept),
        revision_name: kept.name.clone(),
        attempt: if kept.number < wanted {
            Attempt {
                number: wanted,
                again: 0,
            }
        } else {
            Attempt {
                number: kept.number,
                again: kept.tried_again,
            }
        },
        since: kept.revived.or(kept.created),
    };
    settlement.renumber = (kept.number < wanted).then(|| (kept.name.clone(), wanted));
    settlement.delete = duplicates
        .iter()
        .map(|revision| revision.name.clone())
        .collect();
    settlement.relabel = duplicates
        .iter()
        .map(|revision| hash_of(revision))
        .collect();
    settlement.relabel.retain(|hash| *hash != target.hash);
    settlement.course = Course::of(history, &target.revision_name);
    settlement.target = target;
    settlement
}

/// What is noted on ControllerRevisions while they are rolled out.
const OWN_NOTES: [&str; 6] = [
    annotation::CURRENT_SINCE,
    annotation::AVAILABLE_EVERYWHERE,
    annotation::FAILED,
    annotation::TAKEN_BACK,
    annotation::PROMOTED,
    annotation::TRY,
];

/// Notes that a revision loses when it becomes the current one again: it is tried anew.
pub const NOTES_OF_A_TRY: [&str; 4] = [
    annotation::FAILED,
    annotation::TAKEN_BACK,
    annotation::PROMOTED,
    annotation::TRY,
];

/// The object of a revision to create.
pub fn object(daemon: &DaemonFacts, new: &NewRevision) -> Object {
    let labels = daemon
        .template
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .cloned();
    let mut labels = labels.unwrap_or_default();
    labels.insert(
        label::CONTROLLER_REVISION_HASH.to_owned(),
        new.hash.clone().into(),
    );
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), new.name.clone().into());
    metadata.insert("namespace".to_owned(), daemon.id.namespace.clone().into());
    metadata.insert("labels".to_owned(), labels.into());
    // What is noted on a revision itself is never the DaemonSet's to say.
    let mut annotations = daemon.annotations.clone();
    annotations.retain(|key, _| !OWN_NOTES.contains(&key.as_str()));
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), json!(annotations));
    }
    metadata.insert(
        "ownerReferences".to_owned(),
        json!([owner_reference(daemon)]),
    );
    let tree =
        json!({"metadata": metadata, "data": data(&daemon.template), "revision": new.number});
    let mut object = Object::from_value(tree).expect("json! with braces makes a mapping");
    object.set_kind(&kind::CONTROLLER_REVISION);
    object
}

/// What to do when a revision's name is taken (spec/daemonset.md 13.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collision {
    /// The one that is there has the same data: use it.
    Use,
    /// Write this collision count to the DaemonSet's status, fail, and try again with the new hash.
    Bump(i32),
    /// Our copy of the DaemonSet is behind (its collision count differs): fail and try again.
    Stale,
}

/// Judges a name that is taken by `existing`; `fresh_count` is the collision count of a fresh read of the
/// DaemonSet.
pub fn collision(
    daemon: &DaemonFacts,
    existing: &RevisionFacts,
    fresh_count: Option<i32>,
) -> Collision {
    if existing.data == canonical_text(&data(&daemon.template)) {
        Collision::Use
    } else if fresh_count != daemon.collision_count {
        Collision::Stale
    } else {
        Collision::Bump(fresh_count.unwrap_or(0).saturating_add(1))
    }
}

/// Old revisions above the history limit, lowest number first, without those that a pod is still of
/// (spec/daemonset.md 13.5), without the one that held back nodes fall back to, and without the failed one that was taken
/// back last: it alone tells of that.
pub fn surplus(
    daemon: &DaemonFacts,
    history: &[RevisionFacts],
    placements: &Placements,
) -> Vec<String> {
    let target = &daemon.rules.target;
    let by_number: BTreeMap<(i64, &str), &RevisionFacts> = history
        .iter()
        .filter(|revision| revision.name != target.revision_name)
        .map(|revision| ((revision.number, revision.name.as_str()), revision))
        .collect();
    let surplus = by_number.len().saturating_sub(daemon.history_limit);
    let stable = daemon.course.stable.as_ref();
    let stable = stable.filter(|_| daemon.control.holds_back());
    let taken_back = daemon.course.fell_back_from.as_ref();
    let taken_back = taken_back.filter(|_| daemon.control.on_failure != OnFailure::Off);
    let is_in_use = |revision: &RevisionFacts| {
        stable.is_some_and(|stable| stable.revision_name == revision.name)
            || taken_back.is_some_and(|failed| failed.revision_name == revision.name)
            || placements.is_in_use(revision.hash.as_deref().unwrap_or(&revision.name))
    };
    let unused = by_number
        .into_values()
        .filter(|revision| !is_in_use(revision));
    unused
        .take(surplus)
        .map(|revision| revision.name.clone())
        .collect()
}
