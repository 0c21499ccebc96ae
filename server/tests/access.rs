//! Who may do what: strangers, viewers, nodes.

#![allow(
    clippy::unwrap_used,
    reason = "a test may stop at what it did not expect"
)]

mod support;

use muster_model::kind::{CONFIG_MAP, DAEMON_SET, LEASE, NODE, POD, SECRET, SERVICE_ACCOUNT};
use muster_proto::v1;
use serde_json::json;
use support::{Cluster, daemon, failure, message, pod, reference, status_of};
use tonic::Code;

fn secret(name: &str) -> serde_json::Value {
    json!({"metadata": {"name": name, "namespace": "default"}, "data": {"a": "Yg=="}})
}

#[tokio::test]
async fn a_stranger_may_do_nothing() {
    let cluster = Cluster::start().await;
    let stranger = cluster.anonymous().await;
    let refused = stranger.get(&POD, "default", "x").await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(
        message(&refused),
        "pods \"x\" is forbidden: User \"system:anonymous\" cannot get resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    let refused = stranger.list(&NODE, "", "", "").await.unwrap_err();
    assert_eq!(
        message(&refused),
        "nodes is forbidden: User \"system:anonymous\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
    );
    let refused = stranger
        .daemonsets
        .clone()
        .coverage(v1::CoverageRequest {
            namespace: "edge".into(),
            ..v1::CoverageRequest::default()
        })
        .await
        .unwrap_err();
    assert_eq!(
        message(&refused),
        "daemonsets.apps is forbidden: User \"system:anonymous\" cannot list resource \"daemonsets\" in API group \"apps\" in the namespace \"edge\""
    );
    // The object is not even read: its faults are not told to strangers.
    let refused = stranger
        .create(
            &DAEMON_SET,
            &json!({"metadata": {"namespace": "default"}, "spec": 7}),
        )
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    let refused = stranger
        .nodes
        .clone()
        .register(v1::RegisterRequest::default())
        .await
        .unwrap_err();
    assert_eq!(
        (refused.code(), message(&refused).as_str()),
        (Code::Unauthenticated, "Unauthorized")
    );
}

#[tokio::test]
async fn a_token_that_is_not_valid_is_refused_and_its_bearer_is_no_stranger() {
    let cluster = Cluster::start().await;
    let mut client = cluster.admin().await.resources;
    let mut request = tonic::Request::new(v1::GetRequest {
        resource: reference(&POD, "default", "x"),
    });
    request
        .metadata_mut()
        .insert("authorization", "Bearer nonsense".parse().unwrap());
    let refused = client.get(request).await.unwrap_err();
    assert_eq!(
        (refused.code(), message(&refused).as_str()),
        (Code::Unauthenticated, "Unauthorized")
    );
}

#[tokio::test]
async fn a_viewer_reads_all_but_secrets_and_writes_nothing() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    admin.create(&DAEMON_SET, &daemon("web")).await.unwrap();
    admin.create(&SECRET, &secret("s")).await.unwrap();
    let viewer = cluster.viewer().await;
    assert_eq!(
        viewer
            .get(&DAEMON_SET, "default", "web")
            .await
            .unwrap()
            .name(),
        "web"
    );
    assert_eq!(viewer.list(&DAEMON_SET, "", "", "").await.unwrap().len(), 1);
    let coverage = viewer
        .daemonsets
        .clone()
        .coverage(v1::CoverageRequest::default())
        .await
        .unwrap();
    assert!(coverage.into_inner().rows.is_empty());
    for refused in [
        viewer.get(&SECRET, "default", "s").await.err(),
        viewer.list(&SECRET, "", "", "").await.err(),
        viewer.create(&DAEMON_SET, &daemon("b")).await.err(),
        viewer.delete(&DAEMON_SET, "default", "web").await.err(),
    ] {
        assert_eq!(refused.unwrap().code(), Code::PermissionDenied);
    }
    let restart = v1::RestartRequest {
        daemonset: Some(v1::DaemonSetRef {
            namespace: "default".into(),
            name: "web".into(),
        }),
    };
    let refused = viewer
        .daemonsets
        .clone()
        .restart(restart)
        .await
        .unwrap_err();
    assert_eq!(
        message(&refused),
        "daemonsets.apps \"web\" is forbidden: User \"viewer\" cannot patch resource \"daemonsets\" in API group \"apps\" in the namespace \"default\""
    );
}

