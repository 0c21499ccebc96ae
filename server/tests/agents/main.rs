//! What passes between agents and the server.

#![allow(
    clippy::unwrap_used,
    reason = "a test may stop at what it did not expect"
)]

#[path = "../support/mod.rs"]
mod support;
mod tunnel;

use std::time::Duration;

use muster_model::kind::{CONFIG_MAP, DAEMON_SET, EVENT, LEASE, NODE, POD, SECRET};
use muster_model::object::Object;
use muster_model::pre_pull::{Answer, CONDITION, State};
use muster_pki::{JoinToken, issue, peer_identity, pem};
use muster_proto::v1;
use muster_proto::v1::agent_report::Report;
use muster_proto::v1::pod_event::Type;
use muster_server::tokens;
use rand::SeedableRng;
use secrecy::ExposeSecret;
use serde_json::json;
use support::{Api, Cluster, daemon, eventually, failure, message, pod};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

fn token(cluster: &Cluster) -> JoinToken {
    JoinToken::generate(&mut rand::rngs::StdRng::seed_from_u64(1), cluster.ca.hash())
}

fn join_request(token: &str, node: &str, machine: &str) -> v1::JoinRequest {
    let (csr_pem, _key) = issue::make_csr().unwrap();
    v1::JoinRequest {
        token: token.to_owned(),
        node_name: node.to_owned(),
        csr_pem,
        machine_id: machine.to_owned(),
    }
}

async fn register(
    api: &Api,
    name: &str,
    machine: &str,
) -> Result<v1::RegisterReply, tonic::Status> {
    let request = v1::RegisterRequest {
        node: support::node(name, machine).to_string().into(),
        machine_id: machine.to_owned(),
        boot_id: "boot".to_owned(),
    };
    Ok(api.nodes.clone().register(request).await?.into_inner())
}

/// An open report stream.
struct Reports {
    sender: mpsc::Sender<v1::AgentReport>,
    acks: Streaming<v1::ReportAck>,
    sequence: u64,
}

impl Reports {
    async fn open(api: &Api) -> Self {
        let (sender, receiver) = mpsc::channel(16);
        let acks = api
            .nodes
            .clone()
            .report(ReceiverStream::new(receiver))
            .await
            .unwrap()
            .into_inner();
        Self {
            sender,
            acks,
            sequence: 0,
        }
    }

    /// Sends a report and returns what its acknowledgement says.
    async fn send(&mut self, report: Report) -> String {
        self.sequence += 1;
        self.sender
            .send(v1::AgentReport {
                sequence: self.sequence,
                report: Some(report),
            })
            .await
            .unwrap();
        let ack = self.acks.message().await.unwrap().unwrap();
        assert_eq!(ack.sequence, self.sequence);
        ack.error
    }
}

fn status_update(pod: &Object, uid: &str, status: &serde_json::Value) -> Report {
    Report::PodStatuses(v1::PodStatuses {
        pods: vec![v1::PodStatusUpdate {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            uid: uid.to_owned(),
            status: status.to_string().into(),
        }],
    })
}

#[tokio::test]
async fn a_machine_joins_with_a_token_and_becomes_its_node() {
    let cluster = Cluster::start().await;
    let token = token(&cluster);
    let expires = cluster.clock.as_ref();
    let expires = muster_model::time::Clock::now(expires) + Duration::from_secs(3_600);
    let secret = tokens::secret(&token, Some(expires), "test");
    cluster
        .admin()
        .await
        .create(&SECRET, secret.tree())
        .await
        .unwrap();
    let stranger = cluster.anonymous().await;
    for form in [token.text(), token.bootstrap()] {
        let reply = stranger
            .nodes
            .clone()
            .join(join_request(form.expose_secret(), "n1", "m1"))
            .await
            .unwrap();
        let reply = reply.into_inner();
        let peer = peer_identity(&pem::certificates(&reply.certificate_pem).unwrap()[0]).unwrap();
        assert_eq!(peer.node_name(), Some("n1"));
        assert_eq!(reply.ca_pem, cluster.ca.cert_pem());
    }
    let wrong = format!(
        "{}.{}",
        token.id(),
        "x".repeat(token.secret().expose_secret().len())
    );
    let bad_name = {
        let mut nodes = stranger.nodes.clone();
        nodes
            .join(join_request(token.text().expose_secret(), "N_1", "m1"))
            .await
            .unwrap_err()
    };
    assert_eq!(failure(&bad_name)["code"], 400);
    let mut nodes = stranger.nodes.clone();
    let status = nodes
        .join(join_request(&wrong, "n1", "m1"))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert_eq!(
        message(&status),
        format!("the secret of join token {} is wrong", token.id())
    );
    let unknown = format!("zzzzzz.{}", token.secret().expose_secret());
    let status = nodes
        .join(join_request(&unknown, "n1", "m1"))
        .await
        .unwrap_err();
    assert!(message(&status).starts_with("the join token zzzzzz is not known to this server"));
    cluster.clock.advance(Duration::from_secs(3_601));
    let status = nodes
        .join(join_request(token.text().expose_secret(), "n1", "m1"))
        .await
        .unwrap_err();
    assert_eq!(
        message(&status),
        format!(
            "the join token {} expired at 2026-01-31T11:00:00Z",
            token.id()
        )
    );
}

