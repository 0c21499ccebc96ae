//! The words of refusals, and what is refused for its size.

use muster_model::kind::{CONFIG_MAP, DAEMON_SET, NAMESPACE, POD};
use muster_model::object::Object;
use muster_proto::v1;
use serde_json::{Value, json};
use tonic::Code;

use crate::set;
use crate::support::{Cluster, daemon, failure, message, reference};

#[tokio::test]
async fn the_words_of_every_refusal() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    admin.create(&DAEMON_SET, &daemon("web")).await.unwrap();
    let mut elsewhere = daemon("web");
    elsewhere["metadata"]["namespace"] = "nowhere".into();
    let mut versioned = daemon("new");
    versioned["metadata"]["resourceVersion"] = "1".into();
    let mut other_selector = Object::from_value(daemon("web")).unwrap();
    set(
        &mut other_selector,
        "/spec/selector/matchLabels",
        json!({"app": "web", "b": "c"}),
    );
    set(
        &mut other_selector,
        "/spec/template/metadata/labels",
        json!({"app": "web", "b": "c"}),
    );
    let cases: Vec<(tonic::Status, u16, Code, &str)> = vec![
        (
            admin.create(&DAEMON_SET, &daemon("web")).await.unwrap_err(),
            409,
            Code::AlreadyExists,
            "daemonsets.apps \"web\" already exists",
        ),
        (
            admin
                .get(&DAEMON_SET, "default", "nosuch")
                .await
                .unwrap_err(),
            404,
            Code::NotFound,
            "daemonsets.apps \"nosuch\" not found",
        ),
        (
            admin
                .update(&DAEMON_SET, &Object::from_value(daemon("nosuch")).unwrap())
                .await
                .unwrap_err(),
            404,
            Code::NotFound,
            "daemonsets.apps \"nosuch\" not found",
        ),
        (
            admin.create(&DAEMON_SET, &elsewhere).await.unwrap_err(),
            404,
            Code::NotFound,
            "namespaces \"nowhere\" not found",
        ),
        (
            admin.create(&DAEMON_SET, &versioned).await.unwrap_err(),
            400,
            Code::InvalidArgument,
            "resourceVersion should not be set on objects to be created",
        ),
        (
            admin.list(&POD, "", "", "spec.foo=x").await.unwrap_err(),
            400,
            Code::InvalidArgument,
            "field label not supported: spec.foo",
        ),
        (
            admin.delete(&NAMESPACE, "", "default").await.unwrap_err(),
            403,
            Code::PermissionDenied,
            "namespaces \"default\" is forbidden: this namespace may not be deleted",
        ),
    ];
    for (status, code, grpc, text) in cases {
        assert_eq!(message(&status), text);
        assert_eq!(status.message(), text);
        assert_eq!(failure(&status)["code"], code, "{text}");
        assert_eq!(status.code(), grpc, "{text}");
    }
    let immutable = admin
        .update(&DAEMON_SET, &other_selector)
        .await
        .unwrap_err();
    assert_eq!(failure(&immutable)["code"], 422);
    assert!(
        message(&immutable).ends_with("field is immutable"),
        "{}",
        message(&immutable)
    );
    assert!(
        message(&immutable)
            .starts_with("DaemonSet.apps \"web\" is invalid: spec.selector: Invalid value: {")
    );
}

#[tokio::test]
async fn hostile_sizes_and_depths_are_refused_and_harm_nothing() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let create = |object: Vec<u8>| v1::CreateRequest {
        resource: reference(&CONFIG_MAP, "default", ""),
        object: object.into(),
        options: None,
    };
    let big = json!({"metadata": {"name": "big"}, "data": {"a": "x".repeat(4 * 1024 * 1024)}})
        .to_string();
    let refused = admin
        .resources
        .clone()
        .create(create(big.into_bytes()))
        .await
        .unwrap_err();
    assert_eq!(failure(&refused)["code"], 413);
    let deep = [
        b"{\"metadata\":".repeat(50_000),
        b"1".to_vec(),
        b"}".repeat(50_000),
    ]
    .concat();
    let refused = admin
        .resources
        .clone()
        .create(create(deep))
        .await
        .unwrap_err();
    assert_eq!(failure(&refused)["code"], 400);
    for text in [
        "",
        "[]",
        "null",
        "{",
        "{\"metadata\":{\"name\":7}}",
        "\u{0}",
    ] {
        let refused = admin
            .resources
            .clone()
            .create(create(text.as_bytes().to_vec()))
            .await
            .unwrap_err();
        assert!(
            matches!(failure(&refused)["code"].as_u64(), Some(400 | 422)),
            "{text:?}: {refused:?}"
        );
    }
    let enormous = vec![b' '; 17 * 1024 * 1024];
    assert!(
        admin
            .resources
            .clone()
            .create(create(enormous))
            .await
            .is_err()
    );
    let fine = json!({"metadata": {"name": "fine", "namespace": "default"}});
    admin.create(&CONFIG_MAP, &fine).await.unwrap();
}

#[tokio::test]
async fn a_refusal_with_very_many_faults_still_arrives() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let mut web = daemon("web");
    let containers: Vec<Value> = (0..400)
        .map(|n| json!({"name": format!("Über_{n}"), "image": "", "imagePullPolicy": "x"}))
        .collect();
    web["spec"]["template"]["spec"]["containers"] = containers.into();
    let refused = admin.create(&DAEMON_SET, &web).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    let failure = failure(&refused);
    assert_eq!(
        (&failure["code"], &failure["reason"]),
        (&json!(422), &json!("Invalid"))
    );
    assert!(failure["details"]["causes"].as_array().unwrap().len() > 5);
    assert!(refused.message().ends_with(" ... (more was cut)"));
    let refused = admin
        .get(&DAEMON_SET, "default", &"ü".repeat(20_000))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "{refused:?}");
}

#[tokio::test]
async fn unknown_resources_and_subresources_are_not_found() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    for (group, resource, subresource) in [
        ("", "services", ""),
        ("apps", "pods", ""),
        ("", "configmaps", "status"),
    ] {
        let request = v1::GetRequest {
            resource: Some(v1::ResourceRef {
                group: group.into(),
                version: "v1".into(),
                resource: resource.into(),
                namespace: "default".into(),
                name: "x".into(),
                subresource: subresource.into(),
            }),
        };
        let refused = admin.resources.clone().get(request).await.unwrap_err();
        assert_eq!(
            message(&refused),
            "the server could not find the requested resource"
        );
    }
}
