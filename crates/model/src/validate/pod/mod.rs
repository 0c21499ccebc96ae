//! Pods and pod templates.

mod container;
mod env;
mod network;
mod probe;
mod resources;
mod scheduling;
mod security;
mod update;
mod volume;

use super::metadata;
use super::view::{Faults, View};
use crate::names;

pub(super) use update::{check_status, check_update};

/// What the rules of one part of a pod need to know of the rest.
struct Context<'a> {
    /// A real pod, not a template.
    is_pod: bool,
    spec: &'a View<'a>,
    /// Names of the well-formed volumes.
    volumes: Vec<&'a str>,
}

/// A real pod; its metadata is judged by the caller.
pub(super) fn check(root: &View, faults: &mut Faults) {
    check_spec(&root.child("spec"), true, faults);
}

/// A pod template.
pub(super) fn check_template(template: &View, faults: &mut Faults) {
    let metadata = template.child("metadata");
    metadata::check_labels(&metadata.child("labels"), faults);
    metadata::check_annotations(&metadata.child("annotations"), faults);
    metadata::check_finalizers(&metadata.child("finalizers"), faults);
    let spec = template.child("spec");
    check_spec(&spec, false, faults);
    let ephemeral = spec.child("ephemeralContainers");
    if !ephemeral.is_empty() {
        faults.push(ephemeral.forbidden("ephemeral containers not allowed in pod template"));
    }
}

fn check_spec(spec: &View, is_pod: bool, faults: &mut Faults) {
    let volumes = volume::check(&spec.child("volumes"), faults);
    let context = Context {
        is_pod,
        spec,
        volumes,
    };
    container::check_all(&context, faults);
    spec.child("restartPolicy")
        .check_one_of(&["Always", "OnFailure", "Never"], faults);
    spec.child("dnsPolicy").check_one_of(
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        faults,
    );
    metadata::check_labels(&spec.child("nodeSelector"), faults);
    security::check_pod(spec, faults);
    for secret in spec.child("imagePullSecrets").items() {
        secret.child("name").require(faults);
    }
    scheduling::check_affinity(&spec.child("affinity"), faults);
    network::check_dns(spec, faults);
    for gate in spec.child("readinessGates").items() {
        super::selector::check_key(&gate.child("conditionType"), faults);
    }
    spec.down(&["os", "name"])
        .check_one_of(&["linux", "windows"], faults);
    spec.child("serviceAccountName")
        .check_text(names::check_subdomain, faults);
    spec.child("nodeName")
        .check_text(names::check_subdomain, faults);
    spec.child("activeDeadlineSeconds")
        .check_range(1, i64::from(i32::MAX), faults);
    spec.child("terminationGracePeriodSeconds")
        .check_not_negative(faults);
    spec.child("hostname")
        .check_text(names::check_label, faults);
    spec.child("subdomain")
        .check_text(names::check_label, faults);
    scheduling::check_tolerations(&spec.child("tolerations"), faults);
    network::check_host_aliases(&spec.child("hostAliases"), faults);
    spec.child("priorityClassName")
        .check_text(names::check_subdomain, faults);
    spec.child("runtimeClassName")
        .check_text(names::check_subdomain, faults);
    spec.child("preemptionPolicy")
        .check_one_of(&["PreemptLowerPriority", "Never"], faults);
    resources::check_amounts(&spec.child("overhead"), faults);
}

#[cfg(test)]
mod tests;
