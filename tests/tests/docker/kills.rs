//! Server and agents are killed with SIGKILL, and what happens while they are gone.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use muster_agent::runtime::{ContainerState, ContainerView, Runtime, labels};
use muster_model::kind::POD;
use muster_model::object::Object;
use muster_model::time::{Timestamp, parse, to_seconds_text};
use muster_testkit::{Fleet, condition, is_ready};
use serde_json::json;

use super::{History, IMAGE, container_id, daemon_set, log_with, pod, restarts, shell, status};

fn label<'a>(view: &'a ContainerView, key: &str) -> &'a str {
    view.labels.get(key).map_or("", String::as_str)
}

/// The one running container of an app on a node.
async fn only(fleet: &Fleet, node: &str, app: &str) -> ContainerView {
    let mut running = fleet.running(node).await;
    running.retain(|view| label(view, labels::POD_NAME).starts_with(app));
    assert_eq!(running.len(), 1, "{app} on {node}: {running:#?}");
    running.remove(0)
}

fn time(pod: &Object, pointer: &str) -> Timestamp {
    parse(status(pod, pointer).as_str().unwrap_or_default()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_while_it_places_doubles_and_loses_nothing() {
    let nodes = ["n1", "n2", "n3", "n4"];
    let sets = ["red", "green", "blue"];
    let mut fleet = Fleet::with_nodes(&[IMAGE], &nodes).await.unwrap();
    let idle = json!({});
    let path = fleet.directory().join("sets.yaml");
    let all = sets.map(|name| daemon_set(name, &idle).to_string());
    fs::write(&path, all.join("\n---\n")).unwrap();
    fleet
        .ok(&["apply", "-f", &path.display().to_string()])
        .await;
    fleet
        .eventually("the first pods are there", || async {
            (!fleet.list(&POD).await.is_empty()).then_some(())
        })
        .await;
    fleet.kill_server();
    fleet.start_server().await.unwrap();
    let mut wanted = BTreeMap::new();
    for name in sets {
        for pod in fleet.until_ready(name, nodes.len()).await {
            wanted.insert(
                pod.uid().to_owned(),
                pod.text_at("/spec/nodeName").to_owned(),
            );
        }
    }
    let mut found = BTreeMap::new();
    for node in nodes {
        let running = fleet.running(node).await;
        for name in sets {
            only(&fleet, node, name).await;
        }
        let uid = |view: &ContainerView| label(view, labels::POD_UID).to_owned();
        found.extend(running.iter().map(|view| (uid(view), fleet.node(node))));
    }
    assert_eq!(found, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn na_092_case_b73_a_killed_agent_comes_back_and_touches_nothing() {
    let mut fleet = Fleet::with_nodes(&[IMAGE], &["n1"]).await.unwrap();
    let node = fleet.node("n1");
    for name in ["calm-1", "calm-2"] {
        fleet.apply(&pod(name, &node, &json!({}))).await;
    }
    let crash = json!({"command": shell("exit 3")});
    fleet.apply(&pod("crash", &node, &crash)).await;
    for name in ["calm-1", "calm-2"] {
        fleet.until_pod(name, is_ready).await;
    }
    let is_waiting = |pod: &Object| status(pod, "/state/waiting/reason") == "CrashLoopBackOff";
    let crashed = fleet
        .until_pod("crash", |pod| is_waiting(pod) && restarts(pod) >= 1)
        .await;
    let before = [
        fleet.until_pod("calm-1", is_ready).await,
        fleet.until_pod("calm-2", is_ready).await,
    ];
    let history = History::of_pods(&fleet).await;
    fleet.kill_agent("n1");
    fleet.start_agent("n1").unwrap();
    // It keeps its delay, and that it goes on shows that the agent is back.
    let again = fleet
        .until_pod("crash", |pod| {
            restarts(pod) > restarts(&crashed) && is_waiting(pod)
        })
        .await;
    assert_eq!(restarts(&again), restarts(&crashed) + 1);
    let waited = time(&again, "/lastState/terminated/startedAt").as_second()
        - time(&crashed, "/lastState/terminated/finishedAt").as_second();
    assert!(waited >= 8, "{waited} s");
    for former in &before {
        let now = fleet.until_pod(former.name(), is_ready).await;
        assert_eq!(container_id(&now), container_id(former));
        assert_eq!(
            status(&now, "/state/running/startedAt"),
            status(former, "/state/running/startedAt")
        );
        assert_eq!((restarts(&now), restarts(former)), (0, 0));
        assert_eq!(now.uid(), former.uid());
        let versions = history.of(former.name());
        assert!(!versions.is_empty());
        for version in versions {
            assert_eq!(condition(&version, "Ready"), "True", "{version:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn na_093_094_what_happened_while_the_agent_was_down_is_noticed() {
    let mut fleet = Fleet::with_nodes(&[IMAGE, "trap:1"], &["n1"])
        .await
        .unwrap();
    let node = fleet.node("n1");
    let script = "trap 'exit 7' TERM; echo ready; while :; do sleep 60 & wait $!; done";
    let dies = pod("dies", &node, &json!({"command": shell(script)}));
    fleet.apply(&dies).await;
    fleet
        .apply(&pod("deleted", &node, &json!({"image": "trap:1"})))
        .await;
    fleet.until_pod("dies", is_ready).await;
    fleet.until_pod("deleted", is_ready).await;
    // Before its trap is set, process 1 of a container does not hear of SIGTERM.
    log_with(&fleet, "dies", "ready").await;
    log_with(&fleet, "deleted", "started").await;
    fleet.kill_agent("n1");

    let victim = only(&fleet, "n1", "dies").await.id;
    let runtime = fleet.runtime("n1");
    runtime.stop(&victim, Duration::from_secs(5)).await.unwrap();
    let views = runtime.list().await.unwrap();
    let ended = views.iter().find(|view| view.id == victim).unwrap();
    let ContainerState::Exited { finished_at, .. } = ended.state else {
        panic!("{ended:?}")
    };
    fleet
        .ok(&["delete", "pod", "deleted", "--wait=false"])
        .await;
    assert_eq!(fleet.running("n1").await.len(), 1);

    fleet.start_agent("n1").unwrap();
    let back = fleet
        .until_pod("dies", |pod| restarts(pod) == 1 && is_ready(pod))
        .await;
    let ended = status(&back, "/lastState/terminated");
    assert_eq!(ended["exitCode"], 7, "{ended}");
    assert_eq!(ended["finishedAt"], to_seconds_text(finished_at), "{ended}");
    fleet
        .eventually("the deleted pod is gone, and its containers", || async {
            let views = fleet.runtime("n1").list().await.ok()?;
            let left = views
                .iter()
                .any(|view| label(view, labels::POD_NAME) == "deleted");
            (fleet.find(&POD, "deleted").await.is_none() && !left).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn na_095_101_without_a_server_a_killed_container_comes_back() {
    let mut fleet = Fleet::with_nodes(&[IMAGE], &["n1"]).await.unwrap();
    let node = fleet.node("n1");
    fleet.apply(&pod("p", &node, &json!({}))).await;
    let first = fleet.until_pod("p", is_ready).await;
    fleet.kill_server();
    let victim = only(&fleet, "n1", "p").await.id;
    let runtime = fleet.runtime("n1");
    runtime.stop(&victim, Duration::ZERO).await.unwrap();
    fleet
        .eventually("another container runs", || async {
            let running = fleet.running("n1").await;
            (running.len() == 1 && running[0].id != victim).then_some(())
        })
        .await;
    fleet.start_server().await.unwrap();
    let second = fleet
        .until_pod("p", |pod| restarts(pod) == 1 && is_ready(pod))
        .await;
    assert_eq!(second.uid(), first.uid());

    let views = runtime.list().await.unwrap();
    let is_sandbox = |view: &&ContainerView| label(view, labels::TYPE) == labels::TYPE_SANDBOX;
    let sandbox = views.iter().find(is_sandbox).unwrap();
    runtime.remove(&sandbox.id).await.unwrap();
    let third = fleet
        .until_pod("p", |pod| {
            container_id(pod) != container_id(&second) && is_ready(pod)
        })
        .await;
    assert_eq!((third.uid(), restarts(&third)), (first.uid(), 2));
    let views = runtime.list().await.unwrap();
    let sandboxes: Vec<_> = views.iter().filter(is_sandbox).collect();
    assert!(
        sandboxes.len() == 1 && sandboxes[0].name.ends_with("_1"),
        "{sandboxes:?}"
    );
    fleet
        .eventually("the change of sandbox is told", || async {
            (!fleet.events("p", "SandboxChanged").await.is_empty()).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn na_096_097_after_a_reboot_without_a_server_pods_run_from_their_files() {
    let mut fleet = Fleet::with_nodes(&[IMAGE], &["n1"]).await.unwrap();
    let node = fleet.node("n1");
    let data = json!({"key": "from the map"});
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
    fleet.apply(&map).await;
    let data = json!({"key": "from the secret"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": data});
    fleet.apply(&secret).await;
    let main = json!({
        "command": shell("cat /m/key; echo; cat /s/key; echo; echo done; exec /bin/main"),
        "volumeMounts": [{"name": "m", "mountPath": "/m"}, {"name": "s", "mountPath": "/s"}],
    });
    let mut kept = pod("kept", &node, &main);
    kept["spec"]["volumes"] = json!([
        {"name": "m", "configMap": {"name": "m"}}, {"name": "s", "secret": {"secretName": "s"}},
    ]);
    fleet.apply(&kept).await;
    fleet.apply(&pod("damaged", &node, &json!({}))).await;
    let kept = fleet.until_pod("kept", is_ready).await;
    let damaged = fleet.until_pod("damaged", is_ready).await;
    // A restart count is on disk some seconds after it was seen.
    let checkpoint = fleet.state_dir("n1").join("checkpoint");
    let file = |pod: &Object| checkpoint.join(format!("pods/{}.json", pod.uid()));
    for pod in [&kept, &damaged] {
        fleet
            .eventually("the container is in the checkpoint", || async {
                let text = fs::read_to_string(file(pod)).ok()?;
                text.contains(container_id(pod)).then_some(())
            })
            .await;
    }
    let file = file(&damaged);

    fleet.kill_server();
    fleet.kill_agent("n1");
    let runtime = fleet.runtime("n1");
    for view in runtime.list().await.unwrap() {
        runtime.remove(&view.id).await.unwrap();
    }
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();

    fleet.start_agent("n1").unwrap();
    let running = fleet
        .eventually("the whole pod runs again", || async {
            let mut running = fleet.running("n1").await;
            running.pop().filter(|_| running.is_empty())
        })
        .await;
    assert_eq!(label(&running, labels::POD_UID), kept.uid());
    assert_eq!(label(&running, labels::RESTART_COUNT), "1");
    let views = runtime.list().await.unwrap();
    let sandbox = views
        .iter()
        .find(|view| label(view, labels::TYPE) == labels::TYPE_SANDBOX)
        .unwrap();
    assert!(sandbox.name.ends_with("_1"), "{}", sandbox.name);
    let bad = checkpoint.join("bad").join(file.file_name().unwrap());
    assert!(bad.exists() && !file.exists());
    assert!(
        fleet.agent_log("n1").contains(damaged.uid()),
        "{}",
        fleet.agent_log("n1")
    );

    fleet.start_server().await.unwrap();
    let back = fleet
        .until_pod("kept", |pod| restarts(pod) == 1 && is_ready(pod))
        .await;
    assert_eq!(back.uid(), kept.uid());
    let text = log_with(&fleet, "kept", "done").await;
    assert!(
        text.starts_with("from the map\nfrom the secret\ndone\n"),
        "{text}"
    );
    // The server still has the other one.
    let other = fleet
        .until_pod("damaged", |pod| {
            container_id(pod) != container_id(&damaged) && is_ready(pod)
        })
        .await;
    assert_eq!(other.uid(), damaged.uid());
}

#[tokio::test(flavor = "multi_thread")]
async fn case_b21_a_set_made_anew_while_its_node_was_down_runs_once() {
    let mut fleet = Fleet::with_nodes(&[IMAGE], &["n1"]).await.unwrap();
    fleet.apply(&daemon_set("web", &json!({}))).await;
    let old = fleet.until_ready("web", 1).await.remove(0);
    fleet.kill_agent("n1");
    fleet.ok(&["delete", "ds", "web", "--wait=false"]).await;
    fleet
        .eventually("the old set is gone", || async {
            let name = "web";
            fleet
                .find(&muster_model::kind::DAEMON_SET, name)
                .await
                .is_none()
                .then_some(())
        })
        .await;
    fleet.apply(&daemon_set("web", &json!({}))).await;
    fleet.start_agent("n1").unwrap();
    let new = fleet
        .eventually("only the new pod is left, and runs", || async {
            let pods = fleet.pods("web").await;
            let [pod] = &pods[..] else { return None };
            (pod.uid() != old.uid() && is_ready(pod)).then(|| pod.clone())
        })
        .await;
    let running = fleet.running("n1").await;
    assert_eq!(running.len(), 1, "{running:#?}");
    assert_eq!(label(&running[0], labels::POD_UID), new.uid());
}
