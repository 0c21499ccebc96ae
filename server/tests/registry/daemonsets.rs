//! What a write to a DaemonSet changes besides, and what its author is told.

use muster_model::kind::{DAEMON_SET, NODE};
use muster_proto::v1;
use serde_json::json;

use crate::support::{Cluster, daemon, failure, message, reference, status_of};
use crate::{set, support};

#[tokio::test]
async fn ds_103_status_and_generation_of_a_create_are_ignored() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let mut web = daemon("web");
    web["metadata"]["generation"] = 9.into();
    web["status"] = json!({"desiredNumberScheduled": 7, "currentNumberScheduled": 7, "numberMisscheduled": 0, "numberReady": 7});
    let created = admin.create(&DAEMON_SET, &web).await.unwrap();
    assert_eq!(created.generation(), 1);
    assert_eq!(
        created.at("/status/desiredNumberScheduled"),
        Some(&json!(0))
    );
    assert_eq!(created.at("/status/numberReady"), Some(&json!(0)));
    assert!(!created.uid().is_empty());
    assert_eq!(
        created.text_at("/metadata/creationTimestamp"),
        support::START
    );
    assert!(created.resource_version().parse::<u64>().unwrap() > 0);
}

#[tokio::test]
async fn ds_104_generations_count_what_they_should() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let mut web = admin.create(&DAEMON_SET, &daemon("web")).await.unwrap();
    let annotation = "deprecated.daemonset.template.generation";
    assert_eq!(web.annotation(annotation), Some("1"));
    set(
        &mut web,
        "/spec/template/spec/containers/0/image",
        json!("img:2"),
    );
    let mut web = admin.update(&DAEMON_SET, &web).await.unwrap();
    assert_eq!(
        (web.generation(), web.annotation(annotation)),
        (2, Some("2"))
    );
    set(&mut web, "/spec/revisionHistoryLimit", json!(3));
    let mut web = admin.update(&DAEMON_SET, &web).await.unwrap();
    assert_eq!(
        (web.generation(), web.annotation(annotation)),
        (3, Some("2"))
    );
    web.set_label("extra", "1");
    let web = admin.update(&DAEMON_SET, &web).await.unwrap();
    assert_eq!(
        (web.generation(), web.annotation(annotation)),
        (3, Some("2"))
    );
    let same = admin.update(&DAEMON_SET, &web).await.unwrap();
    assert_eq!(
        same.resource_version(),
        web.resource_version(),
        "a write that changes nothing stores nothing"
    );
}

#[tokio::test]
async fn ds_105_the_template_generation_is_the_servers() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let annotation = "deprecated.daemonset.template.generation";
    let mut tree = daemon("web");
    tree["metadata"]["annotations"] = json!({annotation: "77"});
    let mut web = admin.create(&DAEMON_SET, &tree).await.unwrap();
    assert_eq!(web.annotation(annotation), Some("77"));
    web.set_annotation(annotation, "5");
    let mut web = admin.update(&DAEMON_SET, &web).await.unwrap();
    assert_eq!(web.annotation(annotation), Some("77"));
    web.remove_annotation(annotation);
    let mut web = admin.update(&DAEMON_SET, &web).await.unwrap();
    assert_eq!(web.annotation(annotation), Some("77"));
    web.set_annotation(annotation, "x");
    let refused = admin.update(&DAEMON_SET, &web).await.unwrap_err();
    assert_eq!(failure(&refused)["code"], 400);
}

#[tokio::test]
async fn ds_102_conditions_of_others_live_in_the_status() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    admin.create(&DAEMON_SET, &daemon("web")).await.unwrap();
    let resource = status_of(reference(&DAEMON_SET, "default", "web"));
    let patch = json!({"status": {"conditions": [{"type": "StatusPatched", "status": "True"}]}});
    let mut web = admin
        .patch(resource, v1::PatchType::Merge, &patch)
        .await
        .unwrap();
    assert_eq!(
        web.at("/status/conditions/0/type"),
        Some(&json!("StatusPatched"))
    );
    let mut conditions = web.at("/status/conditions").unwrap().clone();
    conditions.as_array_mut().unwrap().push(
        json!({"type": "StatusUpdate", "status": "True", "reason": "E2E", "message": "Set from e2e test"}),
    );
    set(&mut web, "/status/conditions", conditions);
    admin.update_status(&DAEMON_SET, &web).await.unwrap();
    let web = admin.get(&DAEMON_SET, "default", "web").await.unwrap();
    assert_eq!(
        web.at("/status/conditions")
            .unwrap()
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(web.generation(), 1);
}

#[tokio::test]
async fn an_author_is_warned_once_and_unknown_fields_are_left_out() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let mut web = daemon("web");
    web["spec"]["foo"] = 1.into();
    let (created, warnings) = admin.create_with_warnings(&DAEMON_SET, &web).await.unwrap();
    assert!(
        warnings.iter().any(|w| w == "unknown field \"spec.foo\""),
        "{warnings:?}"
    );
    assert_eq!(created.at("/spec/foo"), None);
    web["metadata"]["name"] = "strict".into();
    let request = v1::CreateRequest {
        resource: reference(&DAEMON_SET, "default", ""),
        object: web.to_string().into(),
        options: Some(v1::WriteOptions {
            field_validation: v1::FieldValidation::Strict.into(),
            ..v1::WriteOptions::default()
        }),
    };
    let refused = admin.resources.clone().create(request).await.unwrap_err();
    assert!(message(&refused).contains("strict decoding error: unknown field \"spec.foo\""));
}

#[tokio::test]
async fn ready_nodes_that_stay_without_a_pod_are_told_to_the_author() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let mut tainted = support::node("n1", "m1");
    tainted["spec"] = json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
    admin.create(&NODE, &tainted).await.unwrap();
    admin
        .create(&NODE, &support::node("n2", "m2"))
        .await
        .unwrap();
    let (_, warnings) = admin
        .create_with_warnings(&DAEMON_SET, &daemon("web"))
        .await
        .unwrap();
    assert_eq!(
        warnings[0],
        "1 ready node will have no pod (n1): taint k=v:NoSchedule is not tolerated; to change that, tolerate k=v:NoSchedule in spec.template.spec.tolerations, or take the taint off node n1 [UntoleratedTaints]"
    );
}
