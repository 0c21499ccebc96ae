//! Containers of all three lists, their ports and mounts.

use std::collections::BTreeSet;

use super::super::view::{Faults, View};
use super::{Context, env, probe, resources, security};
use crate::field_path::FieldError;
use crate::names;

pub(super) fn check_all(context: &Context, faults: &mut Faults) {
    let regular = context.spec.child("containers");
    let mut seen = BTreeSet::new();
    if regular.is_empty() {
        faults.push(regular.required(""));
    }
    for container in regular.items() {
        check_common(context, &container, &mut seen, faults);
        check_running(context, &container, faults);
        let policy = container.child("restartPolicy");
        if policy.is_present() {
            faults.push(policy.forbidden("may not be set for non-init containers"));
        }
    }
    check_host_ports(&regular.items(), faults);
    for container in context.spec.child("initContainers").items() {
        check_common(context, &container, &mut seen, faults);
        check_host_ports(std::slice::from_ref(&container), faults);
        check_init(context, &container, faults);
    }
    for container in context.spec.child("ephemeralContainers").items() {
        check_common(context, &container, &mut seen, faults);
        for field in [
            "ports",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle",
        ] {
            let field = container.child(field);
            if !field.is_empty() {
                faults.push(field.forbidden("cannot be set for an Ephemeral Container"));
            }
        }
    }
    if context.spec.child("hostNetwork").is_true() {
        for list in ["containers", "initContainers"] {
            for container in context.spec.child(list).items() {
                check_host_network_ports(context, &container, faults);
            }
        }
    }
}

fn check_common<'a>(
    context: &Context,
    container: &View<'a>,
    seen: &mut BTreeSet<&'a str>,
    faults: &mut Faults,
) {
    let (name, image) = (container.child("name"), container.child("image"));
    name.require_text(names::check_label, faults);
    if image.text().trim() != image.text() {
        faults.push(image.invalid("must not have leading or trailing whitespace"));
    }
    image.require(faults);
    container
        .child("terminationMessagePolicy")
        .check_one_of(&["File", "FallbackToLogsOnError"], faults);
    check_ports(&container.child("ports"), faults);
    env::check(container, faults);
    check_mounts(context, container, faults);
    container
        .child("imagePullPolicy")
        .check_one_of(&["Always", "IfNotPresent", "Never"], faults);
    resources::check(&container.child("resources"), faults);
    security::check_container(&container.child("securityContext"), faults);
    if !name.is_empty() && !seen.insert(name.text()) {
        faults.push(name.duplicate());
    }
}

/// What containers may have that run for the pod's whole life.
fn check_running(context: &Context, container: &View, faults: &mut Faults) {
    let grace = context
        .spec
        .child("terminationGracePeriodSeconds")
        .number()
        .unwrap_or(30);
    probe::check_lifecycle(&container.child("lifecycle"), grace, faults);
    probe::check_liveness(&container.child("livenessProbe"), faults);
    probe::check_readiness(&container.child("readinessProbe"), faults);
    probe::check_liveness(&container.child("startupProbe"), faults);
}

fn check_init(context: &Context, container: &View, faults: &mut Faults) {
    let policy = container.child("restartPolicy");
    if policy.text() == "Always" {
        check_running(context, container, faults);
        return;
    }
    policy.check_one_of(&["Always"], faults);
    for field in [
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
    ] {
        let field = container.child(field);
        if field.is_present() {
            faults.push(
                field.forbidden("may not be set for init containers without restartPolicy=Always"),
            );
        }
    }
}

fn check_ports(ports: &View, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let (name, protocol) = (port.child("name"), port.child("protocol"));
        if !name.is_empty() {
            let before = faults.len();
            name.check_text(names::check_port_name, faults);
            if faults.len() == before && !seen.insert(name.text()) {
                faults.push(name.duplicate());
            }
        }
        let (inside, outside) = (port.child("containerPort"), port.child("hostPort"));
        if inside.number().unwrap_or(0) == 0 {
            faults.push(inside.required(""));
        }
        check_port_number(&inside, faults);
        check_port_number(&outside, faults);
        if protocol.is_empty() {
            faults.push(protocol.required(""));
        } else {
            protocol.check_one_of(&["SCTP", "TCP", "UDP"], faults);
        }
        super::network::check_ip(&port.child("hostIP"), faults);
    }
}

