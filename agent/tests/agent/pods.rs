//! Pods that run, wait, crash and change.

use std::time::Duration;

use muster_agent::runtime::ContainerState;
use muster_agent::runtime::memory::Behaviour;
use muster_proto::v1::LogsQuery;
use serde_json::json;

use crate::support::server::{State, is_ready};
use crate::support::{container, pod, pod_with};
use crate::{reasons, running, until_waiting, waiting};

#[tokio::test(start_paused = true)]
async fn a_pod_runs_and_is_told_of() {
    let node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    let status = node.server.status(&uid);
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["hostIP"], "10.0.0.1");
    let started = |state: &State| state.events.iter().any(|e| e["reason"] == "Started");
    node.server.until("events arrive", started).await;
    assert_eq!(reasons(&node, &uid), ["Pulled", "Created", "Started"]);
    let names: Vec<_> = node.containers().into_iter().map(|c| c.name).collect();
    assert_eq!(
        names,
        ["k8s_POD_p_default_uid-p_0", "k8s_c_p_default_uid-p_0"]
    );
    let directory = node.config.state_dir.as_ref().unwrap().join("pods/uid-p");
    let hosts = std::fs::read_to_string(directory.join("etc-hosts")).unwrap();
    assert!(hosts.contains("\tp\n"), "{hosts}");
}

#[tokio::test(start_paused = true)]
async fn na_018_a_pod_that_does_not_fit_fails_and_nothing_is_made() {
    let node = running();
    let sized = |name: &str, cpu: &str| {
        let mut c = container("c");
        c["resources"] = json!({"requests": {"cpu": cpu}});
        pod_with(name, json!({"containers": [c]}))
    };
    let first = node.server.put_pod(sized("first", "1800m"));
    node.server.until_running(&first).await;
    let uid = node.server.put_pod(sized("second", "500m"));
    node.server
        .until("it fails", |state| {
            state.pods[&uid].text_at("/status/phase") == "Failed"
        })
        .await;
    let status = node.server.status(&uid);
    assert_eq!(status["reason"], "OutOfcpu");
    assert_eq!(
        status["message"],
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 500, used: 1800, capacity: 2000"
    );
    assert_eq!(node.containers().len(), 2);
    node.server
        .until("it is told", |state| {
            state.events.iter().any(|e| e["reason"] == "OutOfcpu")
        })
        .await;
    // The room comes back with the first pod's end.
    node.server.delete_pod(&first, 1);
    node.server
        .until("it is gone", |state| state.gone.len() == 1)
        .await;
    let third = node.server.put_pod(sized("third", "500m"));
    node.server.until_running(&third).await;
}

