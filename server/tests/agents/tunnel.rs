//! Logs, which the server asks of agents through the tunnel that they opened.

use std::time::Duration;

use muster_model::kind::POD;
use muster_proto::v1::{self, tunnel_reply, tunnel_request};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::register;
use crate::support::{Cluster, failure, message, pod};

#[tokio::test]
async fn logs_travel_over_the_tunnel_of_the_pods_node() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let node = cluster.node("n1").await;
    register(&node, "n1", "m1").await.unwrap();
    let created = admin.create(&POD, &pod("p", "n1")).await.unwrap();
    let (replies, receiver) = mpsc::channel(16);
    let mut requests = node
        .nodes
        .clone()
        .tunnel(ReceiverStream::new(receiver))
        .await
        .unwrap()
        .into_inner();
    let query = |container: &str| v1::LogsQuery {
        namespace: "default".into(),
        pod: "p".into(),
        container: container.into(),
        ..v1::LogsQuery::default()
    };
    let agent = async {
        let request = requests.message().await.unwrap().unwrap();
        let Some(tunnel_request::Request::Logs(asked)) = request.request else {
            panic!("no logs: {request:?}")
        };
        assert_eq!(
            (asked.pod_uid.as_str(), asked.container.as_str()),
            (created.uid(), "web")
        );
        for reply in [
            tunnel_reply::Reply::Data("one\n".into()),
            tunnel_reply::Reply::Data("two\n".into()),
            tunnel_reply::Reply::Done(true),
        ] {
            replies
                .send(v1::TunnelReply {
                    id: request.id,
                    reply: Some(reply),
                })
                .await
                .unwrap();
        }
        let request = requests.message().await.unwrap().unwrap();
        let error = v1::TunnelError {
            code: 400,
            message: "container \"web\" in pod \"p\" is waiting to start: ContainerCreating".into(),
        };
        let reply = Some(tunnel_reply::Reply::Error(error));
        replies
            .send(v1::TunnelReply {
                id: request.id,
                reply,
            })
            .await
            .unwrap();
    };
    let reader = async {
        let mut chunks = admin
            .pods
            .clone()
            .logs(query(""))
            .await
            .unwrap()
            .into_inner();
        let mut text = Vec::new();
        while let Some(chunk) = chunks.message().await.unwrap() {
            text.extend_from_slice(&chunk.data);
        }
        assert_eq!(text, b"one\ntwo\n");
        let refused = admin.pods.clone().logs(query("")).await.unwrap_err();
        assert_eq!(
            message(&refused),
            "container \"web\" in pod \"p\" is waiting to start: ContainerCreating"
        );
        let refused = admin.pods.clone().logs(query("x")).await.unwrap_err();
        assert_eq!(message(&refused), "container x is not valid for pod p");
    };
    tokio::join!(agent, reader);
}

#[tokio::test(start_paused = true)]
async fn logs_of_an_unreachable_node_are_refused_by_name_in_time() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    admin.create(&POD, &pod("p", "n9")).await.unwrap();
    let query = v1::LogsQuery {
        namespace: "default".into(),
        pod: "p".into(),
        ..v1::LogsQuery::default()
    };
    let logs = admin.pods.clone();
    let refused = tokio::time::timeout(Duration::from_secs(5), async move {
        let mut logs = logs;
        logs.logs(query).await.map(|_| ()).unwrap_err()
    })
    .await
    .expect("an answer within 5 s");
    assert_eq!(failure(&refused)["code"], 503);
    assert!(message(&refused).starts_with("node \"n9\" cannot be reached"));
}
