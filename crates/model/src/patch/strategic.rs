//! Strategic merge patch: a merge patch whose lists merge by key, with directives (spec/kube-api.md 9).
//!
//! Where Kubernetes leaves a directive or a `null` behind in something new, they are taken out here.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::schema::{Field, ListRule, Place};
use super::{PatchError, expect_mapping};
use crate::kind::Kind;

/// `$patch: replace | delete | merge`, in a mapping or as an element of a merging list.
pub(crate) const PATCH: &str = "$patch";
/// `$retainKeys: [...]`: the only keys that stay.
pub(crate) const RETAIN_KEYS: &str = "$retainKeys";
/// `$setElementOrder/LIST`: the order of the outcome.
pub(crate) const ELEMENT_ORDER: &str = "$setElementOrder/";
/// `$deleteFromPrimitiveList/LIST`: scalars to take out.
pub(crate) const DELETE_SCALARS: &str = "$deleteFromPrimitiveList/";

/// Applies the patch to an object of the kind.
pub fn apply(kind: &Kind, original: &Value, patch: &Value) -> Result<Value, PatchError> {
    let patch = expect_mapping(patch)?;
    let original = original.as_object().cloned().unwrap_or_default();
    merge_map(Place::of(kind), original, patch).map(Value::Object)
}

fn malformed(message: impl Into<String>) -> PatchError {
    PatchError::Malformed(message.into())
}

fn merge_map(
    place: Place,
    original: Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<Map<String, Value>, PatchError> {
    let mut merged = match patch
        .get(PATCH)
        .map(|directive| directive.as_str().unwrap_or_default())
    {
        None | Some("merge") => original,
        Some("replace") => Map::new(),
        Some("delete") => return Ok(Map::new()),
        Some(other) => {
            return Err(malformed(format!(
                "unknown patch directive $patch: {other}"
            )));
        }
    };
    if let Some(kept) = patch.get(RETAIN_KEYS) {
        retain_keys(&mut merged, patch, kept)?;
    }
    for (key, value) in patch {
        if key == PATCH || key == RETAIN_KEYS || key.starts_with(DELETE_SCALARS) {
            continue;
        }
        if let Some(name) = key.strip_prefix(ELEMENT_ORDER) {
            // With a list of this name in the patch, the order is applied together with it.
            if !patch.contains_key(name) {
                merge_field(place, name, &mut merged, None, patch)?;
            }
        } else {
            merge_field(place, key, &mut merged, Some(value), patch)?;
        }
    }
    for (key, _) in patch
        .iter()
        .filter(|(key, _)| key.starts_with(DELETE_SCALARS))
    {
        let name = &key[DELETE_SCALARS.len()..];
        if !patch.contains_key(name) && !patch.contains_key(&format!("{ELEMENT_ORDER}{name}")) {
            merge_field(place, name, &mut merged, None, patch)?;
        }
    }
    Ok(merged)
}

fn retain_keys(
    merged: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    kept: &Value,
) -> Result<(), PatchError> {
    let kept: Option<Vec<&str>> = kept
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).collect());
    let Some(kept) = kept else {
        return Err(malformed("$retainKeys must be a list of strings"));
    };
    let foreign = patch.iter().find(|(key, value)| {
        !key.starts_with('$') && !value.is_null() && !kept.contains(&key.as_str())
    });
    if let Some((key, _)) = foreign {
        return Err(malformed(format!(
            "$retainKeys does not list {key:?}, which the patch sets"
        )));
    }
    merged.retain(|key, _| kept.contains(&key.as_str()));
    Ok(())
}

