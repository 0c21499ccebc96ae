use std::sync::atomic::Ordering;
use std::time::Duration;

use muster_model::kind::{DAEMON_SET, NAMESPACE, NODE, POD};
use muster_model::object::NamespacedName;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::cluster::{Cluster, daemonset, web};
use crate::controllers::daemonset::DaemonSets;
use crate::controllers::daemonset::sync::SyncError;
use crate::metrics::Metrics;

#[tokio::test(start_paused = true)]
async fn ds_002_one_pod_per_node_and_an_event_for_each() {
    let cluster = Cluster::new(5).await;
    assert_eq!(cluster.sync().await, (5, 0));
    for index in 0..5 {
        let pod = cluster.only(&format!("n{index}"));
        assert!(pod.name().starts_with("web-"));
        assert_eq!(pod.name().len(), 9);
        assert_eq!(pod.object().controller().unwrap().uid, cluster.set().uid());
    }
    assert_eq!(cluster.sync().await, (0, 0));
    let told = cluster.told("SuccessfulCreate").await;
    assert_eq!(told.len(), 5);
    let name = cluster.only("n0").name().to_owned();
    assert!(told.contains(&format!("Created pod: {name}")));
}

#[tokio::test(start_paused = true)]
async fn ds_033_600_nodes_take_three_passes_none_before_the_earlier_is_seen() {
    let cluster = Cluster::new(600).await;
    assert_eq!(cluster.sync().await, (250, 0));
    assert_eq!(cluster.sync().await, (250, 0));
    assert_eq!(cluster.sync().await, (100, 0));
    assert_eq!(cluster.sync().await, (0, 0));
    assert_eq!(cluster.status("currentNumberScheduled"), 600);
}

#[tokio::test(start_paused = true)]
async fn ds_034_and_036_when_every_creation_fails_one_is_tried_and_the_status_tells() {
    let cluster = Cluster::new(10).await;
    cluster.store.pods_left.store(0, Ordering::SeqCst);
    assert!(matches!(
        cluster.try_sync().await,
        Err(SyncError::Write { .. })
    ));
    assert_eq!(cluster.store.pods_tried.load(Ordering::SeqCst), 1);
    assert_eq!(cluster.told("FailedCreate").await.len(), 1);
    assert_eq!(cluster.status("desiredNumberScheduled"), 10);
    assert_eq!(cluster.status("currentNumberScheduled"), 0);
    assert_eq!(cluster.status("numberUnavailable"), 10);
    cluster.store.pods_left.store(usize::MAX, Ordering::SeqCst);
    assert_eq!(cluster.sync().await, (10, 0));
}

