//! What the pods of a node ask for and may use: two tables, as kubectl prints them.

use muster_model::k8s::api::core::v1::Pod;
use muster_model::object::Object;
use muster_model::quantity::Quantity;
use muster_model::resources::{Amounts, CPU, MEMORY, PODS, STORAGE, pod_limit, pod_request};
use muster_model::time::{Timestamp, age_of, parse};
use serde_json::Value;

use super::tabs::Text;

/// Large pages are counted by their size: `hugepages-2Mi`.
const HUGE_PAGES: &str = "hugepages-";

/// What one pod, or all of them, ask for and may use.
#[derive(Default)]
struct Shares {
    requests: Amounts,
    limits: Amounts,
}

impl Shares {
    fn of(pod: &Object) -> Self {
        let spec = pod.typed::<Pod>().ok().and_then(|pod| pod.spec);
        spec.map_or_else(Self::default, |spec| Self {
            requests: pod_request(&spec),
            limits: pod_limit(&spec),
        })
    }

    /// `REQUEST (PERCENT%)<tab>LIMIT (PERCENT%)` of one resource.
    fn cells(&self, name: &str, allocatable: &Amounts) -> String {
        let of = |amount| share(name, amount, allocatable.get(name));
        format!(
            "{}\t{}",
            of(self.requests.get(name)),
            of(self.limits.get(name))
        )
    }
}

/// The tables `Non-terminated Pods` and `Allocated resources`. `status` is the node's, `pods` are all those bound to it.
pub(super) fn allocated(out: &mut Text, status: &Value, pods: &[Object], now: Timestamp) {
    let allocatable = match amounts(&status["allocatable"]) {
        none if none.0.is_empty() => amounts(&status["capacity"]),
        some => some,
    };
    let running: Vec<&Object> = pods
        .iter()
        .filter(|pod| !matches!(pod.text_at("/status/phase"), "Succeeded" | "Failed"))
        .collect();
    out.line(
        0,
        format!("Non-terminated Pods:\t({} in total)", running.len()),
    );
    // The empty column is kubectl's.
    for header in [
        "Namespace\tName\t\tCPU Requests\tCPU Limits\tMemory Requests\tMemory Limits\tAge",
        "---------\t----\t\t------------\t----------\t---------------\t-------------\t---",
    ] {
        out.line(1, header);
    }
    let mut total = Shares::default();
    for pod in running {
        let shares = Shares::of(pod);
        let age = age_of(parse(pod.text_at("/metadata/creationTimestamp")), now);
        let (cpu, memory) = (
            shares.cells(CPU, &allocatable),
            shares.cells(MEMORY, &allocatable),
        );
        out.line(
            1,
            format!(
                "{}\t{}\t\t{cpu}\t{memory}\t{age}",
                pod.namespace(),
                pod.name()
            ),
        );
        total.requests.add(&shares.requests);
        total.limits.add(&shares.limits);
    }
    out.line(0, "Allocated resources:");
    out.line(
        1,
        "(Total limits may be over 100 percent, i.e., overcommitted.)",
    );
    out.line(1, "Resource\tRequests\tLimits");
    out.line(1, "--------\t--------\t------");
    let names = || allocatable.0.keys().map(String::as_str);
    let huge_pages = names().filter(|name| name.starts_with(HUGE_PAGES));
    for name in [CPU, MEMORY, STORAGE].into_iter().chain(huge_pages) {
        out.line(1, format!("{name}\t{}", total.cells(name, &allocatable)));
    }
    let is_usual =
        |name: &str| [CPU, MEMORY, STORAGE, PODS].contains(&name) || name.starts_with(HUGE_PAGES);
    for name in names().filter(|name| !is_usual(name)) {
        out.line(
            1,
            format!(
                "{name}\t{}\t{}",
                total.requests.get(name),
                total.limits.get(name)
            ),
        );
    }
}

/// The amounts of a JSON map. What is no quantity is left out.
fn amounts(map: &Value) -> Amounts {
    let entries = map.as_object().into_iter().flatten();
    Amounts(
        entries
            .filter_map(|(name, amount)| Some((name.clone(), Quantity::from_json(amount).ok()?)))
            .collect(),
    )
}

/// `100m (5%)`, rounded down; `0%` of nothing.
fn share(name: &str, amount: Quantity, whole: Quantity) -> String {
    // Bytes do not fit into 64 bits a thousandfold.
    let count = |quantity: Quantity| {
        i128::from(if name == CPU {
            quantity.as_milli_ceil()
        } else {
            quantity.as_units_ceil()
        })
    };
    let percent = (count(amount) * 100)
        .checked_div(count(whole))
        .unwrap_or_default();
    format!("{amount} ({percent}%)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, phase: &str, resources: &Value) -> Object {
        Object::from_value(json!({
            "metadata": {"name": name, "namespace": "default", "creationTimestamp": "2026-01-31T10:00:00Z"},
            "spec": {"containers": [{"name": "c", "resources": resources}]},
            "status": {"phase": phase}}))
        .unwrap()
    }

    fn rendered(status: &Value, pods: &[Object]) -> String {
        let mut out = Text::default();
        allocated(
            &mut out,
            status,
            pods,
            "2026-01-31T10:00:10Z".parse().unwrap(),
        );
        out.render()
    }

    #[test]
    fn what_pods_ask_for_is_shown_beside_what_there_is() {
        let status = json!({
            "capacity": {"cpu": "4"},
            "allocatable": {"cpu": "2", "memory": "1Gi", "pods": "110", "hugepages-2Mi": "4Mi", "acme.org/gpu": "2"}});
        let pods = [
            pod(
                "dns-1",
                "Running",
                &json!({"requests": {"cpu": "100m", "memory": "70Mi"}, "limits": {"memory": "170Mi"}}),
            ),
            pod(
                "gpu-1",
                "Pending",
                &json!({"requests": {"cpu": "1500m", "acme.org/gpu": "1"}, "limits": {"cpu": "3", "acme.org/gpu": "1"}}),
            ),
            pod("old-1", "Failed", &json!({"requests": {"cpu": "9"}})),
        ];
        insta::assert_snapshot!(rendered(&status, &pods), @r"
        Non-terminated Pods:  (2 in total)
          Namespace           Name     CPU Requests  CPU Limits  Memory Requests  Memory Limits  Age
          ---------           ----     ------------  ----------  ---------------  -------------  ---
          default             dns-1    100m (5%)     0 (0%)      70Mi (6%)        170Mi (16%)    10s
          default             gpu-1    1500m (75%)   3 (150%)    0 (0%)           0 (0%)         10s
        Allocated resources:
          (Total limits may be over 100 percent, i.e., overcommitted.)
          Resource           Requests     Limits
          --------           --------     ------
          cpu                1600m (80%)  3 (150%)
          memory             70Mi (6%)    170Mi (16%)
          ephemeral-storage  0 (0%)       0 (0%)
          hugepages-2Mi      0 (0%)       0 (0%)
          acme.org/gpu       1            1
        ");
    }

    #[test]
    fn a_node_that_has_told_nothing_shows_no_share() {
        let text = rendered(
            &json!({}),
            &[pod("a", "Running", &json!({"requests": {"cpu": "1"}}))],
        );
        assert!(
            text.contains("  cpu                1 (0%)    0 (0%)\n"),
            "{text}"
        );
    }
}
