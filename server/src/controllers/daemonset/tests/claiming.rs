use muster_model::kind::{DAEMON_SET, POD};
use serde_json::{Value, json};

use super::cluster::{Cluster, daemonset, object, web};
use crate::controllers::daemonset::sync::SyncError;
use crate::registry::keys;

fn orphan(name: &str, node: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "web", "image": "img:0"}]},
    })
}

#[tokio::test(start_paused = true)]
async fn ds_053_an_orphan_is_adopted_and_replaced_only_by_a_rolling_update() {
    for on_delete in [false, true] {
        let cluster = Cluster::empty(2).await;
        cluster.create(&POD, orphan("orphan", "n0")).await;
        let mut set = daemonset("default", "web");
        if on_delete {
            set["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
        }
        cluster.create(&DAEMON_SET, set).await;
        // The orphan is old and not Ready, so that a rolling update takes it out at once.
        assert_eq!(cluster.sync().await, (1, usize::from(!on_delete)));
        let pod = cluster.only("n0");
        assert_eq!(pod.name(), "orphan");
        assert_eq!(pod.object().controller().unwrap().uid, cluster.set().uid());
        assert_eq!(pod.object().is_terminating(), !on_delete);
    }
}

#[tokio::test(start_paused = true)]
async fn ds_055_a_relabelled_pod_is_released_replaced_and_taken_back() {
    let cluster = Cluster::running(2).await;
    let pod = cluster.only("n0");
    cluster
        .edit(&POD, &pod.key, |pod| {
            pod["metadata"]["labels"]["app"] = "x".into()
        })
        .await;
    assert_eq!(cluster.queued(), ["web"]);
    assert_eq!(cluster.sync().await, (1, 0));
    let released = cluster.get(&POD, &pod.key);
    assert!(released.object().owner_references().is_empty());
    assert!(!released.object().is_terminating());
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    cluster.be_fair().await;
    cluster
        .edit(&POD, &pod.key, |pod| {
            pod["metadata"]["labels"]["app"] = "web".into()
        })
        .await;
    assert_eq!(cluster.sync().await, (0, 1));
    assert!(
        !cluster.get(&POD, &pod.key).object().is_terminating(),
        "the older stays"
    );
}

#[tokio::test(start_paused = true)]
async fn ds_056_overlapping_daemonsets_do_not_fight() {
    let cluster = Cluster::running(3).await;
    cluster
        .create(&DAEMON_SET, daemonset("default", "other"))
        .await;
    let other = muster_model::object::NamespacedName::new("default", "other");
    assert_eq!(cluster.try_sync_of(&other).await.unwrap(), (3, 0));
    assert_eq!(cluster.sync().await, (0, 0));
    assert_eq!(cluster.pods().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn ds_058_nothing_is_adopted_by_a_daemonset_that_went_or_goes() {
    let cluster = Cluster::running(1).await;
    let facts = cluster.controller.inner.state.lock().index.sets[&web()]
        .facts
        .clone();
    cluster.controller.inner.check_owner(&facts).unwrap();
    cluster
        .edit(&DAEMON_SET, &web(), |set| {
            set["metadata"]["finalizers"] = json!(["example.com/hold"]);
        })
        .await;
    cluster.delete(&DAEMON_SET, &web()).await;
    let error = cluster.controller.inner.check_owner(&facts).unwrap_err();
    assert!(matches!(error, SyncError::OwnerTerminating { .. }));
    assert!(
        error
            .to_string()
            .starts_with("default/web has just been deleted at 2026-"),
        "{error}"
    );
    let mut another = facts;
    another.uid = "another".to_owned();
    let error = cluster.controller.inner.check_owner(&another).unwrap_err();
    let uid = cluster.set().uid().to_owned();
    assert_eq!(
        error.to_string(),
        format!("original DaemonSet default/web is gone: got uid {uid}, wanted another")
    );
}

#[tokio::test(start_paused = true)]
async fn ds_060_a_stored_empty_selector_only_warns() {
    let cluster = Cluster::empty(3).await;
    let mut set = daemonset("default", "web");
    set["spec"]["selector"] = json!({});
    set["metadata"]["uid"] = "d1".into();
    cluster
        .put_raw(&keys::of(&DAEMON_SET, &web()), object(set).to_bytes())
        .await;
    assert_eq!(cluster.sync().await, (0, 0));
    let told = cluster.told("SelectingAll").await;
    assert_eq!(
        told,
        ["This daemon set is selecting all pods. A non-empty selector is required."]
    );
    assert!(cluster.revisions().is_empty());
}
