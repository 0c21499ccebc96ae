//! What the server adds to every new pod, as Kubernetes' admission plugins do: service account, tolerations for
//! short outages, priority, quality of service class.

use std::sync::Arc;

use muster_model::k8s::api::core::v1::{Taint, Toleration};
use muster_model::kind::{POD, PRIORITY_CLASS, SERVICE_ACCOUNT};
use muster_model::object::{NamespacedName, Object};
use muster_model::quantity::Quantity;
use muster_model::reason::taint::{NOT_READY, UNREACHABLE};
use muster_model::taint::{NO_EXECUTE, tolerates};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::cache::{Cache, Stored};
use crate::status::ApiError;

/// How long an ordinary pod outlives its node's silence (spec/node-agent.md 5).
const OUTAGE_SECONDS: i64 = 300;
/// What a class without a policy of its own does.
const PREEMPTS: &str = "PreemptLowerPriority";
/// Marks the server's copy of a pod that an agent runs from a file: it is as the file says.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Completes a new pod, defaults already filled in.
pub(super) fn admit(pod: &mut Object, cache: &Cache) -> Result<(), ApiError> {
    if pod.annotation(MIRROR).is_none() {
        service_account(pod, cache);
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

fn service_account(pod: &mut Object, cache: &Cache) {
    let namespace = pod.namespace().to_owned();
    let Some(spec) = spec(pod) else { return };
    let name = match spec.get("serviceAccountName").and_then(Value::as_str) {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => "default".to_owned(),
    };
    spec.insert("serviceAccountName".into(), name.clone().into());
    spec.insert("serviceAccount".into(), name.clone().into());
    // Kubernetes refuses the pod. Here an account is only a name so far, and manifests that bring their
    // account in another file must run as they are: the author is told at apply time instead.
    let key = NamespacedName::new(namespace, name);
    let Some(account) = cache.get(&SERVICE_ACCOUNT, &key) else {
        return;
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
    let pod_name = pod.name().to_owned();
    let class = if wanted.is_empty() {
        global_default(&cache.list(&PRIORITY_CLASS).items)
    } else {
        let found = cache.get(&PRIORITY_CLASS, &NamespacedName::new("", wanted.clone()));
        let missing = || {
            let why = format!("no PriorityClass with name {wanted} was found");
            ApiError::forbidden(&POD, &pod_name, why)
        };
        Some(found.ok_or_else(missing)?)
    };
    let Some(spec) = spec(pod) else { return Ok(()) };
    set_priority(spec, class.as_ref().map(|class| class.object().as_ref()))
        .map_err(|why| ApiError::forbidden(&POD, &pod_name, why))
}

/// Of several classes that claim to be the default the least counts.
fn global_default(classes: &[Arc<Stored>]) -> Option<Arc<Stored>> {
    classes
        .iter()
        .filter(|class| class.object().at("/globalDefault") == Some(&Value::Bool(true)))
        .min_by_key(|class| value_of(class.object()))
        .cloned()
}

fn value_of(class: &Object) -> i64 {
    class.at("/value").and_then(Value::as_i64).unwrap_or(0)
}

/// A pod's own numbers must be those of its class: nobody takes a priority that was not granted.
fn set_priority(spec: &mut Map<String, Value>, class: Option<&Object>) -> Result<(), String> {
    let priority = class.map_or(0, value_of);
    let policy = class
        .map(|class| class.text_at("/preemptionPolicy"))
        .filter(|policy| !policy.is_empty())
        .unwrap_or(PREEMPTS)
        .to_owned();
    if let Some(given) = spec.get("priority").and_then(Value::as_i64)
        && given != priority
    {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
        ));
    }
    if let Some(given) = spec.get("preemptionPolicy").and_then(Value::as_str)
        && given != policy
    {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        ));
    }
    if let Some(class) = class {
        spec.insert("priorityClassName".into(), class.name().into());
    }
    spec.insert("priority".into(), priority.into());
    spec.insert("preemptionPolicy".into(), policy.into());
    Ok(())
}

/// What a pod was given stays when its author sends it again without.
pub(super) fn keep(new: &mut Object, old: &Object) {
    let Some(spec) = spec(new) else { return };
    for field in [
        "serviceAccountName",
        "serviceAccount",
        "priority",
        "priorityClassName",
        "preemptionPolicy",
    ] {
        let missing = spec.get(field).is_none_or(Value::is_null);
        if missing && let Some(value) = old.at("/spec").and_then(|spec| spec.get(field)) {
            spec.insert(field.to_owned(), value.clone());
        }
    }
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

    #[test]
    fn priority_comes_from_the_class_and_from_nowhere_else() {
        let class = json!({"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"});
        let class = Object::from_value(class).unwrap();
        let set = |spec: Value, class: Option<&Object>| {
            let mut spec = spec.as_object().unwrap().clone();
            set_priority(&mut spec, class).map(|()| Value::Object(spec))
        };
        assert_eq!(
            set(json!({}), Some(&class)).unwrap(),
            json!({"priorityClassName": "high", "priority": 7, "preemptionPolicy": "Never"})
        );
        assert_eq!(
            set(json!({}), None).unwrap(),
            json!({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"})
        );
        assert_eq!(
            set(json!({"priority": 8}), Some(&class)).unwrap_err(),
            "the integer value of priority (8) must not be provided in pod spec; priority admission controller computed 7 from the given PriorityClass name"
        );
    }

    #[test]
    fn a_pod_sent_again_without_what_it_was_given_keeps_it() {
        let old =
            json!({"spec": {"serviceAccountName": "default", "priority": 0, "nodeName": "n1"}});
        let mut new = Object::from_value(json!({"spec": {"nodeName": "n1"}})).unwrap();
        keep(&mut new, &Object::from_value(old.clone()).unwrap());
        assert_eq!(new.at("/spec"), old.get("spec"));
    }
}
