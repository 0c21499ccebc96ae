//! Tokens, certificates, and what a node may not see.

use muster_client::join::{JoinError, JoinOptions, NodeCredentials, join};
use muster_client::{
    ClientError, ConnectError, ConnectOptions, Connection, DeleteOptions, Identity, ListOptions,
    Trust, WriteOptions,
};
use muster_model::kind::{NODE, POD, SECRET};
use muster_model::time::SystemClock;
use muster_pki::{CertificateAuthority, issue};
use muster_testkit::build::{self, Manifest};
use muster_testkit::{Cluster, ClusterOptions, NodeOptions};
use serde_json::json;

use crate::support::{cluster, key, pass};

async fn join_with(
    cluster: &Cluster,
    token: &str,
    node: &str,
) -> Result<NodeCredentials, JoinError> {
    let address = cluster.server_address().unwrap();
    let mut options = JoinOptions::new(address, token, node, "another-machine").unwrap();
    options.connect = options.connect.with_dialer(cluster.dialer());
    join(&options).await
}

#[tokio::test(start_paused = true)]
async fn tokens_that_are_expired_wrong_or_revoked_are_refused_in_words() {
    let cluster = Cluster::start(ClusterOptions::paused()).await.unwrap();
    let good = cluster.token().to_owned();
    assert!(join_with(&cluster, &good, "n1").await.is_ok());

    let soon = cluster.clock().now() + std::time::Duration::from_secs(60);
    let short = cluster.make_token(Some(soon)).await.unwrap();
    assert!(join_with(&cluster, &short, "n2").await.is_ok());
    pass(61).await;
    let error = join_with(&cluster, &short, "n3").await.unwrap_err();
    assert!(!error.is_retryable());
    assert!(error.to_string().contains("expired at"), "{error}");

    let parts: Vec<&str> = good.split('.').collect();
    let wrong = format!(
        "{}.{}.{}.{}",
        parts[0],
        parts[1],
        "x".repeat(parts[2].len()),
        parts[3]
    );
    let error = join_with(&cluster, &wrong, "n3").await.unwrap_err();
    assert!(matches!(error, JoinError::Token(_)), "{error:?}");
    assert!(
        error.to_string().contains("secret of join token"),
        "{error}"
    );

    let secret = key(
        &SECRET,
        &format!("kube-system/bootstrap-token-{}", parts[1]),
    );
    cluster
        .resources()
        .delete(&SECRET, &secret, &DeleteOptions::default())
        .await
        .unwrap();
    let error = join_with(&cluster, &good, "n3").await.unwrap_err();
    assert!(
        error.to_string().contains("is not known to this server"),
        "{error}"
    );
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_token_of_another_cluster_meets_the_wrong_server_and_says_so() {
    let (here, there) = tokio::join!(
        Cluster::start(ClusterOptions::paused()),
        Cluster::start(ClusterOptions::paused())
    );
    let (here, there) = (here.unwrap(), there.unwrap());
    let error = join_with(&here, there.token(), "n1").await.unwrap_err();
    assert!(
        matches!(error, JoinError::Connect(ConnectError::ForeignCa { .. })),
        "{error:?}"
    );
    here.stop().await;
    there.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_certificate_of_another_ca_is_no_identity() {
    let cluster = Cluster::start(ClusterOptions::paused()).await.unwrap();
    let now = cluster.clock().now();
    let foreign = CertificateAuthority::generate("elsewhere", now).unwrap();
    let groups = ["system:masters".to_owned()];
    let issued =
        issue::issue_client(&foreign, "admin", &groups, now, issue::CLIENT_VALIDITY).unwrap();
    let options = ConnectOptions::new(
        cluster.server_address().unwrap(),
        Trust::Ca(cluster.ca().cert_pem().to_owned()),
    )
    .with_dialer(cluster.dialer())
    .with_identity(Identity {
        cert_pem: issued.cert_pem.clone(),
        key_pem: secrecy::ExposeSecret::expose_secret(&issued.key_pem).to_owned(),
    });
    let refused = match Connection::open(&options).await {
        Err(error) => ClientError::Connect(error),
        Ok(connection) => connection
            .resources()
            .list(&NODE, "", &ListOptions::default())
            .await
            .unwrap_err(),
    };
    assert!(
        matches!(refused, ClientError::Connect(ConnectError::Rejected { .. })),
        "{refused:?}"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn an_unreachable_server_is_an_error_that_names_it() {
    let mut cluster = Cluster::start(ClusterOptions {
        clock: SystemClock::shared(),
        ..ClusterOptions::default()
    })
    .await
    .unwrap();
    cluster.stop_server().await;
    let options = ConnectOptions::new(
        cluster.server_address().unwrap(),
        Trust::Ca(cluster.ca().cert_pem().to_owned()),
    );
    let error = Connection::open(&options).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "connection to {} was refused: is the server running, and is the address right?",
            cluster.server_address().unwrap()
        )
    );
    assert!(error.is_retryable());
}

#[tokio::test(start_paused = true)]
async fn a_node_reads_its_own_pods_and_the_secrets_they_name_and_nothing_else() {
    let cluster = cluster(&["n1", "n2"]).await;
    for name in ["named", "other"] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": "default"}, "stringData": {"k": "v"}});
        cluster
            .create(&Manifest::of(secret).object())
            .await
            .unwrap();
    }
    let mine = build::pod("mine", "n1").set(
        "/spec/containers/0/env",
        json!([{"name": "K", "valueFrom": {"secretKeyRef": {"name": "named", "key": "k"}}}]),
    );
    cluster.create(&mine.object()).await.unwrap();
    cluster
        .create(&build::pod("theirs", "n2").object())
        .await
        .unwrap();
    cluster
        .until("both run", || {
            ["mine", "theirs"].iter().all(|name| {
                cluster
                    .object(&POD, name)
                    .is_some_and(|pod| muster_testkit::is_ready(&pod))
            })
        })
        .await;
    let n1 = cluster
        .connect_as(Some(("system:node:n1", &["system:nodes"])))
        .await
        .unwrap()
        .resources();
    assert!(n1.get(&POD, &key(&POD, "mine")).await.is_ok());
    assert!(n1.get(&SECRET, &key(&SECRET, "named")).await.is_ok());
    assert!(n1.get(&NODE, &key(&NODE, "n1")).await.is_ok());
    let forbidden = |error: ClientError| {
        assert!(error.has_reason("Forbidden"), "{error:?}");
        error.to_string()
    };
    forbidden(n1.get(&POD, &key(&POD, "theirs")).await.unwrap_err());
    let text = forbidden(n1.get(&SECRET, &key(&SECRET, "other")).await.unwrap_err());
    assert_eq!(
        text,
        "secrets \"other\" is forbidden: User \"system:node:n1\" cannot get resource \"secrets\" in API group \"\" in the \
         namespace \"default\""
    );
    let everything = ListOptions::default();
    forbidden(n1.list(&POD, "", &everything).await.unwrap_err());
    forbidden(n1.list(&SECRET, "", &everything).await.unwrap_err());
    let theirs = cluster.object(&POD, "theirs").unwrap();
    forbidden(
        n1.update_status(&POD, &theirs, &WriteOptions::default())
            .await
            .unwrap_err(),
    );
    let pod = build::pod("planted", "n1").object();
    forbidden(
        n1.create(&POD, &pod, &WriteOptions::default())
            .await
            .unwrap_err(),
    );
    let stranger = cluster.connect_as(None).await.unwrap().resources();
    forbidden(stranger.get(&NODE, &key(&NODE, "n1")).await.unwrap_err());
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_with_a_bad_token_goes_on_trying_and_registers_nothing() {
    let mut cluster = cluster(&["n1"]).await;
    let parts: Vec<String> = cluster.token().split('.').map(str::to_owned).collect();
    let wrong = format!("{}.aaaaaa.{}.{}", parts[0], parts[2], parts[3]);
    let bad = NodeOptions::new("n2").token(&wrong);
    cluster.add_node(bad).await.unwrap();
    pass(120).await;
    assert!(cluster.object(&NODE, "n2").is_none());
    assert!(cluster.node_ended("n2").await.is_none());
    cluster.lose_node("n2").await.unwrap();
    cluster.stop().await;
}
