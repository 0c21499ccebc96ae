//! What a restart keeps, over the engine that writes to disk.

#![allow(
    clippy::unwrap_used,
    reason = "a test may stop at what it did not expect"
)]

mod support;

use std::sync::Arc;

use muster_model::kind::{DAEMON_SET, LEASE};
use muster_proto::v1;
use muster_store::{Options, SledStore};
use support::{Cluster, daemon, failure, reference};

#[tokio::test]
async fn acknowledged_writes_stay_and_versions_never_go_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let open = || Arc::new(SledStore::open(&path, Options::default()).unwrap());
    let first = Cluster::over(open(), false).await;
    let admin = first.admin().await;
    let stored = admin.create(&DAEMON_SET, &daemon("web")).await.unwrap();
    let lease = serde_json::json!({"metadata": {"name": "n1", "namespace": "kube-node-lease"}, "spec": {"holderIdentity": "n1"}});
    let lease = admin.create(&LEASE, &lease).await.unwrap();
    let cluster_id = first.server.cluster_id().to_owned();
    drop(admin);
    first.server.stop().await;

    let second = Cluster::over(open(), false).await;
    let admin = second.admin().await;
    assert_eq!(second.server.cluster_id(), cluster_id);
    let again = admin.get(&DAEMON_SET, "default", "web").await.unwrap();
    assert_eq!(again, stored, "the very same version");
    assert!(
        admin.get(&LEASE, "kube-node-lease", "n1").await.is_err(),
        "heartbeats are soft"
    );
    let newest = lease.resource_version().parse::<u64>().unwrap();
    assert!(
        second.registry().cache().revision().0 >= newest,
        "the counter counts soft writes too"
    );
    let request = v1::WatchRequest {
        resource: reference(&LEASE, "", ""),
        resource_version: stored.resource_version().to_owned(),
        ..v1::WatchRequest::default()
    };
    let refused = admin.resources.clone().watch(request).await.unwrap_err();
    assert_eq!(failure(&refused)["reason"], "Expired");
    second.server.stop().await;
}
