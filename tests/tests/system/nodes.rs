//! Registration, heartbeats, reboots: scenarios of the node agent where the wire matters.

use muster_agent::runtime::labels::Owner;
use muster_agent::runtime::memory::MemoryRuntime;
use muster_model::kind::{EVENT, LEASE, NODE};
use muster_model::object::Object;
use muster_testkit::check;
use muster_testkit::{Cluster, ClusterOptions, NodeOptions, build, is_ready};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::support::{cluster, delete, merge, pass, running_web};

fn conditions(node: &Object) -> Vec<(String, String, String)> {
    let list = node.at("/status/conditions").and_then(Value::as_array);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    list.into_iter()
        .flatten()
        .map(|c| (text(&c["type"]), text(&c["status"]), text(&c["reason"])))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn na_001_na_006_a_fresh_node_shows_labels_conditions_and_reasons() {
    let cluster = cluster(&["n1"]).await;
    let node = cluster.object(&NODE, "n1").unwrap();
    for (label, value) in [
        ("kubernetes.io/hostname", "n1"),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", "amd64"),
    ] {
        assert_eq!(node.label(label), Some(value), "{label}");
    }
    let expected = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ]
    .map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
    assert_eq!(conditions(&node), expected);
    assert_eq!(
        node.text_at("/status/conditions/3/message"),
        "kubelet is posting ready status"
    );
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn na_002_labels_and_taints_of_the_first_start_and_a_taint_that_stays_away() {
    let mut cluster = cluster(&[]).await;
    let node = NodeOptions::new("n1")
        .label("disk", "ssd")
        .taint("k=v:NoSchedule");
    cluster.add_node(node).await.unwrap();
    cluster.until_nodes_ready().await;
    let node = cluster.object(&NODE, "n1").unwrap();
    assert_eq!(node.label("disk"), Some("ssd"));
    let taints = |cluster: &Cluster| -> Vec<String> {
        let node = cluster.object(&NODE, "n1").unwrap();
        let list = node.at("/spec/taints").and_then(Value::as_array).cloned();
        list.unwrap_or_default()
            .iter()
            .map(|taint| taint["key"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(taints(&cluster), ["k"]);
    merge(&cluster, &NODE, "n1", json!({"spec": {"taints": null}})).await;
    cluster.restart_node("n1").await.unwrap();
    pass(60).await;
    assert_eq!(taints(&cluster), Vec::<String>::new());
    assert_eq!(
        cluster.object(&NODE, "n1").unwrap().label("disk"),
        Some("ssd")
    );
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn na_003_labels_of_an_existing_node_are_kept_and_missing_ones_added() {
    let mut cluster = cluster(&[]).await;
    let known = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"a": "b"}}});
    cluster
        .create(&build::Manifest::of(known).object())
        .await
        .unwrap();
    cluster.add_node(NodeOptions::new("n1")).await.unwrap();
    cluster.until_nodes_ready().await;
    let node = cluster.object(&NODE, "n1").unwrap();
    assert_eq!(node.label("a"), Some("b"));
    assert_eq!(node.label("kubernetes.io/os"), Some("linux"));
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn na_007_a_lease_beats_and_the_node_object_rests() {
    let cluster = cluster(&["n1"]).await;
    pass(30).await;
    let lease = |cluster: &Cluster| cluster.object(&LEASE, "kube-node-lease/n1").unwrap();
    let node = cluster.object(&NODE, "n1").unwrap();
    let (mut beats, mut last) = (0, lease(&cluster).text_at("/spec/renewTime").to_owned());
    for _ in 0..30 {
        pass(1).await;
        let now = lease(&cluster).text_at("/spec/renewTime").to_owned();
        if now != last {
            (beats, last) = (beats + 1, now);
        }
    }
    assert!((2..=4).contains(&beats), "{beats} beats in 30 s");
    let lease = lease(&cluster);
    assert_eq!(lease.at("/spec/leaseDurationSeconds"), Some(&json!(40)));
    assert_eq!(lease.text_at("/spec/holderIdentity"), "n1");
    let owner = &lease.owner_references()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.uid.as_str()),
        ("Node", node.uid())
    );
    let after = cluster.object(&NODE, "n1").unwrap();
    assert_eq!(after.resource_version(), node.resource_version());
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn na_008_a_deleted_node_is_back_with_its_containers_untouched() {
    let cluster = cluster(&["n1"]).await;
    let pod = build::pod("standalone", "n1").object();
    cluster.create(&pod).await.unwrap();
    cluster
        .until("it runs", || {
            cluster
                .object(&muster_model::kind::POD, "standalone")
                .is_some_and(|pod| is_ready(&pod))
        })
        .await;
    let (ids, uid) = (
        check::running_ids(cluster.engine()),
        cluster.object(&NODE, "n1").unwrap().uid().to_owned(),
    );
    delete(&cluster, &NODE, "n1").await;
    let began = tokio::time::Instant::now();
    cluster
        .until("the node is back", || {
            cluster
                .object(&NODE, "n1")
                .is_some_and(|node| node.uid() != uid)
        })
        .await;
    assert!(began.elapsed().as_secs() <= 12, "{:?}", began.elapsed());
    assert_eq!(check::running_ids(cluster.engine()), ids);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn na_009_a_second_live_machine_may_not_take_the_name() {
    let cluster = cluster(&["n1"]).await;
    let address = cluster.server_address().unwrap();
    let mut options =
        muster_client::JoinOptions::new(address, cluster.token(), "n1", "machine-of-somebody-else")
            .unwrap();
    options.connect = options.connect.with_dialer(cluster.dialer());
    let error = muster_client::join(&options).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("node name \"n1\" is in use by another live machine"),
        "{error}"
    );
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn na_010_a_reboot_is_an_event_and_pods_come_back_by_themselves() {
    let mut cluster = running_web(&["n1"]).await;
    let uid = cluster.pods_of("web")[0].uid().to_owned();
    cluster.reboot_node("n1").await.unwrap();
    cluster
        .until("the reboot is told", || {
            cluster.objects(&EVENT).iter().any(|event| {
                event.text_at("/reason") == "Rebooted"
                    && event.text_at("/type") == "Warning"
                    && event.text_at("/message")
                        == "Node n1 has been rebooted, boot id: boot-n1-again-1"
            })
        })
        .await;
    cluster
        .until("the pod runs again", || {
            cluster.is_complete("web", 1)
                && cluster.pods_of("web")[0].at("/status/containerStatuses/0/restartCount")
                    == Some(&json!(1))
        })
        .await;
    assert_eq!(cluster.pods_of("web")[0].uid(), uid);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn na_011_a_silent_node_is_unknown_and_tainted_and_well_again_when_it_speaks() {
    let mut cluster = cluster(&["n1", "n2"]).await;
    cluster.stop_node("n2").await.unwrap();
    pass(30).await;
    assert!(is_ready(&cluster.object(&NODE, "n2").unwrap()));
    pass(30).await;
    let node = cluster.object(&NODE, "n2").unwrap();
    assert_eq!(muster_testkit::condition(&node, "Ready"), "Unknown");
    let taints = node.at("/spec/taints").and_then(Value::as_array).unwrap();
    assert!(
        taints
            .iter()
            .all(|taint| taint["key"] == "node.kubernetes.io/unreachable"),
        "{taints:?}"
    );
    cluster.restart_node("n2").await.unwrap();
    cluster
        .until("it is well again", || {
            let node = cluster.object(&NODE, "n2").unwrap();
            is_ready(&node) && node.at("/spec/taints").is_none()
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn na_100_agents_on_one_engine_touch_only_their_own_containers() {
    let mut cluster = cluster(&["n1", "n2"]).await;
    // Somebody else's, of another node name, that no agent runs for.
    let stranger = MemoryRuntime::new(Arc::clone(cluster.engine()), Owner::new("nobody", ""));
    let spec = muster_agent::runtime::ContainerSpec {
        name: "mine".to_owned(),
        image: "img:1".to_owned(),
        ..Default::default()
    };
    let id = muster_agent::runtime::Runtime::create(&stranger, &spec)
        .await
        .unwrap();
    muster_agent::runtime::Runtime::start(&stranger, &id)
        .await
        .unwrap();
    for node in ["n1", "n2"] {
        let pod = build::pod(&format!("on-{node}"), node).object();
        cluster.create(&pod).await.unwrap();
    }
    cluster
        .until("both run", || {
            check::running_ids(cluster.engine()).len() == 5
        })
        .await;
    let ids = |cluster: &Cluster, node: &str| -> Vec<String> {
        let own = check::containers_of(cluster.engine(), node);
        own.into_iter().map(|container| container.id.0).collect()
    };
    let theirs = ids(&cluster, "n2");
    delete(&cluster, &muster_model::kind::POD, "on-n1").await;
    cluster
        .until("n1 is empty", || ids(&cluster, "n1").is_empty())
        .await;
    cluster.stop_node("n1").await.unwrap();
    pass(300).await;
    assert_eq!(ids(&cluster, "n2"), theirs);
    assert_eq!(ids(&cluster, "nobody"), [id.0]);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn na_005_what_is_reserved_is_not_allocatable() {
    // Reservations are the agent's settings; what the wire carries is checked with none of them.
    let mut cluster = Cluster::start(ClusterOptions::paused()).await.unwrap();
    let node = NodeOptions::new("n1").capacity("cpu=2,memory=4Gi,ephemeral-storage=10Gi");
    cluster.add_node(node).await.unwrap();
    cluster.until_nodes_ready().await;
    let node = cluster.object(&NODE, "n1").unwrap();
    assert_eq!(node.text_at("/status/capacity/cpu"), "2");
    assert_eq!(node.text_at("/status/allocatable/cpu"), "2");
    assert_eq!(node.text_at("/status/allocatable/pods"), "110");
    // 100 MiB of memory are kept for evictions.
    assert_eq!(node.text_at("/status/capacity/memory"), "4Gi");
    assert_eq!(node.text_at("/status/allocatable/memory"), "3996Mi");
    cluster.stop().await;
}
