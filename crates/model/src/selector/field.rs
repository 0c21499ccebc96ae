//! Field selectors: terms on a few fields of an object, other ones for each kind.

use std::fmt;

use super::{MAX_SELECTOR_BYTES, SelectorError};
use crate::kind::Kind;
use crate::object::Object;

/// A field selector: all its terms must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

/// One term of a [`FieldSelector`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldTerm {
    /// The field, such as `spec.nodeName`.
    pub field: String,
    /// `=` or `!=`.
    pub op: FieldOp,
    /// The value, unescaped; may be empty.
    pub value: String,
}

/// The comparison of a [`FieldTerm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldOp {
    /// `=` or `==`.
    Equals,
    /// `!=`.
    NotEquals,
}

impl FieldSelector {
    /// Reads `spec.nodeName=a,status.phase!=Running`. A backslash escapes `,`, `=` and `\`. Empty text
    /// matches everything. Whether a kind has the fields is said by [`FieldSelector::check`].
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.len() > MAX_SELECTOR_BYTES {
            return Err(SelectorError::FieldSyntax(format!(
                "longer than {MAX_SELECTOR_BYTES} bytes"
            )));
        }
        let mut terms = Vec::new();
        for part in split_terms(text) {
            if part.is_empty() {
                continue;
            }
            let Some((field, op, value)) = split_operator(part) else {
                return Err(SelectorError::FieldSyntax(format!(
                    "'{text}'; can't understand '{part}'"
                )));
            };
            terms.push(FieldTerm {
                field: field.to_owned(),
                op,
                value: unescape(value)?,
            });
        }
        Ok(Self { terms })
    }

    /// [`FieldSelector::parse`] and [`FieldSelector::check`] in one.
    pub fn parse_for(kind: &Kind, text: &str) -> Result<Self, SelectorError> {
        let selector = Self::parse(text)?;
        selector.check(kind)?;
        Ok(selector)
    }

    /// Whether objects of this kind can be selected by every field named.
    pub fn check(&self, kind: &Kind) -> Result<(), SelectorError> {
        match self
            .terms
            .iter()
            .find(|term| !is_selectable(kind, &term.field))
        {
            Some(term) => Err(SelectorError::UnsupportedField(term.field.clone())),
            None => Ok(()),
        }
    }

    /// Whether the object satisfies every term.
    pub fn matches(&self, object: &Object) -> bool {
        self.terms.iter().all(|term| {
            let equal = field_value(object, &term.field) == term.value;
            equal == (term.op == FieldOp::Equals)
        })
    }

    /// Whether there is no term, so that everything matches.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The terms, in the order given.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// The value that the field must have, when the selector says so: what an index can use.
    pub fn required_value(&self, field: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|t| t.op == FieldOp::Equals && t.field == field)
            .map(|t| t.value.as_str())
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, term) in self.terms.iter().enumerate() {
            let comma = if position > 0 { "," } else { "" };
            let op = if term.op == FieldOp::Equals {
                "="
            } else {
                "!="
            };
            let value = term
                .value
                .replace('\\', "\\\\")
                .replace(',', "\\,")
                .replace('=', "\\=");
            write!(f, "{comma}{}{op}{value}", term.field)?;
        }
        Ok(())
    }
}

/// Fields a kind can be selected by, besides the name and the namespace. Keyed by the kind's name.
const SELECTABLE: &[(&str, &[&str])] = &[
    (
        "Pod",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
    ),
    ("Node", &["spec.unschedulable"]),
    ("Namespace", &["status.phase"]),
    ("Secret", &["type"]),
    (
        "Event",
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    ),
];

/// Fields that are booleans: absent reads as `false`.
const BOOLEAN_FIELDS: &[&str] = &["spec.unschedulable", "spec.hostNetwork"];

fn is_selectable(kind: &Kind, field: &str) -> bool {
    field == "metadata.name"
        || (kind.namespaced && field == "metadata.namespace")
        || SELECTABLE
            .iter()
            .any(|(name, fields)| *name == kind.kind && fields.contains(&field))
}

