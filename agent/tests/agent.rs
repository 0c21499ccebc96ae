//! The agent as a whole: with the in-memory engine, a server in memory, and the paused clock.

#![allow(missing_docs, reason = "a test binary")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests may spawn what they drop")]

mod support;

use std::time::Duration;

use muster_agent::runtime::ContainerState;
use muster_agent::runtime::RuntimeError;
use muster_agent::runtime::memory::{Behaviour, Call, PullScript};
use muster_agent::{AgentError, ConfigError};
use muster_proto::v1::LogsQuery;
use serde_json::{Value, json};
use support::{Node, container, pod, pod_with};

fn running() -> Node {
    let mut node = Node::new();
    node.start();
    node
}

fn reasons(node: &Node, uid: &str) -> Vec<String> {
    let state = node.server.state();
    let of_pod = state
        .events
        .iter()
        .filter(|e| e["involvedObject"]["uid"] == uid);
    of_pod
        .map(|e| e["reason"].as_str().unwrap().to_owned())
        .collect()
}

fn waiting(node: &Node, uid: &str) -> Value {
    node.server.status(uid)["containerStatuses"][0]["state"]["waiting"].clone()
}

async fn until_waiting(node: &Node, uid: &str, reason: &str) {
    let holds = |state: &support::State| {
        let pod = state.pods.get(uid);
        let found =
            pod.map(|p| p.text_at("/status/containerStatuses/0/state/waiting/reason") == reason);
        found == Some(true)
    };
    node.server.until(reason, holds).await;
}

#[tokio::test(start_paused = true)]
async fn na_001_the_node_is_registered_and_ready() {
    let node = running();
    node.server
        .until("the node is there", |state| state.node.is_some())
        .await;
    let object = node.server.state().node.clone().unwrap();
    assert_eq!(object.label("kubernetes.io/os"), Some("linux"));
    let ready = &object.at("/status/conditions/3").unwrap();
    assert_eq!(
        (ready["type"].as_str(), ready["status"].as_str()),
        (Some("Ready"), Some("True"))
    );
    assert_eq!(object.text_at("/status/allocatable/cpu"), "2");
    assert_eq!(object.text_at("/status/nodeInfo/machineID"), "machine-1");
    let said = |state: &support::State| {
        state
            .events
            .iter()
            .any(|e| e["message"] == "Starting agent.")
    };
    node.server.until("it says that it starts", said).await;
}

#[tokio::test(start_paused = true)]
async fn na_004_a_forbidden_label_ends_the_agent() {
    let mut node = Node::new();
    node.config
        .labels
        .insert("kubernetes.io/foo".into(), "1".into());
    node.start();
    let ended = node.ended().await;
    assert!(
        matches!(ended, Err(AgentError::Config(ConfigError::ForbiddenLabel(label))) if label == "kubernetes.io/foo")
    );
}

#[tokio::test(start_paused = true)]
async fn na_007_heartbeats_come_every_ten_seconds_and_change_nothing() {
    let node = running();
    node.server
        .until("the first one", |state| state.heartbeats == 1)
        .await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    let beats = node.server.state().heartbeats;
    assert!((3..=5).contains(&beats), "{beats}");
}

#[tokio::test(start_paused = true)]
async fn na_008_a_deleted_node_is_registered_again_and_no_container_changes() {
    let node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    let before = node.containers();
    node.server.state().node = None;
    node.server
        .until("it is back", |state| state.node.is_some())
        .await;
    assert_eq!(node.server.state().registrations, 2);
    assert_eq!(node.containers(), before);
}

#[tokio::test(start_paused = true)]
async fn a_node_given_up_over_a_link_that_stood_still_is_told_of_again_at_once() {
    let node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    node.server.lose_sight();
    let begun = tokio::time::Instant::now();
    node.server
        .until("the node is ready again, and its pod", |state| {
            let status = state
                .node
                .as_ref()
                .unwrap()
                .at("/status/conditions/3/status");
            status.is_some_and(|status| status == "True") && support::is_ready(state, &uid)
        })
        .await;
    let waited = begun.elapsed();
    assert!(
        waited < Duration::from_secs(5),
        "{waited:?} on the paused clock"
    );
    assert_eq!(node.server.state().registrations, 1);
}

