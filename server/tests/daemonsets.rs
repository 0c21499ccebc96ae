//! Owners and dependents, namespaces, history: with the controllers running.

#![allow(
    clippy::unwrap_used,
    reason = "a test may stop at what it did not expect"
)]

mod support;

use std::sync::Arc;

use bytes::Bytes;
use muster_model::kind::{
    CONFIG_MAP, CONTROLLER_REVISION, DAEMON_SET, NAMESPACE, POD, SERVICE_ACCOUNT,
};
use muster_model::object::Object;
use muster_proto::v1;
use muster_proto::v1::agent_report::Report;
use muster_server::auth::Caller;
use muster_server::registry::{DeleteOptions, ListQuery, Selection};
use muster_store::{Key, MemoryStore, Op, Store, Txn};
use serde_json::{Value, json};
use support::{Api, Cluster, daemon, eventually, failure, message, pod, reference};
use tonic::Code;

fn owned(mut tree: Value, owner: &Object) -> Value {
    tree["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": owner.name(), "uid": owner.uid(),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    tree["metadata"]["labels"] = json!({"app": owner.name()});
    tree
}

/// A DaemonSet without a cluster that acts on it: its pods and revisions are made by hand. The name `idle`
/// selects no node.
async fn with_dependents(admin: &Api) -> Object {
    let mut tree = daemon("idle");
    tree["spec"]["template"]["spec"]["nodeSelector"] = json!({"no": "where"});
    let owner = admin.create(&DAEMON_SET, &tree).await.unwrap();
    admin
        .create(&POD, &owned(pod("dependent", "n1"), &owner))
        .await
        .unwrap();
    owner
}

async fn delete(admin: &Api, policy: &str) -> v1::DeleteReply {
    let request = v1::DeleteRequest {
        resource: reference(&DAEMON_SET, "default", "idle"),
        propagation_policy: policy.to_owned(),
        ..v1::DeleteRequest::default()
    };
    admin
        .resources
        .clone()
        .delete(request)
        .await
        .unwrap()
        .into_inner()
}

#[tokio::test]
async fn ds_110_background_deletion_takes_the_owner_first() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    with_dependents(&admin).await;
    assert!(delete(&admin, "Background").await.gone);
    assert_eq!(
        admin
            .get(&DAEMON_SET, "default", "idle")
            .await
            .unwrap_err()
            .code(),
        Code::NotFound
    );
}

#[tokio::test]
async fn ds_110_foreground_and_orphan_leave_their_finalizers() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    with_dependents(&admin).await;
    assert!(!delete(&admin, "Foreground").await.gone);
    let waiting = admin.get(&DAEMON_SET, "default", "idle").await.unwrap();
    assert_eq!(waiting.finalizers(), ["foregroundDeletion"]);
    assert!(waiting.is_terminating());
    assert!(!delete(&admin, "Orphan").await.gone);
    assert_eq!(
        admin
            .get(&DAEMON_SET, "default", "idle")
            .await
            .unwrap()
            .finalizers(),
        ["orphan"]
    );
    let patch = json!({"metadata": {"finalizers": []}});
    admin
        .patch(
            reference(&DAEMON_SET, "default", "idle"),
            v1::PatchType::Merge,
            &patch,
        )
        .await
        .unwrap();
    assert_eq!(
        admin
            .get(&DAEMON_SET, "default", "idle")
            .await
            .unwrap_err()
            .code(),
        Code::NotFound
    );
}

#[tokio::test]
async fn ds_109_a_collection_is_deleted_by_label() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    for name in ["a", "b", "c"] {
        admin.create(&DAEMON_SET, &daemon(name)).await.unwrap();
    }
    let query = ListQuery {
        namespace: Some("default".into()),
        selection: Selection::parse(&DAEMON_SET, "app in (a,b)", "").unwrap(),
        ..ListQuery::default()
    };
    let caller = Caller::internal("test");
    let deleted = cluster
        .registry()
        .delete_collection(&caller, &DAEMON_SET, &query, &DeleteOptions::default())
        .await
        .unwrap();
    assert_eq!(deleted.len(), 2);
    let left = admin.list(&DAEMON_SET, "", "", "").await.unwrap();
    assert_eq!(left.iter().map(Object::name).collect::<Vec<_>>(), ["c"]);
}

