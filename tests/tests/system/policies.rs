//! Admission checks: what an author is told, and what a policy refuses.

use muster_client::{ApiFailure, Cause, ClientError, PatchType, WriteOptions, Written};
use muster_model::kind::{CONTROLLER_REVISION, DAEMON_SET, DAEMON_SET_POLICY, NAMESPACE};
use muster_model::object::Object;
use muster_proto::v1::{DaemonSetRef, RestartRequest, UndoRequest};
use muster_server::auth::Caller;
use muster_server::registry::PatchForm;
use muster_testkit::Cluster;
use muster_testkit::build::{self, Manifest};
use serde_json::{Value, json};

use crate::support::{cluster, delete, key, merge, set_image};

/// A DaemonSet in which no check finds anything.
fn sound(name: &str) -> Manifest {
    build::daemon_set(name)
        .set(
            "/spec/template/spec/containers/0/readinessProbe",
            json!({"exec": {"command": ["true"]}, "periodSeconds": 1}),
        )
        .set(
            "/spec/template/spec/containers/0/resources",
            json!({"requests": {"cpu": "10m", "memory": "8Mi"}}),
        )
}

fn policy(name: &str, spec: Value) -> Object {
    let tree = json!({
        "apiVersion": "muster.dev/v1", "kind": "DaemonSetPolicy", "metadata": {"name": name}, "spec": spec,
    });
    Manifest::of(tree).object()
}

async fn patched(
    cluster: &Cluster,
    name: &str,
    patch: Value,
    dry_run: bool,
) -> Result<Written, ClientError> {
    let options = WriteOptions {
        dry_run,
        ..WriteOptions::default()
    };
    let bytes = patch.to_string().into_bytes();
    cluster
        .resources()
        .patch(
            &DAEMON_SET,
            &key(&DAEMON_SET, name),
            PatchType::Strategic,
            &bytes,
            &options,
        )
        .await
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}})
}

/// The names of the checks, from the ends of the lines.
fn checks(warnings: &[String]) -> Vec<&str> {
    let named = warnings.iter().filter_map(|line| line.rsplit_once('['));
    named.map(|(_, name)| name.trim_end_matches(']')).collect()
}

fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> ApiFailure {
    match answer {
        Err(ClientError::Api(failure)) => {
            assert_eq!((failure.code, failure.reason.as_str()), (422, "Invalid"));
            *failure
        }
        other => panic!("it was to be refused: {other:?}"),
    }
}

async fn created(cluster: &Cluster, object: &Object) -> Result<Written, ClientError> {
    let kind = object.kind().unwrap();
    cluster
        .resources()
        .create(kind, object, &WriteOptions::default())
        .await
}

