//! Servers and agents that die, networks that part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_agent::runtime::memory::{Call, PullScript};
use muster_model::kind::{DAEMON_SET, EVENT, NODE, POD};
use muster_model::object::Object;
use muster_model::time::SignedDuration;
use muster_server::registry::keys;
use muster_store::{Op, Txn};
use muster_testkit::check::{self, VersionWitness, Watchful, Witness};
use muster_testkit::clock::SteppingClock;
use muster_testkit::{Cluster, ClusterOptions, NodeOptions, StoreMood, build, condition};
use serde_json::json;

use crate::support::{
    AN_HOUR, add_images, cluster, delete, key, pass, pod_on, running_web, set_image,
};

fn no_pod_unready(cluster: &Cluster, daemon_set: &str) -> Witness {
    let watchful = Watchful {
        pods_per_node: 1,
        budgets: BTreeMap::from([(daemon_set.to_owned(), 0)]),
    };
    Witness::start(cluster.registry().cache(), watchful)
}

fn pod_uids(cluster: &Cluster) -> BTreeSet<String> {
    let pods = cluster.objects(&POD);
    pods.iter().map(|pod| pod.uid().to_owned()).collect()
}

/// The pods for which a container was ever made.
fn pods_started(cluster: &Cluster) -> usize {
    let made: BTreeSet<String> = cluster
        .engine()
        .calls()
        .into_iter()
        .filter(|call| call.call == Call::Create)
        .map(|call| call.target)
        .collect();
    made.len()
}

