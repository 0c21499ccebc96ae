//! The controllers' way in: many writes, few transactions, each answered for itself.

#![allow(
    clippy::unwrap_used,
    reason = "a test may stop at what it did not expect"
)]

mod support;

use std::sync::Arc;

use muster_model::kind::{CONFIG_MAP, POD};
use muster_model::object::{NamespacedName, Object};
use muster_server::auth::Caller;
use muster_server::registry::{DeleteOptions, Precondition, Write};
use muster_server::status::ApiError;
use serde_json::json;
use support::{Cluster, pod};

fn create(name: &str) -> Write {
    Write::create(&POD, Object::from_value(pod(name, "n1")).unwrap())
}

fn label(name: &str, value: &'static str) -> Write {
    Write::edit(
        &POD,
        NamespacedName::new("default", name),
        Precondition::default(),
        move |pod| {
            pod.set_label("seen", value);
            Ok(())
        },
    )
}

#[tokio::test]
async fn writes_of_a_batch_share_one_revision_and_a_bad_one_fails_alone() {
    let cluster = Cluster::start().await;
    let caller = Caller::internal("test");
    let mut invalid = pod("bad", "n1");
    invalid["spec"]["containers"] = json!([]);
    let mut nowhere = pod("lost", "n1");
    nowhere["metadata"]["namespace"] = "nowhere".into();
    let mut writes: Vec<Write> = (0..250).map(|n| create(&format!("p{n:03}"))).collect();
    writes.insert(
        100,
        Write::create(&POD, Object::from_value(invalid).unwrap()),
    );
    writes.insert(
        200,
        Write::create(&POD, Object::from_value(nowhere).unwrap()),
    );
    let before = cluster.registry().cache().revision();
    let answers = cluster.registry().commit(&caller, writes).await;
    let refused: Vec<(usize, String)> = answers
        .iter()
        .enumerate()
        .filter_map(|(index, answer)| {
            answer
                .as_ref()
                .err()
                .map(|error| (index, error.message().to_owned()))
        })
        .collect();
    assert_eq!(refused.len(), 2);
    assert!(
        refused[0]
            .1
            .starts_with("Pod \"bad\" is invalid: spec.containers: Required value"),
        "{refused:?}"
    );
    assert_eq!(
        refused[1],
        (200, "namespaces \"nowhere\" not found".to_owned())
    );
    let revisions: std::collections::BTreeSet<u64> = answers
        .iter()
        .flatten()
        .map(|stored| stored.revision.0)
        .collect();
    assert_eq!(revisions.into_iter().collect::<Vec<_>>(), [before.0 + 1]);
    assert_eq!(
        cluster.registry().cache().pods_on_node("n1").len(),
        250,
        "the writer reads its own writes"
    );
}

#[tokio::test]
async fn writes_to_one_object_happen_in_the_order_given() {
    let cluster = Cluster::start().await;
    let caller = Caller::internal("test");
    let writes = vec![
        create("p"),
        label("p", "one"),
        label("p", "two"),
        Write::delete(
            &POD,
            NamespacedName::new("default", "p"),
            DeleteOptions {
                grace_seconds: Some(0),
                ..DeleteOptions::default()
            },
        ),
        create("p"),
    ];
    let answers: Vec<Arc<_>> = cluster
        .registry()
        .commit(&caller, writes)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(answers[1].object().label("seen"), Some("one"));
    assert_eq!(answers[2].object().label("seen"), Some("two"));
    assert_eq!(answers[4].object().label("seen"), None);
    assert_ne!(answers[0].uid(), answers[4].uid());
}

#[tokio::test]
async fn racing_edits_all_happen() {
    let cluster = Arc::new(Cluster::start().await);
    let caller = Caller::internal("test");
    let map = json!({"metadata": {"name": "counter", "namespace": "default"}, "data": {"n": "0"}});
    let write = Write::create(&CONFIG_MAP, Object::from_value(map).unwrap());
    cluster.registry().write(&caller, write).await.unwrap();
    let count = |object: &mut Object| -> Result<(), ApiError> {
        let n: u32 = object.text_at("/data/n").parse().unwrap();
        object
            .tree_mut()
            .insert("data".into(), json!({"n": (n + 1).to_string()}));
        Ok(())
    };
    let key = NamespacedName::new("default", "counter");
    let edits = (0..8).map(|_| {
        let write = Write::edit(&CONFIG_MAP, key.clone(), Precondition::default(), count);
        cluster.registry().write(&caller, write)
    });
    for answer in futures::future::join_all(edits).await {
        answer.unwrap();
    }
    let stored = cluster.registry().cache().get(&CONFIG_MAP, &key).unwrap();
    assert_eq!(stored.object().text_at("/data/n"), "8");
}

#[tokio::test]
async fn preconditions_name_the_very_object_and_version() {
    let cluster = Cluster::start().await;
    let caller = Caller::internal("test");
    let first = cluster
        .registry()
        .write(&caller, create("p"))
        .await
        .unwrap()
        .stored;
    let stale = Precondition::version(&first);
    cluster
        .registry()
        .write(&caller, label("p", "x"))
        .await
        .unwrap();
    let key = NamespacedName::new("default", "p");
    let touch = |pod: &mut Object| {
        pod.set_label("touched", "yes");
        Ok(())
    };
    let error = cluster
        .registry()
        .write(&caller, Write::edit(&POD, key.clone(), stale, touch))
        .await
        .unwrap_err();
    assert!(error.is_conflict(), "{error}");
    let other = Precondition::uid("another");
    let error = cluster
        .registry()
        .write(&caller, Write::edit(&POD, key, other, touch))
        .await
        .unwrap_err();
    assert!(
        error
            .message()
            .contains("Precondition failed: UID in precondition: another"),
        "{error}"
    );
}

#[tokio::test]
async fn a_new_pod_gets_its_account_class_priority_and_outage_tolerations() {
    let cluster = Cluster::start().await;
    let caller = Caller::internal("test");
    let mut tree = pod("p", "n1");
    tree["spec"]["priorityClassName"] = "system-node-critical".into();
    let write = Write::create(&POD, Object::from_value(tree.clone()).unwrap());
    let stored = cluster
        .registry()
        .write(&caller, write)
        .await
        .unwrap()
        .stored;
    let pod = stored.object();
    assert_eq!(pod.text_at("/spec/serviceAccountName"), "default");
    assert_eq!(pod.at("/spec/priority"), Some(&json!(2_000_001_000)));
    assert_eq!(pod.text_at("/status/qosClass"), "BestEffort");
    assert_eq!(
        pod.at("/spec/tolerations")
            .unwrap()
            .as_array()
            .unwrap()
            .len(),
        2
    );
    tree["metadata"]["name"] = "q".into();
    tree["spec"]["priorityClassName"] = "nosuch".into();
    let write = Write::create(&POD, Object::from_value(tree).unwrap());
    let error = cluster.registry().write(&caller, write).await.unwrap_err();
    assert_eq!(
        error.message(),
        "pods \"q\" is forbidden: no PriorityClass with name nosuch was found"
    );
}