#[tokio::test]
async fn na_009_two_live_machines_are_never_one_node() {
    let cluster = Cluster::start().await;
    let node = cluster.node("n1").await;
    let first = register(&node, "n1", "m1").await.unwrap();
    assert!(first.created);
    assert_eq!(first.cluster_id, cluster.server.cluster_id());
    assert!(
        !register(&node, "n1", "m1").await.unwrap().created,
        "the same machine may come again"
    );
    let refused = register(&node, "n1", "m2").await.unwrap_err();
    assert_eq!(
        message(&refused),
        "node name \"n1\" is in use by another live machine"
    );
    let admin = cluster.admin().await;
    eventually("an event on the node", || async {
        admin
            .list(&EVENT, "", "", "involvedObject.name=n1")
            .await
            .unwrap()
            .pop()
    })
    .await;
    cluster.clock.advance(Duration::from_secs(41));
    register(&node, "n1", "m2").await.unwrap();
}

#[tokio::test]
async fn a_removed_node_is_heeded_again_only_after_a_join() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let node = cluster.node("n1").await;
    register(&node, "n1", "m1").await.unwrap();
    let list = json!({"metadata": {"name": "muster-removed-nodes", "namespace": "kube-system"}, "data": {"n1": support::START}});
    admin.create(&CONFIG_MAP, &list).await.unwrap();
    admin.delete(&NODE, "", "n1").await.unwrap();
    let refused = register(&node, "n1", "m1").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert_eq!(
        message(&refused),
        "node \"n1\" was removed from this cluster: to come back, join again with a token"
    );
    let refused = node.get(&NODE, "", "n1").await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let token = token(&cluster);
    let secret = tokens::secret(&token, None, "");
    admin.create(&SECRET, secret.tree()).await.unwrap();
    let request = join_request(token.text().expose_secret(), "n1", "m1");
    cluster
        .anonymous()
        .await
        .nodes
        .clone()
        .join(request)
        .await
        .unwrap();
    assert!(register(&node, "n1", "m1").await.unwrap().created);
}

#[tokio::test]
async fn case_b91_a_node_made_again_by_another_machine_starts_with_fresh_pods() {
    let cluster = Cluster::with_controllers().await;
    let (admin, node) = (cluster.admin().await, cluster.node("n1").await);
    register(&node, "n1", "m1").await.unwrap();
    admin.create(&DAEMON_SET, &daemon("web")).await.unwrap();
    let pod = || async {
        let pods = admin.list(&POD, "default", "", "").await.unwrap();
        pods.into_iter().find(|pod| !pod.is_terminating())
    };
    let former = eventually("a pod", pod).await;
    // The machine is unplugged and its node deleted; another one takes the name at once.
    admin.delete(&NODE, "", "n1").await.unwrap();
    let reply = eventually("the name is free", || async {
        register(&node, "n1", "m2").await.ok()
    })
    .await;
    assert!(reply.created);
    let fresh = eventually("a fresh pod", || async {
        pod().await.filter(|pod| pod.uid() != former.uid())
    })
    .await;
    assert_eq!(fresh.text_at("/spec/nodeName"), "n1");
    let gone = admin.get(&POD, "default", former.name()).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
    eventually("it is said why", || async {
        let events = admin
            .list(&EVENT, "", "", "involvedObject.name=n1")
            .await
            .unwrap();
        let said = "Node n1 is another machine now, pods of the former one removed: 1";
        events
            .into_iter()
            .find(|event| event.text_at("/message") == said)
    })
    .await;
    // The same machine again, as after a deletion by mistake: its pod stays.
    admin.delete(&NODE, "", "n1").await.unwrap();
    assert!(register(&node, "n1", "m2").await.unwrap().created);
    assert_eq!(pod().await.unwrap().uid(), fresh.uid());
}

