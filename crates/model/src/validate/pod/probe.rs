//! Probes and lifecycle hooks.

use serde_json::Value;

use super::super::view::{Faults, View};
use crate::names;

const BAD_HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";

/// Liveness and startup probes.
pub(super) fn check_liveness(probe: &View, faults: &mut Faults) {
    check(probe, faults);
    let successes = probe.child("successThreshold");
    if successes.number().is_some_and(|number| number != 1) {
        faults.push(successes.invalid("must be 1"));
    }
    let grace = probe.child("terminationGracePeriodSeconds");
    if grace.number().is_some_and(|seconds| seconds <= 0) {
        faults.push(grace.invalid("must be greater than 0"));
    }
}

pub(super) fn check_readiness(probe: &View, faults: &mut Faults) {
    check(probe, faults);
    let grace = probe.child("terminationGracePeriodSeconds");
    if grace.is_present() {
        faults.push(grace.invalid("must not be set for readinessProbes"));
    }
}

fn check(probe: &View, faults: &mut Faults) {
    if !probe.is_present() {
        return;
    }
    check_handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], 0, faults);
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        probe.child(field).check_not_negative(faults);
    }
}

/// `postStart` and `preStop`; `grace` is the pod's grace period in seconds.
pub(super) fn check_lifecycle(lifecycle: &View, grace: i64, faults: &mut Faults) {
    for hook in ["postStart", "preStop"] {
        let hook = lifecycle.child(hook);
        if hook.is_present() {
            check_handler(
                &hook,
                &["exec", "httpGet", "tcpSocket", "sleep"],
                grace,
                faults,
            );
        }
    }
}

fn check_handler(handler: &View, known: &[&str], grace: i64, faults: &mut Faults) {
    let given: Vec<(&str, View)> = known
        .iter()
        .map(|name| (*name, handler.child(name)))
        .filter(|(_, handler)| handler.is_present())
        .collect();
    if given.is_empty() {
        faults.push(handler.required("must specify a handler type"));
    }
    for (index, (name, handler)) in given.iter().enumerate() {
        if index > 0 {
            faults.push(handler.forbidden("may not specify more than 1 handler type"));
            continue;
        }
        match *name {
            "exec" => handler.child("command").require(faults),
            "httpGet" => check_http(handler, faults),
            "sleep" => check_sleep(&handler.child("seconds"), grace, faults),
            "grpc" => {
                let port = handler.child("port");
                let detail = names::check_port_number(port.number().unwrap_or(0));
                faults.extend(detail.map(|detail| port.invalid(detail)));
            }
            _ => check_port(&handler.child("port"), faults),
        }
    }
}

fn check_http(get: &View, faults: &mut Faults) {
    get.child("path").require(faults);
    check_port(&get.child("port"), faults);
    get.child("scheme").check_one_of(&["HTTP", "HTTPS"], faults);
    for header in get.child("httpHeaders").items() {
        let name = header.child("name");
        if name.is_empty()
            || !name
                .text()
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || c == b'-')
        {
            faults.push(name.invalid_text(BAD_HEADER));
        }
    }
}

/// A port by number or by name.
fn check_port(port: &View, faults: &mut Faults) {
    match port.value() {
        Some(Value::String(_)) => {
            let details = names::check_port_name(port.text());
            faults.extend(details.iter().map(|detail| port.invalid_text(detail)));
        }
        Some(_) => {
            let detail = names::check_port_number(port.number().unwrap_or(0));
            faults.extend(detail.map(|detail| port.invalid(detail)));
        }
        None => faults.push(port.required("")),
    }
}

fn check_sleep(seconds: &View, grace: i64, faults: &mut Faults) {
    if !(0..=grace).contains(&seconds.number().unwrap_or(0)) {
        let detail =
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        faults.push(seconds.invalid(&detail));
    }
}
