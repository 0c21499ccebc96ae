//! `--from`: variables that refer to the keys of a ConfigMap or Secret.

use std::collections::BTreeSet;

use muster_model::kind::{self, CONFIG_MAP, Kind, SECRET};
use serde_json::{Map, Value, json};

use crate::console::Console;
use crate::failure::{Failure, Outcome};
use crate::session::Server;

/// Where the keys are.
#[derive(Debug, Clone)]
pub(super) struct Source {
    kind: &'static Kind,
    name: String,
}

impl Source {
    /// Reads `configmap/NAME` and `secret/NAME`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let found = text
            .split_once('/')
            .and_then(|(kind, name)| Some((kind::by_word(kind)?, name)));
        match found {
            Some((kind, name)) if (*kind == CONFIG_MAP || *kind == SECRET) && !name.is_empty() => {
                Ok(Self {
                    kind,
                    name: name.to_owned(),
                })
            }
            _ => Err(
                "unsupported resource specified in --from: write configmap/NAME or secret/NAME"
                    .to_owned(),
            ),
        }
    }

    /// Name and reference for each key, or for each of `wanted` when it names some, ordered by key.
    pub(super) async fn variables(
        &self,
        server: &Server,
        wanted: &[String],
        console: &mut Console,
    ) -> Outcome<Vec<(String, Map<String, Value>)>> {
        let name = server.named(self.kind, &self.name);
        let object = server.resources().get(self.kind, &name).await?;
        let mut keys = BTreeSet::new();
        for field in ["data", "binaryData"] {
            let data = object.tree().get(field).and_then(Value::as_object);
            keys.extend(data.into_iter().flat_map(Map::keys).cloned());
        }
        if let Some(key) = wanted.iter().find(|key| !keys.contains(*key)) {
            return Err(Failure::new(format!(
                "{}/{} has no key {key:?}",
                self.kind.singular, self.name
            )));
        }
        keys.retain(|key| wanted.is_empty() || wanted.contains(key));
        let mut variables = Vec::new();
        for key in keys {
            let variable = variable_name(&key);
            if variable != key {
                console.warnings(&[format!("key {key} transferred to {variable}")]);
            }
            variables.push((variable, self.reference(&key)));
        }
        Ok(variables)
    }

    fn reference(&self, key: &str) -> Map<String, Value> {
        let field = if *self.kind == SECRET {
            "secretKeyRef"
        } else {
            "configMapKeyRef"
        };
        let reference = json!({field: {"name": self.name, "key": key}});
        Map::from_iter([("valueFrom".to_owned(), reference)])
    }
}

/// `max-size` becomes `MAX_SIZE`.
fn variable_name(key: &str) -> String {
    key.chars()
        .map(|character| {
            if character.is_ascii_alphanumeric() {
                character.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_config_maps_and_secrets_are_sources() {
        assert_eq!(*Source::parse("cm/a").unwrap().kind, CONFIG_MAP);
        assert_eq!(Source::parse("secret/a").unwrap().name, "a");
        for text in ["a", "pod/a", "configmap/", "nothing/a"] {
            let fault = Source::parse(text).unwrap_err();
            assert!(fault.starts_with("unsupported resource specified in --from"));
        }
    }

    #[test]
    fn a_key_becomes_the_name_of_a_variable() {
        assert_eq!(variable_name("max-size.mb_1"), "MAX_SIZE_MB_1");
    }
}