#[tokio::test]
async fn registering_again_leaves_an_administrators_work_alone() {
    let cluster = Cluster::start().await;
    let node = cluster.node("n1").await;
    register(&node, "n1", "m1").await.unwrap();
    let admin = cluster.admin().await;
    let patch = json!({"metadata": {"labels": {"a": "b", "kubernetes.io/os": "wrong"}}, "spec": {"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}]}});
    admin
        .patch(
            support::reference(&NODE, "", "n1"),
            v1::PatchType::Merge,
            &patch,
        )
        .await
        .unwrap();
    let reply = register(&node, "n1", "m1").await.unwrap();
    let stored = Object::from_bytes(&reply.node).unwrap();
    assert_eq!(stored.label("a"), Some("b"));
    assert_eq!(stored.label("kubernetes.io/os"), Some("linux"));
    assert_eq!(stored.at("/spec/unschedulable"), Some(&json!(true)));
    assert_eq!(stored.at("/spec/taints/0/key"), Some(&json!("k")));
    assert_eq!(stored.text_at("/status/nodeInfo/bootID"), "b");
    let other = register(&node, "n2", "m1").await.unwrap_err();
    assert_eq!(other.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn beats_show_as_a_lease_that_is_never_stored_with_the_node() {
    let cluster = Cluster::start().await;
    let node = cluster.node("n1").await;
    let registered = Object::from_bytes(&register(&node, "n1", "m1").await.unwrap().node).unwrap();
    let mut reports = Reports::open(&node).await;
    assert_eq!(
        reports
            .send(Report::Heartbeat(v1::Heartbeat {
                time: String::new()
            }))
            .await,
        ""
    );
    let admin = cluster.admin().await;
    let lease = eventually("the lease", || async {
        admin.get(&LEASE, "kube-node-lease", "n1").await.ok()
    })
    .await;
    assert_eq!(lease.text_at("/spec/holderIdentity"), "n1");
    assert_eq!(lease.at("/spec/leaseDurationSeconds"), Some(&json!(40)));
    assert_eq!(lease.owner_references()[0].uid, registered.uid());
    let now = admin.get(&NODE, "", "n1").await.unwrap();
    assert_eq!(now.resource_version(), registered.resource_version());
    assert!(
        cluster
            .server
            .heartbeats()
            .heard_within("n1", Duration::from_secs(1))
    );
}

#[tokio::test]
async fn na_008_a_beat_of_a_deleted_node_is_refused_so_that_it_registers_again() {
    let cluster = Cluster::start().await;
    let node = cluster.node("n1").await;
    register(&node, "n1", "m1").await.unwrap();
    let mut reports = Reports::open(&node).await;
    let beat = || {
        Report::Heartbeat(v1::Heartbeat {
            time: String::new(),
        })
    };
    assert_eq!(reports.send(beat()).await, "");
    cluster.admin().await.delete(&NODE, "", "n1").await.unwrap();
    assert_eq!(reports.send(beat()).await, "nodes \"n1\" not found");
    let status = Report::NodeStatus(support::node("n1", "m1").to_string().into());
    assert_eq!(reports.send(status).await, "nodes \"n1\" not found");
    assert!(register(&node, "n1", "m1").await.unwrap().created);
    assert_eq!(reports.send(beat()).await, "");
}

#[tokio::test]
async fn an_agent_that_was_out_of_reach_is_ready_since_it_is_back() {
    let cluster = Cluster::start().await;
    let (admin, node) = (cluster.admin().await, cluster.node("n1").await);
    register(&node, "n1", "m1").await.unwrap();
    let mut reports = Reports::open(&node).await;
    let ready = |status: &str, since: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": since}]}});
    let long_ready = || {
        let mut object = support::node("n1", "m1");
        object["status"] = ready("True", "2026-01-01T00:00:00Z")["status"].clone();
        Report::NodeStatus(object.to_string().into())
    };
    let since = async || {
        let seen = admin.get(&NODE, "", "n1").await.unwrap();
        seen.text_at("/status/conditions/0/lastTransitionTime")
            .to_owned()
    };
    assert_eq!(reports.send(long_ready()).await, "");
    assert_eq!(since().await, "2026-01-01T00:00:00Z");
    let target = support::status_of(support::reference(&NODE, "", "n1"));
    let lost = ready("Unknown", "2026-01-01T01:00:00Z");
    admin
        .patch(target, v1::PatchType::Merge, &lost)
        .await
        .unwrap();
    assert_eq!(reports.send(long_ready()).await, "");
    assert!(*since().await > *"2026-01-01T01:00:00Z");
}

#[tokio::test]
async fn statuses_are_taken_for_own_pods_of_the_right_uid_only() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let node = cluster.node("n1").await;
    register(&node, "n1", "m1").await.unwrap();
    let mine = admin.create(&POD, &pod("mine", "n1")).await.unwrap();
    let other = admin.create(&POD, &pod("other", "n2")).await.unwrap();
    let foreign =
        json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}});
    let target = support::status_of(support::reference(&POD, "default", "mine"));
    admin
        .patch(target, v1::PatchType::Merge, &foreign)
        .await
        .unwrap();
    let mut reports = Reports::open(&node).await;
    let running = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    assert_eq!(
        reports
            .send(status_update(&mine, mine.uid(), &running))
            .await,
        ""
    );
    let seen = admin.get(&POD, "default", "mine").await.unwrap();
    assert_eq!(seen.text_at("/status/phase"), "Running");
    assert_eq!(
        seen.at("/status/conditions")
            .unwrap()
            .as_array()
            .unwrap()
            .len(),
        2,
        "a controller's condition stays"
    );
    // Of another uid: dropped without a word.
    let failed = json!({"phase": "Failed"});
    assert_eq!(
        reports
            .send(status_update(&mine, "an-older-one", &failed))
            .await,
        ""
    );
    assert_eq!(
        admin
            .get(&POD, "default", "mine")
            .await
            .unwrap()
            .text_at("/status/phase"),
        "Running"
    );
    let refused = reports
        .send(status_update(&other, other.uid(), &failed))
        .await;
    assert_eq!(
        refused,
        "pods \"other\" is forbidden: it is not bound to node \"n1\""
    );
    let wrong_type = reports
        .send(status_update(&mine, mine.uid(), &json!({"phase": 7})))
        .await;
    assert!(wrong_type.contains("status.phase"), "{wrong_type}");
    assert!(cluster.registry().cache().broken().is_empty());
}

#[tokio::test]
async fn an_agent_answers_a_request_for_images_in_the_status_and_nowhere_else() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let node = cluster.node("n1").await;
    register(&node, "n1", "m1").await.unwrap();
    let mine = admin.create(&POD, &pod("mine", "n1")).await.unwrap();
    let mut reports = Reports::open(&node).await;
    let ready =
        json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-31T09:00:00Z"});
    let answer = Answer {
        revision: "7d9f".into(),
        state: State::Failed("img:2: no: such image".into()),
    };
    let (status, reason, message) = answer.condition();
    let pulled = json!({"type": CONDITION, "status": status, "reason": reason, "message": message,
                        "lastTransitionTime": "2026-01-31T10:00:00Z"});
    for conditions in [json!([ready, pulled]), json!([ready])] {
        let status = json!({"phase": "Running", "conditions": conditions});
        let error = reports
            .send(status_update(&mine, mine.uid(), &status))
            .await;
        assert_eq!(error, "");
        let seen = admin.get(&POD, "default", "mine").await.unwrap();
        assert_eq!(
            seen.at("/status/conditions"),
            Some(&conditions),
            "an answer that is taken back is gone"
        );
    }
    // The question is the controller's: a node may not write it.
    let question = json!({"metadata": {"annotations": {"muster.dev/pre-pull": "{}"}}});
    let target = support::reference(&POD, "default", "mine");
    let refused = node
        .patch(target, v1::PatchType::Merge, &question)
        .await
        .unwrap_err();
    assert_eq!(failure(&refused)["code"], 403);
}

