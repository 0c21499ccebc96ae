//! Paths to fields and the faults found there.

use std::fmt;

use serde_json::Value;

/// A path such as `spec.template.spec.containers[0].image` or `metadata.labels[app/x]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FieldPath(String);

impl FieldPath {
    /// The object itself: the empty path.
    pub fn root() -> Self {
        Self::default()
    }

    /// A path of already joined text.
    pub fn of(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// A field below this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() {
            Self(name.to_owned())
        } else {
            Self(format!("{}.{name}", self.0))
        }
    }

    /// An element of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// An entry of this map, for keys that are the user's own text.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is wrong with a field: the `reason` of a Status cause, and the body of its message
/// (spec/daemonset.md 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// `FieldValueRequired`.
    Required,
    /// `FieldValueInvalid`.
    Invalid,
    /// `FieldValueNotSupported`.
    NotSupported,
    /// `FieldValueForbidden`.
    Forbidden,
    /// `FieldValueDuplicate`.
    Duplicate,
    /// `FieldValueNotFound`.
    NotFound,
    /// `FieldValueTooLong`.
    TooLong,
    /// `FieldValueTooMany`.
    TooMany,
}

impl FaultKind {
    /// The `reason` of the Status cause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
        }
    }
}

/// One fault of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Where.
    pub field: FieldPath,
    /// What kind of fault.
    pub kind: FaultKind,
    /// The message body without the field: `Invalid value: -1: must be greater than or equal to 0`.
    pub body: String,
}

impl FieldError {
    /// `Required value`, with a detail unless it is empty.
    pub fn required(field: FieldPath, detail: &str) -> Self {
        Self::new(
            field,
            FaultKind::Required,
            "Required value".to_owned(),
            detail,
        )
    }

    /// `Invalid value: V: DETAIL`. Numbers and booleans are shown bare, strings quoted, the rest as compact JSON.
    pub fn invalid(field: FieldPath, value: &Value, detail: &str) -> Self {
        Self::new(
            field,
            FaultKind::Invalid,
            format!("Invalid value: {value}"),
            detail,
        )
    }

    /// `Unsupported value: V: supported values: "A", "B"`.
    pub fn not_supported(field: FieldPath, value: &Value, supported: &[&str]) -> Self {
        let list = supported
            .iter()
            .map(|s| format!("\"{s}\""))
            .collect::<Vec<_>>()
            .join(", ");
        let detail = if list.is_empty() {
            String::new()
        } else {
            format!("supported values: {list}")
        };
        Self::new(
            field,
            FaultKind::NotSupported,
            format!("Unsupported value: {value}"),
            &detail,
        )
    }

    /// `Forbidden: DETAIL`.
    pub fn forbidden(field: FieldPath, detail: &str) -> Self {
        Self::new(field, FaultKind::Forbidden, "Forbidden".to_owned(), detail)
    }

    /// `Duplicate value: V`.
    pub fn duplicate(field: FieldPath, value: &Value) -> Self {
        Self::new(
            field,
            FaultKind::Duplicate,
            format!("Duplicate value: {value}"),
            "",
        )
    }

    /// `Not found: V`.
    pub fn not_found(field: FieldPath, value: &Value) -> Self {
        Self::new(
            field,
            FaultKind::NotFound,
            format!("Not found: {value}"),
            "",
        )
    }

    /// `Too long: may not be more than N bytes` and its kin; the value is not shown.
    pub fn too_long(field: FieldPath, detail: &str) -> Self {
        Self::new(field, FaultKind::TooLong, "Too long".to_owned(), detail)
    }

    /// `Too many: N: must have at most M items`.
    pub fn too_many(field: FieldPath, found: usize, most: usize) -> Self {
        Self::new(
            field,
            FaultKind::TooMany,
            format!("Too many: {found}"),
            &format!("must have at most {most} items"),
        )
    }

    fn new(field: FieldPath, kind: FaultKind, body: String, detail: &str) -> Self {
        let body = if detail.is_empty() {
            body
        } else {
            format!("{body}: {detail}")
        };
        Self { field, kind, body }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_fault_reads_as_kubernetes_writes_it() {
        let path = FieldPath::root()
            .child("spec")
            .child("containers")
            .index(0)
            .child("image");
        assert_eq!(
            FieldError::required(path.clone(), "").to_string(),
            "spec.containers[0].image: Required value"
        );
        assert_eq!(
            FieldError::invalid(
                path.clone(),
                &json!(-1),
                "must be greater than or equal to 0"
            )
            .to_string(),
            "spec.containers[0].image: Invalid value: -1: must be greater than or equal to 0"
        );
        assert_eq!(
            FieldError::not_supported(path, &json!("Never"), &["Always"]).to_string(),
            "spec.containers[0].image: Unsupported value: \"Never\": supported values: \"Always\""
        );
    }
}
