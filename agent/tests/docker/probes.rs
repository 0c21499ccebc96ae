//! Probes of real containers.

use std::time::Duration;

use muster_agent::runtime::docker::DockerEngine;
use muster_agent::runtime::{ContainerId, ContainerState, ExecOutcome, Runtime, labels};
use serde_json::json;

use super::agent::RealNode;
use super::support::server::State;
use super::{IMAGE, images, socket};

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// The container of this name.
async fn id_of(node: &RealNode, uid: &str, name: &str) -> ContainerId {
    let all = node.runtime.list_pod(uid).await.unwrap();
    let named = all
        .into_iter()
        .find(|c| c.labels.get(labels::CONTAINER_NAME).map(String::as_str) == Some(name));
    named.unwrap().id
}

#[tokio::test(flavor = "multi_thread")]
async fn na_080_na_082_na_083_probes_of_real_containers() {
    let node = RealNode::new("probes").await;
    images::ensure_images(&DockerEngine::new(socket()), &["web:1"])
        .await
        .expect("Docker takes an image");
    let started = json!({"exec": {"command": ["test", "-e", "/tmp/up"]}, "periodSeconds": 1, "failureThreshold": 60,
                         "timeoutSeconds": 10});
    let ready = json!({"httpGet": {"path": "/bad", "port": "http"}, "periodSeconds": 1, "timeoutSeconds": 10});
    let containers = json!([
        {"name": "e", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "startupProbe": started},
        {"name": "w", "image": "web:1", "imagePullPolicy": "IfNotPresent", "readinessProbe": ready,
         "ports": [{"name": "http", "containerPort": 8080}]}]);
    let uid = node
        .server
        .put_pod(node.pod("p", json!({"containers": containers})));
    let said =
        |text: &'static str| move |state: &State| state.events.iter().any(|e| e["message"] == text);
    let bad = "Readiness probe failed: HTTP probe failed with statuscode: 503";
    node.server.until(bad, said(bad)).await;
    let down = "Startup probe failed: ";
    node.server.until(down, said(down)).await;
    // Events and statuses are told by themselves, each a little later.
    let started = |state: &State| {
        let containers = state.pods[&uid].at("/status/containerStatuses").cloned();
        let containers = containers.unwrap_or_default();
        [(0, false), (1, true)].into_iter().all(|(index, started)| {
            let c = &containers[index];
            (&c["started"], &c["ready"]) == (&json!(started), &json!(false))
        })
    };
    node.server.until("one of them is started", started).await;

    let limit = Duration::from_secs(10);
    let (e, w) = (id_of(&node, &uid, "e").await, id_of(&node, &uid, "w").await);
    let told = ["sh", "-c", "touch /tmp/up; echo out; echo err >&2; exit 3"].map(str::to_owned);
    let ended = node.runtime.exec(&e, &told, limit).await.unwrap();
    assert_eq!(ended.exit_code, Some(3));
    let mut lines: Vec<_> = ended.output.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["err", "out"]);
    let well = ExecOutcome {
        exit_code: Some(0),
        ..ExecOutcome::default()
    };
    let touched = node
        .runtime
        .exec(&w, &words("touch /tmp/good"), limit)
        .await;
    assert_eq!(touched, Ok(well));
    node.server.until_running(&uid).await;
    let status = node.server.status(&uid);
    for index in 0..2 {
        let c = &status["containerStatuses"][index];
        assert_eq!(
            (&c["started"], &c["restartCount"]),
            (&json!(true), &json!(0))
        );
    }

    let long = node
        .runtime
        .exec(&e, &words("seq 100000"), limit)
        .await
        .unwrap();
    assert_eq!((long.exit_code, long.output.len()), (Some(0), 10_240));
    // Where the engine's processes are in sight, a command that is too slow is ended; elsewhere it ends when it will.
    let all = node.runtime.list_pod(&uid).await.unwrap();
    let ContainerState::Running { pid, .. } = all.iter().find(|c| c.id == e).unwrap().state else {
        panic!("it runs");
    };
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let command = if groups.contains(&e.0) {
        "sleep 600"
    } else {
        "sleep 20"
    };
    let slow = node
        .runtime
        .exec(&e, &words(command), Duration::from_secs(5))
        .await
        .unwrap();
    assert_eq!(slow.exit_code, None);
    let without_it = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            let seen = node.runtime.exec(&e, &words("ps"), limit).await.unwrap();
            if seen.exit_code == Some(0) && !seen.output.contains(command) {
                return seen.output;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let processes = without_it.await.expect("the command is ended");
    assert!(
        processes.contains("sleep 3600"),
        "the container's own is seen: {processes}"
    );
    node.delete(&uid).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_container_is_not_ready_until_it_goes_on() {
    let node = RealNode::new("paused").await;
    let ready = json!({"exec": {"command": ["true"]}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 10});
    let container = json!({"name": "c", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "readinessProbe": ready});
    let spec = json!({"hostNetwork": true, "containers": [container]});
    let uid = node.server.put_pod(node.pod("p", spec));
    node.server.until_running(&uid).await;
    let id = id_of(&node, &uid, "c").await;
    let path = socket();
    let newest = bollard::API_DEFAULT_VERSION;
    let engine = bollard::Docker::connect_with_unix(path.to_str().unwrap(), 60, newest).unwrap();
    let engine = engine.negotiate_version().await.unwrap();
    engine.pause_container(&id.0).await.unwrap();
    let lost = |state: &State| state.ready_lost == [uid.clone()];
    node.server.until("it is not ready", lost).await;
    engine.unpause_container(&id.0).await.unwrap();
    node.server.until_running(&uid).await;
    assert_eq!(
        node.server.status(&uid)["containerStatuses"][0]["restartCount"],
        json!(0)
    );
    node.delete(&uid).await;
}