#[tokio::test]
async fn a_pod_goes_when_its_agent_says_so_and_not_before() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let node = cluster.node("n1").await;
    register(&node, "n1", "m1").await.unwrap();
    let created = admin.create(&POD, &pod("p", "n1")).await.unwrap();
    let gone = |uid: &str| {
        Report::PodGone(v1::PodGone {
            namespace: "default".into(),
            name: "p".into(),
            uid: uid.to_owned(),
            status: json!({"phase": "Succeeded"}).to_string().into(),
        })
    };
    let mut reports = Reports::open(&node).await;
    let early = reports.send(gone(created.uid())).await;
    assert!(early.contains("is not being deleted"), "{early}");
    admin.delete(&POD, "default", "p").await.unwrap();
    assert_eq!(reports.send(gone("another")).await, "");
    admin.get(&POD, "default", "p").await.unwrap();
    assert_eq!(reports.send(gone(created.uid())).await, "");
    assert_eq!(
        admin.get(&POD, "default", "p").await.unwrap_err().code(),
        Code::NotFound
    );
    assert_eq!(
        reports.send(gone(created.uid())).await,
        "",
        "confirming twice is no error"
    );
}

#[tokio::test]
async fn events_of_an_agent_keep_their_time_and_stay_within_its_node() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let node = cluster.node("n1").await;
    register(&node, "n1", "m1").await.unwrap();
    admin.create(&POD, &pod("mine", "n1")).await.unwrap();
    admin.create(&POD, &pod("other", "n2")).await.unwrap();
    let event = |name: &str| {
        json!({
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": name, "apiVersion": "v1"},
            "reason": "Started", "message": "Started container web", "type": "Normal",
            "source": {"component": "kubelet", "host": "n1"}, "lastTimestamp": "2026-01-31T09:00:00Z",
        })
        .to_string()
        .into()
    };
    let mut reports = Reports::open(&node).await;
    let events = v1::Events {
        events: vec![event("other"), event("mine")],
    };
    assert_eq!(reports.send(Report::Events(events)).await, "");
    let stored = eventually("the event", || async {
        admin
            .list(&EVENT, "default", "", "involvedObject.name=mine")
            .await
            .unwrap()
            .pop()
    })
    .await;
    assert_eq!(stored.text_at("/lastTimestamp"), "2026-01-31T09:00:00Z");
    assert!(
        admin
            .list(&EVENT, "default", "", "involvedObject.name=other")
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn a_node_is_shown_its_pods_then_the_mark_then_changes() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let node = cluster.node("n1").await;
    register(&node, "n1", "m1").await.unwrap();
    admin.create(&POD, &pod("before", "n1")).await.unwrap();
    admin.create(&POD, &pod("elsewhere", "n2")).await.unwrap();
    let request = v1::WatchPodsRequest {
        boot_id: "b".into(),
    };
    let mut events = node
        .nodes
        .clone()
        .watch_pods(request)
        .await
        .unwrap()
        .into_inner();
    let mut next = async || {
        let event = events.message().await.unwrap().unwrap();
        let name = if event.object.is_empty() {
            String::new()
        } else {
            Object::from_bytes(&event.object).unwrap().name().to_owned()
        };
        (event.r#type(), name)
    };
    assert_eq!(next().await, (Type::Node, "n1".into()));
    assert_eq!(next().await, (Type::Set, "before".into()));
    assert_eq!(next().await, (Type::SnapshotComplete, String::new()));
    admin.create(&POD, &pod("other", "n2")).await.unwrap();
    let after = admin.create(&POD, &pod("after", "n1")).await.unwrap();
    assert_eq!(next().await, (Type::Set, "after".into()));
    let cordon = json!({"spec": {"unschedulable": true}});
    admin
        .patch(
            support::reference(&NODE, "", "n1"),
            v1::PatchType::Merge,
            &cordon,
        )
        .await
        .unwrap();
    assert_eq!(next().await, (Type::Node, "n1".into()));
    admin.delete(&POD, "default", "after").await.unwrap();
    assert_eq!(
        next().await,
        (Type::Set, "after".into()),
        "it is being deleted"
    );
    let force = v1::DeleteRequest {
        resource: support::reference(&POD, "default", "after"),
        grace_period_seconds: Some(0),
        precondition_uid: after.uid().to_owned(),
        ..v1::DeleteRequest::default()
    };
    admin.resources.clone().delete(force).await.unwrap();
    assert_eq!(next().await, (Type::Removed, "after".into()));
}
