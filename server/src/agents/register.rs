//! Registration: making a Node, or adopting the one there is (spec/node-agent.md 2).

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_model::kind::NODE;
use muster_model::object::{NamespacedName, Object};
use muster_model::reason::annotation::AGENT_LABELS;
use muster_model::reason::label;
use muster_proto::v1::RegisterRequest;
use serde_json::{Value, json};

use crate::admit::{self, FieldValidation};
use crate::auth::Caller;
use crate::cache::Stored;
use crate::registry::{Precondition, Registry, Write, WriteOptions};
use crate::status::ApiError;

/// Corrected at every registration.
const DEFAULT_LABELS: [&str; 5] = [
    label::HOSTNAME,
    label::OS,
    label::ARCH,
    label::BETA_OS,
    label::BETA_ARCH,
];

/// Makes or adopts the node's object; whether it was made.
pub(crate) async fn register(
    registry: &Registry,
    caller: &Caller,
    node: &str,
    request: &RegisterRequest,
) -> Result<(Arc<Stored>, bool), ApiError> {
    let (mut wanted, _) = admit::decode(&NODE, &request.node, FieldValidation::Ignore)?;
    if wanted.name() != node {
        return Err(ApiError::forbidden(
            &NODE,
            wanted.name(),
            format!("node \"{node}\" may register only itself"),
        ));
    }
    note_identity(&mut wanted, request);
    let key = NamespacedName::new("", node);
    if registry.cache().get(&NODE, &key).is_none() {
        let mut fresh = wanted.clone();
        for field in ["resourceVersion", "uid"] {
            fresh.metadata_mut().remove(field);
        }
        match registry
            .create(caller, &NODE, fresh, &WriteOptions::default())
            .await
        {
            Ok(written) => return Ok((written.stored, true)),
            Err(error) if error.is_already_exists() => {}
            Err(error) => return Err(error),
        }
    }
    let status = wanted.at("/status").cloned().unwrap_or_else(|| json!({}));
    let adopted = move |stored: &mut Object| {
        adopt(stored, &wanted);
        Ok(())
    };
    let reported = super::set_node_status(status, registry.now());
    let writes = vec![
        Write::edit(&NODE, key.clone(), Precondition::default(), adopted),
        Write::edit_status(&NODE, key, Precondition::default(), reported),
    ];
    let mut newest = None;
    for answer in registry.commit(caller, writes).await {
        newest = Some(answer?);
    }
    newest
        .map(|stored| (stored, false))
        .ok_or_else(|| ApiError::internal("a registration wrote nothing"))
}

/// The machine and boot that the agent names, where its status does not say them itself.
fn note_identity(node: &mut Object, request: &RegisterRequest) {
    let status = node.tree_mut().entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else {
        return;
    };
    let info = status.entry("nodeInfo").or_insert_with(|| json!({}));
    let Some(info) = info.as_object_mut() else {
        return;
    };
    for (field, value) in [
        ("machineID", &request.machine_id),
        ("bootID", &request.boot_id),
    ] {
        let missing = info
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .is_empty();
        if missing && !value.is_empty() {
            info.insert(field.to_owned(), value.clone().into());
        }
    }
}

/// Default labels are set or corrected, labels of the agent's command line follow it; the rest is not the
/// agent's to change.
fn adopt(stored: &mut Object, wanted: &Object) {
    let keys = |object: &Object| -> BTreeSet<String> {
        let list = object.annotation(AGENT_LABELS).unwrap_or_default();
        list.split(',')
            .map(str::trim)
            .filter(|key| !key.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let (before, now) = (keys(stored), keys(wanted));
    if let Some(labels) = stored
        .metadata_mut()
        .get_mut("labels")
        .and_then(Value::as_object_mut)
    {
        for dropped in before.difference(&now) {
            labels.remove(dropped);
        }
    }
    for key in DEFAULT_LABELS
        .into_iter()
        .chain(now.iter().map(String::as_str))
    {
        if let Some(value) = wanted.label(key) {
            stored.set_label(key, value);
        }
    }
    if now.is_empty() {
        if stored.annotation(AGENT_LABELS).is_some() {
            stored.remove_annotation(AGENT_LABELS);
        }
    } else {
        let list: Vec<&str> = now.iter().map(String::as_str).collect();
        stored.set_annotation(AGENT_LABELS, &list.join(","));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: Value, agent_labels: &str) -> Object {
        let mut object = Object::from_value(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels},
        }))
        .unwrap();
        if !agent_labels.is_empty() {
            object.set_annotation(AGENT_LABELS, agent_labels);
        }
        object
    }

    #[test]
    fn na_003_a_users_label_is_kept_and_a_missing_default_is_added() {
        let mut stored = node(json!({"a": "b", "kubernetes.io/arch": "wrong"}), "");
        adopt(
            &mut stored,
            &node(
                json!({"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"}),
                "",
            ),
        );
        let labels = stored.labels();
        assert_eq!(labels["a"], "b");
        assert_eq!(labels["kubernetes.io/os"], "linux");
        assert_eq!(labels["kubernetes.io/arch"], "arm64");
    }

    #[test]
    fn a_label_dropped_from_the_command_line_goes() {
        let mut stored = node(
            json!({"disk": "ssd", "zone": "a", "mine": "x"}),
            "disk,zone",
        );
        adopt(&mut stored, &node(json!({"zone": "b"}), "zone"));
        let labels = stored.labels();
        assert_eq!(labels.get("disk"), None);
        assert_eq!(labels["zone"], "b");
        assert_eq!(labels["mine"], "x");
        assert_eq!(stored.annotation(AGENT_LABELS), Some("zone"));
    }
}
