//! Probes with the whole agent: the in-memory engine, a server in memory, and the paused clock.

#![allow(missing_docs, reason = "a test binary")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests may spawn what they drop")]

#[allow(dead_code, reason = "made for more tests than these")]
mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use muster_agent::runtime::memory::{Behaviour, Call, ExecAnswer, HttpAnswer};
use muster_agent::runtime::{ContainerState, RuntimeError};
use serde_json::{Value, json};
use support::node::Node;
use support::server::State;
use support::{container, pod_with};

const START: Duration = Duration::ZERO;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A node whose agent is no longer young, with containers that behave like this.
async fn node(behaviour: Behaviour) -> Node {
    let mut node = Node::new();
    node.engine.set_behaviour("t:1", behaviour);
    node.start();
    tokio::time::sleep(seconds(60)).await;
    node
}

fn pod(probes: Value) -> Value {
    let mut c = container("c");
    for (name, probe) in probes.as_object().unwrap() {
        c[name] = probe.clone();
    }
    pod_with("p", json!({"containers": [c]}))
}

fn exec(command: &str) -> Value {
    json!({"command": command.split(' ').collect::<Vec<_>>()})
}

fn status_of(state: &State, uid: &str) -> Value {
    let status = state.pods[uid].at("/status/containerStatuses/0");
    status.cloned().unwrap_or_default()
}

fn messages(state: &State, reason: &str) -> Vec<String> {
    let of_reason = state.events.iter().filter(|e| e["reason"] == reason);
    of_reason
        .map(|e| e["message"].as_str().unwrap().to_owned())
        .collect()
}

async fn until_said(node: &Node, reason: &str, message: &str) {
    let said = |state: &State| messages(state, reason).iter().any(|m| m == message);
    node.server.until(message, said).await;
}

#[tokio::test(start_paused = true)]
async fn na_080_readiness_gates_ready_and_restarts_nothing() {
    let node = node(Behaviour {
        http: vec![
            HttpAnswer::new("/bad", START, 503),
            HttpAnswer::new("/bad", seconds(300), 200),
        ],
        ..Behaviour::default()
    })
    .await;
    let uid = node.server.put_pod(pod(
        json!({"readinessProbe": {"httpGet": {"path": "/bad", "port": 8080}}}),
    ));
    let text = "Readiness probe failed: HTTP probe failed with statuscode: 503";
    until_said(&node, "Unhealthy", text).await;
    tokio::time::sleep(seconds(200)).await;
    let status = node.server.status(&uid);
    let ready = status["conditions"].as_array().unwrap();
    let ready = ready.iter().find(|c| c["type"] == "Ready").unwrap();
    assert_eq!(
        (&ready["status"], &ready["reason"], &ready["message"]),
        (
            &json!("False"),
            &json!("ContainersNotReady"),
            &json!("containers with unready status: [c]")
        )
    );
    let c = &status["containerStatuses"][0];
    assert_eq!((&c["ready"], &c["started"]), (&json!(false), &json!(true)));
    node.server.until_running(&uid).await;
    let ContainerState::Running { started_at, .. } = node.named("c")[0].state else {
        panic!("it runs on");
    };
    let took = node.clock.now().duration_since(started_at);
    assert!((300..=311).contains(&took.as_secs()), "{took:?}");
    assert_eq!(node.named("c").len(), 1);
    assert_eq!(
        node.server.status(&uid)["containerStatuses"][0]["restartCount"],
        0
    );
}

