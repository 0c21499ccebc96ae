//! The pod that is made from a template for a node (spec/daemonset.md 10.4).

use muster_model::kind;
use muster_model::names;
use muster_model::object::{Object, OwnerReference};
use muster_model::pre_pull::{MOST_IMAGES, Request};
use muster_model::reason::{annotation, label};
use serde_json::{Map, Value, json};

use crate::control::OnFailure;
use crate::facts::{DaemonFacts, NodeName};
use crate::plan::From;

/// The reference that makes a DaemonSet the controller of what it makes.
pub fn owner_reference(daemon: &DaemonFacts) -> OwnerReference {
    OwnerReference {
        api_version: kind::DAEMON_SET.api_version(),
        kind: kind::DAEMON_SET.kind.to_owned(),
        name: daemon.id.name.clone(),
        uid: daemon.uid.clone(),
        controller: true,
        block_owner_deletion: true,
    }
}

/// What the server makes a pod's name from: the DaemonSet's name and a dash, or the name alone where that is no
/// prefix of a valid name.
pub fn name_prefix(daemon_name: &str) -> String {
    let prefix = format!("{daemon_name}-");
    if names::check_prefix(&prefix, names::check_subdomain).is_empty() {
        prefix
    } else {
        daemon_name.to_owned()
    }
}

/// The pod of `daemon` for `node`. It has a `generateName`; the server gives the name. Without a revision to fall back
/// to, [`From::Stable`] is the current one.
pub fn pod_for(daemon: &DaemonFacts, node: &NodeName, from: From) -> Object {
    let stable = daemon.course.stable.as_ref();
    let stable = stable.filter(|_| from == From::Stable);
    let (template, hash, tolerations) = match stable {
        Some(stable) => (&*stable.template, &stable.hash, &stable.wants.tolerations),
        None => {
            let rules = &daemon.rules;
            (
                &daemon.template,
                &rules.target.hash,
                &rules.wants.tolerations,
            )
        }
    };
    let mut metadata = Map::new();
    metadata.insert(
        "generateName".to_owned(),
        name_prefix(&daemon.id.name).into(),
    );
    metadata.insert("namespace".to_owned(), daemon.id.namespace.clone().into());
    let from_template = |field: &str| template.pointer(&format!("/metadata/{field}")).cloned();
    let mut annotations = from_template("annotations")
        .and_then(|all| all.as_object().cloned())
        .unwrap_or_default();
    // Only where a revision may fail does it matter in which try of it a pod was made.
    if stable.is_none() && daemon.control.on_failure != OnFailure::Off {
        let attempt = daemon.rules.target.attempt.to_string();
        annotations.insert(annotation::TRY.to_owned(), attempt.into());
    }
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), annotations.into());
    }
    if let Some(finalizers) = from_template("finalizers") {
        metadata.insert("finalizers".to_owned(), finalizers);
    }
    let mut labels = from_template("labels")
        .and_then(|l| l.as_object().cloned())
        .unwrap_or_default();
    labels.insert(
        label::CONTROLLER_REVISION_HASH.to_owned(),
        hash.clone().into(),
    );
    // The template generation is the present template's: on a pod of another it would make it count as updated.
    if let (Some(generation), None) = (&daemon.rules.template_generation, stable) {
        labels.insert(
            label::POD_TEMPLATE_GENERATION.to_owned(),
            generation.clone().into(),
        );
    }
    metadata.insert("labels".to_owned(), labels.into());
    metadata.insert(
        "ownerReferences".to_owned(),
        json!([owner_reference(daemon)]),
    );
    let mut spec = template
        .get("spec")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    spec.insert("nodeName".to_owned(), node.as_str().into());
    spec.insert("tolerations".to_owned(), json!(tolerations));
    pin_to(&mut spec, node);
    let tree = json!({"metadata": metadata, "spec": spec});
    let mut pod = Object::from_value(tree).expect("json! with braces makes a mapping");
    pod.set_kind(&kind::POD);
    pod
}

/// The request for the images of `daemon`'s current revision, to be put on an old pod.
pub fn pull_request(daemon: &DaemonFacts) -> Request {
    let containers = ["initContainers", "containers"]
        .iter()
        .filter_map(|field| {
            daemon
                .template
                .pointer(&format!("/spec/{field}"))?
                .as_array()
        })
        .flatten();
    let text = |container: &Value, field: &str| {
        container
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let mut images: Vec<(String, String)> = containers
        .map(|container| (text(container, "image"), text(container, "imagePullPolicy")))
        .collect();
    images.sort();
    images.dedup();
    images.truncate(MOST_IMAGES);
    Request {
        revision: daemon.rules.target.pulled_for(),
        images,
    }
}

/// Replaces required node affinity by the one term that names the node; the user's own required terms have been
/// checked already. Preferred terms and pod affinity stay.
fn pin_to(spec: &mut Map<String, Value>, node: &NodeName) {
    let affinity = mapping(spec, "affinity");
    let node_affinity = mapping(affinity, "nodeAffinity");
    node_affinity.insert(
        "requiredDuringSchedulingIgnoredDuringExecution".to_owned(),
        json!({"nodeSelectorTerms": [{
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.as_str()]}],
        }]}),
    );
}

fn mapping<'a>(parent: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    let value = parent
        .entry(field)
        .or_insert_with(|| Value::Object(Map::new()));
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("made a mapping just above")
}
