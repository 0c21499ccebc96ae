//! Images of the next revision on real Docker, without any registry.

use muster_agent::runtime::Runtime;
use muster_model::pre_pull::{Answer, CONDITION, Request};
use serde_json::{Value, json};

use super::IMAGE;
use super::agent::RealNode;
use super::ports::DeafPort;
use super::support::server::State;

fn condition(state: &State, uid: &str) -> Option<Value> {
    let conditions = state.pods.get(uid)?.at("/status/conditions")?.as_array()?;
    conditions.iter().find(|c| c["type"] == CONDITION).cloned()
}

/// Asks for images and waits for a settled answer: its reason and its message.
async fn asked(node: &RealNode, uid: &str, revision: &str, images: &[(&str, &str)]) -> String {
    let images = images
        .iter()
        .map(|(reference, policy)| ((*reference).to_owned(), (*policy).to_owned()));
    let request = Request {
        revision: revision.into(),
        images: images.collect(),
    };
    let mut tree = node.server.state().pods[uid].tree().clone();
    tree["metadata"]["annotations"] = json!({"muster.dev/pre-pull": request.text()});
    node.server.put_pod(tree);
    let settled = |state: &State| {
        let found = condition(state, uid)?;
        let (reason, message) = (found["reason"].as_str()?, found["message"].as_str()?);
        let answer = Answer::read(reason, message)?;
        (answer.revision == revision && reason != "Pulling").then(|| format!("{reason} {message}"))
    };
    node.server
        .until("an answer", |state| settled(state).is_some())
        .await;
    settled(&node.server.state()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_images_are_looked_for_without_touching_the_pod() {
    let node = RealNode::new("prepull").await;
    let container = json!({"name": "c", "image": IMAGE, "imagePullPolicy": "IfNotPresent"});
    let spec = json!({"hostNetwork": true, "containers": [container]});
    let uid = node.server.put_pod(node.pod("p", spec));
    node.server.until_running(&uid).await;
    let before = node.runtime.list_pod(&uid).await.unwrap();

    let present = asked(
        &node,
        &uid,
        "r2",
        &[(IMAGE, "IfNotPresent"), (IMAGE, "Never")],
    )
    .await;
    assert_eq!(present, "Pulled r2: all images are there");
    let never = asked(&node, &uid, "r3", &[("nosuch.invalid/x:1", "Never")]).await;
    assert_eq!(
        never,
        "PullFailed r3: nosuch.invalid/x:1: Container image \"nosuch.invalid/x:1\" is not present with pull policy \
         of Never"
    );
    let nobody = DeafPort::new();
    let missing = format!("{}/x:1", nobody.address());
    let unreachable = asked(
        &node,
        &uid,
        "r4",
        &[(IMAGE, "Never"), (&missing, "IfNotPresent")],
    )
    .await;
    assert!(
        unreachable.starts_with(&format!("PullFailed r4: {missing}: ")),
        "{unreachable}"
    );

    assert_eq!(node.runtime.list_pod(&uid).await.unwrap(), before);
    assert!(node.server.state().ready_lost.is_empty());
    node.delete(&uid).await;
}
