//! Images of the next revision, pulled while the pod of the last one runs: with the in-memory engine and the paused clock.

#![allow(missing_docs, reason = "a test binary")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests may spawn what they drop")]
#![allow(dead_code, reason = "the support is shared with other test binaries")]

mod support;

use std::time::Duration;

use muster_agent::runtime::RuntimeError;
use muster_agent::runtime::memory::{Call, PullScript};
use muster_model::pre_pull::{Answer, CONDITION, Request, State as Pulls};
use serde_json::{Value, json};
use support::node::Node;
use support::server::{State, is_ready};
use support::{container, pod, pod_with};

fn request(revision: &str, images: &[(&str, &str)]) -> Request {
    let images = images
        .iter()
        .map(|(reference, policy)| ((*reference).to_owned(), (*policy).to_owned()));
    Request {
        revision: revision.into(),
        images: images.collect(),
    }
}

/// Asks on a pod that is there, as the controller does.
fn ask(node: &Node, uid: &str, text: Option<&str>) {
    let mut tree = node.server.state().pods[uid].tree().clone();
    tree["metadata"]["annotations"] = match text {
        Some(text) => json!({"muster.dev/pre-pull": text}),
        None => json!({}),
    };
    node.server.put_pod(tree);
}

fn condition(state: &State, uid: &str, type_: &str) -> Option<Value> {
    let conditions = state.pods.get(uid)?.at("/status/conditions")?.as_array()?;
    conditions.iter().find(|c| c["type"] == type_).cloned()
}

fn answer(state: &State, uid: &str) -> Option<Answer> {
    let found = condition(state, uid, CONDITION)?;
    Answer::read(found["reason"].as_str()?, found["message"].as_str()?)
}

async fn until_answer(node: &Node, uid: &str, revision: &str, pulls: Pulls) {
    let wanted = Some(Answer {
        revision: revision.into(),
        state: pulls,
    });
    let what = format!("the answer is {wanted:?}");
    node.server
        .until(&what, |state| answer(state, uid) == wanted)
        .await;
}

fn slow(seconds: u64, failures: Vec<RuntimeError>) -> PullScript {
    PullScript {
        delay: Duration::from_secs(seconds),
        failures,
    }
}

fn pulled(node: &Node) -> Vec<String> {
    let calls = node.engine.calls();
    let pulls = calls.into_iter().filter(|call| call.call == Call::Pull);
    pulls.map(|call| call.target).collect()
}

async fn running() -> (Node, String) {
    let mut node = Node::new();
    node.start();
    let uid = node.server.put_pod(pod("p"));
    node.server.until_running(&uid).await;
    (node, uid)
}

