//! A place in an object's tree together with its path: what the rules read and complain about.

use serde_json::Value;

use crate::field_path::{FieldError, FieldPath};
use crate::object::Object;

/// The faults found so far, in the order in which they are reported.
pub(super) type Faults = Vec<FieldError>;

/// A value of the tree, absent or there, and where it is (or would be).
#[derive(Debug, Clone)]
pub(super) struct View<'a> {
    value: Option<&'a Value>,
    path: FieldPath,
}

impl<'a> View<'a> {
    pub(super) fn root(object: &'a Object) -> Self {
        Self {
            value: Some(object.tree()),
            path: FieldPath::root(),
        }
    }

    /// The field below; a null is absent.
    pub(super) fn child(&self, name: &str) -> Self {
        let value = self
            .value
            .and_then(|value| value.get(name))
            .filter(|value| !value.is_null());
        Self {
            value,
            path: self.path.child(name),
        }
    }

    /// Several fields down.
    pub(super) fn down(&self, names: &[&str]) -> Self {
        names
            .iter()
            .fold(self.clone(), |view, name| view.child(name))
    }

    /// The elements of the list here.
    pub(super) fn items(&self) -> Vec<Self> {
        let items = self
            .value
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        items
            .iter()
            .enumerate()
            .map(|(index, value)| Self {
                value: Some(value),
                path: self.path.index(index),
            })
            .collect()
    }

    /// The entries of the map here, whose keys are the author's own.
    pub(super) fn entries(&self) -> Vec<(&'a str, Self)> {
        self.value
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(key, value)| {
                (
                    key.as_str(),
                    Self {
                        value: Some(value),
                        path: self.path.key(key),
                    },
                )
            })
            .collect()
    }

    pub(super) fn is_present(&self) -> bool {
        self.value.is_some()
    }

    pub(super) fn is_mapping(&self) -> bool {
        self.value.is_some_and(Value::is_object)
    }

    /// Whether nothing is here, or an empty list, map or text.
    pub(super) fn is_empty(&self) -> bool {
        match self.value {
            None => true,
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::String(text)) => text.is_empty(),
            Some(_) => false,
        }
    }

    pub(super) fn value(&self) -> Option<&'a Value> {
        self.value
    }

    /// The value as faults show it; null when absent.
    pub(super) fn shown(&self) -> &'a Value {
        const NOTHING: &Value = &Value::Null;
        self.value.unwrap_or(NOTHING)
    }

    /// The text here; empty when absent.
    pub(super) fn text(&self) -> &'a str {
        self.value.and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn number(&self) -> Option<i64> {
        self.value.and_then(Value::as_i64)
    }

    /// Whether `true` is written here.
    pub(super) fn is_true(&self) -> bool {
        self.value == Some(&Value::Bool(true))
    }

    /// Whether `false` is written here.
    pub(super) fn is_false(&self) -> bool {
        self.value == Some(&Value::Bool(false))
    }

    pub(super) fn path(&self) -> FieldPath {
        self.path.clone()
    }

    pub(super) fn required(&self, detail: &str) -> FieldError {
        FieldError::required(self.path(), detail)
    }

    pub(super) fn invalid(&self, detail: &str) -> FieldError {
        FieldError::invalid(self.path(), self.shown(), detail)
    }

    /// Like [`View::invalid`] for a text field, whose absence is shown as `""`.
    pub(super) fn invalid_text(&self, detail: &str) -> FieldError {
        FieldError::invalid(self.path(), &self.text().into(), detail)
    }

    pub(super) fn not_supported(&self, supported: &[&str]) -> FieldError {
        FieldError::not_supported(self.path(), self.shown(), supported)
    }

    /// The value's key is none of those that its mapping may have.
    pub(super) fn unknown_key(&self, key: &str, supported: &[&str]) -> FieldError {
        FieldError::not_supported(self.path(), &key.into(), supported)
    }

    pub(super) fn forbidden(&self, detail: &str) -> FieldError {
        FieldError::forbidden(self.path(), detail)
    }

    pub(super) fn duplicate(&self) -> FieldError {
        FieldError::duplicate(self.path(), self.shown())
    }

    pub(super) fn not_found(&self) -> FieldError {
        FieldError::not_found(self.path(), self.shown())
    }

    /// Judges the text here, when there is one.
    pub(super) fn check_text(&self, check: fn(&str) -> Vec<String>, faults: &mut Faults) {
        if !self.is_empty() {
            faults.extend(
                check(self.text())
                    .iter()
                    .map(|detail| self.invalid_text(detail)),
            );
        }
    }

    /// Asks for a text and judges it.
    pub(super) fn require_text(&self, check: fn(&str) -> Vec<String>, faults: &mut Faults) {
        if self.is_empty() {
            faults.push(self.required(""));
        } else {
            self.check_text(check, faults);
        }
    }

    /// Asks for something that is not empty.
    pub(super) fn require(&self, faults: &mut Faults) {
        if self.is_empty() {
            faults.push(self.required(""));
        }
    }

    /// The number here, if any, must not be negative.
    pub(super) fn check_not_negative(&self, faults: &mut Faults) {
        if self.number().is_some_and(|number| number < 0) {
            faults.push(self.invalid("must be greater than or equal to 0"));
        }
    }

    /// The number here, if any, must lie in a range.
    pub(super) fn check_range(&self, least: i64, most: i64, faults: &mut Faults) {
        if self
            .number()
            .is_some_and(|number| number < least || number > most)
        {
            faults.push(self.invalid(&format!("must be between {least} and {most}, inclusive")));
        }
    }

    /// The text here, if any, must be one of these.
    pub(super) fn check_one_of(&self, supported: &[&str], faults: &mut Faults) {
        if self.is_present() && !supported.contains(&self.text()) {
            faults.push(self.not_supported(supported));
        }
    }

    /// The value must be what it was; a value that is absent now is filled in from the old one by the server.
    pub(super) fn check_unchanged(&self, old: &Self, faults: &mut Faults) {
        if self.is_present() && self.value != old.value {
            faults.push(self.invalid("field is immutable"));
        }
    }
}
