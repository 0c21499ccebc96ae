//! The port itself: slow and odd peers, health, metrics.

#![allow(
    clippy::unwrap_used,
    reason = "a test may stop at what it did not expect"
)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use muster_model::kind::POD;
use muster_pki::issue;
use muster_proto::v1::{GetRequest, ObjectReply};
use rustls_pki_types::ServerName;
use support::{Cluster, pod};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Sends one HTTP/1.1 request and returns the whole answer.
async fn http1(cluster: &Cluster, identity: Option<muster_pki::Issued>, path: &str) -> String {
    let mut config = cluster.client_config(identity);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let pipe = cluster.pipes.connect().await.unwrap();
    let name = ServerName::try_from("muster-server").unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, pipe)
        .await
        .unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: muster-server\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn peers_that_never_finish_their_handshake_hold_up_nobody() {
    let cluster = Cluster::start().await;
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(cluster.pipes.connect().await.unwrap());
    }
    let mut noisy = cluster.pipes.connect().await.unwrap();
    noisy.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let admin = cluster.admin().await;
    assert!(admin.list(&POD, "", "", "").await.unwrap().is_empty());
}

#[tokio::test]
async fn health_is_for_everybody_and_metrics_are_not() {
    let cluster = Cluster::start().await;
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = http1(&cluster, None, path).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    }
    let answer = http1(&cluster, None, "/metrics").await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    let admin = cluster.admin().await;
    admin.create(&POD, &pod("p", "")).await.unwrap();
    let groups = ["system:masters".to_owned()];
    let now = support::START.parse().unwrap();
    let issued = issue::issue_client(
        &cluster.ca,
        "admin",
        &groups,
        now,
        Duration::from_secs(3_600),
    )
    .unwrap();
    let answer = http1(&cluster, Some(issued), "/metrics").await;
    for line in [
        "apiserver_request_total{verb=\"POST\",resource=\"pods\",code=\"200\"} 1",
        "muster_objects{resource=\"pods\"} 1",
        "process_resident_memory_bytes ",
    ] {
        assert!(answer.contains(line), "{line} is missing in {answer}");
    }
}

#[tokio::test]
async fn an_unknown_call_is_unimplemented_and_an_unknown_path_not_found() {
    let cluster = Cluster::start().await;
    let answer = http1(&cluster, None, "/nosuch").await;
    assert!(answer.starts_with("HTTP/1.1 404 Not Found"), "{answer}");
    assert!(
        answer.contains("the server could not find the requested resource"),
        "{answer}"
    );
    let channel = cluster.channel(None).await;
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<GetRequest, ObjectReply>::default();
    let path = http::uri::PathAndQuery::from_static("/muster.v1.ResourceService/Nosuch");
    let status = grpc
        .unary(tonic::Request::new(GetRequest::default()), path, codec)
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unimplemented);
}

#[tokio::test]
async fn many_callers_on_many_connections_are_served() {
    let cluster = Arc::new(Cluster::start().await);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..40 {
        let cluster = Arc::clone(&cluster);
        tasks.spawn(async move {
            let admin = cluster.admin().await;
            admin
                .create(&POD, &pod(&format!("p{number:02}"), ""))
                .await
                .unwrap();
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(
        cluster
            .admin()
            .await
            .list(&POD, "", "", "")
            .await
            .unwrap()
            .len(),
        40
    );
}
