//! What the manifest alone tells.

use muster_model::field_path::FieldPath;
use muster_model::image::{is_latest, is_pinned};
use muster_model::int_or_percent::IntOrPercent;
use muster_model::k8s::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy};
use muster_model::k8s::api::core::v1::{Container, PodSpec};
use muster_model::policy::Check;

use super::{Finding, listed};

/// Judges a defaulted DaemonSet by itself, in the order of [`Check::ALL`].
pub fn of_template(daemon: &DaemonSet) -> Vec<Finding> {
    let Some(spec) = &daemon.spec else {
        return Vec::new();
    };
    let Some(pod) = &spec.template.spec else {
        return Vec::new();
    };
    let strategy = spec.update_strategy.clone().unwrap_or_default();
    [
        no_readiness_probe(spec, pod, &strategy),
        no_resource_requests(pod),
        on_delete(&strategy),
        no_history(spec),
        latest_tag(pod),
        host_port_surge(pod, &strategy),
        host_path_without_type(pod),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn is_on_delete(strategy: &DaemonSetUpdateStrategy) -> bool {
    strategy.type_.as_deref() == Some("OnDelete")
}

fn pod_path() -> FieldPath {
    FieldPath::of("spec.template.spec")
}

/// The path of the only one, or of what all have in common.
fn common_path(list: &str, indexes: &[usize], below: &[&str]) -> FieldPath {
    let list = pod_path().child(list);
    match indexes {
        [only] => below
            .iter()
            .fold(list.index(*only), |path, name| path.child(name)),
        _ => list,
    }
}

/// The containers of which something is true: where, and by name.
fn containers_that(pod: &PodSpec, test: impl Fn(&Container) -> bool) -> (Vec<usize>, Vec<&str>) {
    let all = pod.containers.iter().enumerate();
    all.filter(|(_, container)| test(container))
        .map(|(index, container)| (index, container.name.as_str()))
        .unzip()
}

/// `container a has`, `containers a, b have`.
fn have(names: &[&str]) -> String {
    match names {
        [only] => format!("container {only} has"),
        several => format!("containers {} have", listed(several)),
    }
}

/// A startup probe is enough: until it has passed, the pod is not ready.
fn no_readiness_probe(
    spec: &DaemonSetSpec,
    pod: &PodSpec,
    strategy: &DaemonSetUpdateStrategy,
) -> Option<Finding> {
    if is_on_delete(strategy) {
        return None;
    }
    let blind = |container: &Container| {
        container.readiness_probe.is_none() && container.startup_probe.is_none()
    };
    let (indexes, names) = containers_that(pod, blind);
    if names.is_empty() {
        return None;
    }
    let when = match spec.min_ready_seconds.unwrap_or(0) {
        ..=0 => "as soon as its process runs".to_owned(),
        seconds => format!("once its process has run for {seconds} s"),
    };
    Some(Finding {
        check: Check::NoReadinessProbe,
        field: common_path("containers", &indexes, &["readinessProbe"]),
        sentence: format!(
            "{} no readiness probe, so a broken version counts as available {when} and is rolled out everywhere",
            have(&names)
        ),
        fix: "add a readinessProbe (exec, httpGet, tcpSocket or grpc)".to_owned(),
    })
}

fn no_resource_requests(pod: &PodSpec) -> Option<Finding> {
    let asks = |container: &Container, resource: &str| {
        let resources = container.resources.as_ref();
        // Limits without requests become the requests of the pod.
        resources.is_some_and(|resources| {
            let lists = [&resources.requests, &resources.limits];
            lists
                .into_iter()
                .flatten()
                .any(|list| list.contains_key(resource))
        })
    };
    let (indexes, names) = containers_that(pod, |container| {
        !(asks(container, "cpu") && asks(container, "memory"))
    });
    if names.is_empty() {
        return None;
    }
    let lacking: Vec<&str> = ["cpu", "memory"]
        .into_iter()
        .filter(|resource| {
            indexes
                .iter()
                .any(|at| !asks(&pod.containers[*at], resource))
        })
        .collect();
    let requests = match names.as_slice() {
        [only] => format!("container {only} requests"),
        several => format!("containers {} request", listed(several)),
    };
    Some(Finding {
        check: Check::NoResourceRequests,
        field: common_path("containers", &indexes, &["resources", "requests"]),
        sentence: format!(
            "{requests} no {}, so a full node takes the pod in all the same and starves or kills it first",
            lacking.join(" and no ")
        ),
        fix: match lacking.as_slice() {
            ["cpu"] => "set requests.cpu (such as 50m)".to_owned(),
            ["memory"] => "set requests.memory (such as 64Mi)".to_owned(),
            _ => "set requests.cpu and requests.memory (such as 50m and 64Mi)".to_owned(),
        },
    })
}

fn on_delete(strategy: &DaemonSetUpdateStrategy) -> Option<Finding> {
    is_on_delete(strategy).then(|| Finding {
        check: Check::OnDelete,
        field: FieldPath::of("spec.updateStrategy.type"),
        sentence: "with OnDelete a change reaches a node only when somebody deletes its pod there"
            .to_owned(),
        fix: "set RollingUpdate".to_owned(),
    })
}

fn no_history(spec: &DaemonSetSpec) -> Option<Finding> {
    (spec.revision_history_limit == Some(0)).then(|| Finding {
        check: Check::NoHistory,
        field: FieldPath::of("spec.revisionHistoryLimit"),
        sentence:
            "with 0 no earlier revision is kept, so that `rollout undo` has nothing to go back to"
                .to_owned(),
        fix: "leave it out (10 are kept)".to_owned(),
    })
}

fn latest_tag(pod: &PodSpec) -> Option<Finding> {
    let moves = |container: &&Container| {
        let image = container.image.as_deref().unwrap_or_default();
        is_latest(image) && !is_pinned(image)
    };
    let lists = [
        ("containers", pod.containers.as_slice()),
        (
            "initContainers",
            pod.init_containers.as_deref().unwrap_or_default(),
        ),
    ];
    let mut fields = Vec::new();
    let mut names = Vec::new();
    for (list, containers) in lists {
        for (index, container) in containers.iter().enumerate().filter(|(_, c)| moves(c)) {
            fields.push(common_path(list, &[index], &["image"]));
            let image = container.image.as_deref().unwrap_or_default();
            names.push(format!("{} ({image})", container.name));
        }
    }
    let field = match fields.as_slice() {
        [] => return None,
        [only] => only.clone(),
        _ => pod_path(),
    };
    let follow = match names.as_slice() {
        [only] => format!("the image of container {only} follows"),
        several => format!("the images of containers {} follow", listed(several)),
    };
    Some(Finding {
        check: Check::LatestTag,
        field,
        sentence: format!(
            "{follow} the tag latest, so nobody can tell what a node runs, and no undo brings it back"
        ),
        fix: "name a version or a digest".to_owned(),
    })
}

/// Two pods of one node can't hold one port: a surging update of such a DaemonSet can't move on.
fn host_port_surge(pod: &PodSpec, strategy: &DaemonSetUpdateStrategy) -> Option<Finding> {
    if is_on_delete(strategy) {
        return None;
    }
    let surge = strategy.rolling_update.as_ref()?.max_surge.as_ref()?;
    let surge = IntOrPercent::parse(surge)
        .ok()
        .filter(|surge| !surge.is_zero())?;
    let host_network = pod.host_network.unwrap_or(false);
    let lists = [
        ("containers", pod.containers.as_slice()),
        (
            "initContainers",
            pod.init_containers.as_deref().unwrap_or_default(),
        ),
    ];
    let mut fields = Vec::new();
    let mut ports = Vec::new();
    for (list, containers) in lists {
        for (at, container) in containers.iter().enumerate() {
            for (nth, port) in container.ports.iter().flatten().enumerate() {
                let (name, number) = if host_network {
                    ("containerPort", port.container_port)
                } else {
                    ("hostPort", port.host_port.unwrap_or(0))
                };
                if number != 0 {
                    let path = common_path(list, &[at], &["ports"]);
                    fields.push(path.index(nth).child(name));
                    ports.push(number.to_string());
                }
            }
        }
    }
    let (field, which) = match fields.as_slice() {
        [] => return None,
        [only] => (only.clone(), format!("port {}", ports[0])),
        _ => (pod_path(), format!("each of the ports {}", listed(&ports))),
    };
    Some(Finding {
        check: Check::HostPortSurge,
        field,
        sentence: format!(
            "{which} of a node can be held by one pod at a time, so with spec.updateStrategy.rollingUpdate.maxSurge \
             {surge} a new pod cannot start beside the old one: updates will not progress"
        ),
        fix: "set maxSurge to 0 and maxUnavailable to 1 or more".to_owned(),
    })
}

fn host_path_without_type(pod: &PodSpec) -> Option<Finding> {
    let mut indexes = Vec::new();
    let mut names = Vec::new();
    for (index, volume) in pod.volumes.iter().flatten().enumerate() {
        let Some(host_path) = &volume.host_path else {
            continue;
        };
        if host_path.type_.as_deref().unwrap_or_default().is_empty() {
            indexes.push(index);
            names.push(format!("{} ({})", volume.name, host_path.path));
        }
    }
    let say = match names.as_slice() {
        [] => return None,
        [only] => format!("volume {only} says"),
        several => format!("volumes {} say", listed(several)),
    };
    Some(Finding {
        check: Check::HostPathWithoutType,
        field: common_path("volumes", &indexes, &["hostPath", "type"]),
        sentence: format!(
            "{say} nothing of what must be there, so a node that lacks the path gets an empty directory of root's instead"
        ),
        fix:
            "set hostPath.type (Directory, File or Socket must be there; DirectoryOrCreate is made)"
                .to_owned(),
    })
}
