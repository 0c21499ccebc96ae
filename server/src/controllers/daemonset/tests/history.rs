use std::sync::Arc;
use std::time::Duration;

use muster_model::kind::{CONTROLLER_REVISION, DAEMON_SET, NODE, POD};
use muster_model::object::NamespacedName;
use muster_model::time;
use serde_json::json;

use super::cluster::{Cluster, daemonset, web};
use crate::cache::Stored;
use crate::controllers::daemonset::sync::SyncError;

async fn set_image(cluster: &Cluster, image: &'static str) {
    cluster
        .edit(&DAEMON_SET, &web(), move |set| {
            set["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn ds_088_the_first_revision_and_its_pods_carry_one_hash() {
    let cluster = Cluster::running(3).await;
    let revisions = cluster.revisions();
    assert_eq!(revisions.len(), 1);
    let hash = revisions[0]
        .object()
        .label("controller-revision-hash")
        .unwrap()
        .to_owned();
    assert_eq!(revisions[0].name(), format!("web-{hash}"));
    assert_eq!(revisions[0].object().label("app"), Some("web"));
    assert_eq!(
        revisions[0]
            .object()
            .annotation("deprecated.daemonset.template.generation"),
        Some("1")
    );
    for pod in cluster.pods() {
        assert_eq!(pod.object().label("controller-revision-hash"), Some(&*hash));
    }
}

#[tokio::test(start_paused = true)]
async fn ds_089_undo_revives_and_renumbers() {
    let cluster = Cluster::running(2).await;
    let first = cluster.revisions()[0].name().to_owned();
    for image in ["img:2", "img:3", "img:1"] {
        set_image(&cluster, image).await;
        cluster.settle_down().await;
    }
    assert_eq!(cluster.numbers(), [2, 3, 4]);
    let revived = cluster.get(&CONTROLLER_REVISION, &NamespacedName::new("default", first));
    assert_eq!(revived.object().at("/revision"), Some(&json!(4)));
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_the_middle_of_an_undo_still_leaves_out_who_was_lost_before() {
    let cluster = Cluster::running(3).await;
    set_image(&cluster, "img:2").await;
    cluster.settle_down().await;
    tokio::time::advance(Duration::from_secs(86_400)).await;
    let lost = time::to_seconds_text(cluster.registry.now());
    cluster
        .edit_status(&NODE, &NamespacedName::new("", "n1"), move |node| {
            node["status"]["conditions"] =
                json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": lost}]);
        })
        .await;
    let kept = cluster.only("n1");
    tokio::time::advance(Duration::from_secs(60)).await;
    set_image(&cluster, "img:1").await;
    assert_eq!(cluster.sync().await, (0, 1));
    let cluster = cluster.restarted();
    cluster.settle_down().await;
    assert_eq!(cluster.only("n1").uid(), kept.uid());
    assert_eq!(cluster.status("updatedNumberScheduled"), 2);
}

#[tokio::test(start_paused = true)]
async fn ds_091_old_revisions_are_cleaned_up() {
    let cluster = Cluster::running(2).await;
    cluster
        .edit(&DAEMON_SET, &web(), |set| {
            set["spec"]["revisionHistoryLimit"] = 2.into()
        })
        .await;
    for image in ["img:2", "img:3", "img:4", "img:5"] {
        set_image(&cluster, image).await;
        cluster.settle_down().await;
    }
    assert_eq!(cluster.numbers(), [3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn ds_092_a_taken_name_raises_the_collision_count_and_changes_the_hash() {
    let cluster = Cluster::new(1).await;
    let name = {
        let facts = cluster.controller_facts();
        muster_daemonset::revision::settle(&facts, &[])
            .create
            .unwrap()
            .name
    };
    let taken = json!({
        "metadata": {"name": name, "namespace": "default", "labels": {"of": "somebody"}},
        "data": {"other": true}, "revision": 1,
    });
    cluster.create(&CONTROLLER_REVISION, taken).await;
    assert!(matches!(
        cluster.try_sync().await,
        Err(SyncError::Collision { .. })
    ));
    assert_eq!(cluster.status("collisionCount"), 1);
    assert_eq!(cluster.sync().await, (1, 0));
    assert_eq!(cluster.revisions().len(), 2);
    assert_eq!(
        cluster.status("collisionCount"),
        1,
        "the status write leaves it alone"
    );
}

#[tokio::test(start_paused = true)]
async fn ds_092_a_taken_name_with_the_same_data_is_used() {
    let cluster = Cluster::new(1).await;
    let facts = cluster.controller_facts();
    let new = muster_daemonset::revision::settle(&facts, &[])
        .create
        .unwrap();
    let mut taken = muster_daemonset::revision::object(&facts, &new).into_tree();
    taken["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("ownerReferences");
    taken["metadata"]["labels"] = json!({"controller-revision-hash": new.hash});
    cluster.create(&CONTROLLER_REVISION, taken).await;
    assert_eq!(cluster.sync().await, (1, 0));
    assert_eq!(cluster.revisions().len(), 1);
    assert_eq!(cluster.status("collisionCount"), 0);
}

/// A DaemonSet that was deleted and made again at once, and the revision that it borrows of the former one.
async fn made_again() -> (Cluster, Arc<Stored>) {
    let cluster = Cluster::running(2).await;
    let old = cluster.revisions()[0].clone();
    cluster.delete(&DAEMON_SET, &web()).await;
    cluster
        .create(&DAEMON_SET, daemonset("default", "web"))
        .await;
    cluster.settle_down().await;
    (cluster, old)
}

#[tokio::test(start_paused = true)]
async fn a_revision_of_a_daemonset_that_went_is_made_anew_when_it_is_collected() {
    let (cluster, old) = made_again().await;
    let owner = |stored: &Stored| stored.object().controller().unwrap().uid;
    assert_eq!(cluster.revisions().len(), 1);
    assert_eq!(owner(&cluster.revisions()[0]), owner(&old));
    cluster.queued();

    cluster.delete(&CONTROLLER_REVISION, &old.key).await;
    assert_eq!(cluster.queued(), ["web"]);
    cluster.settle_down().await;
    assert_eq!(cluster.revisions().len(), 1);
    assert_eq!(owner(&cluster.revisions()[0]), cluster.set().uid());

    for image in ["img:2", "img:1"] {
        set_image(&cluster, image).await;
        cluster.settle_down().await;
    }
    assert_eq!(cluster.numbers(), [2, 3]);
}

#[tokio::test(start_paused = true)]
async fn what_is_noted_on_a_borrowed_revision_is_seen() {
    let (cluster, old) = made_again().await;
    cluster.queued();

    cluster
        .edit(&CONTROLLER_REVISION, &old.key, |revision| {
            revision["metadata"]["annotations"]["muster.dev/failed"] = "n0: it crashes".into();
        })
        .await;
    assert_eq!(cluster.queued(), ["web"]);
    let failed = || {
        let mut state = cluster.controller.inner.state.lock();
        let history = state.index.sets.get_mut(&web()).unwrap().history();
        history.iter().find_map(|known| known.failed.clone())
    };
    assert_eq!(failed().as_deref(), Some("n0: it crashes"));

    // Going back renumbers it, which is seen as well, and it is on trial again.
    for image in ["img:2", "img:1"] {
        set_image(&cluster, image).await;
        cluster.settle_down().await;
    }
    assert_eq!(cluster.numbers(), [2, 3]);
    assert_eq!(failed(), None);
}

#[tokio::test(start_paused = true)]
async fn ds_094_duplicates_are_merged_and_their_pods_relabelled() {
    let cluster = Cluster::running(2).await;
    let mut copy = cluster.revisions()[0].object().as_ref().clone().into_tree();
    copy["metadata"]["name"] = "web-copy".into();
    copy["metadata"]["labels"]["controller-revision-hash"] = "copy".into();
    copy["revision"] = 2.into();
    copy["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    copy["metadata"].as_object_mut().unwrap().remove("uid");
    cluster.create(&CONTROLLER_REVISION, copy).await;
    let uids: Vec<String> = cluster
        .pods()
        .iter()
        .map(|pod| pod.uid().to_owned())
        .collect();
    assert_eq!(cluster.sync().await, (0, 0));
    assert_eq!(cluster.revisions().len(), 1);
    assert_eq!(cluster.revisions()[0].name(), "web-copy");
    for (pod, uid) in cluster.pods().iter().zip(uids) {
        assert_eq!(pod.uid(), uid);
        assert_eq!(pod.object().label("controller-revision-hash"), Some("copy"));
    }
}

#[tokio::test(start_paused = true)]
async fn ds_050_a_pod_deleted_by_hand_comes_back() {
    let cluster = Cluster::running(2).await;
    let pod = cluster.only("n0");
    cluster.delete(&POD, &pod.key).await;
    assert_eq!(cluster.sync().await, (0, 0), "it still stops");
    cluster.remove_pod(&cluster.get(&POD, &pod.key)).await;
    assert_eq!(cluster.sync().await, (1, 0));
}
