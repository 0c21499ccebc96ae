//! Two writers, dry runs, generated names.

use muster_model::kind::{CONFIG_MAP, DAEMON_SET, EVENT};
use muster_model::object::Object;
use muster_proto::v1;
use serde_json::json;
use tonic::Code;

use crate::support::{Cluster, daemon, failure, message, reference};
use crate::{set, support};

#[tokio::test]
async fn api_085_of_two_writers_with_one_version_one_wins() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let web = admin.create(&DAEMON_SET, &daemon("web")).await.unwrap();
    let (mut one, mut two) = (web.clone(), web);
    one.set_label("writer", "one");
    two.set_label("writer", "two");
    let (one, two) = tokio::join!(
        admin.update(&DAEMON_SET, &one),
        admin.update(&DAEMON_SET, &two)
    );
    assert_ne!(one.is_ok(), two.is_ok());
    let loser = one.err().or(two.err()).unwrap();
    assert_eq!(loser.code(), Code::Aborted);
    assert_eq!(failure(&loser)["reason"], "Conflict");
    assert_eq!(
        message(&loser),
        "Operation cannot be fulfilled on daemonsets.apps \"web\": the object has been modified; please apply your changes to the latest version and try again"
    );
}

#[tokio::test]
async fn api_086_status_and_spec_are_written_apart() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let web = admin.create(&DAEMON_SET, &daemon("web")).await.unwrap();
    let mut changed = web.clone();
    set(&mut changed, "/spec/minReadySeconds", json!(9));
    set(&mut changed, "/status/numberReady", json!(3));
    let by_status = admin.update_status(&DAEMON_SET, &changed).await.unwrap();
    assert_eq!(by_status.at("/status/numberReady"), Some(&json!(3)));
    assert_eq!(by_status.at("/spec"), web.at("/spec"));
    assert_eq!(by_status.generation(), 1);
    let mut changed = by_status.clone();
    set(&mut changed, "/spec/minReadySeconds", json!(9));
    set(&mut changed, "/status/numberReady", json!(0));
    let by_main = admin.update(&DAEMON_SET, &changed).await.unwrap();
    assert_eq!(by_main.at("/status/numberReady"), Some(&json!(3)));
    assert_eq!(
        (by_main.at("/spec/minReadySeconds"), by_main.generation()),
        (Some(&json!(9)), 2)
    );
}

#[tokio::test]
async fn a_dry_run_is_real_but_stores_nothing() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let before = cluster.registry().cache().revision();
    let request = v1::CreateRequest {
        resource: reference(&DAEMON_SET, "default", ""),
        object: daemon("web").to_string().into(),
        options: Some(v1::WriteOptions {
            dry_run: true,
            ..v1::WriteOptions::default()
        }),
    };
    let reply = admin
        .resources
        .clone()
        .create(request)
        .await
        .unwrap()
        .into_inner();
    let object = Object::from_bytes(&reply.object).unwrap();
    assert_eq!(object.at("/spec/revisionHistoryLimit"), Some(&json!(10)));
    assert_eq!(object.resource_version(), "");
    assert_eq!(cluster.registry().cache().revision(), before);
}

#[tokio::test]
async fn generated_names_are_the_prefix_and_five_letters() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let tree =
        json!({"metadata": {"generateName": "x-", "namespace": "default"}, "data": {"a": "b"}});
    let map = admin.create(&CONFIG_MAP, &tree).await.unwrap();
    assert!(
        map.name().starts_with("x-") && map.name().len() == 7,
        "{}",
        map.name()
    );
    assert_eq!(map.kind_name(), "ConfigMap");
}

#[tokio::test]
async fn events_are_objects_like_others() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let web = admin.create(&DAEMON_SET, &daemon("web")).await.unwrap();
    cluster.server.events().normal(
        "daemonset-controller",
        &web,
        "SuccessfulCreate",
        "Created pod: web-x",
    );
    let event = support::eventually("the event", || async {
        admin
            .list(&EVENT, "default", "", "involvedObject.name=web")
            .await
            .unwrap()
            .pop()
    })
    .await;
    assert_eq!(event.text_at("/message"), "Created pod: web-x");
}
