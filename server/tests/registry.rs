//! What the registry promises, through the gRPC door.

#![allow(
    clippy::unwrap_used,
    reason = "a test may stop at what it did not expect"
)]

mod support;

use muster_model::kind::{
    CONFIG_MAP, DAEMON_SET, EVENT, NAMESPACE, NODE, POD, PRIORITY_CLASS, SERVICE_ACCOUNT,
};
use muster_model::object::Object;
use muster_proto::v1;
use muster_proto::v1::watch_event::Type;
use serde_json::{Value, json};
use support::{Cluster, daemon, failure, message, pod, reference, status_of};
use tonic::Code;

fn set(object: &mut Object, pointer: &str, value: Value) {
    let mut tree = object.clone().into_tree();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    tree.pointer_mut(parent).unwrap()[field] = value;
    *object = Object::from_value(tree).unwrap();
}

#[tokio::test]
async fn a_first_start_makes_the_namespaces_and_their_service_accounts() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = admin.get(&NAMESPACE, "", name).await.unwrap();
        assert_eq!(namespace.text_at("/status/phase"), "Active");
        assert_eq!(
            namespace.at("/spec/finalizers"),
            Some(&json!(["kubernetes"]))
        );
        assert_eq!(namespace.label("kubernetes.io/metadata.name"), Some(name));
        let account = admin.get(&SERVICE_ACCOUNT, name, "default").await.unwrap();
        assert!(!account.uid().is_empty());
    }
}

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
async fn ds_109_lists_select_by_label_and_pages_show_one_revision() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    for name in ["a", "b", "c", "d", "e"] {
        admin.create(&DAEMON_SET, &daemon(name)).await.unwrap();
    }
    assert_eq!(
        admin
            .list(&DAEMON_SET, "", "app in (a,c)", "")
            .await
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        admin
            .list(&DAEMON_SET, "default", "", "metadata.name=b")
            .await
            .unwrap()[0]
            .name(),
        "b"
    );
    let page = |token: &str| v1::ListRequest {
        resource: reference(&DAEMON_SET, "default", ""),
        limit: 2,
        continue_token: token.to_owned(),
        ..v1::ListRequest::default()
    };
    let first = admin
        .resources
        .clone()
        .list(page(""))
        .await
        .unwrap()
        .into_inner();
    admin.delete(&DAEMON_SET, "default", "d").await.unwrap();
    admin.create(&DAEMON_SET, &daemon("bb")).await.unwrap();
    let second = admin
        .resources
        .clone()
        .list(page(&first.continue_token))
        .await
        .unwrap()
        .into_inner();
    let third = admin
        .resources
        .clone()
        .list(page(&second.continue_token))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(first.resource_version, third.resource_version);
    assert_eq!(third.continue_token, "");
    let names: Vec<String> = [&first, &second, &third]
        .iter()
        .flat_map(|page| &page.items)
        .map(|item| Object::from_bytes(item).unwrap().name().to_owned())
        .collect();
    assert_eq!(names, ["a", "b", "c", "d", "e"], "later writes do not show");
    let garbage = admin
        .resources
        .clone()
        .list(page("garbage"))
        .await
        .unwrap_err();
    assert_eq!(failure(&garbage)["code"], 400);
}

#[tokio::test]
async fn a_watch_shows_what_enters_and_leaves_its_selection() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    admin.create(&DAEMON_SET, &daemon("other")).await.unwrap();
    admin.create(&DAEMON_SET, &daemon("web")).await.unwrap();
    let mut watch = admin.watch(&DAEMON_SET, "app=web", "").await;
    let mut seen = Vec::new();
    let event = watch.message().await.unwrap().unwrap();
    let mut web = Object::from_bytes(&event.object).unwrap();
    seen.push((event.r#type(), web.name().to_owned()));
    web.set_label("app", "gone");
    let mut web = admin.update(&DAEMON_SET, &web).await.unwrap();
    let event = watch.message().await.unwrap().unwrap();
    assert_eq!(event.resource_version, web.resource_version());
    assert_eq!(
        Object::from_bytes(&event.object).unwrap().label("app"),
        Some("gone")
    );
    seen.push((event.r#type(), "web".into()));
    web.set_label("app", "web");
    admin.update(&DAEMON_SET, &web).await.unwrap();
    seen.push((
        watch.message().await.unwrap().unwrap().r#type(),
        "web".into(),
    ));
    admin.delete(&DAEMON_SET, "default", "web").await.unwrap();
    let event = watch.message().await.unwrap().unwrap();
    let last = Object::from_bytes(&event.object).unwrap();
    assert_eq!(last.resource_version(), event.resource_version);
    seen.push((event.r#type(), last.name().to_owned()));
    let web = || "web".to_owned();
    assert_eq!(
        seen,
        [
            (Type::Added, web()),
            (Type::Deleted, web()),
            (Type::Added, web()),
            (Type::Deleted, web())
        ]
    );
}

#[tokio::test]
async fn a_watch_from_the_past_is_too_old_and_one_from_the_future_times_out() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let request = |revision: &str| v1::WatchRequest {
        resource: reference(&POD, "", ""),
        resource_version: revision.to_owned(),
        ..v1::WatchRequest::default()
    };
    let future = admin
        .resources
        .clone()
        .watch(request("999999999"))
        .await
        .unwrap_err();
    assert_eq!(failure(&future)["code"], 504);
    assert!(message(&future).starts_with("Too large resource version: 999999999, current: "));
    let bad = admin
        .resources
        .clone()
        .watch(request("x"))
        .await
        .unwrap_err();
    assert_eq!(failure(&bad)["code"], 400);
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
        warnings,
        [
            "1 ready node will have no pod (n1): taint k=v:NoSchedule is not tolerated; to change that, tolerate k=v:NoSchedule in spec.template.spec.tolerations, or take the taint off node n1"
        ]
    );
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

#[tokio::test]
async fn a_first_start_makes_the_systems_priority_classes_which_stay() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    for (name, value) in [
        ("system-node-critical", 2_000_001_000),
        ("system-cluster-critical", 2_000_000_000),
    ] {
        let class = admin.get(&PRIORITY_CLASS, "", name).await.unwrap();
        assert_eq!(class.at("/value"), Some(&json!(value)));
        let refused = admin.delete(&PRIORITY_CLASS, "", name).await.unwrap_err();
        assert_eq!(
            message(&refused),
            format!(
                "priorityclasses.scheduling.k8s.io \"{name}\" is forbidden: this is a system priority class and cannot be deleted"
            )
        );
    }
}