/// Merges one field. Without a value only the order and the deletions of its list are applied.
fn merge_field(
    place: Place,
    name: &str,
    merged: &mut Map<String, Value>,
    value: Option<&Value>,
    patch: &Map<String, Value>,
) -> Result<(), PatchError> {
    let Field {
        place: below, list, ..
    } = place.field(name);
    let original = merged.remove(name);
    let outcome = match (original, value) {
        (_, Some(Value::Null)) | (None, None) => return Ok(()),
        (Some(Value::Object(map)), Some(Value::Object(patch))) => {
            Value::Object(merge_map(below, map, patch)?)
        }
        (_, Some(Value::Object(patch))) => Value::Object(merge_map(below, Map::new(), patch)?),
        (original, Some(Value::Array(elements))) if list != ListRule::Atomic => {
            let original = match original {
                Some(Value::Array(original)) => original,
                _ => Vec::new(),
            };
            let directives = Directives::of(name, patch)?;
            Value::Array(merge_list(below, list, original, elements, &directives)?)
        }
        (Some(Value::Array(original)), None) if list != ListRule::Atomic => {
            let directives = Directives::of(name, patch)?;
            Value::Array(merge_list(below, list, original, &[], &directives)?)
        }
        (Some(original), None) => original,
        (_, Some(value)) => value.clone(),
    };
    merged.insert(name.to_owned(), outcome);
    Ok(())
}

/// The directives beside a list.
struct Directives<'p> {
    order: Option<&'p [Value]>,
    delete: &'p [Value],
}

impl<'p> Directives<'p> {
    fn of(name: &str, patch: &'p Map<String, Value>) -> Result<Self, PatchError> {
        let list = |key: String| match patch.get(&key) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list.as_slice())),
            Some(_) => Err(malformed(format!("{key} must be a list"))),
        };
        Ok(Self {
            order: list(format!("{ELEMENT_ORDER}{name}"))?,
            delete: list(format!("{DELETE_SCALARS}{name}"))?.unwrap_or_default(),
        })
    }
}

fn merge_list(
    place: Place,
    rule: ListRule,
    original: Vec<Value>,
    patch: &[Value],
    directives: &Directives<'_>,
) -> Result<Vec<Value>, PatchError> {
    let identity = Identity(rule);
    let mut server_order = Ranks::of(original.iter().filter_map(|element| identity.of(element)));
    let slots = original.len();
    let (merged, touched) = match rule {
        ListRule::ByKey(key) => merge_elements(place, key, original, patch)?,
        _ => merge_scalars(original, patch, directives.delete)?,
    };
    if directives.order.is_some() && matches!(rule, ListRule::ByKey(_)) {
        // Under this directive Kubernetes counts new elements that fill the slots of deleted ones as the server's
        // own, so that they come behind what stays. Clients see that order, so it is kept.
        server_order = Ranks::of(
            merged
                .iter()
                .take(slots)
                .filter_map(|element| identity.of(element)),
        );
    }
    let order = match directives.order {
        Some(order) => Ranks::of(order.iter().filter_map(|element| identity.of(element))),
        None => Ranks::of(touched.iter()),
    };
    if let Some(missing) = touched.iter().find(|element| order.rank(element).is_none()) {
        return Err(malformed(format!(
            "$setElementOrder does not list {missing}, which the patch sets"
        )));
    }
    Ok(in_order(identity, merged, &order, &server_order))
}

/// What tells the elements of a list apart.
#[derive(Clone, Copy)]
struct Identity(ListRule);

impl Identity {
    fn of(self, element: &Value) -> Option<&Value> {
        match self.0 {
            ListRule::ByKey(key) => element.get(key),
            _ => Some(element),
        }
    }
}

/// The first position of each identity in a list. Lists may be long and come from outside, so it is an index.
struct Ranks(BTreeMap<String, usize>);

impl Ranks {
    fn of<'v>(identities: impl Iterator<Item = &'v Value>) -> Self {
        let mut ranks = BTreeMap::new();
        for (position, identity) in identities.enumerate() {
            ranks.entry(identity.to_string()).or_insert(position);
        }
        Self(ranks)
    }

    fn rank(&self, identity: &Value) -> Option<usize> {
        self.0.get(&identity.to_string()).copied()
    }
}