#[tokio::test(start_paused = true)]
async fn na_081_a_failed_liveness_probe_restarts_by_the_usual_back_off() {
    let node = node(Behaviour {
        execs: vec![ExecAnswer::new("false", START, 1)],
        ..Behaviour::default()
    })
    .await;
    let probe = json!({"exec": exec("false"), "periodSeconds": 1, "failureThreshold": 3});
    let uid = node.server.put_pod(pod(json!({"livenessProbe": probe})));
    let restarted = |state: &State| status_of(state, &uid)["restartCount"] == 1;
    node.server.until("it is restarted", restarted).await;
    let ContainerState::Exited {
        started_at,
        finished_at,
        ..
    } = node.named("c")[0].state
    else {
        panic!("it was killed");
    };
    let ran = finished_at.duration_since(started_at).as_secs();
    assert!((2..=4).contains(&ran), "{ran}");
    until_said(
        &node,
        "Killing",
        "Container c failed liveness probe, will be restarted",
    )
    .await;
    until_said(&node, "Unhealthy", "Liveness probe failed: ").await;
    let rests =
        |state: &State| status_of(state, &uid)["state"]["waiting"]["reason"] == "CrashLoopBackOff";
    node.server.until("the second one rests", rests).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_startup_probe_kills_within_its_own_grace() {
    let node = node(Behaviour {
        execs: vec![ExecAnswer::new("up", START, 1)],
        ignore_term: true,
        ..Behaviour::default()
    })
    .await;
    let probe = json!({
        "exec": exec("up"), "periodSeconds": 1, "failureThreshold": 1, "terminationGracePeriodSeconds": 7});
    let uid = node.server.put_pod(pod(json!({"startupProbe": probe})));
    let restarted = |state: &State| status_of(state, &uid)["restartCount"] == 1;
    node.server.until("it is restarted", restarted).await;
    let ContainerState::Exited {
        started_at,
        finished_at,
        exit_code,
        ..
    } = node.named("c")[0].state
    else {
        panic!("it was killed");
    };
    let ran = finished_at.duration_since(started_at).as_secs();
    assert_eq!((exit_code, ran), (137, 7));
    until_said(
        &node,
        "Killing",
        "Container c failed startup probe, will be restarted",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn na_082_liveness_waits_for_a_slow_start() {
    let node = node(Behaviour {
        execs: vec![
            ExecAnswer::new("up", START, 1),
            ExecAnswer::new("up", seconds(20), 0),
            ExecAnswer::new("alive", START, 1),
            ExecAnswer::new("alive", seconds(20), 0),
        ],
        ..Behaviour::default()
    })
    .await;
    let uid = node.server.put_pod(pod(json!({
        "startupProbe": {"exec": exec("up"), "periodSeconds": 5, "failureThreshold": 10},
        "livenessProbe": {"exec": exec("alive"), "periodSeconds": 1, "failureThreshold": 1}})));
    node.server
        .until("it runs", |state| {
            !status_of(state, &uid)["state"]["running"].is_null()
        })
        .await;
    tokio::time::sleep(seconds(17)).await;
    let c = node.server.status(&uid)["containerStatuses"][0].clone();
    assert_eq!((&c["started"], &c["ready"]), (&json!(false), &json!(false)));
    node.server.until_running(&uid).await;
    tokio::time::sleep(seconds(60)).await;
    let c = node.server.status(&uid)["containerStatuses"][0].clone();
    assert_eq!(
        (&c["started"], &c["restartCount"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(node.named("c").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn na_083_a_command_that_takes_too_long_has_failed() {
    let slow = ExecAnswer {
        takes: seconds(5),
        ..ExecAnswer::new("sleep 5", START, 0)
    };
    let node = node(Behaviour {
        execs: vec![slow],
        ..Behaviour::default()
    })
    .await;
    let uid = node.server.put_pod(pod(
        json!({"readinessProbe": {"exec": exec("sleep 5"), "timeoutSeconds": 1}}),
    ));
    let text = "Readiness probe failed: command timed out: \"sleep 5\" timed out after 1s";
    until_said(&node, "Unhealthy", text).await;
    assert_eq!(status_of(&node.server.state(), &uid)["ready"], false);
}

#[tokio::test(start_paused = true)]
async fn a_command_in_a_paused_container_has_failed() {
    let node = node(Behaviour::default()).await;
    let uid = node.server.put_pod(pod(json!({
        "readinessProbe": {"exec": exec("true"), "periodSeconds": 1, "failureThreshold": 1}})));
    node.server.until_running(&uid).await;
    let paused = "Container x is paused, unpause the container before exec";
    let conflict = RuntimeError::Conflict(paused.into());
    node.engine.fail_next("n1", Call::Exec, conflict);
    let lost = |state: &State| state.ready_lost == [uid.clone()];
    node.server.until("it is not ready", lost).await;
    until_said(
        &node,
        "Unhealthy",
        &format!("Readiness probe failed: {paused}"),
    )
    .await;
    node.server.until_running(&uid).await;
}

#[tokio::test(start_paused = true)]
async fn na_084_closed_ports_and_grpc_servers_that_do_not_serve() {
    let node = node(Behaviour {
        closed_ports: BTreeSet::from([81]),
        grpc_health: 2,
        ..Behaviour::default()
    })
    .await;
    let uid = node.server.put_pod(pod(json!({
        "readinessProbe": {"tcpSocket": {"port": 81}},
        "livenessProbe": {"grpc": {"port": 82}, "failureThreshold": 9}})));
    let grpc = "Liveness probe failed: service unhealthy (responded with \"NOT_SERVING\")";
    until_said(&node, "Unhealthy", grpc).await;
    let ip = node.server.status(&uid)["podIP"]
        .as_str()
        .unwrap()
        .to_owned();
    let tcp = format!("Readiness probe failed: dial tcp {ip}:81: connect: connection refused");
    until_said(&node, "Unhealthy", &tcp).await;
    assert_eq!(status_of(&node.server.state(), &uid)["ready"], false);
}

#[tokio::test(start_paused = true)]
async fn na_085_a_redirect_to_another_host_is_a_success_with_a_warning() {
    let redirect = HttpAnswer {
        location: "http://redirected.invalid/".into(),
        ..HttpAnswer::new("/redir", START, 302)
    };
    let node = node(Behaviour {
        http: vec![redirect],
        ..Behaviour::default()
    })
    .await;
    let uid = node.server.put_pod(pod(
        json!({"readinessProbe": {"httpGet": {"path": "/redir", "port": 8080}}}),
    ));
    node.server.until_running(&uid).await;
    let text = "Readiness probe warning: Probe terminated redirects, Response body: ";
    until_said(&node, "ProbeWarning", text).await;
}

#[tokio::test(start_paused = true)]
async fn case_b73_restarts_of_the_agent_cost_no_pod_its_readiness() {
    let mut node = node(Behaviour::default()).await;
    let uid = node.server.put_pod(pod(
        json!({"readinessProbe": {"exec": exec("true"), "periodSeconds": 30}}),
    ));
    node.server.until_running(&uid).await;
    let before = node.containers();
    let probed = node.engine.count(Call::Exec);
    for _ in 0..5 {
        tokio::time::sleep(seconds(10)).await;
        node.stop().await;
        tokio::time::sleep(seconds(3)).await;
        node.start();
        tokio::time::sleep(seconds(10)).await;
        assert_eq!(status_of(&node.server.state(), &uid)["ready"], true);
    }
    tokio::time::sleep(seconds(60)).await;
    assert_eq!(node.server.state().ready_lost, Vec::<String>::new());
    assert_eq!(node.containers(), before);
    assert!(node.engine.count(Call::Exec) > probed, "probing goes on");
}

#[tokio::test(start_paused = true)]
async fn case_b75_a_startup_probe_that_passed_is_not_run_again() {
    let mut node = node(Behaviour {
        execs: vec![
            ExecAnswer::new("once", START, 0),
            ExecAnswer::new("once", seconds(20), 1),
        ],
        ..Behaviour::default()
    })
    .await;
    let uid = node.server.put_pod(pod(json!({
        "startupProbe": {"exec": exec("once"), "periodSeconds": 1, "failureThreshold": 1}})));
    node.server.until_running(&uid).await;
    tokio::time::sleep(seconds(60)).await;
    let before = node.containers();
    let probed = node.engine.count(Call::Exec);
    node.stop().await;
    node.start();
    tokio::time::sleep(seconds(120)).await;
    assert_eq!(status_of(&node.server.state(), &uid)["started"], true);
    assert_eq!(node.containers(), before);
    assert_eq!(node.engine.count(Call::Exec), probed);
    assert_eq!(node.server.state().ready_lost, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn readiness_is_asked_for_until_the_end_of_a_pod() {
    let node = node(Behaviour {
        execs: vec![
            ExecAnswer::new("ready", START, 0),
            ExecAnswer::new("ready", seconds(40), 1),
        ],
        ignore_term: true,
        ..Behaviour::default()
    })
    .await;
    let uid = node.server.put_pod(pod(json!({
        "readinessProbe": {"exec": exec("ready"), "periodSeconds": 1},
        "livenessProbe": {"exec": exec("ready"), "periodSeconds": 1}})));
    node.server.until_running(&uid).await;
    tokio::time::sleep(seconds(30)).await;
    node.server.delete_pod(&uid, 60);
    let unready = |state: &State| {
        let c = status_of(state, &uid);
        c["ready"] == false && !c["state"]["running"].is_null()
    };
    node.server
        .until("it is not ready while it ends", unready)
        .await;
    let gone = |state: &State| state.gone.contains(&uid);
    node.server.until("it is gone", gone).await;
    assert_eq!(
        messages(&node.server.state(), "Killing"),
        ["Stopping container c"]
    );
}
