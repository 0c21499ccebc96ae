//! The variables of one container: reading the changes, making them, showing the outcome.

use serde_json::{Map, Value, json};

use crate::failure::{Failure, Outcome};

/// What is done to one variable.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change {
    /// It becomes this: `{"value": ...}` or `{"valueFrom": ...}`.
    Set(Map<String, Value>),
    /// It goes.
    Remove,
}

impl Change {
    /// Whether a word of the command line is one.
    pub(super) fn is_one(word: &str) -> bool {
        word.contains('=') || (word.len() > 1 && word.ends_with('-'))
    }
}

/// The changes in the order they were given.
#[derive(Debug, Default)]
pub(super) struct Changes(Vec<(String, Change)>);

impl Changes {
    /// Reads `KEY=VALUE` and `KEY-`.
    pub(super) fn parse(words: &[String]) -> Outcome<Self> {
        let mut changes = Self::default();
        for word in words {
            match (word.split_once('='), word.strip_suffix('-')) {
                (Some((key, value)), _) => {
                    let value = Map::from_iter([("value".to_owned(), value.into())]);
                    changes.set(key, value)?;
                }
                (None, key) => changes.add(key.unwrap_or(word), Change::Remove)?,
            }
        }
        Ok(changes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One more variable to set.
    pub(super) fn set(&mut self, key: &str, value: Map<String, Value>) -> Outcome {
        self.add(key, Change::Set(value))
    }

    fn add(&mut self, key: &str, change: Change) -> Outcome {
        if key.is_empty() {
            return Err(Failure::new(
                "a change names no variable: write KEY=VALUE or KEY-",
            ));
        }
        if let Some((_, other)) = self.0.iter().find(|(name, _)| name == key) {
            let is_same_sort = (*other == Change::Remove) == (change == Change::Remove);
            return Err(Failure::new(if is_same_sort {
                format!("{key:?} is given twice")
            } else {
                "can not both modify and remove the same environment variable in the same command"
                    .to_owned()
            }));
        }
        self.0.push((key.to_owned(), change));
        Ok(())
    }

    /// Makes the changes in a container. New variables go behind the others: they may refer to them.
    pub(super) fn apply(
        &self,
        container: &mut Map<String, Value>,
        overwrite: bool,
    ) -> Result<(), String> {
        let mut variables = match container.remove("env") {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        };
        for (key, change) in &self.0 {
            let place = variables
                .iter()
                .position(|variable| variable["name"] == key.as_str());
            match (change, place) {
                (Change::Set(_), Some(place)) if !overwrite => {
                    let value = variables[place]["value"].as_str().unwrap_or_default();
                    return Err(format!(
                        "'{key}' already has a value ({value}), and --overwrite is false"
                    ));
                }
                (Change::Set(value), place) => {
                    let mut variable = Map::from_iter([("name".to_owned(), json!(key))]);
                    variable.extend(value.clone());
                    match place {
                        Some(place) => variables[place] = Value::Object(variable),
                        None => variables.push(Value::Object(variable)),
                    }
                }
                (Change::Remove, _) => {
                    variables.retain(|variable| variable["name"] != key.as_str());
                }
            }
        }
        if !variables.is_empty() {
            container.insert("env".to_owned(), Value::Array(variables));
        }
        Ok(())
    }
}

/// The variables of a container as `--list` shows them.
pub(super) fn lines(container: &Map<String, Value>) -> Vec<String> {
    let variables = container.get("env").and_then(Value::as_array);
    variables.into_iter().flatten().map(line).collect()
}

fn line(variable: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (name, from) = (text(&variable["name"]), &variable["valueFrom"]);
    let key_of = |kind: &str, source: &Value| {
        format!(
            "{kind} {}, key {}",
            text(&source["name"]),
            text(&source["key"])
        )
    };
    let Some((sort, source)) = from.as_object().and_then(|sources| sources.iter().next()) else {
        return format!("{name}={}", text(&variable["value"]));
    };
    let origin = match sort.as_str() {
        "configMapKeyRef" => key_of("configmap", source),
        "secretKeyRef" => key_of("secret", source),
        "fieldRef" => format!("field path {}", text(&source["fieldPath"])),
        "resourceFieldRef" => {
            let container = text(&source["containerName"]);
            let slash = if container.is_empty() { "" } else { "/" };
            format!(
                "resource field {container}{slash}{}",
                text(&source["resource"])
            )
        }
        other => other.to_owned(),
    };
    format!("# {name} from {origin}")
}

/// Whether a container's name is meant by a pattern in which `*` stands for any text.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(text: &str) -> Outcome<Changes> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Changes::parse(&words)
    }

    fn container() -> Map<String, Value> {
        let value = json!({"name": "web", "env": [
            {"name": "A", "value": "1"},
            {"name": "P", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ]});
        value.as_object().unwrap().clone()
    }

    #[test]
    fn variables_are_set_in_their_place_added_behind_and_removed() {
        let mut changed = container();
        let asked = changes("B=2 A- P=3 X= Z-").unwrap();
        asked.apply(&mut changed, true).unwrap();
        assert_eq!(
            changed["env"],
            json!([{"name": "P", "value": "3"}, {"name": "B", "value": "2"}, {"name": "X", "value": ""}])
        );
        changes("B- P- X-")
            .unwrap()
            .apply(&mut changed, true)
            .unwrap();
        assert!(!changed.contains_key("env"));
    }

    #[test]
    fn a_value_that_is_there_stays_without_overwrite() {
        for (text, fault) in [
            (
                "A=9",
                "'A' already has a value (1), and --overwrite is false",
            ),
            (
                "P=9",
                "'P' already has a value (), and --overwrite is false",
            ),
        ] {
            let asked = changes(text).unwrap();
            assert_eq!(asked.apply(&mut container(), false).unwrap_err(), fault);
        }
        changes("B=2 A-")
            .unwrap()
            .apply(&mut container(), false)
            .unwrap();
    }

    #[test]
    fn changes_that_contradict_each_other_are_refused() {
        for (text, part) in [
            ("B=1 B-", "can not both modify and remove the same"),
            ("B=1 B=2", "\"B\" is given twice"),
            ("=1", "names no variable"),
        ] {
            let failure = changes(text).unwrap_err();
            assert!(failure.text.contains(part), "{text}: {}", failure.text);
        }
    }

    #[test]
    fn variables_are_listed_as_kubectl_lists_them() {
        let value = json!({"env": [
            {"name": "A", "value": "1"},
            {"name": "E"},
            {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "a.b"}}},
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "db", "key": "pw"}}},
            {"name": "P", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "M", "valueFrom": {"resourceFieldRef": {"containerName": "web", "resource": "limits.memory"}}},
        ]});
        assert_eq!(
            lines(value.as_object().unwrap()),
            [
                "A=1",
                "E=",
                "# K from configmap cm, key a.b",
                "# S from secret db, key pw",
                "# P from field path status.podIP",
                "# M from resource field web/limits.memory",
            ]
        );
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, expected) in [
            ("*", "web", true),
            ("web", "web", true),
            ("web", "web2", false),
            ("w*", "web", true),
            ("*b", "web", true),
            ("w*e*b", "web", true),
            ("w*x*b", "web", false),
            ("web*b", "web", false),
            ("", "web", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
