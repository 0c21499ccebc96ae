//! What queues a DaemonSet, and what does not.

use std::sync::atomic::Ordering;

use muster_model::kind::{DAEMON_SET, NODE, POD};
use muster_model::object::NamespacedName;
use muster_store::Revision;
use serde_json::{Value, json};

use super::cluster::{Cluster, daemonset, web};
use crate::controllers::daemonset::sync::SyncError;
use crate::registry::keys;

fn node(name: &str) -> NamespacedName {
    NamespacedName::new("", name)
}

fn nobody() -> Vec<String> {
    Vec::new()
}

#[tokio::test(start_paused = true)]
async fn ds_030_only_changes_that_count_wake() {
    let cluster = Cluster::running(2).await;
    cluster.queued();
    cluster
        .edit_status(&NODE, &node("n0"), |node| {
            node["status"]["capacity"] = json!({"cpu": "8"});
            node["status"]["conditions"] = json!([{"type": "DiskPressure", "status": "True"}]);
        })
        .await;
    cluster
        .edit(&NODE, &node("n0"), |node| {
            node["metadata"]["annotations"] = json!({"a": "b"})
        })
        .await;
    assert_eq!(cluster.queued(), nobody());
    cluster
        .edit(&NODE, &node("n0"), |node| {
            node["metadata"]["labels"]["a"] = "b".into()
        })
        .await;
    assert_eq!(cluster.queued(), ["web"]);
    let taint = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
    cluster
        .edit(&NODE, &node("n0"), move |node| {
            node["spec"]["taints"] = taint.clone()
        })
        .await;
    assert_eq!(cluster.queued(), ["web"]);
    // A node that it neither runs on nor should run on.
    let tainted = json!({
        "metadata": {"name": "n9"}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
    });
    cluster.create(&NODE, tainted).await;
    assert_eq!(cluster.queued(), nobody());
    cluster
        .edit(&NODE, &node("n9"), |node| {
            node["metadata"]["labels"]["a"] = "b".into()
        })
        .await;
    assert_eq!(cluster.queued(), nobody());
    cluster.delete(&NODE, &node("n1")).await;
    assert_eq!(cluster.queued(), ["web"]);
}

#[tokio::test(start_paused = true)]
async fn ds_059_orphans_and_owners() {
    let cluster = Cluster::running(1).await;
    cluster
        .create(&DAEMON_SET, daemonset("default", "other"))
        .await;
    let mut apart = daemonset("default", "apart");
    apart["spec"]["selector"] = json!({"matchLabels": {"app": "apart"}});
    apart["spec"]["template"]["metadata"]["labels"] = json!({"app": "apart"});
    cluster.create(&DAEMON_SET, apart).await;
    cluster.queued();
    let orphan = json!({
        "metadata": {"name": "orphan", "namespace": "default", "labels": {"app": "web"}},
        "spec": {"nodeName": "n0", "containers": [{"name": "web", "image": "img:1"}]},
    });
    cluster.create(&POD, orphan).await;
    assert_eq!(
        cluster.queued(),
        ["other", "web"],
        "an orphan that two match"
    );
    let key = NamespacedName::new("default", "orphan");
    cluster
        .edit(&POD, &key, |pod| {
            pod["metadata"]["annotations"] = json!({"a": "b"})
        })
        .await;
    assert_eq!(cluster.queued(), nobody(), "same labels");
    cluster
        .edit(&POD, &key, |pod| {
            pod["metadata"]["labels"]["app"] = "apart".into()
        })
        .await;
    assert_eq!(cluster.queued(), ["apart"], "new labels");
    let owner = |name: &str| {
        let set = cluster.get(&DAEMON_SET, &NamespacedName::new("default", name));
        json!([{
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": set.uid(), "controller": true,
        }])
    };
    let set_owner = async |owners: Value| {
        cluster
            .edit(&POD, &key, move |pod| {
                pod["metadata"]["ownerReferences"] = owners.clone()
            })
            .await;
    };
    set_owner(owner("web")).await;
    assert_eq!(cluster.queued(), ["web"]);
    set_owner(owner("other")).await;
    assert_eq!(cluster.queued(), ["other", "web"], "from one to the other");
    cluster
        .edit(&POD, &key, |pod| {
            pod["metadata"]["labels"]["app"] = "web".into()
        })
        .await;
    cluster.queued();
    set_owner(json!([])).await;
    assert_eq!(
        cluster.queued(),
        ["other", "web"],
        "the old owner and those that match"
    );
    cluster.delete(&POD, &key).await;
    cluster.queued();
    cluster.remove_pod(&cluster.get(&POD, &key)).await;
    assert_eq!(cluster.queued(), nobody(), "an orphan's end");
    let owned = cluster.only("n0");
    cluster.remove_pod(&owned).await;
    assert_eq!(cluster.queued(), ["web"]);
}

