//! Finalizers, and pods that end before they go.

use muster_model::kind::POD;
use muster_proto::v1;
use muster_proto::v1::watch_event::Type;
use serde_json::json;
use tonic::Code;

use crate::support::{Cluster, failure, message, pod, reference};

#[tokio::test]
async fn api_087_a_finalizer_keeps_a_pod_until_it_is_taken_off() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let mut tree = pod("p", "");
    tree["metadata"]["finalizers"] = json!(["example.com/wait"]);
    let created = admin.create(&POD, &tree).await.unwrap();
    let mut watch = admin.watch(&POD, "", created.resource_version()).await;
    let reply = admin.delete(&POD, "default", "p").await.unwrap();
    assert!(!reply.gone);
    let waiting = admin.get(&POD, "default", "p").await.unwrap();
    assert!(waiting.is_terminating());
    assert_eq!(waiting.generation(), 2);
    let patch = json!({"metadata": {"finalizers": ["example.com/wait", "example.com/late"]}});
    let refused = admin
        .patch(
            reference(&POD, "default", "p"),
            v1::PatchType::Merge,
            &patch,
        )
        .await
        .unwrap_err();
    assert_eq!(failure(&refused)["code"], 422);
    let patch = json!({"metadata": {"finalizers": null}});
    admin
        .patch(
            reference(&POD, "default", "p"),
            v1::PatchType::Merge,
            &patch,
        )
        .await
        .unwrap();
    assert_eq!(
        admin.get(&POD, "default", "p").await.unwrap_err().code(),
        Code::NotFound
    );
    let types: Vec<Type> = [watch.message().await, watch.message().await]
        .into_iter()
        .map(|e| e.unwrap().unwrap().r#type())
        .collect();
    assert_eq!(types, [Type::Modified, Type::Deleted]);
}

#[tokio::test]
async fn a_bound_pod_stays_until_its_end_is_confirmed() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let created = admin.create(&POD, &pod("p", "n1")).await.unwrap();
    assert_eq!(created.text_at("/status/phase"), "Pending");
    assert!(!admin.delete(&POD, "default", "p").await.unwrap().gone);
    let going = admin.get(&POD, "default", "p").await.unwrap();
    assert_eq!(going.deletion_timestamp(), Some("2026-01-31T10:00:30Z"));
    assert_eq!(
        going.at("/metadata/deletionGracePeriodSeconds"),
        Some(&json!(30))
    );
    let request = |grace: i64, uid: &str| v1::DeleteRequest {
        resource: reference(&POD, "default", "p"),
        grace_period_seconds: Some(grace),
        precondition_uid: uid.to_owned(),
        ..v1::DeleteRequest::default()
    };
    admin
        .resources
        .clone()
        .delete(request(60, ""))
        .await
        .unwrap();
    let still = admin.get(&POD, "default", "p").await.unwrap();
    assert_eq!(
        still.at("/metadata/deletionGracePeriodSeconds"),
        Some(&json!(30)),
        "a grace never grows"
    );
    admin
        .resources
        .clone()
        .delete(request(5, ""))
        .await
        .unwrap();
    let sooner = admin.get(&POD, "default", "p").await.unwrap();
    assert_eq!(
        sooner.at("/metadata/deletionGracePeriodSeconds"),
        Some(&json!(5))
    );
    let refused = admin
        .resources
        .clone()
        .delete(request(0, "another"))
        .await
        .unwrap_err();
    assert!(
        message(&refused).contains(&format!(
            "Precondition failed: UID in precondition: another, UID in object meta: {}",
            created.uid()
        )),
        "{}",
        message(&refused)
    );
    assert!(
        admin
            .resources
            .clone()
            .delete(request(0, created.uid()))
            .await
            .unwrap()
            .into_inner()
            .gone
    );
    assert_eq!(
        message(&admin.get(&POD, "default", "p").await.unwrap_err()),
        "pods \"p\" not found"
    );
}
