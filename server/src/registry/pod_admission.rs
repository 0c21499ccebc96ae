//! What the server adds to every new pod, as Kubernetes' admission plugins do: service account, tolerations for
//! short outages, priority, quality of service class.

use muster_model::k8s::api::core::v1::{Taint, Toleration};
use muster_model::kind::{POD, PRIORITY_CLASS, SERVICE_ACCOUNT};
use muster_model::object::{NamespacedName, Object};
use muster_model::quantity::Quantity;
use muster_model::reason::taint::{NOT_READY, UNREACHABLE};
use muster_model::taint::{NO_EXECUTE, tolerates};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::cache::Cache;
use crate::status::ApiError;

/// How long an ordinary pod outlives its node's silence (spec/node-agent.md 5).
const OUTAGE_SECONDS: i64 = 300;
/// Marks the server's copy of a pod that an agent runs from a file: it is as the file says.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Completes a new pod, defaults already filled in.
pub(super) fn admit(pod: &mut Object, cache: &Cache) -> Result<(), ApiError> {
    if pod.annotation(MIRROR).is_none() {
        service_account(pod, cache)?;
        tolerate_outages(pod);
    }
    priority(pod, cache)?;
    let class = quality_of_service(pod);
    let status = pod.tree_mut().entry("status").or_insert_with(|| json!({}));
    if let Some(status) = status.as_object_mut() {
        status.insert("qosClass".into(), class.into());
    }
    Ok(())
}

fn spec(pod: &mut Object) -> Option<&mut Map<String, Value>> {
    pod.tree_mut().get_mut("spec")?.as_object_mut()
}

fn service_account(pod: &mut Object, cache: &Cache) -> Result<(), ApiError> {
    let (namespace, pod_name) = (pod.namespace().to_owned(), pod.name().to_owned());
    let Some(spec) = spec(pod) else { return Ok(()) };
    let name = match spec.get("serviceAccountName").and_then(Value::as_str) {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => "default".to_owned(),
    };
    spec.insert("serviceAccountName".into(), name.clone().into());
    spec.insert("serviceAccount".into(), name.clone().into());
    let Some(account) = cache.get(
        &SERVICE_ACCOUNT,
        &NamespacedName::new(namespace.clone(), name.clone()),
    ) else {
        if name == "default" {
            return Ok(());
        }
        let why = format!(
            "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
        );
        return Err(ApiError::forbidden(&POD, &pod_name, why));
    };
    let has_own = spec
        .get("imagePullSecrets")
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty());
    if !has_own
        && let Some(secrets) = account
            .object()
            .at("/imagePullSecrets")
            .filter(|list| !list.is_null())
    {
        spec.insert("imagePullSecrets".into(), secrets.clone());
    }
    Ok(())
}

fn tolerate_outages(pod: &mut Object) {
    let Some(spec) = spec(pod) else { return };
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else {
        return;
    };
    let own: Vec<Toleration> = tolerations
        .iter()
        .filter_map(|t| Toleration::deserialize(t).ok())
        .collect();
    for key in [NOT_READY, UNREACHABLE] {
        let taint = Taint {
            key: key.to_owned(),
            effect: NO_EXECUTE.to_owned(),
            ..Taint::default()
        };
        if !own.iter().any(|toleration| tolerates(toleration, &taint)) {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": NO_EXECUTE, "tolerationSeconds": OUTAGE_SECONDS,
            }));
        }
    }
}

fn priority(pod: &mut Object, cache: &Cache) -> Result<(), ApiError> {
    let wanted = pod.text_at("/spec/priorityClassName").to_owned();
    let class = if wanted.is_empty() {
        let is_default = |class: &Object| class.at("/globalDefault") == Some(&Value::Bool(true));
        cache
            .list(&PRIORITY_CLASS)
            .items
            .into_iter()
            .find(|class| is_default(class.object()))
    } else {
        let found = cache.get(&PRIORITY_CLASS, &NamespacedName::new("", wanted.clone()));
        let missing = || {
            let why = format!("no PriorityClass with name {wanted} was found");
            ApiError::forbidden(&POD, pod.name(), why)
        };
        Some(found.ok_or_else(missing)?)
    };
    let Some(spec) = spec(pod) else { return Ok(()) };
    let Some(class) = class else {
        spec.insert("priority".into(), 0.into());
        return Ok(());
    };
    spec.insert("priorityClassName".into(), class.name().into());
    let value = class
        .object()
        .at("/value")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    spec.insert("priority".into(), value.into());
    if let Some(policy) = class.object().at("/preemptionPolicy") {
        spec.insert("preemptionPolicy".into(), policy.clone());
    }
    Ok(())
}

/// `Guaranteed`: every container's CPU and memory requests equal its limits. `BestEffort`: none has any.
/// `Burstable`: the rest.
fn quality_of_service(pod: &Object) -> &'static str {
    let (mut any, mut guaranteed) = (false, true);
    for list in ["containers", "initContainers"] {
        let containers = pod
            .at("/spec")
            .and_then(|spec| spec.get(list))
            .and_then(Value::as_array);
        for container in containers.into_iter().flatten() {
            for resource in ["cpu", "memory"] {
                let amount = |side: &str| {
                    let value = container.get("resources")?.get(side)?.get(resource)?;
                    Quantity::from_json(value)
                        .ok()
                        .filter(|quantity| !quantity.is_zero())
                };
                let (request, limit) = (amount("requests"), amount("limits"));
                any |= request.is_some() || limit.is_some();
                guaranteed &= limit.is_some() && request == limit;
            }
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quality_of_service_follows_requests_and_limits() {
        let class = |resources: Value| {
            let tree = json!({"spec": {"containers": [{"name": "a", "resources": resources}]}});
            quality_of_service(&Object::from_value(tree).unwrap())
        };
        assert_eq!(class(json!({})), "BestEffort");
        assert_eq!(class(json!({"requests": {"cpu": "0"}})), "BestEffort");
        assert_eq!(class(json!({"requests": {"cpu": "100m"}})), "Burstable");
        let both = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(
            class(json!({"requests": both, "limits": {"cpu": "1000m", "memory": "1024Mi"}})),
            "Guaranteed"
        );
        assert_eq!(
            class(json!({"requests": both, "limits": {"cpu": "2", "memory": "1Gi"}})),
            "Burstable"
        );
        assert_eq!(
            class(json!({"requests": {"ephemeral-storage": "1Gi"}})),
            "BestEffort"
        );
    }

    #[test]
    fn a_pod_that_names_neither_outage_tolerates_both_for_300_s() {
        let tolerations = |own: Value| {
            let mut pod = Object::from_value(json!({"spec": {"tolerations": own}})).unwrap();
            tolerate_outages(&mut pod);
            pod.at("/spec/tolerations")
                .unwrap()
                .as_array()
                .unwrap()
                .len()
        };
        assert_eq!(tolerations(json!([])), 2);
        assert_eq!(tolerations(json!([{"operator": "Exists"}])), 1);
        assert_eq!(
            tolerations(json!([{"key": NOT_READY, "operator": "Exists", "effect": "NoExecute"}])),
            2
        );
    }
}