#[tokio::test]
async fn a_node_touches_its_own_and_nothing_else() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    for name in ["n1", "n2"] {
        admin
            .create(&NODE, &support::node(name, name))
            .await
            .unwrap();
        let mut bound = pod(&format!("on-{name}"), name);
        bound["spec"]["volumes"] =
            json!([{"name": "v", "secret": {"secretName": format!("of-{name}")}}]);
        bound["spec"]["containers"][0]["envFrom"] =
            json!([{"configMapRef": {"name": format!("of-{name}")}}]);
        admin.create(&POD, &bound).await.unwrap();
        admin
            .create(&SECRET, &secret(&format!("of-{name}")))
            .await
            .unwrap();
        let map = json!({"metadata": {"name": format!("of-{name}"), "namespace": "default"}});
        admin.create(&CONFIG_MAP, &map).await.unwrap();
    }
    let node = cluster.node("n1").await;
    // Its own.
    node.get(&NODE, "", "n1").await.unwrap();
    node.get(&POD, "default", "on-n1").await.unwrap();
    node.get(&SECRET, "default", "of-n1").await.unwrap();
    node.get(&CONFIG_MAP, "default", "of-n1").await.unwrap();
    node.get(&SERVICE_ACCOUNT, "default", "default")
        .await
        .unwrap();
    assert_eq!(
        node.list(&POD, "", "", "spec.nodeName=n1")
            .await
            .unwrap()
            .len(),
        1
    );
    node.list(&SECRET, "default", "", "metadata.name=of-n1")
        .await
        .unwrap();
    let status = json!({"status": {"phase": "Running"}});
    let own = status_of(reference(&POD, "default", "on-n1"));
    node.patch(own, v1::PatchType::Merge, &status)
        .await
        .unwrap();
    let lease = json!({"metadata": {"name": "n1", "namespace": "kube-node-lease"}, "spec": {"holderIdentity": "n1"}});
    node.create(&LEASE, &lease).await.unwrap();
    // Others'.
    let others = status_of(reference(&POD, "default", "on-n2"));
    let mut lease_of_other = lease.clone();
    lease_of_other["metadata"]["name"] = "n2".into();
    let refusals = [
        node.get(&NODE, "", "n2").await.err(),
        node.list(&NODE, "", "", "").await.err(),
        node.get(&POD, "default", "on-n2").await.err(),
        node.list(&POD, "", "", "").await.err(),
        node.list(&POD, "", "", "spec.nodeName=n2").await.err(),
        node.get(&SECRET, "default", "of-n2").await.err(),
        node.get(&CONFIG_MAP, "default", "of-n2").await.err(),
        node.list(&SECRET, "", "", "").await.err(),
        node.list(&SECRET, "default", "", "").await.err(),
        node.patch(others, v1::PatchType::Merge, &status)
            .await
            .err(),
        node.delete(&POD, "default", "on-n2")
            .await
            .map(|_| ())
            .err(),
        node.create(&POD, &pod("mine", "n1")).await.err(),
        node.create(&LEASE, &lease_of_other).await.err(),
        node.create(&NODE, &support::node("n3", "m")).await.err(),
        node.get(&DAEMON_SET, "default", "web").await.err(),
        node.delete(&NODE, "", "n1").await.map(|_| ()).err(),
    ];
    for (index, refused) in refusals.into_iter().enumerate() {
        let refused = refused.unwrap_or_else(|| panic!("refusal {index} was allowed"));
        assert_eq!(
            refused.code(),
            Code::PermissionDenied,
            "refusal {index}: {refused:?}"
        );
        assert_eq!(failure(&refused)["reason"], "Forbidden");
    }
}

#[tokio::test]
async fn a_node_sets_neither_its_taints_nor_an_administrators_labels() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let mut tainted = support::node("n1", "m");
    tainted["spec"] = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
    tainted["metadata"]["labels"]["node-restriction.kubernetes.io/zone"] = "secure".into();
    admin.create(&NODE, &tainted).await.unwrap();
    let node = cluster.node("n1").await;
    let patches = [
        json!({"spec": {"taints": null}}),
        json!({"metadata": {"labels": {"node-restriction.kubernetes.io/zone": null}}}),
        json!({"metadata": {"labels": {"node-restriction.kubernetes.io/more": "x"}}}),
        json!({"metadata": {"labels": {"a.node-restriction.kubernetes.io/more": "x"}}}),
    ];
    for patch in patches {
        let refused = node
            .patch(reference(&NODE, "", "n1"), v1::PatchType::Merge, &patch)
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{patch}");
    }
    let fine = json!({"metadata": {"labels": {"disk": "ssd"}}});
    node.patch(reference(&NODE, "", "n1"), v1::PatchType::Merge, &fine)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_no_credential() {
    let cluster = Cluster::start().await;
    let other =
        muster_pki::CertificateAuthority::generate("other", support::START.parse().unwrap())
            .unwrap();
    let issued = muster_pki::issue::issue_client(
        &other,
        "admin",
        &["system:masters".to_owned()],
        support::START.parse().unwrap(),
        std::time::Duration::from_secs(86_400),
    )
    .unwrap();
    let config = std::sync::Arc::new(cluster.client_config(Some(issued)));
    let pipe = cluster.pipes.connect().await.unwrap();
    let name = rustls_pki_types::ServerName::try_from("muster-server").unwrap();
    let mut refused = tokio_rustls::TlsConnector::from(config)
        .connect(name, pipe)
        .await;
    if let Ok(stream) = &mut refused {
        // TLS 1.3 tells a client of its refusal only when it reads.
        let mut byte = [0; 1];
        let read = tokio::io::AsyncReadExt::read(stream, &mut byte).await;
        assert!(!matches!(read, Ok(1..)), "the server went on talking");
    }
}
