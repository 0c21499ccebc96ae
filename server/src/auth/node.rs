//! What a node's agent may touch: its own Node and Lease, the pods bound to it, what those pods name, and
//! events about any of these. Nothing else, so that one stolen node is one stolen node.

use muster_model::kind::{CONFIG_MAP, EVENT, Kind, LEASE, NODE, POD, SECRET, SERVICE_ACCOUNT};
use muster_model::object::{NamespacedName, Object};

use super::authorize::{Ask, Verb};
use super::caller::Caller;
use super::pod_references;
use crate::cache::Cache;
use crate::registry::lease::NODE_LEASES;
use crate::status::ApiError;

/// Labels that only an administrator sets (spec/node-agent.md 2).
const RESTRICTED_LABELS: &str = "node-restriction.kubernetes.io/";
/// Marks the server's copy of a pod that an agent runs from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether the node of this name may ask this.
pub(super) fn may(node: &str, ask: &Ask<'_>, cache: &Cache) -> bool {
    match ask.kind {
        k if *k == NODE => {
            let verb = matches!(
                ask.verb,
                Verb::Get | Verb::List | Verb::Watch | Verb::Create | Verb::Update | Verb::Patch
            );
            let part = matches!(ask.subresource, "" | "status");
            // A create is judged by the object's name, in `admit_create`.
            verb && part && (ask.name == node || (ask.verb == Verb::Create && ask.name.is_empty()))
        }
        k if *k == POD => match (ask.verb, ask.subresource) {
            (Verb::List | Verb::Watch, "") => ask.node == node,
            (Verb::Get | Verb::Delete, "") | (Verb::Get | Verb::Update | Verb::Patch, "status") => {
                is_bound(node, ask.namespace, ask.name, cache)
            }
            (Verb::Create, "") => true,
            _ => false,
        },
        k if [&CONFIG_MAP, &SECRET, &SERVICE_ACCOUNT].contains(&k) => {
            ask.verb.is_read()
                && !ask.name.is_empty()
                && cache.pods_on_node(node).iter().any(|pod| {
                    pod.namespace() == ask.namespace
                        && pod_references::names(pod.object(), ask.kind, ask.name)
                })
        }
        k if *k == LEASE => {
            let create = ask.verb == Verb::Create && ask.name.is_empty();
            ask.namespace == NODE_LEASES
                && (ask.name == node || create)
                && ask.verb != Verb::DeleteCollection
        }
        k if *k == EVENT => matches!(ask.verb, Verb::Create | Verb::Update | Verb::Patch),
        _ => false,
    }
}

fn is_bound(node: &str, namespace: &str, name: &str, cache: &Cache) -> bool {
    cache
        .get(&POD, &NamespacedName::new(namespace, name))
        .is_some_and(|pod| pod.object().text_at("/spec/nodeName") == node)
}

/// What a node may create, judged by content.
pub(crate) fn admit_create(
    caller: &Caller,
    kind: &'static Kind,
    object: &Object,
    cache: &Cache,
) -> Result<(), ApiError> {
    let Some(node) = caller.node_name() else {
        return Ok(());
    };
    let refuse = |why: String| Err(ApiError::forbidden(kind, object.name(), why));
    match kind {
        k if *k == NODE && object.name() != node => {
            refuse(format!("node \"{node}\" may create only its own Node"))
        }
        k if *k == NODE => check_labels(kind, object, None),
        k if *k == LEASE && object.name() != node => {
            refuse(format!("node \"{node}\" may create only its own Lease"))
        }
        k if *k == POD
            && (object.annotation(MIRROR).is_none()
                || object.text_at("/spec/nodeName") != node) =>
        {
            refuse(format!(
                "node \"{node}\" may create only mirror pods of its own"
            ))
        }
        k if *k == EVENT => check_event(node, object, cache),
        _ => Ok(()),
    }
}

/// What a node may change, judged by content.
pub(crate) fn admit_update(
    caller: &Caller,
    kind: &'static Kind,
    new: &Object,
    old: &Object,
    cache: &Cache,
) -> Result<(), ApiError> {
    let Some(node) = caller.node_name() else {
        return Ok(());
    };
    if *kind == EVENT {
        // The old one too: nobody's event is turned into one's own.
        check_event(node, old, cache)?;
        return check_event(node, new, cache);
    }
    if *kind != NODE {
        return Ok(());
    }
    check_labels(kind, new, Some(old))?;
    if new.at("/spec/taints") != old.at("/spec/taints") {
        return Err(ApiError::forbidden(
            kind,
            new.name(),
            format!("node \"{node}\" is not allowed to modify taints"),
        ));
    }
    if new.at("/metadata/ownerReferences") != old.at("/metadata/ownerReferences") {
        let why = format!("node \"{node}\" is not allowed to modify owner references");
        return Err(ApiError::forbidden(kind, new.name(), why));
    }
    Ok(())
}

fn check_labels(kind: &'static Kind, new: &Object, old: Option<&Object>) -> Result<(), ApiError> {
    let restricted = |object: &Object| {
        let mut labels = object.labels();
        labels.retain(|key, _| {
            key.split('/').next().is_some_and(|prefix| {
                let wanted = RESTRICTED_LABELS.trim_end_matches('/');
                key.contains('/') && (prefix == wanted || prefix.ends_with(&format!(".{wanted}")))
            })
        });
        labels
    };
    let before = old.map(restricted).unwrap_or_default();
    let after = restricted(new);
    let changed = after
        .iter()
        .find(|(key, value)| before.get(*key) != Some(value))
        .map(|(key, _)| key);
    let removed = before.keys().find(|key| !after.contains_key(*key));
    match changed.or(removed) {
        None => Ok(()),
        Some(key) => Err(ApiError::forbidden(
            kind,
            new.name(),
            format!(
                "a node is not allowed to set its own label {key}: only an administrator sets labels of {RESTRICTED_LABELS}"
            ),
        )),
    }
}

pub(crate) fn check_event(node: &str, event: &Object, cache: &Cache) -> Result<(), ApiError> {
    let text = |field: &str| {
        event
            .text_at(&format!("/involvedObject/{field}"))
            .to_owned()
    };
    let own = match text("kind").as_str() {
        "Node" => text("name") == node,
        // The pod may be gone by the time its last events arrive.
        "Pod" => cache
            .get(&POD, &NamespacedName::new(text("namespace"), text("name")))
            .is_none_or(|pod| pod.object().text_at("/spec/nodeName") == node),
        _ => false,
    };
    if own {
        Ok(())
    } else {
        let why = format!("node \"{node}\" may write events about itself and its own pods only");
        Err(ApiError::forbidden(&EVENT, event.name(), why))
    }
}
