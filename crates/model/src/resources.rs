//! Amounts of resources: of the machine, of what pods may have, of what a pod asks for.

use std::collections::BTreeMap;

use crate::k8s::api::core::v1::{Container, PodSpec};
use crate::k8s::apimachinery::pkg::api::resource::Quantity as Text;
use crate::quantity::{Quantity, QuantityError};

/// `cpu`.
pub const CPU: &str = "cpu";
/// `memory`.
pub const MEMORY: &str = "memory";
/// `ephemeral-storage`.
pub const STORAGE: &str = "ephemeral-storage";
/// `pods`.
pub const PODS: &str = "pods";

/// Amounts by resource name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Amounts(pub BTreeMap<String, Quantity>);

/// Why a list of amounts could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AmountsError {
    /// No `=` between name and amount.
    #[error("\"{0}\" is not NAME=AMOUNT")]
    NoPair(String),
    /// The amount is none.
    #[error("amount of {name}: {source}")]
    Quantity {
        /// Which resource.
        name: String,
        /// Why.
        source: QuantityError,
    },
    /// Below zero.
    #[error("amount of {0} is negative")]
    Negative(String),
}

impl Amounts {
    /// Reads `cpu=500m,memory=256Mi`; empty text is nothing.
    pub fn parse(text: &str) -> Result<Self, AmountsError> {
        let mut amounts = BTreeMap::new();
        for pair in text
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
        {
            let (name, amount) = pair
                .split_once('=')
                .ok_or_else(|| AmountsError::NoPair(pair.to_owned()))?;
            let quantity: Quantity =
                amount
                    .trim()
                    .parse()
                    .map_err(|source| AmountsError::Quantity {
                        name: name.trim().to_owned(),
                        source,
                    })?;
            if quantity.is_negative() {
                return Err(AmountsError::Negative(name.trim().to_owned()));
            }
            amounts.insert(name.trim().to_owned(), quantity);
        }
        Ok(Self(amounts))
    }

    /// Of an object's list. What is no quantity is left out: the server has refused it.
    pub fn of(list: Option<&BTreeMap<String, Text>>) -> Self {
        let read = |(name, text): (&String, &Text)| Some((name.clone(), text.0.parse().ok()?));
        Self(list.into_iter().flatten().filter_map(read).collect())
    }

    /// As an object's list.
    pub fn to_list(&self) -> BTreeMap<String, Text> {
        self.0
            .iter()
            .map(|(name, amount)| (name.clone(), Text(amount.to_string())))
            .collect()
    }

    /// One amount; zero when there is none.
    pub fn get(&self, name: &str) -> Quantity {
        self.0.get(name).copied().unwrap_or(Quantity::ZERO)
    }

    /// Sets one.
    pub fn set(&mut self, name: &str, amount: Quantity) {
        self.0.insert(name.to_owned(), amount);
    }

    /// Adds all.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let sum = self.get(name) + *amount;
            self.set(name, sum);
        }
    }

    /// The larger of each.
    pub fn raise(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            if *amount > self.get(name) {
                self.set(name, *amount);
            }
        }
    }
}

/// What a container asks for: its requests, and where there is none its limits (spec/node-agent.md 7).
pub fn container_request(container: &Container) -> Amounts {
    let resources = container.resources.as_ref();
    let mut amounts = Amounts::of(resources.and_then(|r| r.limits.as_ref()));
    amounts
        .0
        .extend(Amounts::of(resources.and_then(|r| r.requests.as_ref())).0);
    amounts
}

/// What a pod asks for: the larger of its containers and sidecars together and of any moment of its start, and
/// overhead.
pub fn pod_request(spec: &PodSpec) -> Amounts {
    let mut total = at_most_at_once(spec, container_request);
    total.add(&Amounts::of(spec.overhead.as_ref()));
    total
}

/// What a pod may use, by the same sum over its containers' limits. A resource without any limit is absent, and
/// overhead does not make it a limited one.
pub fn pod_limit(spec: &PodSpec) -> Amounts {
    let limit_of = |container: &Container| {
        let resources = container.resources.as_ref();
        Amounts::of(resources.and_then(|r| r.limits.as_ref()))
    };
    let mut total = at_most_at_once(spec, limit_of);
    let mut overhead = Amounts::of(spec.overhead.as_ref());
    overhead.0.retain(|name, _| !total.get(name).is_zero());
    total.add(&overhead);
    total
}

