//! How much input is read, and how it is counted.

use serde_json::Value;

/// Largest text that is read as one file or one body.
pub(crate) const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Deepest nesting of lists and mappings.
pub(crate) const MAX_DEPTH: usize = 100;

/// Most values (scalars, lists, mappings) of one text: a few hundred times the largest honest manifest.
pub(crate) const MAX_VALUES: usize = 400_000;

/// Most documents of one file.
pub(crate) const MAX_DOCUMENTS: usize = 10_000;

/// Most that YAML anchors and aliases may copy, in bytes of text plus [`VALUE_WEIGHT`] a value.
pub(crate) const MAX_COPIED: usize = 2 * 1024 * 1024;

/// What a value weighs besides its text.
pub(crate) const VALUE_WEIGHT: usize = 64;

/// Counts the values of one text.
#[derive(Debug, Default)]
pub(crate) struct ValueBudget {
    used: usize,
}

impl ValueBudget {
    /// Takes some more values; an error says that there are too many.
    pub(crate) fn take(&mut self, values: usize) -> Result<(), String> {
        self.used = self.used.saturating_add(values);
        if self.used > MAX_VALUES {
            Err(format!("there are more than {MAX_VALUES} values"))
        } else {
            Ok(())
        }
    }
}

/// What is said about nesting deeper than [`MAX_DEPTH`].
pub(crate) fn too_deep() -> String {
    format!("lists and mappings are nested deeper than {MAX_DEPTH} levels")
}

/// Whether lists and mappings are nested deeper than `limit`. Looks no deeper than that.
pub(crate) fn depth_exceeds(value: &Value, limit: usize) -> bool {
    match value {
        Value::Array(list) => limit == 0 || list.iter().any(|v| depth_exceeds(v, limit - 1)),
        Value::Object(map) => limit == 0 || map.values().any(|v| depth_exceeds(v, limit - 1)),
        _ => false,
    }
}

/// Most unknown and duplicate fields that are named one by one.
pub(crate) const MAX_FAULTS_NAMED: usize = 100;

/// Longest path of a field that is shown whole, in characters.
pub(crate) const MAX_PATH_SHOWN: usize = 512;

/// The text, cut after so many characters.
pub(crate) fn clipped(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text.to_owned(),
    }
}

/// Paths of keys given twice. They are as long as their author likes and there may be many: no more are kept than are
/// shown, and none longer.
#[derive(Debug, Default)]
pub(crate) struct Duplicates(Vec<String>);

impl Duplicates {
    /// Adds a path, which is made only if it will be shown.
    pub(crate) fn add(&mut self, path: impl FnOnce() -> String) {
        if self.0.len() <= MAX_FAULTS_NAMED {
            self.0.push(clipped(&path(), MAX_PATH_SHOWN));
        }
    }

    /// The paths so far; the collection starts anew.
    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.0)
    }
}