#[tokio::test]
async fn a_namespace_goes_with_everything_in_it() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    admin
        .create(&NAMESPACE, &json!({"metadata": {"name": "logging"}}))
        .await
        .unwrap();
    admin
        .get(&SERVICE_ACCOUNT, "logging", "default")
        .await
        .unwrap();
    assert!(!admin.delete(&NAMESPACE, "", "logging").await.unwrap().gone);
    let going = admin.get(&NAMESPACE, "", "logging").await.unwrap();
    assert_eq!(going.text_at("/status/phase"), "Terminating");
    let map = json!({"metadata": {"name": "late", "namespace": "logging"}});
    let refused = admin.create(&CONFIG_MAP, &map).await.unwrap_err();
    assert_eq!(
        message(&refused),
        "configmaps \"late\" is forbidden: unable to create new content in namespace logging because it is being terminated"
    );
    assert_eq!(
        failure(&refused)["details"]["causes"][0]["reason"],
        "NamespaceTerminating"
    );
}

#[tokio::test]
async fn the_namespace_controller_empties_and_removes() {
    let cluster = Cluster::with_controllers().await;
    let admin = cluster.admin().await;
    admin
        .create(&NAMESPACE, &json!({"metadata": {"name": "logging"}}))
        .await
        .unwrap();
    let map = json!({"metadata": {"name": "m", "namespace": "logging"}});
    admin.create(&CONFIG_MAP, &map).await.unwrap();
    admin.delete(&NAMESPACE, "", "logging").await.unwrap();
    eventually("the namespace is gone", || async {
        admin.get(&NAMESPACE, "", "logging").await.err()
    })
    .await;
    assert!(admin.get(&CONFIG_MAP, "logging", "m").await.is_err());
}

#[tokio::test]
async fn history_undo_and_restart() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let mut owner = admin.create(&DAEMON_SET, &daemon("web")).await.unwrap();
    let revision = |number: i64, image: &str, owner: &Object| {
        let mut template = owner.at("/spec/template").unwrap().clone();
        template["spec"]["containers"][0]["image"] = image.into();
        template["$patch"] = "replace".into();
        owned(
            json!({
                "metadata": {"name": format!("web-{number}"), "namespace": "default"},
                "revision": number, "data": {"spec": {"template": template}},
            }),
            owner,
        )
    };
    let reference_of = || {
        Some(v1::DaemonSetRef {
            namespace: "default".into(),
            name: "web".into(),
        })
    };
    let undo = |to: i64| v1::UndoRequest {
        daemonset: reference_of(),
        to_revision: to,
        dry_run: false,
    };
    let none = admin.daemonsets.clone().undo(undo(0)).await.unwrap_err();
    assert_eq!(message(&none), "no last revision to roll back to");
    for (number, image) in [(1, "img:0"), (2, "img:1")] {
        admin
            .create(&CONTROLLER_REVISION, &revision(number, image, &owner))
            .await
            .unwrap();
    }
    let history = admin
        .daemonsets
        .clone()
        .history(v1::HistoryRequest {
            daemonset: reference_of(),
        })
        .await
        .unwrap();
    let numbers: Vec<(i64, bool)> = history
        .into_inner()
        .entries
        .iter()
        .map(|entry| (entry.revision, entry.current))
        .collect();
    assert_eq!(numbers, [(1, false), (2, true)]);
    let missing = admin.daemonsets.clone().undo(undo(9)).await.unwrap_err();
    assert_eq!(
        message(&missing),
        "unable to find specified revision 9 in history"
    );
    let skipped = admin
        .daemonsets
        .clone()
        .undo(undo(2))
        .await
        .unwrap()
        .into_inner();
    assert!(skipped.skipped);
    let undone = admin
        .daemonsets
        .clone()
        .undo(undo(0))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((undone.skipped, undone.revision), (false, 1));
    owner = Object::from_bytes(&undone.object).unwrap();
    assert_eq!(
        owner.at("/spec/template/spec/containers/0/image"),
        Some(&json!("img:0"))
    );
    assert_eq!(owner.generation(), 2);
    // A template that has no revision yet: the newest is what ran until now.
    let mut fresh = owner.clone();
    fresh.tree_mut()["spec"]["template"]["spec"]["containers"][0]["image"] = "img:2".into();
    admin.update(&DAEMON_SET, &fresh).await.unwrap();
    let undone = admin.daemonsets.clone().undo(undo(0)).await.unwrap();
    assert_eq!(undone.into_inner().revision, 2);
    let restart = || v1::RestartRequest {
        daemonset: reference_of(),
    };
    let restarted = admin
        .daemonsets
        .clone()
        .restart(restart())
        .await
        .unwrap()
        .into_inner();
    let restarted = Object::from_bytes(&restarted.object).unwrap();
    let at = restarted.at("/spec/template/metadata/annotations").unwrap()["kubectl.kubernetes.io/restartedAt"].clone();
    assert_eq!(at, json!(support::START));
    assert_eq!(restarted.generation(), 5);
    let too_soon = admin
        .daemonsets
        .clone()
        .restart(restart())
        .await
        .unwrap_err();
    assert!(
        message(&too_soon)
            .starts_with("failed to create patch for web: if restart has already been triggered")
    );
}

