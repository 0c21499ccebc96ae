//! The environment of a container (spec/node-agent.md 12).

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use muster_model::k8s::api::core::v1::{Container, EnvVarSource};
use muster_model::object::Object;

use crate::downward;
use crate::facts::PodFacts;
use crate::objects::{Lookup, Needed, ObjectSet};

/// A worked-out environment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environment {
    /// Name and value, in order; each name once.
    pub variables: Vec<(String, String)>,
    /// Messages of `InvalidEnvironmentVariableNames`: keys that are no names were left out.
    pub skipped: Vec<String>,
}

/// Replaces `$(NAME)` by variables at hand; unknown ones stay, `$$` gives `$`. One pass.
pub fn expand(text: &str, variables: &[(String, String)]) -> String {
    let lookup = |name: &str| {
        variables
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    };
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after
            .strip_prefix('(')
            .and_then(|inner| inner.split_once(')'))
        {
            match lookup(name) {
                Some(value) => out.push_str(value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// Works out the variables of a container. Later ones win; `$(NAME)` sees what was defined earlier.
///
/// # Errors
/// The message of `CreateContainerConfigError`.
pub fn build(
    pod: &PodFacts,
    container: &Container,
    pod_ip: &str,
    objects: &ObjectSet,
) -> Result<Environment, String> {
    let mut env = Environment::default();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let (needed, optional, kind) = if let Some(map) = &source.config_map_ref {
            (
                Needed::config_map(&map.name),
                map.optional == Some(true),
                "configMap",
            )
        } else if let Some(secret) = &source.secret_ref {
            (
                Needed::secret(&secret.name),
                secret.optional == Some(true),
                "secret",
            )
        } else {
            continue;
        };
        let Some(object) = find(objects, &needed, optional)? else {
            continue;
        };
        let mut skipped = Vec::new();
        for (key, value) in data(&object) {
            let name = format!("{prefix}{key}");
            if is_name(&name) {
                set(
                    &mut env.variables,
                    name,
                    String::from_utf8_lossy(&value).into_owned(),
                );
            } else {
                skipped.push(key);
            }
        }
        if !skipped.is_empty() {
            env.skipped.push(format!(
                "Keys [{}] from the EnvFrom {kind} {}/{} were skipped since they are considered invalid environment \
                 variable names.",
                skipped.join(" "),
                pod.namespace,
                needed.name
            ));
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            None => Some(expand(
                variable.value.as_deref().unwrap_or_default(),
                &env.variables,
            )),
            Some(source) => value_from(pod, container, pod_ip, objects, source)?,
        };
        if let Some(value) = value {
            set(&mut env.variables, variable.name.clone(), value);
        }
    }
    Ok(env)
}

fn set(variables: &mut Vec<(String, String)>, name: String, value: String) {
    match variables.iter_mut().find(|(known, _)| *known == name) {
        Some(entry) => entry.1 = value,
        None => variables.push((name, value)),
    }
}

/// Printable ASCII without `=`.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
}

fn value_from(
    pod: &PodFacts,
    container: &Container,
    pod_ip: &str,
    objects: &ObjectSet,
    source: &EnvVarSource,
) -> Result<Option<String>, String> {
    if let Some(field) = &source.field_ref {
        return downward::field(pod, &field.field_path, pod_ip).map(Some);
    }
    if let Some(field) = &source.resource_field_ref {
        return downward::resource(pod, Some(container), field).map(Some);
    }
    if let Some(reference) = &source.config_map_key_ref {
        let needed = Needed::config_map(&reference.name);
        return keyed(
            pod,
            objects,
            &needed,
            "ConfigMap",
            &reference.key,
            reference.optional == Some(true),
        );
    }
    if let Some(reference) = &source.secret_key_ref {
        let needed = Needed::secret(&reference.name);
        return keyed(
            pod,
            objects,
            &needed,
            "Secret",
            &reference.key,
            reference.optional == Some(true),
        );
    }
    Err("this kind of valueFrom is not supported by this node agent".to_owned())
}

fn keyed(
    pod: &PodFacts,
    objects: &ObjectSet,
    needed: &Needed,
    kind: &str,
    key: &str,
    optional: bool,
) -> Result<Option<String>, String> {
    let Some(object) = find(objects, needed, optional)? else {
        return Ok(None);
    };
    match data(&object).into_iter().find(|(known, _)| known == key) {
        Some((_, value)) => Ok(Some(String::from_utf8_lossy(&value).into_owned())),
        None if optional => Ok(None),
        None => Err(format!(
            "couldn't find key {key} in {kind} {}/{}",
            pod.namespace, needed.name
        )),
    }
}

fn find(
    objects: &ObjectSet,
    needed: &Needed,
    optional: bool,
) -> Result<Option<std::sync::Arc<Object>>, String> {
    match objects.lookup(needed) {
        Lookup::Found(object) => Ok(Some(object)),
        Lookup::Missing if optional => Ok(None),
        Lookup::Missing => Err(needed.not_found()),
        Lookup::Unreachable(message) => Err(message),
    }
}

/// Everything in `data` and `binaryData` of a ConfigMap or Secret, sorted by key.
pub fn data(object: &Object) -> Vec<(String, Vec<u8>)> {
    let is_secret = object.kind_name() == "Secret";
    let mut entries: Vec<(String, Vec<u8>)> = Vec::new();
    for field in ["/data", "/binaryData"] {
        let Some(map) = object.at(field).and_then(serde_json::Value::as_object) else {
            continue;
        };
        for (key, value) in map {
            let Some(text) = value.as_str() else { continue };
            let encoded = is_secret || field == "/binaryData";
            let bytes = if encoded {
                STANDARD.decode(text).unwrap_or_default()
            } else {
                text.as_bytes().to_vec()
            };
            entries.push((key.clone(), bytes));
        }
    }
    entries.sort();
    entries
}

/// Which objects the environment of these containers reads.
pub fn needed(containers: &[Container]) -> BTreeSet<Needed> {
    let mut needed = BTreeSet::new();
    for container in containers {
        for source in container.env_from.iter().flatten() {
            needed.extend(
                source
                    .config_map_ref
                    .as_ref()
                    .map(|r| Needed::config_map(&r.name)),
            );
            needed.extend(source.secret_ref.as_ref().map(|r| Needed::secret(&r.name)));
        }
        for source in container
            .env
            .iter()
            .flatten()
            .filter_map(|variable| variable.value_from.as_ref())
        {
            needed.extend(
                source
                    .config_map_key_ref
                    .as_ref()
                    .map(|r| Needed::config_map(&r.name)),
            );
            needed.extend(
                source
                    .secret_key_ref
                    .as_ref()
                    .map(|r| Needed::secret(&r.name)),
            );
        }
    }
    needed
}

#[cfg(test)]
#[path = "env_tests.rs"]
mod tests;
