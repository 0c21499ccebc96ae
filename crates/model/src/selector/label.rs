//! Label selectors: requirements on an object's labels.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{MAX_SELECTOR_BYTES, SelectorError};
use crate::k8s::apimachinery::pkg::apis::meta::v1::LabelSelector;
use crate::names;
use crate::object::Object;

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

    /// Whether the labels of this object satisfy every requirement. Nothing is copied.
    pub fn matches_object(&self, object: &Object) -> bool {
        self.requirements
            .iter()
            .all(|r| r.test.holds(object.label(&r.key)))
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
    let refuse = |field: &str, value: &str, faults: Vec<String>| {
        requirement(format!(
            "{field}: Invalid value: {value:?}: {}",
            faults.join("; ")
        ))
    };
    let faults = names::check_qualified_name(key);
    if !faults.is_empty() {
        return Err(refuse("key", key, faults));
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
        let faults = names::check_label_value(value);
        if !faults.is_empty() {
            return Err(refuse("values", value, faults));
        }
    }
    Ok(Requirement {
        key: key.to_owned(),
        test,
    })
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::k8s::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn each_operator_matches_as_kubernetes_does() {
        let web = labels(&[("app", "web"), ("n", "7"), ("e", "")]);
        let object = Object::from_value(serde_json::json!({"metadata": {"labels": web}})).unwrap();
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
            let selector = Selector::parse(text).unwrap();
            assert_eq!(selector.matches(&web), wanted, "{text}");
            assert_eq!(selector.matches_object(&object), wanted, "{text}");
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

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}", tokens in "[a,()=!<> \\\\é]{0,40}") {
            for text in [&text, &tokens] {
                if let Ok(selector) = Selector::parse(text) {
                    prop_assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
                }
            }
        }
    }
}
