//! Annotations below `muster.dev/` that nobody reads where they are: their author believes that something is asked for.

use std::iter;

use muster_model::field_path::FieldPath;
use muster_model::object::Object;
use muster_model::policy::Check;
use muster_model::reason::annotation;
use serde_json::Value;

use super::Finding;
use crate::control;

const OURS: &str = "muster.dev/";

/// Where an annotation is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    DaemonSet,
    Template,
}

impl Place {
    fn field(self) -> &'static str {
        match self {
            Self::DaemonSet => "metadata.annotations",
            Self::Template => "spec.template.metadata.annotations",
        }
    }
}

/// Judges the annotations of a DaemonSet and those of its template; a finding for each.
pub fn of_annotations(daemon: &Object) -> Vec<Finding> {
    let places = [
        (Place::DaemonSet, "/metadata/annotations"),
        (Place::Template, "/spec/template/metadata/annotations"),
    ];
    let mut found = Vec::new();
    for (place, pointer) in places {
        let annotations = daemon.at(pointer).and_then(Value::as_object);
        let keys = annotations.into_iter().flat_map(|all| all.keys());
        found.extend(keys.filter_map(|key| unread(place, key)));
    }
    found
}

fn known() -> impl Iterator<Item = (&'static str, Place)> {
    let of_daemon = control::ANNOTATIONS.into_iter();
    of_daemon
        .map(|key| (key, Place::DaemonSet))
        .chain(iter::once((annotation::MAX_RESTART_DELAY, Place::Template)))
}

fn unread(place: Place, key: &str) -> Option<Finding> {
    let name = key.strip_prefix(OURS)?;
    if known().any(|known| known == (key, place)) {
        return None;
    }
    let nearest = known()
        .map(|(known, its_place)| (distance(key, known), known, its_place))
        .filter(|(distance, ..)| *distance <= name.chars().count() / 3)
        .min_by_key(|(distance, _, its_place)| (*distance, *its_place != place));
    let (sentence, fix) = match nearest {
        Some((0, _, its_place)) => (
            format!(
                "{key} is read in {} only, so nothing is done about it",
                its_place.field()
            ),
            format!("move it to {}", its_place.field()),
        ),
        Some((_, known, its_place)) => {
            let where_ = if its_place == place {
                String::new()
            } else {
                format!(", in {}", its_place.field())
            };
            (unknown(key), format!("write {known}{where_}"))
        }
        None => (unknown(key), String::new()),
    };
    Some(Finding {
        check: Check::UnknownAnnotation,
        field: FieldPath::of(place.field()).key(key),
        sentence,
        fix,
    })
}

fn unknown(key: &str) -> String {
    format!("there is no annotation {key}, so nothing is done about it")
}

/// How many letters have to be changed, added or left out to get from one text to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (at, other) in to.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[to.len()]
}