#[tokio::test]
async fn ds_115_a_rollout_is_followed_to_its_end() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let web = admin.create(&DAEMON_SET, &daemon("web")).await.unwrap();
    let request = v1::RolloutStatusRequest {
        daemonset: Some(v1::DaemonSetRef {
            namespace: "default".into(),
            name: "web".into(),
        }),
    };
    let mut states = admin
        .daemonsets
        .clone()
        .rollout_status(request.clone())
        .await
        .unwrap()
        .into_inner();
    let state = states.message().await.unwrap().unwrap();
    assert_eq!(
        state.message,
        "Waiting for daemon set spec update to be observed..."
    );
    let status = |updated: i32, available: i32| {
        let mut tree = web.clone().into_tree();
        tree["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("resourceVersion");
        tree["status"] = json!({
            "observedGeneration": 1, "desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberReady": available,
            "numberMisscheduled": 0, "updatedNumberScheduled": updated, "numberAvailable": available,
        });
        Object::from_value(tree).unwrap()
    };
    let steps = [
        (
            status(1, 0),
            "Waiting for daemon set \"web\" rollout to finish: 1 out of 2 new pods have been updated...",
        ),
        (
            status(2, 1),
            "Waiting for daemon set \"web\" rollout to finish: 1 of 2 updated pods are available...",
        ),
        (status(2, 2), "daemon set \"web\" successfully rolled out"),
    ];
    for (object, line) in steps {
        admin.update_status(&DAEMON_SET, &object).await.unwrap();
        let state = states.message().await.unwrap().unwrap();
        assert_eq!(state.message, line);
    }
    assert_eq!(states.message().await.unwrap(), None);
    admin
        .update_status(&DAEMON_SET, &status(1, 0))
        .await
        .unwrap();
    let mut states = admin
        .daemonsets
        .clone()
        .rollout_status(request)
        .await
        .unwrap()
        .into_inner();
    states.message().await.unwrap().unwrap();
    admin.delete(&DAEMON_SET, "default", "web").await.unwrap();
    let gone = states.message().await.unwrap_err();
    assert_eq!(
        (gone.code(), gone.message()),
        (Code::NotFound, "object has been deleted")
    );
}

#[tokio::test]
async fn case_b43_one_object_that_cannot_be_read_hides_no_other() {
    let store = Arc::new(MemoryStore::new());
    let put = |key: &str, value: String| Op::Put {
        key: Key::new(key),
        value: Bytes::from(value),
        soft: false,
    };
    let mut good = daemon("good");
    good["metadata"]["uid"] = "u1".into();
    let mut bad = daemon("bad");
    bad["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "PORT", "value": 8001}]);
    let ops = vec![
        put("/registry/apps/daemonsets/default/good", good.to_string()),
        put("/registry/apps/daemonsets/default/bad", bad.to_string()),
        put(
            "/registry/apps/daemonsets/default/worse",
            "{no json".to_owned(),
        ),
    ];
    store
        .commit(Txn {
            compares: Vec::new(),
            ops,
        })
        .await
        .unwrap();
    let cluster = Cluster::over(store, true).await;
    let admin = cluster.admin().await;
    let sets = admin.list(&DAEMON_SET, "", "", "").await.unwrap();
    assert_eq!(sets.iter().map(Object::name).collect::<Vec<_>>(), ["good"]);
    let broken = cluster.registry().cache().broken();
    let keys: Vec<&str> = broken.iter().map(|broken| broken.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "/registry/apps/daemonsets/default/bad",
            "/registry/apps/daemonsets/default/worse"
        ]
    );
    assert!(broken[0].why.contains("8001"), "{broken:?}");
}