#[tokio::test(start_paused = true)]
async fn ds_035_batches_grow_until_one_fails() {
    let cluster = Cluster::new(10).await;
    cluster.store.pods_left.store(3, Ordering::SeqCst);
    assert!(cluster.try_sync().await.is_err());
    assert_eq!(cluster.store.pods_tried.load(Ordering::SeqCst), 1 + 2 + 4);
    assert_eq!(cluster.pods().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn ds_037_what_was_created_is_seen_by_the_next_sync_and_the_generation_observed() {
    let cluster = Cluster::new(5).await;
    cluster.sync().await;
    cluster
        .edit(&DAEMON_SET, &web(), |set| {
            set["spec"]["minReadySeconds"] = 1.into()
        })
        .await;
    assert_eq!(cluster.status("observedGeneration"), 1);
    assert_eq!(cluster.sync().await, (0, 0));
    assert_eq!(cluster.status("observedGeneration"), 2);
}

/// The reference forgets after 300 s what it expected to see. Nothing is expected here, and nothing is forgotten: a write
/// whose outcome was not seen holds the sync until the view has reached it, however long that takes, and no longer.
#[tokio::test(start_paused = true)]
async fn ds_038_a_write_whose_outcome_was_not_seen_blocks_no_sync_for_ever() {
    let cluster = Cluster::running(5).await;
    let node = json!({"metadata": {"name": "n5"}});
    cluster.create(&NODE, node).await;
    let tried = || cluster.store.pods_tried.load(Ordering::SeqCst);
    let before = tried();
    cluster.store.hidden.send_replace(true);
    let unseen = cluster.try_sync().await.unwrap_err();
    assert!(matches!(unseen, SyncError::Write { .. }), "{unseen}");
    assert_eq!(tried(), before + 1);
    for _ in 0..2 {
        let held = cluster.try_sync().await.unwrap_err();
        assert!(matches!(held, SyncError::Behind { .. }), "{held}");
        tokio::time::advance(Duration::from_secs(301)).await;
    }
    cluster.store.hidden.send_replace(false);
    cluster.settle_down().await;
    assert_eq!(tried(), before + 1, "nothing is made twice");
    assert_eq!(cluster.pods().len(), 6);
    assert_eq!(cluster.status("numberReady"), 6);
}

#[tokio::test(start_paused = true)]
async fn ds_039_a_successor_of_the_same_name_starts_clean() {
    let cluster = Cluster::new(3).await;
    assert_eq!(cluster.sync().await, (3, 0));
    cluster.delete(&DAEMON_SET, &web()).await;
    cluster
        .create(&DAEMON_SET, daemonset("default", "web"))
        .await;
    assert_eq!(
        cluster.sync().await,
        (3, 0),
        "and the old uid's pods are not adopted"
    );
    let uid = cluster.set().uid().to_owned();
    let own = cluster
        .pods()
        .iter()
        .filter(|p| p.object().controller().unwrap().uid == uid)
        .count();
    assert_eq!(own, 3);
}

#[tokio::test(start_paused = true)]
async fn ds_041_a_terminating_namespace_refuses_quietly() {
    let cluster = Cluster::empty(3).await;
    cluster
        .create(&NAMESPACE, json!({"metadata": {"name": "work"}}))
        .await;
    cluster.create(&DAEMON_SET, daemonset("work", "web")).await;
    let key = NamespacedName::new("work", "web");
    // The history is there before the namespace goes.
    assert_eq!(cluster.try_sync_of(&key).await.unwrap(), (3, 0));
    cluster
        .create(&NODE, json!({"metadata": {"name": "n9"}}))
        .await;
    cluster
        .delete(&NAMESPACE, &NamespacedName::new("", "work"))
        .await;
    assert_eq!(cluster.try_sync_of(&key).await.unwrap(), (0, 0));
    assert!(cluster.told("FailedCreate").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn ds_042_a_failed_pod_is_told_deleted_and_waited_for() {
    let cluster = Cluster::running(1).await;
    let fail = async |cluster: &Cluster| {
        let pod = cluster.only("n0");
        cluster
            .edit_status(&POD, &pod.key, |pod| {
                pod["status"] = json!({"phase": "Failed", "reason": "OutOfcpu"});
            })
            .await;
    };
    fail(&cluster).await;
    let name = cluster.only("n0").name().to_owned();
    cluster.sync().await;
    assert!(
        cluster.pods().is_empty(),
        "nothing runs in it, so it is gone at once"
    );
    let told = cluster.told("FailedDaemonPod").await;
    assert_eq!(
        told,
        [format!(
            "Found failed daemon pod default/{name} on node n0, will try to kill it"
        )]
    );
    assert_eq!(cluster.sync().await, (1, 0));
    fail(&cluster).await;
    assert_eq!(cluster.sync().await, (0, 0), "within 1 s");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(cluster.sync().await, (0, 1));
}

#[tokio::test(start_paused = true)]
async fn ds_051_a_restarted_controller_writes_nothing() {
    let cluster = Cluster::running(5).await;
    let before = cluster.store_revision().await;
    let again = DaemonSets::new(
        cluster.registry.clone(),
        cluster.events.clone(),
        Metrics::new(),
    );
    again.inner.sync(&web()).await.unwrap();
    assert_eq!(cluster.store_revision().await, before);
    assert_eq!(cluster.revisions().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn ds_052_the_status_is_tried_twice_and_ends_right() {
    let cluster = Cluster::running(3).await;
    let pod = cluster.only("n0");
    cluster.set_ready(&pod, false).await;
    cluster.store.daemonset_refusals.store(1, Ordering::SeqCst);
    cluster.sync().await;
    assert_eq!(cluster.status("numberReady"), 2, "one retry");
    cluster.set_ready(&pod, true).await;
    cluster.store.daemonset_refusals.store(2, Ordering::SeqCst);
    assert!(cluster.try_sync().await.is_err());
    assert_eq!(cluster.status("numberReady"), 2);
    cluster.sync().await;
    assert_eq!(cluster.status("numberReady"), 3);
}

#[tokio::test(start_paused = true)]
async fn ds_102_conditions_of_others_stay() {
    let cluster = Cluster::running(2).await;
    cluster
        .edit_status(&DAEMON_SET, &web(), |set| {
            set["status"]["conditions"] = json!([{"type": "StatusPatched", "status": "True"}]);
        })
        .await;
    cluster.set_ready(&cluster.only("n0"), false).await;
    cluster.sync().await;
    let set = cluster.set();
    assert_eq!(
        set.object().text_at("/status/conditions/0/type"),
        "StatusPatched"
    );
    assert_eq!(cluster.status("numberReady"), 1);
    assert_eq!(set.object().generation(), 1);
}

#[tokio::test(start_paused = true)]
async fn ds_110_orphaned_pods_and_revision_are_adopted_by_a_daemonset_of_the_same_file() {
    let cluster = Cluster::running(3).await;
    let (pods, revisions) = (cluster.pods(), cluster.revisions());
    for stored in pods.iter().chain(&revisions) {
        cluster
            .edit(stored.kind, &stored.key, |object| {
                object["metadata"]
                    .as_object_mut()
                    .unwrap()
                    .remove("ownerReferences");
            })
            .await;
    }
    cluster.delete(&DAEMON_SET, &web()).await;
    cluster
        .create(&DAEMON_SET, daemonset("default", "web"))
        .await;
    assert_eq!(cluster.sync().await, (0, 0));
    assert_eq!(cluster.sync().await, (0, 0));
    let uid = cluster.set().uid().to_owned();
    for (before, after) in pods.iter().zip(cluster.pods()) {
        assert_eq!(before.uid(), after.uid());
        assert_eq!(after.object().controller().unwrap().uid, uid);
    }
    assert_eq!(cluster.revisions().len(), 1);
    assert_eq!(
        cluster.revisions()[0].object().controller().unwrap().uid,
        uid
    );
}

/// The whole controller, running by itself.
#[tokio::test(start_paused = true)]
async fn a_running_controller_rolls_a_change_out_by_itself() {
    let cluster = Cluster::new(4).await;
    let controller = DaemonSets::new(
        cluster.registry.clone(),
        cluster.events.clone(),
        Metrics::new(),
    );
    let stop = CancellationToken::new();
    let running = tokio::spawn(controller.run(stop.clone()));
    let wait = async |what: &str, done: &dyn Fn() -> bool| {
        for _ in 0..2_000 {
            if done() {
                return;
            }
            cluster.be_fair().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!(
            "{what} did not happen: {}",
            cluster.set().object().tree()["status"]
        );
    };
    wait("the first placement", &|| {
        cluster.status("numberAvailable") == 4
    })
    .await;
    cluster
        .edit(&DAEMON_SET, &web(), |set| {
            set["spec"]["minReadySeconds"] = 5.into();
            set["spec"]["template"]["spec"]["containers"][0]["image"] = "img:2".into();
        })
        .await;
    wait("the roll", &|| {
        cluster.status("updatedNumberScheduled") == 4
            && cluster.status("numberAvailable") == 4
            && cluster.status("observedGeneration") == 2
    })
    .await;
    let new = |pod: &std::sync::Arc<crate::cache::Stored>| {
        pod.object().text_at("/spec/containers/0/image") == "img:2"
    };
    assert_eq!(cluster.pods().iter().filter(|pod| new(pod)).count(), 4);
    stop.cancel();
    running.await.unwrap();
}
