//! Gaps in the coverage, and how old they are.

use muster_model::kind::POD;
use muster_model::time::{Timestamp, parse};
use muster_testkit::Cluster;

use crate::support::{AN_HOUR, delete, pass, running_web, set_image};

/// Node and begin of every gap of `web`.
async fn gaps(cluster: &Cluster) -> Vec<(String, Timestamp)> {
    let rows = cluster.coverage("web").await.unwrap();
    let open = rows.iter().filter(|row| !row.uncovered_since.is_empty());
    open.map(|row| (row.node.clone(), parse(&row.uncovered_since).unwrap()))
        .collect()
}

async fn the_only_gap(cluster: &Cluster) -> (String, Timestamp) {
    cluster
        .eventually("there is one gap", AN_HOUR, async || {
            <[_; 1]>::try_from(gaps(cluster).await).ok()
        })
        .await[0]
        .clone()
}

#[tokio::test(start_paused = true)]
async fn a_gap_keeps_its_age_while_pods_come_and_go_and_ends_with_an_available_one() {
    let mut cluster = running_web(&["n1", "n2"]).await;
    assert_eq!(gaps(&cluster).await, []);

    pass(600).await;
    let broken_at = cluster.clock().now();
    set_image(&cluster, "web", "nowhere:1").await;
    let (node, since) = the_only_gap(&cluster).await;
    let seconds = since.as_second() - broken_at.as_second();
    assert!(
        (-1..60).contains(&seconds),
        "the roll took the first node out: {seconds}"
    );
    pass(600).await;
    let first = cluster.pods_of("web");
    let stuck = first
        .iter()
        .find(|pod| pod.text_at("/spec/nodeName") == node)
        .unwrap();
    delete(&cluster, &POD, stuck.name()).await;
    cluster
        .until("it is made again", || {
            cluster.pods_of("web").len() == 2
                && cluster
                    .pods_of("web")
                    .iter()
                    .all(|pod| pod.uid() != stuck.uid())
        })
        .await;
    pass(60).await;
    assert_eq!(the_only_gap(&cluster).await, (node.clone(), since));

    // A new server knows of the pod there is now, and goes on from that.
    cluster.stop_server().await;
    cluster.start_server().await.unwrap();
    let (again, told) = the_only_gap(&cluster).await;
    assert_eq!(again, node);
    assert!(
        told >= since && told <= cluster.clock().now(),
        "{since} {told}"
    );
    pass(300).await;
    assert_eq!(the_only_gap(&cluster).await, (node, told));

    set_image(&cluster, "web", "img:2").await;
    cluster
        .eventually("no gap is left", AN_HOUR, async || {
            gaps(&cluster).await.is_empty().then_some(())
        })
        .await;
    cluster.stop().await;
}
