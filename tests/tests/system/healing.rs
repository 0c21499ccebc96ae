//! Pods and nodes that go, fail and come back.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_client::DeleteOptions;
use muster_model::kind::{DAEMON_SET, EVENT, NODE, POD};
use muster_testkit::check::{self, Watchful, Witness};
use muster_testkit::{PATIENCE, build};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{cluster, delete, key, merge, pass, pod_on, running_web, status};

#[tokio::test(start_paused = true)]
async fn case_b17_a_pod_deleted_right_after_its_creation_is_replaced_each_time() {
    let cluster = cluster(&["n1"]).await;
    cluster
        .create(&build::daemon_set("web").object())
        .await
        .unwrap();
    let mut seen = BTreeSet::new();
    for _ in 0..5 {
        let pod = cluster
            .eventually("another pod", PATIENCE, async || {
                pod_on(&cluster, "web", "n1").filter(|pod| !seen.contains(pod.uid()))
            })
            .await;
        seen.insert(pod.uid().to_owned());
        let name = format!("default/{}", pod.name());
        delete(&cluster, &POD, &name).await;
        cluster
            .until("the old pod is gone", || {
                cluster
                    .object(&POD, &name)
                    .is_none_or(|present| present.uid() != pod.uid())
            })
            .await;
        let gone = Instant::now();
        cluster
            .until("the next one is there", || {
                pod_on(&cluster, "web", "n1").is_some_and(|next| next.uid() != pod.uid())
            })
            .await;
        // By the paused clock: no machine is too slow for it.
        assert!(
            gone.elapsed() <= Duration::from_secs(1),
            "{:?}",
            gone.elapsed()
        );
    }
    cluster.until_ready("web", 1).await;
    assert_eq!(
        check::containers_per_node(cluster.engine(), 1),
        Vec::<String>::new()
    );
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn case_b13_pods_that_a_node_refuses_are_made_ever_more_slowly() {
    let cluster = cluster(&["n1"]).await;
    let witness = Witness::start(cluster.registry().cache(), Watchful::default());
    let huge = build::daemon_set("huge").set(
        "/spec/template/spec/containers/0/resources",
        json!({"requests": {"cpu": "100"}}),
    );
    cluster.create(&huge.object()).await.unwrap();
    pass(120).await;
    let made = witness.pods_seen("huge");
    assert!((3..9).contains(&made), "{made} pods in two minutes");
    let failed: Vec<_> = cluster
        .objects(&EVENT)
        .into_iter()
        .filter(|event| event.text_at("/reason") == "FailedDaemonPod")
        .collect();
    assert!(
        !failed.is_empty() && failed.len() < 9,
        "{} events",
        failed.len()
    );
    let row = cluster.coverage("huge").await.unwrap().remove(0);
    assert!(row.should_run, "{row:?}");
    assert!(row.why.contains("cpu"), "{row:?}");
    pass(3_600).await;
    let after_an_hour = witness.pods_seen("huge");
    assert!(after_an_hour - made < 10, "{after_an_hour} pods in all");
    assert_eq!(witness.finish().await, Vec::<String>::new());
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_or_crashes_is_seen_to_by_the_right_hand() {
    let cluster = running_web(&["n1", "n2"]).await;
    // A crash: the agent restarts the container within the same pod.
    let pod = pod_on(&cluster, "web", "n1").unwrap();
    let running = check::containers_of(cluster.engine(), "n1");
    for container in &running {
        if container.name.starts_with("k8s_main_") {
            assert!(cluster.engine().end(&container.id, 3));
        }
    }
    cluster
        .until("the container runs again", || {
            let pod = pod_on(&cluster, "web", "n1").unwrap();
            pod.at("/status/containerStatuses/0/restartCount") == Some(&json!(1))
                && muster_testkit::is_ready(&pod)
        })
        .await;
    assert_eq!(pod_on(&cluster, "web", "n1").unwrap().uid(), pod.uid());
    // A pod that is Failed: the controller replaces it.
    let failed = pod_on(&cluster, "web", "n2").unwrap();
    let evicted = build::changed(
        &failed,
        "/status",
        json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}),
    );
    cluster
        .resources()
        .update_status(&POD, &evicted, &muster_client::WriteOptions::default())
        .await
        .unwrap();
    cluster
        .until("a new pod on n2", || {
            pod_on(&cluster, "web", "n2").is_some_and(|pod| pod.uid() != failed.uid())
        })
        .await;
    cluster.until_ready("web", 2).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn case_b19_nothing_is_made_for_a_deleted_node_until_it_is_back() {
    let mut cluster = running_web(&["n1", "n2", "n3"]).await;
    let old = pod_on(&cluster, "web", "n3").unwrap();
    cluster.stop_node("n3").await.unwrap();
    delete(&cluster, &NODE, "n3").await;
    let witness = Witness::start(cluster.registry().cache(), Watchful::default());
    cluster
        .until("n3's pod is gone and two are desired", || {
            pod_on(&cluster, "web", "n3").is_none()
                && status(&cluster, "web", "desiredNumberScheduled") == 2
        })
        .await;
    pass(600).await;
    assert!(pod_on(&cluster, "web", "n3").is_none());
    assert!(
        witness.pods_seen("web") <= 3,
        "{}",
        witness.pods_seen("web")
    );
    cluster.restart_node("n3").await.unwrap();
    cluster.until_ready("web", 3).await;
    assert_ne!(pod_on(&cluster, "web", "n3").unwrap().uid(), old.uid());
    cluster
        .until("the old container on n3 is gone", || {
            check::containers_per_node(cluster.engine(), 1).is_empty()
        })
        .await;
    assert_eq!(witness.finish().await, Vec::<String>::new());
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn case_b21_a_set_made_again_while_a_node_was_down_reaches_it() {
    let mut cluster = cluster(&["n1", "n2"]).await;
    let web = build::daemon_set("web").object();
    cluster.create(&web).await.unwrap();
    cluster.until_ready("web", 2).await;
    cluster.kill_node("n1").await.unwrap();
    delete(&cluster, &DAEMON_SET, "web").await;
    cluster
        .until("the set is gone", || {
            cluster.object(&DAEMON_SET, "web").is_none()
        })
        .await;
    cluster.create(&web).await.unwrap();
    pass(30).await;
    cluster.restart_node("n1").await.unwrap();
    let began = Instant::now();
    cluster
        .until(
            "one container of the new set on n1, and none of the old",
            || {
                let main: Vec<_> = check::containers_of(cluster.engine(), "n1")
                    .into_iter()
                    .filter(|container| container.name.starts_with("k8s_main_"))
                    .collect();
                let new = pod_on(&cluster, "web", "n1");
                main.len() == 1 && new.is_some_and(|pod| main[0].name.contains(pod.uid()))
            },
        )
        .await;
    assert!(
        began.elapsed() <= Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
    cluster.until_ready("web", 2).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn case_b25_after_a_drain_every_daemon_is_back_every_time() {
    let cluster = cluster(&["n1", "n2"]).await;
    let sets = ["a", "b", "c", "d"];
    for set in sets {
        cluster
            .create(&build::daemon_set(set).object())
            .await
            .unwrap();
    }
    for set in sets {
        cluster.until_ready(set, 2).await;
    }
    for _ in 0..20 {
        merge(
            &cluster,
            &NODE,
            "n1",
            json!({"spec": {"unschedulable": true}}),
        )
        .await;
        for set in sets {
            let pod = pod_on(&cluster, set, "n1").unwrap();
            let options = DeleteOptions {
                uid: pod.uid().to_owned(),
                ..DeleteOptions::default()
            };
            let name = key(&POD, pod.name());
            cluster
                .resources()
                .delete(&POD, &name, &options)
                .await
                .unwrap();
        }
        merge(
            &cluster,
            &NODE,
            "n1",
            json!({"spec": {"unschedulable": null}}),
        )
        .await;
        for set in sets {
            cluster.until_ready(set, 2).await;
        }
    }
    assert_eq!(
        check::containers_per_node(cluster.engine(), 1),
        Vec::<String>::new()
    );
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn case_b11_a_taken_host_port_is_named_and_taken_when_it_is_free() {
    let cluster = cluster(&["n1", "n2"]).await;
    let with_port = |name: &str| {
        build::daemon_set(name).set(
            "/spec/template/spec/containers/0/ports",
            json!([{"containerPort": 80, "hostPort": 18_080}]),
        )
    };
    cluster.create(&with_port("a").object()).await.unwrap();
    cluster.until_ready("a", 2).await;
    cluster.create(&with_port("b").object()).await.unwrap();
    // Long enough for waits of minutes.
    pass(1_200).await;
    for row in cluster.coverage("b").await.unwrap() {
        assert!(row.should_run && !row.ready, "{row:?}");
        let holder = pod_on(&cluster, "a", &row.node).unwrap();
        assert!(row.why.contains("18080/TCP"), "{row:?}");
        assert!(row.why.contains(holder.name()), "{row:?}");
    }
    delete(&cluster, &DAEMON_SET, "a").await;
    cluster
        .until("a is gone", || {
            cluster.pods_of("a").is_empty() && cluster.object(&DAEMON_SET, "a").is_none()
        })
        .await;
    let free = Instant::now();
    cluster.until_ready("b", 2).await;
    assert!(
        free.elapsed() <= Duration::from_secs(15),
        "{:?}",
        free.elapsed()
    );
    cluster.stop().await;
}
