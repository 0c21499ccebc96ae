//! What a pod may know of itself: `fieldRef` and `resourceFieldRef` (spec/node-agent.md 12 and 14).

use std::collections::BTreeMap;

use muster_model::k8s::api::core::v1::{Container, ResourceFieldSelector};
use muster_model::quantity::Quantity;

use crate::facts::PodFacts;
use muster_model::resources::Amounts;

/// The value of a field path.
///
/// # Errors
/// A sentence, for a path that is not among the known ones.
pub fn field(pod: &PodFacts, path: &str, pod_ip: &str) -> Result<String, String> {
    if let Some((map, key)) = subscript(path) {
        let found = match map {
            "metadata.labels" => pod
                .pod
                .metadata
                .labels
                .as_ref()
                .and_then(|labels| labels.get(key)),
            "metadata.annotations" => pod
                .pod
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(key)),
            _ => return Err(format!("field label not supported: {path}")),
        };
        return Ok(found.cloned().unwrap_or_default());
    }
    Ok(match path {
        "metadata.name" => pod.name.clone(),
        "metadata.namespace" => pod.namespace.clone(),
        "metadata.uid" => pod.uid.clone(),
        "metadata.labels" => escaped_lines(pod.pod.metadata.labels.as_ref()),
        "metadata.annotations" => escaped_lines(pod.pod.metadata.annotations.as_ref()),
        "spec.nodeName" => pod.host.node_name.clone(),
        "spec.serviceAccountName" => pod.spec().service_account_name.clone().unwrap_or_default(),
        "status.hostIP" => pod.host.ip().to_owned(),
        "status.hostIPs" => pod.host.ips.join(","),
        "status.podIP" | "status.podIPs" => pod_ip.to_owned(),
        _ => return Err(format!("field label not supported: {path}")),
    })
}

fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once("['")?;
    Some((map, rest.strip_suffix("']")?))
}

/// Sorted `key="escaped value"` lines.
fn escaped_lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> = map
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", quoted(value)))
        .collect();
    lines.join("\n")
}

/// In double quotes as Go quotes text.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The value of a resource field: the amount divided by the divisor, rounded up. An unset limit is what the node can
/// give, an unset request is 0.
///
/// # Errors
/// A sentence, for an unknown container, resource or divisor.
pub fn resource(
    pod: &PodFacts,
    own: Option<&Container>,
    selector: &ResourceFieldSelector,
) -> Result<String, String> {
    let named = selector
        .container_name
        .as_deref()
        .filter(|name| !name.is_empty());
    let container = match named {
        Some(name) => pod
            .container(name)
            .ok_or_else(|| format!("container {name} not found"))?,
        None => own.ok_or_else(|| "resourceFieldRef names no container".to_owned())?,
    };
    let (side, name) = selector
        .resource
        .split_once('.')
        .ok_or_else(|| format!("unsupported container resource : {}", selector.resource))?;
    let resources = container.resources.as_ref();
    let limits = Amounts::of(resources.and_then(|r| r.limits.as_ref()));
    let requests = Amounts::of(resources.and_then(|r| r.requests.as_ref()));
    let amount = match side {
        "limits" => match limits.0.get(name) {
            Some(limit) if !limit.is_zero() => *limit,
            _ => pod.host.allocatable.get(name),
        },
        "requests" => requests
            .0
            .get(name)
            .or(limits.0.get(name))
            .copied()
            .unwrap_or(Quantity::ZERO),
        _ => {
            return Err(format!(
                "unsupported container resource : {}",
                selector.resource
            ));
        }
    };
    let divisor: Quantity = match selector.divisor.as_ref().map(|text| text.0.as_str()) {
        None | Some("" | "0") => Quantity::from_units(1),
        Some(text) => text
            .parse()
            .map_err(|_| format!("divisor {text} is no quantity"))?,
    };
    amount
        .divide_ceil(divisor)
        .map(|value| value.to_string())
        .ok_or_else(|| "divisor must be above 0".to_owned())
}
