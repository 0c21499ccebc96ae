//! A cluster comes up and places a DaemonSet.

use muster_testkit::clock::TokioClock;
use muster_testkit::{Cluster, ClusterOptions, NodeOptions, build, check};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
async fn a_daemonset_reaches_every_node_over_tcp_and_from_disk() {
    let mut cluster = Cluster::with_nodes(ClusterOptions::default().on_disk(), &["n1", "n2"])
        .await
        .unwrap();
    cluster.engine().add_image("img:1");
    cluster
        .create(&build::daemon_set("web").object())
        .await
        .unwrap();
    cluster.until_ready("web", 2).await;
    assert_eq!(cluster.ready_on("web"), ["n1", "n2"]);
    cluster.add_node(NodeOptions::new("n3")).await.unwrap();
    cluster.until_ready("web", 3).await;
    assert_eq!(
        check::containers_per_node(cluster.engine(), 1),
        Vec::<String>::new()
    );
    let rows = cluster.coverage("web").await.unwrap();
    assert_eq!(rows.len(), 3);
    assert!(
        rows.iter().all(|row| row.should_run && row.ready),
        "{rows:?}"
    );
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_daemonset_reaches_every_node_in_memory_with_the_clock_paused() {
    let options = ClusterOptions {
        seed: Some(7),
        ..ClusterOptions::default().in_memory(Arc::new(TokioClock::from_now()))
    };
    let mut cluster = Cluster::start(options).await.unwrap();
    cluster.engine().add_image("img:1");
    for name in ["n1", "n2"] {
        cluster
            .add_node(NodeOptions::new(name).hollow())
            .await
            .unwrap();
    }
    cluster.until_nodes_ready().await;
    cluster
        .create(&build::daemon_set("web").object())
        .await
        .unwrap();
    cluster.until_ready("web", 2).await;
    cluster.stop().await;
}