#[tokio::test(start_paused = true)]
async fn ds_072_a_pod_that_turned_ready_is_looked_at_again_when_it_counts() {
    let cluster = Cluster::new(1).await;
    cluster
        .edit(&DAEMON_SET, &web(), |set| {
            set["spec"]["minReadySeconds"] = 10.into()
        })
        .await;
    cluster.sync().await;
    cluster.set_ready(&cluster.only("n0"), true).await;
    cluster.sync().await;
    cluster.sync().await;
    cluster.queued();
    // A look that finds nothing to do now, but at a time to come.
    assert_eq!(cluster.sync().await, (0, 0));
    assert_eq!(
        (
            cluster.status("numberReady"),
            cluster.status("numberAvailable")
        ),
        (1, 0)
    );
    let start = tokio::time::Instant::now();
    assert_eq!(cluster.controller.inner.queue.next().await, web());
    assert_eq!(start.elapsed().as_secs(), 10);
    cluster.controller.inner.queue.done(&web());
    cluster.sync().await;
    assert_eq!(cluster.status("numberAvailable"), 1);
}

#[tokio::test(start_paused = true)]
async fn ds_123_a_view_older_than_its_own_last_write_decides_nothing() {
    let cluster = Cluster::new(3).await;
    cluster.sync().await;
    let pod = cluster.only("n0");
    cluster.remove_pod(&pod).await;
    let ahead = Revision(cluster.registry.cache().revision().0 + 1_000);
    cluster.queued();
    let inner = &cluster.controller.inner;
    inner
        .state
        .lock()
        .index
        .sets
        .get_mut(&web())
        .unwrap()
        .must_reach = ahead;
    assert!(matches!(
        cluster.try_sync().await,
        Err(SyncError::Behind { .. })
    ));
    assert_eq!(cluster.pods().len(), 2);
    let reached = cluster.registry.cache().revision();
    inner
        .state
        .lock()
        .index
        .sets
        .get_mut(&web())
        .unwrap()
        .must_reach = reached;
    cluster
        .create(&NODE, json!({"metadata": {"name": "n3"}}))
        .await;
    assert_eq!(cluster.sync().await, (2, 0));
}

#[tokio::test(start_paused = true)]
async fn case_b15_a_store_that_cannot_be_read_is_not_an_empty_one() {
    let cluster = Cluster::running(3).await;
    cluster.store.broken.store(true, Ordering::SeqCst);
    assert!(
        crate::cache::Cache::load(cluster.store.clone())
            .await
            .is_err()
    );
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    assert_eq!(cluster.sync().await, (0, 0));
    assert_eq!(cluster.pods().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn case_b43_a_daemonset_that_cannot_be_read_is_named_and_hinders_no_other() {
    let cluster = Cluster::new(2).await;
    let mut bad = daemonset("default", "bad");
    bad["metadata"]["uid"] = "bad".into();
    bad["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": 1}]);
    let key = NamespacedName::new("default", "bad");
    cluster
        .put_raw(&keys::of(&DAEMON_SET, &key), bad.to_string().into_bytes())
        .await;
    let mut odd = daemonset("default", "odd");
    odd["metadata"]["uid"] = "odd".into();
    odd["spec"]["selector"] =
        json!({"matchExpressions": [{"key": "app", "operator": "Near", "values": ["web"]}]});
    let key = NamespacedName::new("default", "odd");
    cluster
        .put_raw(&keys::of(&DAEMON_SET, &key), odd.to_string().into_bytes())
        .await;
    assert_eq!(cluster.sync().await, (2, 0));
    let broken = cluster.registry.cache().broken();
    assert_eq!(broken.len(), 1);
    assert!(broken[0].key.ends_with("default/bad"), "{broken:?}");
    assert!(
        !cluster
            .controller
            .inner
            .state
            .lock()
            .index
            .sets
            .contains_key(&key)
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_turned_ready_behind_the_plans_back_is_not_deleted_for_not_being_ready() {
    let cluster = Cluster::running(2).await;
    let strategy = async |strategy: Value| {
        cluster
            .edit(&DAEMON_SET, &web(), move |set| {
                set["spec"]["updateStrategy"] = strategy.clone();
                set["spec"]["template"]["spec"]["containers"][0]["image"] = "img:2".into();
            })
            .await;
    };
    strategy(json!({"type": "OnDelete"})).await;
    for node in ["n0", "n1"] {
        cluster.set_ready(&cluster.only(node), false).await;
    }
    assert_eq!(cluster.sync().await, (0, 0));
    strategy(json!({"type": "RollingUpdate"})).await;
    // Both are old and serve nobody, so that both may go at once; but one turns Ready, and that is not seen yet.
    let second = cluster.only("n1");
    cluster.store.hidden.send_replace(true);
    let shown = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        cluster.store.hidden.send_replace(false);
    };
    let ((), done, ()) = tokio::join!(cluster.set_ready(&second, true), cluster.sync(), shown);
    assert_eq!(done, (0, 1));
    assert!(!cluster.get(&POD, &second.key).object().is_terminating());
    assert_eq!(cluster.sync().await, (0, 0));
}
