//! Label and field selectors: parse, match (spec/kube-api.md 8).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::k8s::apimachinery::pkg::apis::meta::v1::LabelSelector;
use crate::kind::Kind;
use crate::object::Object;

/// Longest selector text that is read; a longer one is refused before it is looked at.
const MAX_SELECTOR_BYTES: usize = 64 * 1024;

/// Why a selector can't be used. Every variant is the caller's mistake (400 BadRequest).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The text or the operator of a label requirement is not valid.
    #[error("unable to parse requirement: {0}")]
    Requirement(String),
    /// The text of a field selector is not valid.
    #[error("invalid field selector: {0}")]
    FieldSyntax(String),
    /// The kind can't be selected by this field.
    #[error("field label not supported: {0}")]
    UnsupportedField(String),
}

/// A label selector: all its requirements must hold. Without requirements it matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Test {
    Exists,
    Absent,
    Equals(String),
    NotEquals(String),
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Greater(i64),
    Less(i64),
}

impl Selector {
    /// Matches every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Reads the text form: `app=web,tier in (a,b),!x`. Empty text matches everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.len() > MAX_SELECTOR_BYTES {
            return Err(requirement(format!(
                "longer than {MAX_SELECTOR_BYTES} bytes"
            )));
        }
        let mut parser = Parser {
            tokens: tokens(text),
            at: 0,
        };
        let mut requirements = Vec::new();
        if parser.peek().is_none() {
            return Ok(Self::everything());
        }
        loop {
            requirements.push(parser.requirement()?);
            match parser.next() {
                None => break,
                Some(Token::Comma) => {}
                Some(other) => {
                    return Err(requirement(format!(
                        "found '{other}', expected: ',' or 'end of string'"
                    )));
                }
            }
        }
        Ok(Self::of(requirements))
    }

    /// The selector of an object's `matchLabels` and `matchExpressions`. An empty one matches everything;
    /// what an absent one means is the caller's to say.
    pub fn from_spec(spec: &LabelSelector) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for (key, value) in spec.match_labels.iter().flatten() {
            requirements.push(checked(key, Test::Equals(value.clone()))?);
        }
        for expression in spec.match_expressions.iter().flatten() {
            let values: BTreeSet<String> = expression.values.iter().flatten().cloned().collect();
            let test = match expression.operator.as_str() {
                "In" => Test::In(values),
                "NotIn" => Test::NotIn(values),
                "Exists" | "DoesNotExist" if !values.is_empty() => {
                    return Err(requirement(
                        "values set must be empty for exists and does not exist".to_owned(),
                    ));
                }
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::Absent,
                other => {
                    return Err(requirement(format!(
                        "{other:?} is not a valid label selector operator"
                    )));
                }
            };
            requirements.push(checked(&expression.key, test)?);
        }
        Ok(Self::of(requirements))
    }

    /// The selector that asks for exactly these labels.
    pub fn from_labels(labels: &BTreeMap<String, String>) -> Self {
        Self::of(
            labels
                .iter()
                .map(|(k, v)| Requirement {
                    key: k.clone(),
                    test: Test::Equals(v.clone()),
                })
                .collect(),
        )
    }

    /// Whether these labels satisfy every requirement.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements
            .iter()
            .all(|r| r.test.holds(labels.get(&r.key).map(String::as_str)))
    }

    /// Whether there is no requirement, so that everything matches.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    fn of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort();
        Self { requirements }
    }
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match self {
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::Equals(want) => value == Some(want),
            Self::NotEquals(unwanted) => value != Some(unwanted),
            Self::In(wanted) => value.is_some_and(|v| wanted.contains(v)),
            Self::NotIn(unwanted) => value.is_none_or(|v| !unwanted.contains(v)),
            Self::Greater(bound) => number().is_some_and(|n| n > *bound),
            Self::Less(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

/// The text form, as kubectl shows it: requirements in key order. Empty for the selector of everything.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, Requirement { key, test }) in self.requirements.iter().enumerate() {
            if position > 0 {
                f.write_str(",")?;
            }
            match test {
                Test::Exists => f.write_str(key)?,
                Test::Absent => write!(f, "!{key}")?,
                Test::Equals(value) => write!(f, "{key}={value}")?,
                Test::NotEquals(value) => write!(f, "{key}!={value}")?,
                Test::In(values) => write!(f, "{key} in ({})", joined(values))?,
                Test::NotIn(values) => write!(f, "{key} notin ({})", joined(values))?,
                Test::Greater(bound) => write!(f, "{key}>{bound}")?,
                Test::Less(bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

fn joined(values: &BTreeSet<String>) -> String {
    values
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(",")
}

fn requirement(message: String) -> SelectorError {
    SelectorError::Requirement(message)
}

fn checked(key: &str, test: Test) -> Result<Requirement, SelectorError> {
    if !is_qualified_name(key) {
        return Err(requirement(format!(
            "key: Invalid value: {key:?}: {NAME_RULE}"
        )));
    }
    let values: Vec<&String> = match &test {
        Test::Equals(value) | Test::NotEquals(value) => vec![value],
        Test::In(values) | Test::NotIn(values) => {
            if values.is_empty() {
                let detail = "for 'in', 'notin' operators, values set can't be empty";
                return Err(requirement(format!("values: Invalid value: []: {detail}")));
            }
            values.iter().collect()
        }
        _ => Vec::new(),
    };
    for value in values {
        if !value.is_empty() && !is_name_part(value) {
            return Err(requirement(format!(
                "values: Invalid value: {value:?}: {VALUE_RULE}"
            )));
        }
    }
    Ok(Requirement {
        key: key.to_owned(),
        test,
    })
}

const NAME_RULE: &str = "must be an optional DNS subdomain prefix and '/', then at most 63 letters, digits, '-', '_' or \
                         '.', starting and ending with a letter or digit";
const VALUE_RULE: &str = "must be empty or at most 63 letters, digits, '-', '_' or '.', starting and ending with a \
                          letter or digit";

fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name_part(name),
        None => is_name_part(key),
    }
}

fn is_name_part(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

fn is_subdomain(text: &str) -> bool {
    let label = |l: &str| {
        let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let bytes = l.as_bytes();
        edge(bytes.first())
            && edge(bytes.last())
            && bytes
                .iter()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

#[derive(Debug, Clone, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    Comma,
    Open,
    Close,
    Not,
    Equals,
    NotEquals,
    Greater,
    Less,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Word(word) => word,
            Self::Comma => ",",
            Self::Open => "(",
            Self::Close => ")",
            Self::Not => "!",
            Self::Equals => "=",
            Self::NotEquals => "!=",
            Self::Greater => ">",
            Self::Less => "<",
        })
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let special = |c: char| "=!(),<>".contains(c);
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            ',' => (Token::Comma, 1),
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            '>' => (Token::Greater, 1),
            '<' => (Token::Less, 1),
            '!' if rest[1..].starts_with('=') => (Token::NotEquals, 2),
            '!' => (Token::Not, 1),
            '=' if rest[1..].starts_with('=') => (Token::Equals, 2),
            '=' => (Token::Equals, 1),
            _ => {
                let end = rest
                    .find(|c: char| c.is_whitespace() || special(c))
                    .unwrap_or(rest.len());
                (Token::Word(&rest[..end]), end)
            }
        };
        found.push(token);
        rest = rest[length..].trim_start();
    }
    found
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&Token<'a>> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn unexpected(token: Option<Token<'_>>, expected: &str) -> SelectorError {
        let found = token.map(|t| t.to_string()).unwrap_or_default();
        requirement(format!("found '{found}', expected: {expected}"))
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let (negated, key) = match self.next() {
            Some(Token::Not) => match self.next() {
                Some(Token::Word(key)) => (true, key),
                other => return Err(Self::unexpected(other, "identifier")),
            },
            Some(Token::Word(key)) => (false, key),
            other => return Err(Self::unexpected(other, "!, identifier, or 'end of string'")),
        };
        if matches!(self.peek(), None | Some(Token::Comma)) {
            return checked(key, if negated { Test::Absent } else { Test::Exists });
        }
        let operator = self.next();
        if negated {
            return Err(Self::unexpected(operator, "',' or 'end of string'"));
        }
        let test = match operator {
            Some(Token::Equals) => Test::Equals(self.value().to_owned()),
            Some(Token::NotEquals) => Test::NotEquals(self.value().to_owned()),
            Some(Token::Greater) => Test::Greater(self.bound()?),
            Some(Token::Less) => Test::Less(self.bound()?),
            Some(Token::Word("in")) => Test::In(self.values()?),
            Some(Token::Word("notin")) => Test::NotIn(self.values()?),
            other => return Err(Self::unexpected(other, "in, notin, =, ==, !=, gt, lt")),
        };
        checked(key, test)
    }

    /// A value may be empty: `k=` asks for the empty label value.
    fn value(&mut self) -> &'a str {
        if let Some(Token::Word(word)) = self.peek() {
            let word = *word;
            self.at += 1;
            word
        } else {
            ""
        }
    }

    fn bound(&mut self) -> Result<i64, SelectorError> {
        let text = self.value();
        text.parse().map_err(|_| {
            requirement(format!("values[0]: Invalid value: {text:?}: for 'Gt', 'Lt' operators, the value must be an integer"))
        })
    }

    fn values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        match self.next() {
            Some(Token::Open) => {}
            other => return Err(Self::unexpected(other, "'('")),
        }
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.value().to_owned());
            match self.next() {
                Some(Token::Comma) => {}
                Some(Token::Close) => return Ok(values),
                other => return Err(Self::unexpected(other, "',' or ')'")),
            }
        }
    }
}

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
    use crate::k8s::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
    use crate::kind;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn each_operator_matches_as_kubernetes_does() {
        let web = labels(&[("app", "web"), ("n", "7"), ("e", "")]);
        for (text, wanted) in [
            ("", true),
            ("  ", true),
            ("app", true),
            ("!app", false),
            ("!gone", true),
            ("! gone", true),
            ("app=web", true),
            ("app==web", true),
            ("app = web , n", true),
            ("app!=web", false),
            ("gone!=web", true),
            ("app in (db, web)", true),
            ("app in (db)", false),
            ("gone in (db)", false),
            ("app notin (db)", true),
            ("gone notin (db)", true),
            ("app notin (web,db)", false),
            ("n>6", true),
            ("n>7", false),
            ("n<8", true),
            ("app<8", false),
            ("gone<8", false),
            ("e=", true),
            ("app=", false),
            ("e in (,a)", true),
            ("app=web,n=8", false),
            ("in in (a)", false),
            ("example.com/x!=1", true),
        ] {
            assert_eq!(
                Selector::parse(text).unwrap().matches(&web),
                wanted,
                "{text}"
            );
        }
    }

    #[test]
    fn bad_grammar_is_refused_in_words() {
        for (text, wanted) in [
            (
                "app=web,",
                "unable to parse requirement: found '', expected: !, identifier, or 'end of string'",
            ),
            (
                ",",
                "unable to parse requirement: found ',', expected: !, identifier, or 'end of string'",
            ),
            (
                "app web",
                "unable to parse requirement: found 'web', expected: in, notin, =, ==, !=, gt, lt",
            ),
            (
                "app=web tier",
                "unable to parse requirement: found 'tier', expected: ',' or 'end of string'",
            ),
            (
                "app in web",
                "unable to parse requirement: found 'web', expected: '('",
            ),
            (
                "app in (web",
                "unable to parse requirement: found '', expected: ',' or ')'",
            ),
            (
                "!app=web",
                "unable to parse requirement: found '=', expected: ',' or 'end of string'",
            ),
            (
                "n>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must \
                 be an integer",
            ),
        ] {
            assert_eq!(
                Selector::parse(text).unwrap_err().to_string(),
                wanted,
                "{text}"
            );
        }
        for text in [
            "-a=b",
            "a=b!",
            "a/b/c=d",
            "UP.case/x=1",
            "a=é",
            "a=-b",
            "x=a b",
        ] {
            let error = Selector::parse(text).unwrap_err().to_string();
            assert!(
                error.starts_with("unable to parse requirement: "),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn the_text_form_is_what_kubectl_shows() {
        let selector =
            Selector::parse("tier in (b,a), !x, y ,app==web,z!=1,n>5,m notin (q)").unwrap();
        assert_eq!(
            selector.to_string(),
            "app=web,m notin (q),n>5,tier in (a,b),!x,y,z!=1"
        );
        assert_eq!(Selector::everything().to_string(), "");
    }

    #[test]
    fn the_selector_of_an_object_joins_labels_and_expressions() {
        let expression = |operator: &str, values: &[&str]| LabelSelectorRequirement {
            key: "tier".into(),
            operator: operator.into(),
            values: Some(values.iter().map(|v| (*v).to_owned()).collect()),
        };
        let spec = |e| LabelSelector {
            match_labels: Some(labels(&[("app", "web")])),
            match_expressions: Some(vec![e]),
        };
        let selector = Selector::from_spec(&spec(expression("In", &["b", "a"]))).unwrap();
        assert_eq!(selector.to_string(), "app=web,tier in (a,b)");
        assert!(selector.matches(&labels(&[("app", "web"), ("tier", "a")])));
        assert!(!selector.matches(&labels(&[("app", "web")])));
        assert!(
            Selector::from_spec(&LabelSelector::default())
                .unwrap()
                .is_empty()
        );
        for (operator, values, wanted) in [
            (
                "In",
                &[][..],
                "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
            ),
            (
                "Exists",
                &["a"][..],
                "values set must be empty for exists and does not exist",
            ),
            (
                "Like",
                &[][..],
                "\"Like\" is not a valid label selector operator",
            ),
        ] {
            let error = Selector::from_spec(&spec(expression(operator, values))).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("unable to parse requirement: {wanted}")
            );
        }
    }

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
        fn no_text_panics(text in ".{0,60}", tokens in "[a,()=!<> \\\\é]{0,40}") {
            for text in [&text, &tokens] {
                if let Ok(selector) = Selector::parse(text) {
                    prop_assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
                }
                if let Ok(selector) = FieldSelector::parse(text) {
                    selector.matches(&pod());
                }
            }
        }
    }
}