#[tokio::test(start_paused = true)]
async fn na_035_a_container_waits_for_its_map() {
    let node = running();
    let mut c = container("c");
    c["env"] = json!([{"name": "V", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]);
    let uid = node
        .server
        .put_pod(pod_with("p", json!({"containers": [c]})));
    until_waiting(&node, &uid, "CreateContainerConfigError").await;
    assert_eq!(waiting(&node, &uid)["message"], "configmap \"m\" not found");
    assert_eq!(
        node.server.status(&uid)["containerStatuses"][0]["restartCount"],
        0
    );
    node.server.put_object(
        "configmaps",
        json!({"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}}),
    );
    node.server.until_running(&uid).await;
}

#[tokio::test(start_paused = true)]
async fn na_057_a_mounted_map_follows_its_object() {
    let node = running();
    let map =
        |value: &str| json!({"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": value}});
    node.server.put_object("configmaps", map("1"));
    let mut c = container("c");
    c["volumeMounts"] = json!([{"name": "v", "mountPath": "/m"}]);
    let volumes = json!([{"name": "v", "configMap": {"name": "m"}}]);
    let uid = node.server.put_pod(pod_with(
        "p",
        json!({"containers": [c], "volumes": volumes}),
    ));
    node.server.until_running(&uid).await;
    let path = node
        .config
        .state_dir
        .as_ref()
        .unwrap()
        .join("pods/uid-p/volumes/kubernetes.io~configmap/v/a");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "1");
    tokio::time::sleep(Duration::from_secs(2)).await;
    node.server.put_object("configmaps", map("2"));
    let changed = |_: &State| std::fs::read_to_string(&path).is_ok_and(|text| text == "2");
    node.server.until("the file changes", changed).await;
}

#[tokio::test(start_paused = true)]
async fn na_066_a_crash_loop_is_told_with_its_delay() {
    let node = running();
    node.engine
        .set_behaviour("t:1", Behaviour::crashing(Duration::from_millis(10), 1));
    let uid = node.server.put_pod(pod("p"));
    until_waiting(&node, &uid, "CrashLoopBackOff").await;
    let twenty = |state: &State| {
        let message = state.pods[&uid].text_at("/status/containerStatuses/0/state/waiting/message");
        message == "back-off 20s restarting failed container=c pod=p_default(uid-p)"
    };
    node.server.until("the delay grows", twenty).await;
    assert_eq!(node.server.status(&uid)["phase"], "Running");
    let told = |state: &State| state.events.iter().any(|e| e["reason"] == "BackOff");
    node.server.until("the event", told).await;
    // na_105: the dead are collected, but for one.
    tokio::time::sleep(Duration::from_secs(130)).await;
    let dead = node
        .named("c")
        .into_iter()
        .filter(|c| matches!(c.state, ContainerState::Exited { .. }))
        .count();
    assert!(dead <= 2, "{dead} dead containers");
}

#[tokio::test(start_paused = true)]
async fn na_087_logs_come_over_the_tunnel() {
    let node = running();
    let lines = vec!["one".to_owned(), "two".to_owned(), "three".to_owned()];
    node.engine.set_behaviour(
        "t:1",
        Behaviour {
            log_lines: lines,
            ..Behaviour::default()
        },
    );
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    let query = LogsQuery {
        pod: "p".into(),
        pod_uid: uid,
        tail_lines: Some(2),
        ..LogsQuery::default()
    };
    assert_eq!(
        node.server.logs(query.clone()).await,
        Ok("two\nthree\n".into())
    );
    let cut = LogsQuery {
        tail_lines: None,
        limit_bytes: Some(5),
        ..query.clone()
    };
    assert_eq!(node.server.logs(cut).await, Ok("one\nt".into()));
    let previous = LogsQuery {
        previous: true,
        ..query
    };
    let message = "previous terminated container \"c\" in pod \"p\" not found";
    assert_eq!(node.server.logs(previous).await, Err((400, message.into())));
}

#[tokio::test(start_paused = true)]
async fn na_101_without_its_sandbox_the_pod_is_made_anew() {
    let node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.engine.remove_by_hand(&node.named("POD")[0].id);
    let anew = |_: &State| {
        node.named("POD")
            .last()
            .is_some_and(|s| s.name.ends_with("_1"))
    };
    node.server.until("a new sandbox", anew).await;
    node.server
        .until("it is told", |state| {
            state.events.iter().any(|e| e["reason"] == "SandboxChanged")
        })
        .await;
    node.server.until_running(&uid).await;
}

#[tokio::test(start_paused = true)]
async fn many_pods_come_up_and_their_statuses_travel_together() {
    let node = running();
    let uids: Vec<String> = (0..40)
        .map(|n| node.server.put_pod(pod(&format!("p{n}"))))
        .collect();
    for uid in &uids {
        node.server.until_running(uid).await;
    }
    assert_eq!(node.containers().len(), 80);
    let messages = node.server.state().status_messages;
    assert!(messages < 100, "{messages} messages for 40 pods");
}

#[tokio::test(start_paused = true)]
async fn na_078_a_changed_image_restarts_the_container_in_its_sandbox() {
    let node = running();
    node.engine.add_image("t:2");
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    let sandbox = node.named("POD")[0].id.clone();
    let mut changed = pod("p");
    changed["spec"]["containers"][0]["image"] = json!("t:2");
    node.server.put_pod(changed);
    let restarted = |state: &State| {
        state.pods[&uid].text_at("/status/containerStatuses/0/image") == "t:2"
            && is_ready(state, &uid)
    };
    node.server.until("it runs the new image", restarted).await;
    assert_eq!(node.named("POD")[0].id, sandbox);
    assert_eq!(
        node.server.status(&uid)["containerStatuses"][0]["restartCount"],
        1
    );
}