fn field_value(object: &Object, field: &str) -> String {
    let reporting = || {
        ["/reportingComponent", "/reportingController"]
            .iter()
            .map(|pointer| object.text_at(pointer))
            .find(|text| !text.is_empty())
            .unwrap_or_default()
            .to_owned()
    };
    match field {
        "source" => match object.text_at("/source/component") {
            "" => reporting(),
            component => component.to_owned(),
        },
        "reportingComponent" => reporting(),
        _ => match object.at(&format!("/{}", field.replace('.', "/"))) {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(serde_json::Value::Bool(value)) => value.to_string(),
            Some(serde_json::Value::Number(number)) => number.to_string(),
            _ if BOOLEAN_FIELDS.contains(&field) => "false".to_owned(),
            _ => String::new(),
        },
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn split_operator(term: &str) -> Option<(&str, FieldOp, &str)> {
    let mut escaped = false;
    for (at, c) in term.char_indices() {
        let rest = &term[at..];
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if let Some(value) = rest.strip_prefix("!=") {
            return Some((&term[..at], FieldOp::NotEquals, value));
        } else if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
            return Some((&term[..at], FieldOp::Equals, value));
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                Some(c) => {
                    return Err(SelectorError::FieldSyntax(format!(
                        "invalid escape sequence: \\{c}"
                    )));
                }
                None => {
                    return Err(SelectorError::FieldSyntax(
                        "invalid escape sequence: \\".to_owned(),
                    ));
                }
            },
            '=' | ',' => {
                return Err(SelectorError::FieldSyntax(format!(
                    "unescaped character in value: {c}"
                )));
            }
            c => plain.push(c),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::kind;

    fn pod() -> Object {
        Object::from_value(json!({
            "metadata": {"name": "a", "namespace": "default"},
            "spec": {"nodeName": "node,1"},
            "status": {"phase": "Running"},
        }))
        .unwrap()
    }

    #[test]
    fn fields_are_compared_as_text() {
        for (text, wanted) in [
            ("", true),
            ("metadata.name=a", true),
            ("metadata.name==a,metadata.namespace=default", true),
            ("metadata.name!=a", false),
            (r"spec.nodeName=node\,1", true),
            ("spec.nodeName=", false),
            ("status.podIP=", true),
            ("spec.hostNetwork=false", true),
            ("status.phase=Running,status.phase!=Failed", true),
        ] {
            let selector = FieldSelector::parse_for(&kind::POD, text).unwrap();
            assert_eq!(selector.matches(&pod()), wanted, "{text}");
            assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
        }
        let selector = FieldSelector::parse("metadata.name=a,spec.nodeName!=b").unwrap();
        assert_eq!(selector.required_value("metadata.name"), Some("a"));
        assert_eq!(selector.required_value("spec.nodeName"), None);
    }

    #[test]
    fn an_events_source_is_its_component_or_its_reporter() {
        let event = |tree| Object::from_value(tree).unwrap();
        let source = FieldSelector::parse_for(&kind::EVENT, "source=muster").unwrap();
        assert!(source.matches(&event(json!({"source": {"component": "muster"}}))));
        assert!(source.matches(&event(json!({"reportingComponent": "muster"}))));
        assert!(!source.matches(&event(
            json!({"source": {"component": "x"}, "reportingComponent": "muster"})
        )));
    }

    #[test]
    fn api_084_a_field_the_kind_cannot_be_selected_by_is_named() {
        let error = |kind, text| {
            FieldSelector::parse_for(kind, text)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            error(&kind::POD, "spec.foo=x"),
            "field label not supported: spec.foo"
        );
        assert_eq!(
            error(&kind::NODE, "status.phase=x"),
            "field label not supported: status.phase"
        );
        assert_eq!(
            error(&kind::NODE, "metadata.namespace=x"),
            "field label not supported: metadata.namespace"
        );
        assert_eq!(
            error(&kind::POD, "spec.foo"),
            "invalid field selector: 'spec.foo'; can't understand 'spec.foo'"
        );
        assert_eq!(
            error(&kind::POD, r"a=\x"),
            r"invalid field selector: invalid escape sequence: \x"
        );
        assert_eq!(
            error(&kind::POD, "a=b=c"),
            "invalid field selector: unescaped character in value: ="
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}", tokens in "[a,=!\\\\é]{0,40}") {
            for text in [&text, &tokens] {
                if let Ok(selector) = FieldSelector::parse(text) {
                    selector.matches(&pod());
                    prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
                }
            }
        }
    }
}
