//! Short words for what many tests do.

use std::time::Duration;

use muster_client::{DeleteOptions, PatchType, WriteOptions};
use muster_model::kind::{DAEMON_SET, Kind};
use muster_model::object::{NamespacedName, Object};
use muster_testkit::{Cluster, ClusterOptions, build};
use serde_json::Value;

/// Longer than any roll of a test takes, by the clock that is paused.
pub(crate) const AN_HOUR: Duration = Duration::from_secs(3_600);

/// Nodes with these names, Ready, in memory, with images `img:1` to `img:9` local.
pub(crate) async fn cluster(names: &[&str]) -> Cluster {
    let cluster = Cluster::with_nodes(ClusterOptions::paused(), names)
        .await
        .unwrap();
    add_images(&cluster);
    cluster
}

/// The same, and each runs a pod of the DaemonSet `web`.
pub(crate) async fn running_web(names: &[&str]) -> Cluster {
    let cluster = cluster(names).await;
    cluster
        .create(&build::daemon_set("web").object())
        .await
        .unwrap();
    let nodes = i64::try_from(names.len()).unwrap();
    cluster.until_ready("web", nodes).await;
    cluster
}

pub(crate) fn add_images(cluster: &Cluster) {
    for number in 1..10 {
        cluster.engine().add_image(&format!("img:{number}"));
    }
}

/// `NAME` of a kind, in `default` when it has namespaces; or `NAMESPACE/NAME`.
pub(crate) fn key(kind: &Kind, name: &str) -> NamespacedName {
    match name.split_once('/') {
        Some((namespace, name)) => NamespacedName::new(namespace, name),
        None if kind.namespaced => NamespacedName::new("default", name),
        None => NamespacedName::new("", name),
    }
}

/// A merge patch as the administrator.
pub(crate) async fn merge(cluster: &Cluster, kind: &Kind, name: &str, patch: Value) -> Object {
    let bytes = patch.to_string().into_bytes();
    cluster
        .resources()
        .patch(
            kind,
            &key(kind, name),
            PatchType::Merge,
            &bytes,
            &WriteOptions::default(),
        )
        .await
        .unwrap()
        .object
}

/// Another image for a DaemonSet whose template has one container.
pub(crate) async fn set_image(cluster: &Cluster, daemon_set: &str, image: &str) {
    let patch = serde_json::json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}});
    cluster
        .resources()
        .patch(
            &DAEMON_SET,
            &key(&DAEMON_SET, daemon_set),
            PatchType::Strategic,
            patch.to_string().as_bytes(),
            &WriteOptions::default(),
        )
        .await
        .unwrap();
}

/// Deletes as the administrator, by the default policy.
pub(crate) async fn delete(cluster: &Cluster, kind: &Kind, name: &str) {
    cluster
        .resources()
        .delete(kind, &key(kind, name), &DeleteOptions::default())
        .await
        .unwrap();
}

/// A number of a DaemonSet's status.
pub(crate) fn status(cluster: &Cluster, daemon_set: &str, field: &str) -> i64 {
    let object = cluster.object(&DAEMON_SET, daemon_set).unwrap();
    object
        .at("/status")
        .and_then(|status| status.get(field))
        .and_then(Value::as_i64)
        .unwrap_or(0)
}

/// The images that a DaemonSet's pods run, by node.
pub(crate) fn images_by_node(cluster: &Cluster, daemon_set: &str) -> Vec<(String, String)> {
    let mut images: Vec<(String, String)> = cluster
        .pods_of(daemon_set)
        .iter()
        .map(|pod| {
            (
                pod.text_at("/spec/nodeName").to_owned(),
                pod.text_at("/spec/containers/0/image").to_owned(),
            )
        })
        .collect();
    images.sort();
    images
}

/// The one pod of a DaemonSet on a node.
pub(crate) fn pod_on(cluster: &Cluster, daemon_set: &str, node: &str) -> Option<Object> {
    cluster
        .pods_of(daemon_set)
        .into_iter()
        .find(|pod| pod.text_at("/spec/nodeName") == node && !pod.is_terminating())
}

/// Lets time pass, whatever happens meanwhile.
pub(crate) async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