#[tokio::test]
async fn a_server_stops_in_order_and_its_watches_end() {
    let cluster = Cluster::with_controllers().await;
    let admin = cluster.admin().await;
    let mut watch = admin.watch(&POD, "", "").await;
    cluster.stop.cancel();
    assert!(watch.message().await.is_ok_and(|event| event.is_none()));
    tokio::time::timeout(std::time::Duration::from_secs(10), cluster.server.stop())
        .await
        .expect("it stops");
}

/// Plays a node's agent: registers, runs what it is told to run, and confirms what it is told to stop.
async fn play_agent(cluster: &Cluster, name: &'static str) -> tokio::task::JoinHandle<()> {
    let api = cluster.node(name).await;
    let register = v1::RegisterRequest {
        node: support::node(name, name).to_string().into(),
        machine_id: name.to_owned(),
        boot_id: "b".to_owned(),
    };
    api.nodes.clone().register(register).await.unwrap();
    let (sender, receiver) = tokio::sync::mpsc::channel(64);
    let reports = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut acks = api
        .nodes
        .clone()
        .report(reports)
        .await
        .unwrap()
        .into_inner();
    let mut events = api
        .nodes
        .clone()
        .watch_pods(v1::WatchPodsRequest::default())
        .await
        .unwrap()
        .into_inner();
    tokio::spawn(async move {
        let mut sequence = 0;
        loop {
            let event = tokio::select! {
                event = events.message() => event,
                ack = acks.message() => match ack {
                    Ok(Some(ack)) => {
                        assert_eq!(ack.error, "");
                        continue;
                    }
                    _ => return,
                },
            };
            let Ok(Some(event)) = event else { return };
            if event.r#type() != v1::pod_event::Type::Set {
                continue;
            }
            let pod = Object::from_bytes(&event.object).unwrap();
            let (namespace, name, uid) = (
                pod.namespace().to_owned(),
                pod.name().to_owned(),
                pod.uid().to_owned(),
            );
            let report = if pod.is_terminating() {
                Report::PodGone(v1::PodGone {
                    namespace,
                    name,
                    uid,
                    status: Bytes::new(),
                })
            } else if pod.text_at("/status/phase") == "Running" {
                continue;
            } else {
                let status = json!({"phase": "Running", "conditions": [
                    {"type": "Ready", "status": "True", "lastTransitionTime": support::START}]});
                let status = status.to_string().into();
                Report::PodStatuses(v1::PodStatuses {
                    pods: vec![v1::PodStatusUpdate {
                        namespace,
                        name,
                        uid,
                        status,
                    }],
                })
            };
            sequence += 1;
            if sender
                .send(v1::AgentReport {
                    sequence,
                    report: Some(report),
                })
                .await
                .is_err()
            {
                return;
            }
        }
    })
}

