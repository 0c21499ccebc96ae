//! What is told of a node without a working pod, with what the controller and the cluster know beside the pod.

use std::sync::atomic::Ordering;
use std::time::Duration;

use muster_model::kind::{DAEMON_SET, NODE, POD};
use muster_model::object::NamespacedName;
use muster_model::time::Timestamp;
use serde_json::json;

use super::cluster::{Cluster, web};
use crate::daemons::{DaemonView, Row};

impl Cluster {
    fn row(&self, node: &str) -> Row {
        let (cache, troubles) = (self.registry.cache(), self.controller.troubles());
        let now = self.registry.moment();
        let view = DaemonView::of(cache, troubles, &self.set(), now).unwrap();
        let mut rows = view.rows(cache, troubles).into_iter();
        rows.find(|row| row.node.as_str() == node).unwrap()
    }

    fn sentence(&self, node: &str) -> String {
        let row = self.row(node);
        row.placement.verdict.sentence()
    }

    async fn attend(&self) {
        self.controller.inner.attend(&web()).await;
    }

    async fn fail_pod(&self, node: &str) -> String {
        let pod = self.only(node);
        self.edit_status(&POD, &pod.key, |pod| {
            pod["status"] = json!({
                "phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: too much cpu",
            });
        })
        .await;
        pod.name().to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_creation_is_told_until_one_succeeds() {
    let cluster = Cluster::new(2).await;
    assert_eq!(cluster.sentence("n1"), "no pod yet, one is being created");
    cluster.store.pods_left.store(0, Ordering::SeqCst);
    let mut news = cluster.controller.troubles().subscribe();
    cluster.attend().await;
    assert!(news.has_changed().unwrap());
    let first = cluster.sentence("n1");
    let begin = "no pod: creating a pod was refused: ";
    assert!(first.starts_with(begin), "{first}");
    assert!(first.contains("no space left"), "{first}");
    let since = "(since 2026-01-01T00:00:00Z); tried again at 2026-01-01T00:00:0";
    assert!(first.contains(since), "{first}");
    tokio::time::advance(Duration::from_secs(30)).await;
    cluster.attend().await;
    let second = cluster.sentence("n1");
    let since = "(since 2026-01-01T00:00:00Z); tried again at 2026-01-01T00:00:30";
    assert!(second.contains(since), "{second}");
    cluster.store.pods_left.store(usize::MAX, Ordering::SeqCst);
    news.mark_unchanged();
    cluster.attend().await;
    assert!(news.has_changed().unwrap());
    assert!(cluster.sentence("n1").ends_with(" is not ready yet"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_pod_says_when_its_back_off_ends() {
    let cluster = Cluster::running(1).await;
    let first = cluster.fail_pod("n0").await;
    assert_eq!(
        cluster.sentence("n0"),
        format!(
            "pod {first} failed (OutOfcpu: Pod was rejected: too much cpu); it is being replaced"
        )
    );
    assert_eq!(cluster.sync().await, (0, 1));
    cluster.be_fair().await;
    assert_eq!(cluster.sync().await, (1, 0));
    let next = cluster.fail_pod("n0").await;
    assert_eq!(
        cluster.sentence("n0"),
        format!(
            "pod {next} failed (OutOfcpu: Pod was rejected: too much cpu); \
             it is deleted and made again at 2026-01-01T00:00:01Z (back-off)"
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_pod_is_spoken_for_by_its_events_and_its_node() {
    let cluster = Cluster::new(1).await;
    cluster.sync().await;
    let pod = cluster.only("n0");
    cluster.controller.inner.events.warning(
        "agent",
        pod.object(),
        "FailedMount",
        "configmap \"conf\" not found".to_owned(),
    );
    assert_eq!(cluster.told("FailedMount").await.len(), 1);
    assert_eq!(
        cluster.sentence("n0"),
        format!(
            "pod {} is not ready: FailedMount: configmap \"conf\" not found (last told at 2026-01-01T00:00:00Z)",
            pod.name()
        )
    );
    cluster
        .edit_status(&NODE, &NamespacedName::new("", "n0"), |node| {
            node["status"]["conditions"] = json!([{
                "type": "Ready", "status": "False", "message": "container runtime is down",
            }]);
        })
        .await;
    assert_eq!(
        cluster.sentence("n0"),
        format!(
            "pod {} is not ready: the node is not ready: container runtime is down",
            pod.name()
        )
    );
}

impl Cluster {
    /// Seconds since the start, at which a node came to be without an available pod; `None`: it has one.
    fn uncovered_since(&self, node: &str) -> Option<i64> {
        let row = self.row(node);
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        row.uncovered_since
            .map(|since| since.as_second() - start.as_second())
    }
}

async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_gap_is_as_old_as_the_loss_of_the_last_available_pod() {
    let cluster = Cluster::new(1).await;
    pass(5).await;
    assert_eq!(
        cluster.uncovered_since("n0"),
        Some(0),
        "since there is a DaemonSet"
    );
    cluster.sync().await;
    pass(5).await;
    cluster.sync().await;
    assert_eq!(
        cluster.uncovered_since("n0"),
        Some(0),
        "a pod that is not ready changes nothing"
    );
    cluster.settle_down().await;
    assert_eq!(cluster.uncovered_since("n0"), None);

    pass(50).await;
    cluster.set_ready(&cluster.only("n0"), false).await;
    assert_eq!(
        cluster.uncovered_since("n0"),
        Some(60),
        "told before the controller has looked"
    );
    cluster.sync().await;
    pass(10).await;
    let lost = cluster.only("n0");
    cluster.delete(&POD, &lost.key).await;
    cluster.remove_pod(&lost).await;
    cluster.sync().await;
    pass(10).await;
    cluster.sync().await;
    assert_eq!(
        cluster.uncovered_since("n0"),
        Some(60),
        "the next pod does not make it younger"
    );
    cluster.settle_down().await;
    assert_eq!(cluster.uncovered_since("n0"), None);

    // Gone at a stroke: it is a gap from the moment on, before the controller has seen it and after.
    pass(20).await;
    let lost = cluster.only("n0");
    cluster.delete(&POD, &lost.key).await;
    cluster.remove_pod(&lost).await;
    assert_eq!(cluster.uncovered_since("n0"), Some(100));
    cluster.sync().await;
    pass(7).await;
    assert_eq!(cluster.uncovered_since("n0"), Some(100));
}

#[tokio::test(start_paused = true)]
async fn a_gap_ages_while_every_sync_fails() {
    let cluster = Cluster::running(1).await;
    cluster.store.pods_left.store(0, Ordering::SeqCst);
    let lost = cluster.only("n0");
    cluster.delete(&POD, &lost.key).await;
    cluster.remove_pod(&lost).await;
    cluster.attend().await;
    pass(300).await;
    cluster.attend().await;
    assert_eq!(cluster.uncovered_since("n0"), Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_to_need_a_pod_is_a_gap_since_then() {
    let cluster = Cluster::running(1).await;
    cluster
        .edit(&DAEMON_SET, &web(), |set| {
            set["spec"]["template"]["spec"]["nodeSelector"] = json!({"disk": "ssd"});
        })
        .await;
    cluster.settle_down().await;
    assert_eq!(cluster.uncovered_since("n0"), None, "it is not meant to");
    pass(30).await;
    cluster
        .edit(&NODE, &NamespacedName::new("", "n0"), |node| {
            node["metadata"]["labels"]["disk"] = "ssd".into();
        })
        .await;
    cluster.sync().await;
    pass(30).await;
    assert_eq!(cluster.uncovered_since("n0"), Some(30));
}

#[tokio::test(start_paused = true)]
async fn a_new_controller_takes_the_age_of_gaps_from_what_the_objects_say() {
    let cluster = Cluster::running(2).await;
    pass(60).await;
    cluster.set_ready(&cluster.only("n0"), false).await;
    let lost = cluster.only("n1");
    cluster.delete(&POD, &lost.key).await;
    cluster.remove_pod(&lost).await;
    pass(60).await;
    let cluster = cluster.restarted();
    assert_eq!(cluster.uncovered_since("n0"), Some(60), "the pod says when");
    assert_eq!(
        cluster.uncovered_since("n1"),
        Some(0),
        "nothing says that it ever had one"
    );
    cluster.sync().await;
    pass(60).await;
    assert_eq!(cluster.uncovered_since("n0"), Some(60));
    assert_eq!(cluster.uncovered_since("n1"), Some(0));
    cluster.settle_down().await;
    assert_eq!(cluster.uncovered_since("n0"), None);
    assert_eq!(cluster.uncovered_since("n1"), None);
}