#[tokio::test(start_paused = true)]
async fn two_agents_never_share_a_state_directory() {
    let mut node = running();
    node.server
        .until("the node is there", |state| state.node.is_some())
        .await;
    let first = std::mem::replace(&mut node, Node::new());
    node.config.state_dir.clone_from(&first.config.state_dir);
    node.start();
    assert!(matches!(node.ended().await, Err(AgentError::Locked(_))));
}

#[tokio::test(start_paused = true)]
async fn na_010_a_reboot_is_told_once() {
    let mut node = running();
    node.server
        .until("the node is there", |state| state.node.is_some())
        .await;
    node.stop().await;
    node.config.machine.boot_id = "boot-2".into();
    for _ in 0..2 {
        node.start();
        tokio::time::sleep(Duration::from_secs(5)).await;
        node.stop().await;
    }
    let state = node.server.state();
    let told: Vec<_> = state
        .events
        .iter()
        .filter(|e| e["reason"] == "Rebooted")
        .collect();
    assert_eq!(told.len(), 1);
    assert_eq!(
        told[0]["message"],
        "Node n1 has been rebooted, boot id: boot-2"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_runs_and_is_told_of() {
    let node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    let status = node.server.status(&uid);
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["hostIP"], "10.0.0.1");
    let started = |state: &support::State| state.events.iter().any(|e| e["reason"] == "Started");
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
async fn na_027_a_restart_rejects_nothing_that_runs() {
    let mut node = running();
    let mut c = container("c");
    c["resources"] = json!({"requests": {"cpu": "1"}});
    let uids: Vec<String> = ["a", "b"]
        .iter()
        .map(|name| {
            node.server
                .put_pod(pod_with(name, json!({"containers": [c]})))
        })
        .collect();
    for uid in &uids {
        node.server.until_running(uid).await;
    }
    let before = node.containers();
    node.stop().await;
    // Even where the machine has become smaller.
    node.config.capacity = muster_agent::Amounts::parse("cpu=500m").unwrap();
    node.start();
    node.server
        .until("registered again", |state| state.registrations == 2)
        .await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(node.containers(), before);
    assert_eq!(node.server.state().ready_lost, Vec::<String>::new());
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
    let changed = |_: &support::State| std::fs::read_to_string(&path).is_ok_and(|text| text == "2");
    node.server.until("the file changes", changed).await;
}

#[tokio::test(start_paused = true)]
async fn na_066_a_crash_loop_is_told_with_its_delay() {
    let node = running();
    node.engine
        .set_behaviour("t:1", Behaviour::crashing(Duration::from_millis(10), 1));
    let uid = node.server.put_pod(pod("p"));
    until_waiting(&node, &uid, "CrashLoopBackOff").await;
    let twenty = |state: &support::State| {
        let message = state.pods[&uid].text_at("/status/containerStatuses/0/state/waiting/message");
        message == "back-off 20s restarting failed container=c pod=p_default(uid-p)"
    };
    node.server.until("the delay grows", twenty).await;
    assert_eq!(node.server.status(&uid)["phase"], "Running");
    let told = |state: &support::State| state.events.iter().any(|e| e["reason"] == "BackOff");
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
async fn na_069_policies_never_and_present() {
    let node = running();
    let mut c = container("c");
    c["image"] = json!("no:1");
    c["imagePullPolicy"] = json!("Never");
    let uid = node
        .server
        .put_pod(pod_with("p", json!({"containers": [c]})));
    until_waiting(&node, &uid, "ErrImageNeverPull").await;
    assert_eq!(
        waiting(&node, &uid)["message"],
        "Container image \"no:1\" is not present with pull policy of Never"
    );
    node.engine.add_image("no:1");
    node.server.until_running(&uid).await;
}

#[tokio::test(start_paused = true)]
async fn na_070_an_image_loaded_by_hand_ends_the_back_off_without_a_pull() {
    let node = running();
    let mut c = container("c");
    c["image"] = json!("127.0.0.1:5999/x:1");
    let uid = node
        .server
        .put_pod(pod_with("p", json!({"containers": [c]})));
    until_waiting(&node, &uid, "ErrImagePull").await;
    until_waiting(&node, &uid, "ImagePullBackOff").await;
    let message = waiting(&node, &uid)["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with("Back-off pulling image \"127.0.0.1:5999/x:1\": ErrImagePull: "),
        "{message}"
    );
    node.engine.add_image("127.0.0.1:5999/x:1");
    let pulls = node.engine.count(Call::Pull);
    node.server.until_running(&uid).await;
    assert_eq!(node.engine.count(Call::Pull), pulls);
}

#[tokio::test(start_paused = true)]
async fn na_071_without_a_registry_a_local_image_serves_always() {
    for (fallback, runs) in [(true, true), (false, false)] {
        let mut node = Node::new();
        node.config.offline_image_fallback = fallback;
        let unreachable = RuntimeError::RegistryUnreachable("dial tcp: connection refused".into());
        node.engine.add_pullable(
            "t:1",
            PullScript {
                delay: Duration::ZERO,
                failures: vec![unreachable; 50],
            },
        );
        node.start();
        let mut c = container("c");
        c["imagePullPolicy"] = json!("Always");
        let uid = node
            .server
            .put_pod(pod_with("p", json!({"containers": [c]})));
        if runs {
            node.server.until_running(&uid).await;
        } else {
            until_waiting(&node, &uid, "ErrImagePull").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn na_072_an_image_name_that_is_none() {
    let node = running();
    let mut c = container("c");
    c["image"] = json!("UPPER:1");
    let uid = node
        .server
        .put_pod(pod_with("p", json!({"containers": [c]})));
    until_waiting(&node, &uid, "InvalidImageName").await;
}

#[tokio::test(start_paused = true)]
async fn na_073_a_deleted_pod_is_stopped_confirmed_and_leaves_nothing() {
    let node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.server.delete_pod(&uid, 30);
    node.server
        .until("it is confirmed", |state| state.gone == [uid.clone()])
        .await;
    let gone = |_: &support::State| node.containers().is_empty();
    node.server.until("nothing is left", gone).await;
    let state_dir = node.config.state_dir.as_ref().unwrap();
    let forgotten = |_: &support::State| {
        !state_dir.join("pods/uid-p").exists()
            && !state_dir.join("checkpoint/pods/uid-p.json").exists()
    };
    node.server.until("its files are gone", forgotten).await;
}

#[tokio::test(start_paused = true)]
async fn na_074_a_container_that_ignores_the_signal_is_killed_after_the_grace() {
    let node = running();
    node.engine.set_behaviour(
        "t:1",
        Behaviour {
            ignore_term: true,
            ..Behaviour::default()
        },
    );
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    let began = node.clock.monotonic();
    node.server.delete_pod(&uid, 3);
    node.server
        .until("it is confirmed", |state| !state.gone.is_empty())
        .await;
    let took = node.clock.monotonic() - began;
    assert!((3..=5).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn na_016_a_pod_that_was_force_deleted_is_stopped_without_a_confirmation() {
    let node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.server.force_delete(&uid);
    let gone = |_: &support::State| node.containers().is_empty();
    node.server.until("nothing is left", gone).await;
    assert_eq!(node.server.state().gone, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_the_same_name_waits_for_the_former_one() {
    let node = running();
    node.engine.set_behaviour(
        "t:1",
        Behaviour {
            term_delay: Duration::from_secs(5),
            ..Behaviour::default()
        },
    );
    let former = node.server.put_pod(pod("p"));
    node.server.until_running(&former).await;
    node.server.force_delete(&former);
    let mut next = pod("p");
    next["metadata"]["uid"] = json!("uid-next");
    let next = node.server.put_pod(next);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let uids = |node: &Node| -> Vec<String> {
        node.containers()
            .iter()
            .map(|c| c.labels["io.kubernetes.pod.uid"].clone())
            .collect()
    };
    assert!(!uids(&node).contains(&next));
    node.server.until_running(&next).await;
    assert!(!uids(&node).contains(&former));
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
async fn na_092_a_restarted_agent_changes_no_container() {
    let mut node = running();
    let uids: Vec<String> = ["a", "b", "c"]
        .iter()
        .map(|name| node.server.put_pod(pod(name)))
        .collect();
    for uid in &uids {
        node.server.until_running(uid).await;
    }
    let before = node.containers();
    for _ in 0..3 {
        node.stop().await;
        tokio::time::sleep(Duration::from_secs(7)).await;
        node.start();
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(node.containers(), before);
    assert_eq!(node.server.state().ready_lost, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn na_093_a_death_while_the_agent_is_down_is_told_with_its_own_time() {
    let mut node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.stop().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let died = node.clock.now();
    node.engine.end(&node.named("c")[0].id, 7);
    tokio::time::sleep(Duration::from_secs(60)).await;
    node.start();
    let counted = |state: &support::State| {
        state.pods[&uid].at("/status/containerStatuses/0/restartCount") == Some(&json!(1))
    };
    node.server.until("it restarts", counted).await;
    let last = node.server.status(&uid)["containerStatuses"][0]["lastState"]["terminated"].clone();
    assert_eq!(last["exitCode"], 7);
    assert_eq!(
        last["finishedAt"],
        muster_model::time::to_seconds_text(died)
    );
}

#[tokio::test(start_paused = true)]
async fn na_094_a_pod_deleted_while_the_agent_is_down_is_stopped() {
    let mut node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.stop().await;
    node.server.force_delete(&uid);
    assert_eq!(node.containers().len(), 2);
    node.start();
    let gone = |_: &support::State| node.containers().is_empty();
    node.server.until("nothing is left", gone).await;
}

#[tokio::test(start_paused = true)]
async fn an_orphan_without_any_checkpoint_is_stopped_once_the_snapshot_is_there() {
    let mut node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.stop().await;
    std::fs::remove_dir_all(node.config.state_dir.as_ref().unwrap().join("checkpoint")).unwrap();
    node.server.force_delete(&uid);
    node.server.go_down();
    node.start();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(
        node.containers().len(),
        2,
        "nothing is stopped before the server was heard"
    );
    node.server.come_up();
    let gone = |_: &support::State| node.containers().is_empty();
    node.server.until("nothing is left", gone).await;
}

#[tokio::test(start_paused = true)]
async fn na_095_without_a_server_containers_are_restarted_and_told_of_later() {
    let node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.server.go_down();
    tokio::time::sleep(Duration::from_secs(30)).await;
    node.engine.end(&node.named("c")[0].id, 137);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        node.named("c")
            .iter()
            .filter(|c| matches!(c.state, ContainerState::Running { .. }))
            .count(),
        1
    );
    node.server.come_up();
    let counted = |state: &support::State| {
        state.pods[&uid].at("/status/containerStatuses/0/restartCount") == Some(&json!(1))
    };
    node.server.until("it is told", counted).await;
}

#[tokio::test(start_paused = true)]
async fn na_096_pods_come_back_from_the_checkpoint_after_a_reboot_without_a_server() {
    let mut node = running();
    node.server.put_object(
        "configmaps",
        json!({"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}}),
    );
    let mut c = container("c");
    c["env"] = json!([{"name": "V", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]);
    let uid = node
        .server
        .put_pod(pod_with("p", json!({"containers": [c]})));
    node.server.until_running(&uid).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    node.stop().await;
    node.server.go_down();
    for container in node.containers() {
        node.engine.remove_by_hand(&container.id);
    }
    node.config.machine.boot_id = "boot-2".into();
    node.start();
    let up = |_: &support::State| node.named("c").len() == 1;
    node.server.until("it runs again", up).await;
    assert_eq!(node.named("POD")[0].name, "k8s_POD_p_default_uid-p_1");
    assert_eq!(node.named("c")[0].name, "k8s_c_p_default_uid-p_1");
    node.server.come_up();
    let counted = |state: &support::State| {
        state.pods[&uid].at("/status/containerStatuses/0/restartCount") == Some(&json!(1))
    };
    node.server.until("it is told", counted).await;
}

#[tokio::test(start_paused = true)]
async fn na_098_a_server_that_knows_nothing_is_asked_twice() {
    let mut node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.stop().await;
    {
        let mut state = node.server.state();
        state.cluster_id = "cluster-2".into();
        state.pods.clear();
    }
    node.start();
    node.server
        .until("it registers", |state| state.registrations == 2)
        .await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(node.containers().len(), 2);
    let gone = |_: &support::State| node.containers().is_empty();
    node.server.until("nothing is left", gone).await;
}

#[tokio::test(start_paused = true)]
async fn na_099_an_engine_that_stops_makes_the_node_not_ready_and_no_crash_loop() {
    let node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.engine.go_down();
    let ready = |state: &support::State| {
        state
            .node
            .as_ref()
            .unwrap()
            .text_at("/status/conditions/3/status")
            .to_owned()
    };
    node.server
        .until("not ready", |state| ready(state) == "False")
        .await;
    node.engine.come_up();
    node.server
        .until("ready", |state| ready(state) == "True")
        .await;
    let counted = |state: &support::State| {
        state.pods[&uid].at("/status/containerStatuses/0/restartCount") == Some(&json!(1))
            && support::is_ready(state, &uid)
    };
    node.server.until("it runs again", counted).await;
    assert!(!reasons(&node, &uid).contains(&"BackOff".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn na_101_without_its_sandbox_the_pod_is_made_anew() {
    let node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.engine.remove_by_hand(&node.named("POD")[0].id);
    let anew = |_: &support::State| {
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
async fn an_idle_agent_is_idle() {
    let node = running();
    node.server
        .until("the node is there", |state| state.node.is_some())
        .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let lists = node.engine.count(Call::List);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(
        node.engine.count(Call::List),
        lists,
        "with no pods there is nothing to look at"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hollow_node_runs_pods_without_a_disk() {
    let mut node = Node::new();
    node.config.state_dir = None;
    node.start();
    let mut c = container("c");
    c["volumeMounts"] = json!([{"name": "v", "mountPath": "/m"}]);
    let volumes = json!([{"name": "v", "configMap": {"name": "m"}}]);
    let spec = json!({"containers": [c], "volumes": volumes});
    let uid = node.server.put_pod(pod_with("p", spec));
    node.server.until_running(&uid).await;
    node.server.delete_pod(&uid, 1);
    let gone = |_: &support::State| node.containers().is_empty();
    node.server.until("nothing is left", gone).await;
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
    let restarted = |state: &support::State| {
        state.pods[&uid].text_at("/status/containerStatuses/0/image") == "t:2"
            && support::is_ready(state, &uid)
    };
    node.server.until("it runs the new image", restarted).await;
    assert_eq!(node.named("POD")[0].id, sandbox);
    assert_eq!(
        node.server.status(&uid)["containerStatuses"][0]["restartCount"],
        1
    );
}

#[tokio::test(start_paused = true)]
async fn na_097_a_damaged_checkpoint_skips_its_pod_and_no_other() {
    let mut node = running();
    let uids: Vec<String> = ["a", "b"]
        .iter()
        .map(|name| node.server.put_pod(pod(name)))
        .collect();
    for uid in &uids {
        node.server.until_running(uid).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    node.stop().await;
    node.server.go_down();
    for container in node.containers() {
        node.engine.remove_by_hand(&container.id);
    }
    let checkpoint = node.config.state_dir.as_ref().unwrap().join("checkpoint");
    std::fs::write(checkpoint.join("pods/uid-a.json"), "muster 1 0\n{").unwrap();
    node.start();
    let other = |_: &support::State| node.containers().len() == 2;
    node.server.until("the other pod runs", other).await;
    assert!(checkpoint.join("bad/uid-a.json").exists());
    assert!(
        node.containers()
            .iter()
            .all(|c| c.labels["io.kubernetes.pod.uid"] == "uid-b")
    );
}

#[tokio::test(start_paused = true)]
async fn na_098_a_doubt_outlives_the_connection() {
    let mut node = running();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    node.stop().await;
    {
        let mut state = node.server.state();
        state.cluster_id = "cluster-2".into();
        state.pods.clear();
    }
    node.start();
    node.server
        .until("it registers", |state| state.registrations == 2)
        .await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    node.server.go_down();
    tokio::time::sleep(Duration::from_secs(10)).await;
    node.server.come_up();
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(node.containers().len(), 2);
    let gone = |_: &support::State| node.containers().is_empty();
    node.server.until("nothing is left", gone).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_started_is_not_started_again_while_the_engine_cannot_be_looked_at() {
    let node = running();
    for call in [Call::RunSandbox, Call::Start] {
        node.server
            .until("the node is there", |state| state.node.is_some())
            .await;
        let name = format!("p-{call:?}").to_lowercase();
        for _ in 0..6 {
            let error = RuntimeError::Refused {
                status: 500,
                message: "not now".into(),
            };
            node.engine.fail_next("n1", Call::ListPod, error);
        }
        let before = node.engine.count(call);
        let uid = node.server.put_pod(pod(&name));
        node.server.until_running(&uid).await;
        assert_eq!(node.engine.count(call), before + 1, "{call:?}");
    }
    assert_eq!(node.containers().len(), 4);
}