#[tokio::test(start_paused = true)]
async fn a_slow_pull_costs_the_running_pod_nothing() {
    let (node, uid) = running().await;
    let before = node.containers();
    let ready = condition(&node.server.state(), &uid, "Ready");
    node.engine.add_pullable("t:2", slow(300, Vec::new()));
    let images = [("t:1", "IfNotPresent"), ("t:2", "IfNotPresent")];
    ask(&node, &uid, Some(&request("r2", &images).text()));
    until_answer(&node, &uid, "r2", Pulls::Pulling).await;
    until_answer(&node, &uid, "r2", Pulls::Pulled).await;
    assert_eq!(pulled(&node), ["t:2"], "what is there is not pulled");
    assert_eq!(node.containers(), before);
    assert_eq!(condition(&node.server.state(), &uid, "Ready"), ready);
    assert!(node.server.state().ready_lost.is_empty());
    let told = |state: &State| {
        let messages = state.events.iter().map(|e| e["message"].as_str().unwrap());
        messages
            .into_iter()
            .any(|m| m == "For the next revision r2: Pulling image \"t:2\"")
    };
    node.server.until("it is told in an event", told).await;

    ask(&node, &uid, None);
    let gone = |state: &State| answer(state, &uid).is_none() && is_ready(state, &uid);
    node.server
        .until("the answer goes with the question", gone)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_pull_is_tried_again_until_it_succeeds() {
    let (node, uid) = running().await;
    let refused = RuntimeError::Refused {
        status: 500,
        message: "disk is full".into(),
    };
    node.engine
        .add_pullable("t:1", slow(0, vec![refused.clone(); 2]));
    // It is here, but `Always` wants it pulled, as the start of the pod would.
    ask(
        &node,
        &uid,
        Some(&request("r2", &[("t:1", "Always")]).text()),
    );
    let why = Pulls::Failed(format!("t:1: {refused}"));
    until_answer(&node, &uid, "r2", why).await;
    until_answer(&node, &uid, "r2", Pulls::Pulled).await;
    assert_eq!(pulled(&node).len(), 3);
    assert!(node.server.state().ready_lost.is_empty());
}

/// Waits until the container of the pod waits for its image, whose registry fails.
async fn until_refused(node: &Node, uid: &str) {
    let refused = |state: &State| {
        let pod = &state.pods[uid];
        let reason = pod.text_at("/status/containerStatuses/0/state/waiting/reason");
        reason == "ErrImagePull"
    };
    node.server
        .until("its image cannot be pulled", refused)
        .await;
}

#[tokio::test(start_paused = true)]
async fn what_was_pulled_early_is_not_pulled_again_while_no_pod_runs() {
    let (node, uid) = running().await;
    node.engine.add_pullable("t:2", slow(5, Vec::new()));
    let tried = muster_model::pre_pull::tried("r2", 1);
    let asked = request(&tried, &[("t:2", "Always")]).text();
    ask(&node, &uid, Some(&asked));
    until_answer(&node, &uid, &tried, Pulls::Pulled).await;
    let busy = RuntimeError::Refused {
        status: 500,
        message: "toomanyrequests".into(),
    };
    node.engine.add_pullable("t:2", slow(0, vec![busy; 99]));
    node.server.delete_pod(&uid, 1);

    let of_revision = |name: &str, revision: &str| {
        let mut c = container("c");
        c["image"] = json!("t:2");
        c["imagePullPolicy"] = json!("Always");
        let mut pod = pod_with(name, json!({"containers": [c]}));
        pod["metadata"]["labels"] = json!({"controller-revision-hash": revision});
        pod
    };
    let next = node.server.put_pod(of_revision("next", "r2"));
    node.server.until_running(&next).await;
    assert_eq!(pulled(&node), ["t:2"]);
    let other = node.server.put_pod(of_revision("other", "r3"));
    until_refused(&node, &other).await;

    // It serves the first start only, and not for ever.
    let id = node.named("c").last().unwrap().id.clone();
    node.engine.end(&id, 1);
    until_refused(&node, &next).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let late = node.server.put_pod(of_revision("late", "r2"));
    until_refused(&node, &late).await;
}

#[tokio::test(start_paused = true)]
async fn never_means_never() {
    let (node, uid) = running().await;
    node.engine.add_pullable("t:2", slow(0, Vec::new()));
    ask(
        &node,
        &uid,
        Some(&request("r2", &[("t:2", "Never")]).text()),
    );
    let missing = "t:2: Container image \"t:2\" is not present with pull policy of Never";
    until_answer(&node, &uid, "r2", Pulls::Failed(missing.into())).await;
    node.engine.add_image("t:2");
    until_answer(&node, &uid, "r2", Pulls::Pulled).await;
    assert_eq!(pulled(&node), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_agent_restarted_in_the_middle_goes_on_and_restarts_nothing() {
    let (mut node, uid) = running().await;
    let before = node.containers();
    node.engine.add_pullable("t:2", slow(60, Vec::new()));
    node.engine.add_image("t:3");
    let images = [("t:3", "IfNotPresent"), ("t:2", "IfNotPresent")];
    ask(&node, &uid, Some(&request("r2", &images).text()));
    until_answer(&node, &uid, "r2", Pulls::Pulling).await;
    node.server
        .until("the pull began", |_| !pulled(&node).is_empty())
        .await;
    node.stop().await;
    node.start();
    until_answer(&node, &uid, "r2", Pulls::Pulled).await;
    assert_eq!(pulled(&node), ["t:2", "t:2"]);
    let answered = condition(&node.server.state(), &uid, CONDITION);

    let (told, pulls) = (node.server.state().status_messages, pulled(&node));
    node.stop().await;
    node.start();
    node.server
        .until("it tells its pods", |state| state.status_messages > told)
        .await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(condition(&node.server.state(), &uid, CONDITION), answered);
    assert_eq!(pulled(&node), pulls, "the engine has it");
    assert_eq!(node.containers(), before);
    assert!(node.server.state().ready_lost.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_early_pull_holds_up_no_container_and_is_shared_with_one() {
    let (node, uid) = running().await;
    node.engine.add_pullable("slow:2", slow(600, Vec::new()));
    node.engine.add_pullable("t:9", slow(5, Vec::new()));
    let wanted = request("r2", &[("slow:2", "Always")]).text();
    ask(&node, &uid, Some(&wanted));
    node.server
        .until("the pull began", |_| !pulled(&node).is_empty())
        .await;
    let with = |image: &str| {
        let mut c = container("c");
        c["image"] = json!(image);
        json!({"containers": [c]})
    };
    let other = node.server.put_pod(pod_with("other", with("t:9")));
    node.server.until_running(&other).await;
    assert_eq!(
        answer(&node.server.state(), &uid).map(|answer| answer.state),
        Some(Pulls::Pulling)
    );
    let same = node.server.put_pod(pod_with("same", with("slow:2")));
    node.server.until_running(&same).await;
    until_answer(&node, &uid, "r2", Pulls::Pulled).await;
    assert_eq!(pulled(&node), ["slow:2", "t:9"], "each once");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_breaks_off_its_early_pull_and_goes() {
    let (node, uid) = running().await;
    node.engine.add_pullable("t:2", slow(86_400, Vec::new()));
    ask(
        &node,
        &uid,
        Some(&request("r2", &[("t:2", "Always")]).text()),
    );
    until_answer(&node, &uid, "r2", Pulls::Pulling).await;
    node.server.delete_pod(&uid, 5);
    node.server
        .until("it is confirmed", |state| state.gone.contains(&uid))
        .await;
    assert_eq!(pulled(&node), ["t:2"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_read_is_told_in_an_event() {
    let (node, uid) = running().await;
    ask(&node, &uid, Some("true"));
    let told = |state: &State| {
        let warnings = state.events.iter().filter(|e| e["type"] == "Warning");
        warnings.filter(|e| e["reason"] == "InvalidPrePull").count() == 1
    };
    node.server.until("a warning on the pod", told).await;
    assert_eq!(answer(&node.server.state(), &uid), None);
    assert!(is_ready(&node.server.state(), &uid));
}
