//! The objects of a scenario.

use muster_model::object::Object;
use muster_testkit::build::{self, Manifest};
use serde_json::{Value, json};

use crate::scenario::{SetPlan, Share, Strategy};

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
        manifest = manifest.toleration(json!({"key": DEDICATED, "operator": "Exists"}));
    }
    if plan.probed {
        let probe = json!({"exec": {"command": [PROBE]}, "periodSeconds": 3});
        manifest = Manifest::of(with_probe(manifest.tree().clone(), probe));
    }
    manifest.object()
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