#[tokio::test(start_paused = true)]
async fn an_author_is_told_once_what_will_hurt() {
    let cluster = cluster(&["n1"]).await;
    let risky = build::daemon_set("risky")
        .image("img")
        .on_delete()
        .set("/spec/revisionHistoryLimit", 0)
        .node_selector("disk", "ssd")
        .set(
            "/spec/template/spec/volumes",
            json!([{"name": "logs", "hostPath": {"path": "/var/log"}}]),
        );
    let written = created(&cluster, &risky.object()).await.unwrap();
    assert_eq!(
        checks(&written.warnings),
        [
            "MatchesNoNode",
            "NoResourceRequests",
            "OnDelete",
            "NoHistory",
            "LatestTag"
        ],
        "{:#?}",
        written.warnings
    );
    let written = created(&cluster, &sound("web").object()).await.unwrap();
    assert_eq!(written.warnings, [""; 0]);

    // What was not touched is not told again: a label, an annotation, a restart.
    let label = json!({"metadata": {"labels": {"team": "a"}, "annotations": {"muster.dev/paused": "true"}}});
    let written = patched(&cluster, "risky", label, false).await.unwrap();
    assert_eq!(written.warnings, [""; 0]);
    let again = written.object.clone();
    let written = cluster
        .resources()
        .update(&DAEMON_SET, &again, &WriteOptions::default())
        .await
        .unwrap();
    assert_eq!(written.warnings, [""; 0]);
    // What is changed is judged as a whole.
    let rolling = json!({"spec": {"updateStrategy": {"type": "RollingUpdate"}}});
    let written = patched(&cluster, "risky", rolling, true).await.unwrap();
    assert_eq!(
        checks(&written.warnings),
        [
            "MatchesNoNode",
            "NoReadinessProbe",
            "NoResourceRequests",
            "NoHistory",
            "LatestTag"
        ]
    );
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_nobody_reads_is_told_when_it_is_written() {
    let cluster = cluster(&["n1"]).await;
    created(&cluster, &sound("web").object()).await.unwrap();
    let annotated = |key: &str| json!({"metadata": {"annotations": {key: "rollback"}}});
    let misspelt = annotated("muster.dev/onfailure");
    let written = patched(&cluster, "web", misspelt, false).await.unwrap();
    assert_eq!(checks(&written.warnings), ["UnknownAnnotation"]);
    let right = annotated("muster.dev/on-failure");
    let written = patched(&cluster, "web", right, false).await.unwrap();
    assert_eq!(written.warnings, [""; 0], "it has been told");
    let strict = policy("strict", json!({"checks": {"UnknownAnnotation": "Refuse"}}));
    created(&cluster, &strict).await.unwrap();
    let in_template = json!({"spec": {"template": annotated("muster.dev/canary")}});
    let failure = refused(patched(&cluster, "web", in_template, false).await);
    assert!(
        failure.message.contains("move it to metadata.annotations"),
        "{failure:?}"
    );
    let paused = json!({"metadata": {"annotations": {"muster.dev/paused": "true"}}});
    patched(&cluster, "web", paused, false).await.unwrap();
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_refuses_or_switches_off_by_namespace_and_the_strictest_holds() {
    let cluster = cluster(&["n1"]).await;
    let edge = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "edge", "labels": {"tier": "edge"}}});
    created(&cluster, &Manifest::of(edge).object())
        .await
        .unwrap();
    let lax = json!({"checks": {"NoResourceRequests": "Ignore", "LatestTag": "Ignore", "NoReadinessProbe": "Ignore"}});
    created(&cluster, &policy("lax", lax)).await.unwrap();
    let strict = json!({
        "namespaces": {"selector": {"matchLabels": {"tier": "edge"}}},
        "checks": {"LatestTag": "Refuse", "NoReadinessProbe": "Refuse", "HostPathWithoutType": "Refuse"},
    });
    created(&cluster, &policy("strict", strict)).await.unwrap();
    let web = build::daemon_set("web").image("img").set(
        "/spec/template/spec/volumes",
        json!([{"name": "logs", "hostPath": {"path": "/var/log"}}]),
    );

    let written = created(&cluster, &web.object()).await.unwrap();
    assert_eq!(written.warnings, [""; 0], "default is none of the strict's");
    let there = web.clone().namespace("edge").object();
    let failure = refused(created(&cluster, &there).await);
    let cause = |field: &str, message: &str| Cause {
        reason: "FieldValueForbidden".to_owned(),
        message: message.to_owned(),
        field: field.to_owned(),
    };
    assert_eq!(
        failure.causes,
        [
            cause(
                "spec.template.spec.containers[0].readinessProbe",
                "Forbidden: container main has no readiness probe, so a broken version counts as available as soon as its \
                 process runs and is rolled out everywhere; to change that, add a readinessProbe (exec, httpGet, tcpSocket \
                 or grpc) [NoReadinessProbe, refused by DaemonSetPolicy strict]"
            ),
            cause(
                "spec.template.spec.containers[0].image",
                "Forbidden: the image of container main (img) follows the tag latest, so nobody can tell what a node runs, \
                 and no undo brings it back; to change that, name a version or a digest [LatestTag, refused by \
                 DaemonSetPolicy strict]"
            ),
            cause(
                "spec.template.spec.volumes[0].hostPath.type",
                "Forbidden: volume logs (/var/log) says nothing of what must be there, so a node that lacks the path gets an \
                 empty directory of root's instead; to change that, set hostPath.type (Directory, File or Socket must be \
                 there; DirectoryOrCreate is made) [HostPathWithoutType, refused by DaemonSetPolicy strict]"
            ),
        ]
    );
    assert!(cluster.object(&DAEMON_SET, "edge/web").is_none());

    // A namespace that gets the label gets the policy.
    let label = json!({"metadata": {"labels": {"tier": "edge"}}});
    merge(&cluster, &NAMESPACE, "default", label).await;
    let failure = refused(patched(&cluster, "web", image("img:latest"), true).await);
    assert_eq!(failure.causes.len(), 3, "a dry run is refused as well");
    patched(
        &cluster,
        "web",
        json!({"metadata": {"labels": {"team": "a"}}}),
        false,
    )
    .await
    .unwrap();
    delete(&cluster, &DAEMON_SET_POLICY, "strict").await;
    patched(&cluster, "web", image("img:latest"), false)
        .await
        .unwrap();
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_cluster_has_now_can_be_refused_too() {
    let cluster = cluster(&["n1"]).await;
    let spec = json!({"checks": {"MatchesNoNode": "Refuse"}});
    created(&cluster, &policy("somewhere", spec)).await.unwrap();
    let nowhere = sound("web").node_selector("disk", "ssd").object();
    let failure = refused(created(&cluster, &nowhere).await);
    assert_eq!(failure.causes[0].field, "spec.template.spec.nodeSelector");
    let unknown = policy("odd", json!({"checks": {"NoProbe": "Refuse"}}));
    let failure = refused(created(&cluster, &unknown).await);
    assert_eq!(failure.causes[0].field, "spec.checks[NoProbe]");
    assert!(
        failure.causes[0].message.contains("\"NoReadinessProbe\""),
        "{failure:?}"
    );
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_persons_undo_is_refused_with_the_reason_and_the_controllers_own_is_not() {
    let cluster = cluster(&["n1"]).await;
    let by_tag = build::daemon_set("web").image("img");
    created(&cluster, &by_tag.object()).await.unwrap();
    cluster
        .until("the first revision is made", || {
            cluster.objects(&CONTROLLER_REVISION).len() == 1
        })
        .await;
    set_image(&cluster, "web", "img:2").await;
    cluster
        .until("the second revision is made", || {
            cluster.objects(&CONTROLLER_REVISION).len() == 2
        })
        .await;
    let spec = json!({"checks": {"LatestTag": "Refuse"}});
    created(&cluster, &policy("strict", spec)).await.unwrap();

    let admin = cluster.admin();
    let web = DaemonSetRef {
        namespace: "default".to_owned(),
        name: "web".to_owned(),
    };
    let undo = UndoRequest {
        daemonset: Some(web.clone()),
        to_revision: 1,
        dry_run: false,
    };
    let status = admin
        .daemonsets()
        .undo(admin.request(undo))
        .await
        .unwrap_err();
    let failure = refused::<()>(Err(admin.fault(&status)));
    assert_eq!(
        failure.causes[0].field,
        "spec.template.spec.containers[0].image"
    );
    assert!(
        failure
            .message
            .contains("refused by DaemonSetPolicy strict"),
        "{failure:?}"
    );
    let restart = RestartRequest {
        daemonset: Some(web),
    };
    admin
        .daemonsets()
        .restart(admin.request(restart))
        .await
        .unwrap();

    // What the controller decides by itself, such as a rollback, is carried out.
    let back = image("img").to_string();
    cluster
        .registry()
        .patch(
            &Caller::internal("daemonset-controller"),
            &DAEMON_SET,
            key(&DAEMON_SET, "web"),
            (PatchForm::Strategic, back.into()),
            false,
            &muster_server::registry::WriteOptions::default(),
        )
        .await
        .unwrap();
    let web = cluster.object(&DAEMON_SET, "web").unwrap();
    assert_eq!(web.text_at("/spec/template/spec/containers/0/image"), "img");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_have_no_part_in_policies_and_viewers_only_read_them() {
    let cluster = cluster(&["n1"]).await;
    let strict = policy("strict", json!({"checks": {"OnDelete": "Refuse"}}));
    created(&cluster, &strict).await.unwrap();
    let name = key(&DAEMON_SET_POLICY, "strict");
    for (user, group, may_read) in [
        ("system:node:n1", "system:nodes", false),
        ("eve", "muster:viewers", true),
    ] {
        let connection = cluster.connect_as(Some((user, &[group]))).await.unwrap();
        let resources = connection.resources();
        let read = resources.get(&DAEMON_SET_POLICY, &name).await;
        assert_eq!(read.is_ok(), may_read, "{user}: {read:?}");
        let lenient = policy("lenient", json!({"checks": {"OnDelete": "Ignore"}}));
        let error = resources
            .create(&DAEMON_SET_POLICY, &lenient, &WriteOptions::default())
            .await
            .unwrap_err();
        assert!(error.has_reason("Forbidden"), "{user}: {error}");
        let error = resources
            .delete(
                &DAEMON_SET_POLICY,
                &name,
                &muster_client::DeleteOptions::default(),
            )
            .await
            .unwrap_err();
        assert!(error.has_reason("Forbidden"), "{user}: {error}");
    }
    cluster.stop().await;
}