#[tokio::test]
async fn a_daemon_is_placed_rolled_out_explained_and_removed() {
    let cluster = Cluster::with_controllers().await;
    let admin = cluster.admin().await;
    let mut agents = Vec::new();
    for name in ["n1", "n2", "n3"] {
        agents.push(play_agent(&cluster, name).await);
    }
    admin.create(&DAEMON_SET, &daemon("web")).await.unwrap();
    let rollout = async || {
        let request = v1::RolloutStatusRequest {
            daemonset: Some(v1::DaemonSetRef {
                namespace: "default".into(),
                name: "web".into(),
            }),
        };
        let mut states = admin
            .daemonsets
            .clone()
            .rollout_status(request)
            .await
            .unwrap()
            .into_inner();
        let mut last = String::new();
        while let Some(state) = states.message().await.unwrap() {
            last = state.message;
        }
        last
    };
    assert_eq!(
        rollout().await,
        "daemon set \"web\" successfully rolled out"
    );
    let pods = admin.list(&POD, "default", "app=web", "").await.unwrap();
    let nodes: Vec<&str> = pods
        .iter()
        .map(|pod| pod.text_at("/spec/nodeName"))
        .collect();
    assert_eq!(
        std::collections::BTreeSet::from_iter(nodes)
            .into_iter()
            .collect::<Vec<_>>(),
        ["n1", "n2", "n3"]
    );
    let coverage = admin
        .daemonsets
        .clone()
        .coverage(v1::CoverageRequest::default())
        .await
        .unwrap()
        .into_inner();
    let rows: Vec<(&str, &str, bool)> = coverage
        .rows
        .iter()
        .map(|row| (row.node.as_str(), row.rule.as_str(), row.updated))
        .collect();
    assert_eq!(
        rows,
        [
            ("n1", "Runs", true),
            ("n2", "Runs", true),
            ("n3", "Runs", true)
        ]
    );
    let web = admin.get(&DAEMON_SET, "default", "web").await.unwrap();
    let mut tree = web.into_tree();
    tree["spec"]["template"]["spec"]["containers"][0]["image"] = "img:2".into();
    admin
        .update(&DAEMON_SET, &Object::from_value(tree).unwrap())
        .await
        .unwrap();
    assert_eq!(
        rollout().await,
        "daemon set \"web\" successfully rolled out"
    );
    for pod in admin.list(&POD, "default", "app=web", "").await.unwrap() {
        assert_eq!(pod.at("/spec/containers/0/image"), Some(&json!("img:2")));
    }
    let reference = Some(v1::DaemonSetRef {
        namespace: "default".into(),
        name: "web".into(),
    });
    let history = admin
        .daemonsets
        .clone()
        .history(v1::HistoryRequest {
            daemonset: reference,
        })
        .await
        .unwrap();
    let numbers: Vec<(i64, bool)> = history
        .into_inner()
        .entries
        .iter()
        .map(|entry| (entry.revision, entry.current))
        .collect();
    assert_eq!(numbers, [(1, false), (2, true)]);
    // ds_110, background: the owner at once, its pods and revisions afterwards.
    assert!(
        admin
            .delete(&DAEMON_SET, "default", "web")
            .await
            .unwrap()
            .gone
    );
    eventually("pods and revisions are gone", || async {
        let pods = admin.list(&POD, "default", "app=web", "").await.unwrap();
        let revisions = admin
            .list(&CONTROLLER_REVISION, "default", "", "")
            .await
            .unwrap();
        (pods.is_empty() && revisions.is_empty()).then_some(())
    })
    .await;
    agents.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_refused_creation_is_explained_and_told_to_who_follows_the_rollout() {
    let cluster = Cluster::with_controllers().await;
    let admin = cluster.admin().await;
    let agent = play_agent(&cluster, "n1").await;
    let mut web = daemon("web");
    web["spec"]["template"]["spec"]["priorityClassName"] = "high".into();
    admin.create(&DAEMON_SET, &web).await.unwrap();
    let refused = |sentence: &str| {
        sentence.starts_with("no pod: creating a pod was refused: ") && sentence.contains("high")
    };
    eventually("it is explained", || async {
        let request = v1::CoverageRequest::default();
        let reply = admin.daemonsets.clone().coverage(request).await.unwrap();
        let rows = reply.into_inner().rows;
        (rows.len() == 1 && rows[0].rule == "Missing" && refused(&rows[0].why)).then_some(())
    })
    .await;
    let request = v1::RolloutStatusRequest {
        daemonset: Some(v1::DaemonSetRef {
            namespace: "default".into(),
            name: "web".into(),
        }),
    };
    let mut states = admin
        .daemonsets
        .clone()
        .rollout_status(request)
        .await
        .unwrap()
        .into_inner();
    loop {
        let state = states.message().await.unwrap().unwrap();
        let told = |line: &String| line.strip_prefix("n1: ").is_some_and(refused);
        if state.waiting.iter().any(told) {
            break;
        }
    }
    agent.abort();
}