/// A port number that is given; 0 counts as not given.
pub(super) fn check_port_number(port: &View, faults: &mut Faults) {
    if let Some(detail) = port
        .number()
        .filter(|number| *number != 0)
        .and_then(names::check_port_number)
    {
        faults.push(port.invalid(detail));
    }
}

/// The same host port twice in containers that run together.
fn check_host_ports(containers: &[View], faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    for container in containers {
        for port in container.child("ports").items() {
            let number = port.child("hostPort").number().unwrap_or(0);
            if number == 0 {
                continue;
            }
            let held = format!(
                "{}/{}/{number}",
                port.child("protocol").text(),
                port.child("hostIP").text()
            );
            if !seen.insert(held.clone()) {
                faults.push(FieldError::duplicate(
                    port.child("hostPort").path(),
                    &held.into(),
                ));
            }
        }
    }
}

/// With the host's network a port is the host's own. In a template it may be left out: the pod gets it.
fn check_host_network_ports(context: &Context, container: &View, faults: &mut Faults) {
    for port in container.child("ports").items() {
        let host = port.child("hostPort");
        let (inside, outside) = (
            port.child("containerPort").number().unwrap_or(0),
            host.number().unwrap_or(0),
        );
        if (context.is_pod || outside != 0) && outside != inside {
            let detail = "must match `containerPort` when `hostNetwork` is true";
            faults.push(FieldError::invalid(host.path(), &outside.into(), detail));
        }
    }
}

fn check_mounts(context: &Context, container: &View, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    for mount in container.child("volumeMounts").items() {
        let (name, path) = (mount.child("name"), mount.child("mountPath"));
        if name.is_empty() {
            faults.push(name.required(""));
        } else if !context.volumes.contains(&name.text()) {
            faults.push(name.not_found());
        }
        if path.is_empty() {
            faults.push(path.required(""));
        } else if !seen.insert(path.text()) {
            faults.push(path.invalid("must be unique"));
        }
        let (sub_path, expression) = (mount.child("subPath"), mount.child("subPathExpr"));
        check_descending_path(&sub_path, faults);
        if !sub_path.is_empty() && !expression.is_empty() {
            faults.push(expression.invalid("subPathExpr and subPath are mutually exclusive"));
        }
        check_descending_path(&expression, faults);
        check_propagation(&mount, container, faults);
    }
}

fn check_propagation(mount: &View, container: &View, faults: &mut Faults) {
    let propagation = mount.child("mountPropagation");
    propagation.check_one_of(&["Bidirectional", "HostToContainer", "None"], faults);
    let privileged = container.down(&["securityContext", "privileged"]).is_true();
    if propagation.text() == "Bidirectional" && !privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        faults.push(propagation.forbidden(detail));
    }
    let recursive = mount.child("recursiveReadOnly");
    recursive.check_one_of(&["Disabled", "Enabled", "IfPossible"], faults);
    if matches!(recursive.text(), "Enabled" | "IfPossible") {
        if !mount.child("readOnly").is_true() {
            faults.push(recursive.forbidden("may only be specified when readOnly is true"));
        }
        if !matches!(propagation.text(), "" | "None") {
            let detail = "may only be specified when mountPropagation is None or not specified";
            faults.push(recursive.forbidden(detail));
        }
    }
}

/// A path that stays below where it starts.
pub(super) fn check_descending_path(path: &View, faults: &mut Faults) {
    if path.text().starts_with('/') {
        faults.push(path.invalid("must be a relative path"));
    }
    check_no_backsteps(path, faults);
}

/// A path without `..` as one of its parts.
pub(super) fn check_no_backsteps(path: &View, faults: &mut Faults) {
    if path.text().split('/').any(|part| part == "..") {
        faults.push(path.invalid("must not contain '..'"));
    }
}