/// The larger of all containers that run together, and of every moment before: an init container beside the sidecars
/// that were started ahead of it.
fn at_most_at_once(spec: &PodSpec, of_container: impl Fn(&Container) -> Amounts) -> Amounts {
    let mut total = Amounts::default();
    for container in &spec.containers {
        total.add(&of_container(container));
    }
    let (mut sidecars, mut start) = (Amounts::default(), Amounts::default());
    for container in spec.init_containers.iter().flatten() {
        let amounts = of_container(container);
        if container.restart_policy.as_deref() == Some("Always") {
            total.add(&amounts);
            sidecars.add(&amounts);
            start.raise(&sidecars);
        } else {
            let mut moment = sidecars.clone();
            moment.add(&amounts);
            start.raise(&moment);
        }
    }
    total.raise(&start);
    total
}

/// `Guaranteed`, `Burstable` or `BestEffort` (spec/node-agent.md 21.1).
pub fn qos_class(spec: &PodSpec) -> &'static str {
    let pod_level = spec
        .resources
        .as_ref()
        .filter(|r| r.limits.is_some() || r.requests.is_some());
    let each: Vec<(Amounts, Amounts)> = match pod_level {
        Some(r) => vec![(
            Amounts::of(r.requests.as_ref()),
            Amounts::of(r.limits.as_ref()),
        )],
        None => spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .map(|container| {
                let resources = container.resources.as_ref();
                (
                    Amounts::of(resources.and_then(|r| r.requests.as_ref())),
                    Amounts::of(resources.and_then(|r| r.limits.as_ref())),
                )
            })
            .collect(),
    };
    let names = [CPU, MEMORY];
    let asks = |amounts: &Amounts| names.iter().any(|name| !amounts.get(name).is_zero());
    if !each
        .iter()
        .any(|(requests, limits)| asks(requests) || asks(limits))
    {
        return "BestEffort";
    }
    let fixed = each.iter().all(|(requests, limits)| {
        names.iter().all(|name| {
            let limit = limits.get(name);
            !limit.is_zero()
                && requests
                    .0
                    .get(*name)
                    .is_none_or(|request| *request == limit)
        })
    });
    if fixed { "Guaranteed" } else { "Burstable" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(value: serde_json::Value) -> PodSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_pod_asks_for_the_larger_of_its_running_and_its_starting() {
        let spec = spec(json!({
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "100m"}}},
                           {"name": "b", "resources": {"limits": {"cpu": "200m", "memory": "1Gi"}}}],
            "initContainers": [
                {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}},
                {"name": "init", "resources": {"requests": {"cpu": "1"}}}],
            "overhead": {"cpu": "10m"}}));
        let request = pod_request(&spec);
        assert_eq!(request.get(CPU).as_milli_ceil(), 1060);
        assert_eq!(request.get(MEMORY).as_units_ceil(), 1 << 30);
        let limit = pod_limit(&spec);
        assert_eq!(limit.get(CPU).as_milli_ceil(), 210);
        assert_eq!(limit.get(MEMORY).as_units_ceil(), 1 << 30);
        assert_eq!(limit.0.len(), 2, "{limit:?}");
    }

    #[test]
    fn na_038_na_039_quality_of_service_classes() {
        let class = |resources: serde_json::Value| {
            qos_class(&spec(
                json!({"containers": [{"name": "c", "resources": resources}]}),
            ))
        };
        let both = json!({"cpu": "100m", "memory": "64Mi"});
        assert_eq!(class(json!({})), "BestEffort");
        assert_eq!(
            class(json!({"limits": both, "requests": both})),
            "Guaranteed"
        );
        assert_eq!(class(json!({"limits": both})), "Guaranteed");
        assert_eq!(class(json!({"requests": both})), "Burstable");
        assert_eq!(class(json!({"requests": {"memory": "1Gi"}})), "Burstable");
        assert_eq!(
            class(json!({"limits": both, "requests": {"cpu": "0.1", "memory": "65536Ki"}})),
            "Guaranteed"
        );
    }
}
