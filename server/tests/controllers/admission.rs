//! What a pod is given on its way in.

use muster_model::kind::{POD, PRIORITY_CLASS};
use serde_json::{Value, json};

use crate::world::World;

fn class(name: &str, value: i64, default: bool) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
        "value": value, "globalDefault": default,
    })
}

fn pod(name: &str, class: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]},
    });
    if !class.is_empty() {
        pod["spec"]["priorityClassName"] = class.into();
    }
    pod
}

#[tokio::test(start_paused = true)]
async fn a_pods_priority_is_that_of_its_class() {
    let world = World::start().await;
    let refused = world.create(&POD, pod("p", "x")).await.unwrap_err();
    assert_eq!(
        refused.message(),
        "pods \"p\" is forbidden: no PriorityClass with name x was found"
    );
    world
        .create(&PRIORITY_CLASS, class("x", 7, false))
        .await
        .unwrap();
    let made = world.create(&POD, pod("p", "x")).await.unwrap();
    assert_eq!(made.object().at("/spec/priority"), Some(&json!(7)));
    assert_eq!(
        made.object().text_at("/spec/preemptionPolicy"),
        "PreemptLowerPriority"
    );
    let plain = world.create(&POD, pod("q", "")).await.unwrap();
    assert_eq!(plain.object().at("/spec/priority"), Some(&json!(0)));
    for (name, value) in [("usual", 3), ("unusual", 9)] {
        world
            .create(&PRIORITY_CLASS, class(name, value, true))
            .await
            .unwrap();
    }
    let usual = world.create(&POD, pod("r", "")).await.unwrap();
    assert_eq!(usual.object().text_at("/spec/priorityClassName"), "usual");
    assert_eq!(usual.object().at("/spec/priority"), Some(&json!(3)));
}

#[tokio::test(start_paused = true)]
async fn bare_pods_stay_300_s_and_daemon_pods_for_good() {
    let world = World::start().await;
    world.agent_up("n1").await;
    let bare = world.bare_pod("p", "n1", json!([])).await;
    assert_eq!(
        bare.object().at("/spec/tolerations"),
        Some(&json!([
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        ]))
    );
    assert_eq!(bare.object().text_at("/spec/serviceAccountName"), "default");
    assert_eq!(bare.object().text_at("/spec/serviceAccount"), "default");
    world.daemon("web", "web").await;
    world.until("two pods", 5, || world.pods().len() == 2).await;
    let pods = world.pods();
    let daemon = pods.iter().find(|pod| pod.name() != "p").unwrap();
    let limited = daemon.at("/spec/tolerations").unwrap().as_array().unwrap();
    assert!(limited.iter().all(|t| t.get("tolerationSeconds").is_none()));
}