#[tokio::test(start_paused = true)]
async fn a_server_killed_while_it_places_thirty_nodes_doubles_and_loses_nothing() {
    let mut cluster = Cluster::start(ClusterOptions::paused()).await.unwrap();
    add_images(&cluster);
    for number in 1..=30 {
        let node = NodeOptions::new(format!("n{number:02}")).hollow();
        cluster.add_node(node).await.unwrap();
    }
    cluster.until_nodes_ready().await;
    let witness = Witness::start(
        cluster.registry().cache(),
        Watchful {
            pods_per_node: 1,
            ..Watchful::default()
        },
    );
    cluster
        .create(&build::daemon_set("web").object())
        .await
        .unwrap();
    cluster
        .until("the first pods run", || !cluster.ready_on("web").is_empty())
        .await;
    let mut faults = witness.finish().await;
    cluster.kill_server().await;
    cluster.start_server().await.unwrap();
    let witness = Witness::start(
        cluster.registry().cache(),
        Watchful {
            pods_per_node: 1,
            ..Watchful::default()
        },
    );
    cluster
        .eventually("every node runs it", AN_HOUR, async || {
            cluster.is_complete("web", 30).then_some(())
        })
        .await;
    faults.extend(witness.finish().await);
    assert_eq!(faults, Vec::<String>::new());
    assert_eq!(pods_started(&cluster), 30);
    assert_eq!(
        check::containers_per_node(cluster.engine(), 1),
        Vec::<String>::new()
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_over_tcp_and_disk_comes_back_with_every_object() {
    let mut cluster = Cluster::with_nodes(ClusterOptions::default().on_disk(), &["n1", "n2"])
        .await
        .unwrap();
    add_images(&cluster);
    cluster
        .create(&build::daemon_set("web").object())
        .await
        .unwrap();
    cluster.until_ready("web", 2).await;
    let (ids, uids) = (check::running_ids(cluster.engine()), pod_uids(&cluster));
    let newest: u64 = cluster
        .object(&DAEMON_SET, "web")
        .unwrap()
        .resource_version()
        .parse()
        .unwrap();
    for kill in [true, false] {
        if kill {
            cluster.kill_server().await;
        } else {
            cluster.stop_server().await;
        }
        cluster.start_server().await.unwrap();
        assert_eq!(pod_uids(&cluster), uids);
        cluster.until_ready("web", 2).await;
    }
    set_image(&cluster, "web", "img:2").await;
    let after: u64 = cluster
        .object(&DAEMON_SET, "web")
        .unwrap()
        .resource_version()
        .parse()
        .unwrap();
    assert!(after > newest, "{after} after {newest}");
    cluster.until_ready("web", 2).await;
    assert!(check::running_ids(cluster.engine()).is_disjoint(&ids));
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn restarts_of_server_and_agents_touch_no_container_and_no_ready_condition() {
    let mut cluster = running_web(&["n1", "n2", "n3"]).await;
    let (ids, uids) = (check::running_ids(cluster.engine()), pod_uids(&cluster));
    let witness = no_pod_unready(&cluster, "web");
    cluster.restart_node("n1").await.unwrap();
    cluster.stop_node("n2").await.unwrap();
    pass(20).await;
    cluster.restart_node("n2").await.unwrap();
    pass(60).await;
    let mut faults = witness.finish().await;
    cluster.stop_server().await;
    pass(300).await;
    cluster.start_server().await.unwrap();
    let witness = no_pod_unready(&cluster, "web");
    pass(120).await;
    faults.extend(witness.finish().await);
    assert_eq!(faults, Vec::<String>::new());
    cluster.until_ready("web", 3).await;
    assert_eq!(check::running_ids(cluster.engine()), ids);
    assert_eq!(pod_uids(&cluster), uids);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_partition_of_every_agent_stops_nothing() {
    let cluster = running_web(&["n1", "n2", "n3"]).await;
    let (ids, uids) = (check::running_ids(cluster.engine()), pod_uids(&cluster));
    cluster.partition_all();
    cluster
        .eventually("every node is Unknown", AN_HOUR, async || {
            let nodes = cluster.objects(&NODE);
            nodes
                .iter()
                .all(|node| condition(node, "Ready") == "Unknown")
                .then_some(())
        })
        .await;
    pass(900).await;
    assert_eq!(check::running_ids(cluster.engine()), ids);
    assert_eq!(pod_uids(&cluster), uids);
    assert!(cluster.ready_on("web").is_empty());
    let rows = cluster.coverage("web").await.unwrap();
    for row in &rows {
        assert_eq!(row.rule, "NodeOutOfReach", "{row:?}");
        assert_eq!(
            row.fix,
            format!("bring the agent of node {} back", row.node)
        );
    }
    cluster.heal_all();
    cluster.until_ready("web", 3).await;
    assert_eq!(check::running_ids(cluster.engine()), ids);
    assert_eq!(pod_uids(&cluster), uids);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_partition_of_every_agent_during_a_stuck_rollout_stops_nothing() {
    let cluster = running_web(&["n1", "n2", "n3"]).await;
    set_image(&cluster, "web", "nowhere:1").await;
    cluster
        .eventually("one node cannot pull", AN_HOUR, async || {
            let pod = pod_on(&cluster, "web", "n1")?;
            let waits = pod.text_at("/status/containerStatuses/0/state/waiting/reason");
            (waits == "ImagePullBackOff").then_some(())
        })
        .await;
    let (ids, uids) = (check::running_ids(cluster.engine()), pod_uids(&cluster));
    cluster.partition_all();
    pass(900).await;
    assert!(cluster.ready_on("web").is_empty());
    cluster.heal_all();
    cluster
        .eventually("what ran is Ready again", AN_HOUR, async || {
            (cluster.ready_on("web").len() == 2).then_some(())
        })
        .await;
    pass(300).await;
    assert_eq!(check::running_ids(cluster.engine()), ids);
    assert_eq!(pod_uids(&cluster), uids);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_made_during_a_partition_arrives_after_it() {
    let cluster = cluster(&["n1", "n2"]).await;
    cluster
        .create(&build::daemon_set("web").max_unavailable("100%").object())
        .await
        .unwrap();
    cluster.until_ready("web", 2).await;
    cluster.gate("n1").unwrap().close();
    pass(5).await;
    set_image(&cluster, "web", "img:2").await;
    pass(120).await;
    cluster.gate("n1").unwrap().open();
    cluster
        .eventually("both run the new image", AN_HOUR, async || {
            cluster.is_complete("web", 2).then_some(())
        })
        .await;
    assert_eq!(
        check::containers_per_node(cluster.engine(), 1),
        Vec::<String>::new()
    );
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn case_b43_a_corrupt_object_in_the_store_hides_no_other() {
    let mut cluster = cluster(&["n1"]).await;
    cluster
        .create(&build::daemon_set("good").object())
        .await
        .unwrap();
    cluster.until_ready("good", 1).await;
    cluster.stop_server().await;
    let bad = build::daemon_set("bad").set(
        "/spec/template/spec/containers/0/env",
        json!([{"name": "PORT", "value": 8001}]),
    );
    let put = Op::Put {
        key: keys::of(&DAEMON_SET, &key(&DAEMON_SET, "bad")),
        value: bad.tree().to_string().into(),
        soft: false,
    };
    let txn = Txn {
        compares: Vec::new(),
        ops: vec![put],
    };
    cluster.store().unwrap().commit(txn).await.unwrap();
    cluster.start_server().await.unwrap();
    let broken = cluster.registry().cache().broken();
    assert_eq!(broken.len(), 1);
    assert!(broken[0].key.ends_with("/default/bad"), "{broken:?}");
    cluster
        .create(&build::daemon_set("other").object())
        .await
        .unwrap();
    set_image(&cluster, "good", "img:2").await;
    cluster.until_ready("good", 1).await;
    cluster.until_ready("other", 1).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_watcher_never_sees_a_version_go_back() {
    let cluster = cluster(&["n1", "n2", "n3"]).await;
    let mut witnesses = Vec::new();
    for kind in [&POD, &DAEMON_SET, &EVENT] {
        let witness = VersionWitness::start(cluster.resources(), kind)
            .await
            .unwrap();
        witnesses.push(witness);
    }
    for set in ["a", "b"] {
        cluster
            .create(&build::daemon_set(set).object())
            .await
            .unwrap();
    }
    for set in ["a", "b"] {
        cluster.until_ready(set, 3).await;
        set_image(&cluster, set, "img:2").await;
    }
    for set in ["a", "b"] {
        cluster
            .eventually("the roll is complete", AN_HOUR, async || {
                cluster.is_complete(set, 3).then_some(())
            })
            .await;
        delete(&cluster, &DAEMON_SET, set).await;
    }
    cluster
        .until("everything is gone", || cluster.objects(&POD).is_empty())
        .await;
    for witness in witnesses {
        assert!(witness.events() > 3, "{} events", witness.events());
        assert_eq!(witness.finish().await, Vec::<String>::new());
    }
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn na_095_a_container_that_dies_without_a_server_is_restarted_and_told_later() {
    let mut cluster = running_web(&["n1"]).await;
    let uids = pod_uids(&cluster);
    cluster.stop_server().await;
    pass(5).await;
    let main = |cluster: &Cluster| {
        check::containers_of(cluster.engine(), "n1")
            .into_iter()
            .filter(|container| container.name.starts_with("k8s_main_"))
            .filter(|container| {
                matches!(
                    container.state,
                    muster_agent::runtime::ContainerState::Running { .. }
                )
            })
            .map(|container| container.id)
            .collect::<Vec<_>>()
    };
    let before = main(&cluster);
    assert!(cluster.engine().end(&before[0], 1));
    cluster
        .until("it runs again", || {
            let now = main(&cluster);
            now.len() == 1 && now != before
        })
        .await;
    cluster.start_server().await.unwrap();
    cluster
        .until("the restart is told", || {
            pod_on(&cluster, "web", "n1").is_some_and(|pod| {
                pod.at("/status/containerStatuses/0/restartCount") == Some(&json!(1))
            })
        })
        .await;
    cluster.until_ready("web", 1).await;
    assert_eq!(pod_uids(&cluster), uids);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn na_092_a_killed_agent_finds_its_pods_as_they_were() {
    let mut cluster = cluster(&["n1"]).await;
    cluster.engine().add_image("crash:1");
    cluster.engine().set_behaviour(
        "crash:1",
        muster_agent::runtime::memory::Behaviour::crashing(Duration::from_secs(1), 1),
    );
    for set in ["a", "b"] {
        cluster
            .create(&build::daemon_set(set).object())
            .await
            .unwrap();
    }
    cluster
        .create(&build::daemon_set("looper").image("crash:1").object())
        .await
        .unwrap();
    for set in ["a", "b"] {
        cluster.until_ready(set, 1).await;
    }
    let restarts = |cluster: &Cluster| {
        pod_on(cluster, "looper", "n1").and_then(|pod| {
            pod.at("/status/containerStatuses/0/restartCount")
                .and_then(serde_json::Value::as_i64)
        })
    };
    cluster
        .eventually("the looper is in its third delay", AN_HOUR, async || {
            restarts(&cluster).filter(|count| *count >= 2)
        })
        .await;
    let watchful = Watchful {
        pods_per_node: 1,
        budgets: BTreeMap::from([("a".to_owned(), 0), ("b".to_owned(), 0)]),
    };
    let witness = Witness::start(cluster.registry().cache(), watchful);
    let ids = |cluster: &Cluster| -> BTreeSet<String> {
        check::containers_of(cluster.engine(), "n1")
            .into_iter()
            .filter(|container| !container.name.contains("looper"))
            .map(|container| container.id.0)
            .collect()
    };
    let (before, count) = (ids(&cluster), restarts(&cluster).unwrap());
    cluster.restart_node("n1").await.unwrap();
    // The delay after the third crash is 40 s: an agent that forgot would restart it at once.
    pass(10).await;
    assert!(restarts(&cluster).unwrap() <= count + 1);
    pass(120).await;
    assert_eq!(ids(&cluster), before);
    assert_eq!(witness.finish().await, Vec::<String>::new());
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn na_094_a_pod_deleted_while_its_agent_is_down_goes_when_it_is_back() {
    let mut cluster = cluster(&["n1"]).await;
    let pod = build::pod("lonely", "n1").object();
    cluster.create(&pod).await.unwrap();
    cluster
        .until("it runs", || {
            cluster
                .object(&POD, "lonely")
                .is_some_and(|pod| muster_testkit::is_ready(&pod))
        })
        .await;
    cluster.kill_node("n1").await.unwrap();
    delete(&cluster, &POD, "lonely").await;
    pass(10).await;
    assert!(
        cluster
            .object(&POD, "lonely")
            .is_some_and(|pod: Object| pod.is_terminating())
    );
    assert_eq!(check::running_ids(cluster.engine()).len(), 2);
    cluster.restart_node("n1").await.unwrap();
    cluster
        .until("pod and containers are gone", || {
            cluster.object(&POD, "lonely").is_none()
                && check::running_ids(cluster.engine()).is_empty()
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn na_098_a_server_restored_empty_kills_nothing_before_a_second_look() {
    let mut cluster = running_web(&["n1", "n2"]).await;
    let ids = check::running_ids(cluster.engine());
    cluster.kill_server().await;
    cluster.lose_data().await.unwrap();
    cluster.start_server().await.unwrap();
    cluster.until_nodes_ready().await;
    pass(45).await;
    assert_eq!(check::running_ids(cluster.engine()), ids);
    cluster
        .eventually("the second snapshot was believed", AN_HOUR, async || {
            check::running_ids(cluster.engine())
                .is_empty()
                .then_some(())
        })
        .await;
    cluster.stop().await;
}

async fn cluster_with_a_clock_to_set() -> (Cluster, Arc<SteppingClock>) {
    let clock = SteppingClock::new("2026-03-02T09:00:00Z".parse().unwrap());
    let options = ClusterOptions {
        seed: Some(7),
        ..ClusterOptions::paused().in_memory(clock.clone())
    };
    let cluster = Cluster::with_nodes(options, &["n1", "n2", "n3"])
        .await
        .unwrap();
    add_images(&cluster);
    (cluster, clock)
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_an_hour_keeps_no_pod_from_becoming_available() {
    let (cluster, clock) = cluster_with_a_clock_to_set().await;
    let manifest = build::daemon_set("web").set("/spec/minReadySeconds", 20);
    cluster.create(&manifest.object()).await.unwrap();
    // Ready by a clock that runs fast, and put right before the pods are available.
    cluster
        .until("every pod is Ready", || cluster.ready_on("web").len() == 3)
        .await;
    clock.step(SignedDuration::from_hours(-1));
    cluster
        .eventually(
            "the DaemonSet is complete",
            Duration::from_secs(120),
            async || cluster.is_complete("web", 3).then_some(()),
        )
        .await;
    set_image(&cluster, "web", "img:2").await;
    cluster
        .eventually(
            "the rollout is complete",
            Duration::from_secs(300),
            async || cluster.is_complete("web", 3).then_some(()),
        )
        .await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_forward_a_day_makes_no_revision_fail() {
    let (cluster, clock) = cluster_with_a_clock_to_set().await;
    let manifest = build::daemon_set("web")
        .set("/spec/minReadySeconds", 60)
        .set(
            "/metadata/annotations",
            json!({"muster.dev/on-failure": "halt", "muster.dev/progress-deadline": "120s"}),
        );
    cluster.create(&manifest.object()).await.unwrap();
    cluster.until_ready("web", 3).await;
    let complete = async || cluster.is_complete("web", 3).then_some(());
    cluster
        .eventually("it is complete", Duration::from_secs(300), complete)
        .await;
    set_image(&cluster, "web", "img:2").await;
    cluster
        .until("an old pod is gone", || cluster.ready_on("web").len() == 2)
        .await;
    clock.step(SignedDuration::from_hours(24));
    cluster
        .eventually("it is rolled out", Duration::from_secs(600), complete)
        .await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_when_a_new_pod_needs_its_configuration_condemns_no_revision() {
    let mut cluster = cluster(&["n1"]).await;
    let conf = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf", "namespace": "default"},
                      "data": {"KEY": "value"}});
    cluster
        .create(&Object::from_value(conf).unwrap())
        .await
        .unwrap();
    let manifest = build::daemon_set("web")
        .annotation("muster.dev/on-failure", "rollback")
        .set(
            "/spec/template/spec/containers/0/envFrom",
            json!([{"configMapRef": {"name": "conf"}}]),
        );
    cluster.create(&manifest.object()).await.unwrap();
    let complete = async |cluster: &Cluster| cluster.is_complete("web", 1).then_some(());
    cluster
        .eventually("the first revision runs", AN_HOUR, async || {
            complete(&cluster).await
        })
        .await;
    let slow = PullScript {
        delay: Duration::from_secs(60),
        ..PullScript::default()
    };
    cluster.engine().add_pullable("slow:2", slow);
    set_image(&cluster, "web", "slow:2").await;
    cluster
        .until("the next image is pulled", || {
            cluster.engine().count(Call::Pull) > 0
        })
        .await;
    cluster.kill_server().await;
    pass(65).await;
    assert_eq!(
        pods_started(&cluster),
        1,
        "nobody can tell its configuration"
    );
    cluster.start_server().await.unwrap();
    cluster
        .eventually("the second revision runs", AN_HOUR, async || {
            complete(&cluster).await
        })
        .await;
    let daemon_set = cluster.object(&DAEMON_SET, "web").unwrap();
    assert_eq!(
        daemon_set.text_at("/spec/template/spec/containers/0/image"),
        "slow:2"
    );
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_agents_report_while_the_disk_is_full_is_told_again() {
    let cluster = cluster(&["n1", "n2"]).await;
    cluster
        .create(&build::daemon_set("web").object())
        .await
        .unwrap();
    cluster
        .until("both pods are bound", || cluster.pods_of("web").len() == 2)
        .await;
    cluster.store_control().set_mood(StoreMood::Refusing);
    pass(30).await;
    assert_eq!(cluster.ready_on("web"), Vec::<String>::new());
    cluster.store_control().set_mood(StoreMood::Fine);
    cluster.until_ready("web", 2).await;
    cluster.stop().await;
}
