//! The objects of a scenario.

use muster_model::object::Object;
use muster_model::reason::annotation;
use muster_testkit::build::{self, Manifest};
use serde_json::{Map, Value, json};

use crate::scenario::{Controls, SetPlan, Share, Strategy};

/// The namespace of everything.
pub(crate) const NAMESPACE: &str = "default";
/// Label of nodes.
pub(crate) const ZONE: &str = "zone";
/// Taint of nodes that are set apart.
pub(crate) const DEDICATED: &str = "dedicated";
/// What probed containers are asked.
pub(crate) const PROBE: &str = "ready";

/// The reference of an image by its number, counted from 0.
pub(crate) fn image(number: usize) -> String {
    format!("img:{}", number + 1)
}

/// A DaemonSet with this image.
pub(crate) fn daemon_set(plan: &SetPlan, image_number: usize) -> Object {
    let mut manifest = build::daemon_set(plan.name)
        .image(&image(image_number))
        .set("/spec/updateStrategy", strategy(plan.strategy))
        .set("/spec/minReadySeconds", plan.min_ready_seconds)
        .set("/spec/revisionHistoryLimit", plan.history_limit);
    if let Some(zone) = plan.zone {
        manifest = manifest.node_selector(ZONE, zone);
    }
    if plan.tolerates {
        manifest = manifest.toleration(toleration());
    }
    for (key, value) in controls(plan.controls) {
        manifest = manifest.annotation(key, &value);
    }
    if plan.probed {
        let probe = json!({"exec": {"command": [PROBE]}, "periodSeconds": 3});
        manifest = Manifest::of(with_probe(manifest.tree().clone(), probe));
    }
    manifest.object()
}

/// That of machines that are set apart.
pub(crate) fn toleration() -> Value {
    json!({"key": DEDICATED, "operator": "Exists"})
}

/// The annotations of what is asked of rollouts.
fn controls(controls: Controls) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    if let Some(what) = controls.on_failure {
        all.push((annotation::ON_FAILURE, what.to_owned()));
    }
    if let Some(seconds) = controls.deadline {
        all.push((annotation::PROGRESS_DEADLINE, format!("{seconds}s")));
    }
    if let Some((nodes, seconds)) = controls.canary {
        all.push((annotation::CANARY, nodes.to_string()));
        all.push((annotation::CANARY_PAUSE, format!("{seconds}s")));
    }
    if let Some(nodes) = controls.partition {
        all.push((annotation::PARTITION, nodes.to_string()));
    }
    if controls.pre_pull {
        all.push((annotation::PRE_PULL, "true".to_owned()));
    }
    if controls.by_zone {
        all.push((annotation::FAILURE_DOMAIN, ZONE.to_owned()));
    }
    if controls.windows {
        // Scenarios begin on a Monday at nine.
        let windows = format!("{ZONE}=b: Mon 09:01-09:02\n{ZONE}=b: Mon 09:03-09:05");
        all.push((annotation::MAINTENANCE_WINDOWS, windows));
    }
    all
}

/// A merge patch that asks for nothing any more.
pub(crate) fn without_controls() -> Value {
    let keys = [
        annotation::ON_FAILURE,
        annotation::PROGRESS_DEADLINE,
        annotation::CANARY,
        annotation::CANARY_PAUSE,
        annotation::PARTITION,
        annotation::PRE_PULL,
        annotation::FAILURE_DOMAIN,
        annotation::MAINTENANCE_WINDOWS,
        annotation::PAUSED,
    ];
    let none: Map<String, Value> = keys
        .iter()
        .map(|key| ((*key).to_owned(), Value::Null))
        .collect();
    json!({"metadata": {"annotations": none}})
}

fn with_probe(mut tree: Value, probe: Value) -> Value {
    tree["spec"]["template"]["spec"]["containers"][0]["readinessProbe"] = probe;
    tree
}

/// An update strategy as the API takes it.
pub(crate) fn strategy(strategy: Strategy) -> Value {
    let share = |share: Share| match share {
        Share::Nodes(count) => json!(count),
        Share::Percent(_) => json!(share.to_string()),
    };
    match strategy {
        Strategy::OnDelete => json!({"type": "OnDelete", "rollingUpdate": null}),
        Strategy::Replace(most) => json!({
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": share(most), "maxSurge": 0},
        }),
        Strategy::Surge(most) => json!({
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 0, "maxSurge": share(most)},
        }),
    }
}
