//! Which objects of a kind are meant.

use muster_model::kind::Kind;
use muster_model::object::Object;
use muster_model::selector::{FieldSelector, Selector};

use crate::status::ApiError;

/// A label selector and a field selector; both must match.
#[derive(Debug, Clone)]
pub struct Selection {
    labels: Selector,
    fields: FieldSelector,
}

impl Selection {
    /// Every object.
    pub fn everything() -> Self {
        Self {
            labels: Selector::everything(),
            fields: FieldSelector::default(),
        }
    }

    /// Reads both selectors' text; empty text selects everything. A field that cannot be selected by is a 400.
    pub fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, ApiError> {
        let refuse = |error: &dyn std::fmt::Display| ApiError::bad_request(error.to_string());
        Ok(Self {
            labels: Selector::parse(labels).map_err(|error| refuse(&error))?,
            fields: FieldSelector::parse_for(kind, fields).map_err(|error| refuse(&error))?,
        })
    }

    /// By labels that are already known to be well-formed.
    pub fn labels(labels: Selector) -> Self {
        Self {
            labels,
            fields: FieldSelector::default(),
        }
    }

    /// Whether this object is meant.
    pub fn matches(&self, object: &Object) -> bool {
        (self.labels.is_empty() || self.labels.matches(&object.labels()))
            && self.fields.matches(object)
    }

    /// Whether nothing is left out.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The value that a field must have, when the selector demands exactly one.
    pub fn required_field(&self, field: &str) -> Option<&str> {
        self.fields.required_value(field)
    }
}