/// The merged elements, and the identities of those that the patch sets, in its order.
type Merged = (Vec<Value>, Vec<Value>);

fn merge_elements(
    place: Place,
    key: &str,
    original: Vec<Value>,
    patch: &[Value],
) -> Result<Merged, PatchError> {
    let mut changes = Vec::new();
    let mut deleted = BTreeSet::new();
    let mut replaces = false;
    for element in patch {
        let Value::Object(fields) = element else {
            return Err(PatchError::Unprocessable(format!(
                "list element {element} is not a mapping"
            )));
        };
        let directive = fields.get(PATCH).and_then(Value::as_str);
        match (directive, fields.get(key)) {
            (Some("replace"), _) => replaces = true,
            (Some("delete"), Some(identity)) => {
                deleted.insert(identity.to_string());
            }
            (_, Some(identity)) => changes.push((identity, fields)),
            (_, None) => {
                let message = format!("map: {element} does not contain declared merge key: {key}");
                return Err(PatchError::Unprocessable(message));
            }
        }
    }
    let mut merged = if replaces { Vec::new() } else { original };
    if !deleted.is_empty() {
        merged.retain(|element| {
            element
                .get(key)
                .is_none_or(|identity| !deleted.contains(&identity.to_string()))
        });
    }
    let mut index = BTreeMap::new();
    for (position, element) in merged.iter().enumerate() {
        if let Some(identity) = element.get(key) {
            index.entry(identity.to_string()).or_insert(position);
        }
    }
    let mut touched = Vec::with_capacity(changes.len());
    for (identity, fields) in changes {
        let position = *index.entry(identity.to_string()).or_insert(merged.len());
        if position == merged.len() {
            merged.push(Value::Object(Map::new()));
        }
        let existing = match merged[position].take() {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        merged[position] = Value::Object(merge_map(place, existing, fields)?);
        touched.push(identity.clone());
    }
    Ok((merged, touched))
}

fn merge_scalars(
    original: Vec<Value>,
    patch: &[Value],
    delete: &[Value],
) -> Result<Merged, PatchError> {
    if let Some(element) = patch
        .iter()
        .find(|element| element.is_object() || element.is_array())
    {
        return Err(PatchError::Unprocessable(format!(
            "list element {element} is not a scalar"
        )));
    }
    let delete = Ranks::of(delete.iter());
    let kept = original
        .into_iter()
        .filter(|element| delete.rank(element).is_none());
    let mut seen = BTreeSet::new();
    let merged = kept
        .chain(patch.iter().cloned())
        .filter(|element| seen.insert(element.to_string()))
        .collect();
    Ok((merged, patch.to_vec()))
}

/// Elements named in `order` come in that order. The others keep their relative place: one of them goes before an
/// ordered one only if it did so on the server.
fn in_order(
    identity: Identity,
    merged: Vec<Value>,
    order: &Ranks,
    server_order: &Ranks,
) -> Vec<Value> {
    let rank_in =
        |ranks: &Ranks, element: &Value| identity.of(element).and_then(|wanted| ranks.rank(wanted));
    let (mut ordered, others): (Vec<Value>, Vec<Value>) = merged
        .into_iter()
        .partition(|element| rank_in(order, element).is_some());
    ordered.sort_by_cached_key(|element| rank_in(order, element));
    let mut outcome = Vec::with_capacity(ordered.len() + others.len());
    let mut others = others.into_iter().peekable();
    for element in ordered {
        let place = rank_in(server_order, &element);
        while let Some(other) = others.peek() {
            match (rank_in(server_order, other), place) {
                (Some(before), Some(place)) if before < place => outcome.extend(others.next()),
                _ => break,
            }
        }
        outcome.push(element);
    }
    outcome.extend(others);
    outcome
}

#[cfg(test)]
#[path = "strategic_tests.rs"]
mod tests;
