//! Defaults of Namespaces (spec/kube-api.md 9).

use serde_json::json;

use super::{default_text, default_value, mapping_or_new};
use crate::object::Object;
use crate::reason::{finalizer, label};

pub(super) fn apply(object: &mut Object) {
    let name = object.name().to_owned();
    let terminating = object.is_terminating();
    let tree = object.tree_mut();
    if !name.is_empty()
        && let Some(labels) =
            mapping_or_new(tree, "metadata").and_then(|m| mapping_or_new(m, "labels"))
    {
        labels.insert(label::NAMESPACE_NAME.to_owned(), name.into());
    }
    // While it goes away, the finalizer must stay gone once it was taken off.
    if !terminating && let Some(spec) = mapping_or_new(tree, "spec") {
        default_value(spec, "finalizers", json!([finalizer::KUBERNETES]));
    }
    if let Some(status) = mapping_or_new(tree, "status") {
        default_text(
            status,
            "phase",
            if terminating { "Terminating" } else { "Active" },
        );
    }
}
