//! Nodes that fall silent, come back, change or are deleted (spec/node-agent.md 5).

use muster_model::kind::{DAEMON_SET, NODE, POD};
use muster_model::time::Clock;
use muster_server::registry::DeleteOptions;
use serde_json::{Value, json};
use std::time::Duration;

use crate::world::{World, changes, condition, key, serves};

const UNREACHABLE: [&str; 2] = [
    "node.kubernetes.io/unreachable:NoSchedule",
    "node.kubernetes.io/unreachable:NoExecute",
];

async fn world_of(nodes: &[&str]) -> World {
    let world = World::start().await;
    for node in nodes {
        world.agent_up(node).await;
    }
    world
}

fn tolerate(key: &str, seconds: u64) -> Value {
    json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
}

#[tokio::test(start_paused = true)]
async fn na_011_a_killed_agents_node_is_unknown_then_unreachable() {
    let world = world_of(&["n1", "n2"]).await;
    world.pass(100).await;
    assert_eq!(world.condition("n1", "Ready")["status"], "True");
    assert!(world.taints("n1").is_empty());
    let heard = world.condition("n1", "Ready")["lastHeartbeatTime"].clone();

    world.agent_down("n1");
    let took = world
        .until("Unknown", 60, || {
            world.condition("n1", "Ready")["status"] == "Unknown"
        })
        .await;
    // It had beaten up to 10 s before.
    assert!((30..=50).contains(&took.as_secs()), "{took:?}");
    let ready = world.condition("n1", "Ready");
    assert_eq!(ready["reason"], "NodeStatusUnknown");
    assert_eq!(ready["message"], "Kubelet stopped posting node status.");
    assert_eq!(ready["lastHeartbeatTime"], heard);
    for type_ in ["MemoryPressure", "DiskPressure", "PIDPressure"] {
        assert_eq!(world.condition("n1", type_)["status"], "Unknown");
    }
    world
        .until("NoSchedule", 1, || world.taints("n1") == UNREACHABLE[..1])
        .await;
    world
        .until("NoExecute", 30, || world.taints("n1") == UNREACHABLE)
        .await;
    let node = world.get(&NODE, "", "n1").unwrap();
    assert!(node.at("/spec/taints/1/timeAdded").unwrap().is_string());
    world
        .until_said(
            "n1",
            "Normal NodeNotReady Node n1 status is now: NodeNotReady",
        )
        .await;
    assert!(world.taints("n2").is_empty());
}

#[tokio::test(start_paused = true)]
async fn na_012_an_outage_never_deletes_a_daemon_pod() {
    let world = world_of(&["n1", "n2"]).await;
    world.daemon("web", "web").await;
    world
        .until("both serve", 10, || world.all_serve(&["n1", "n2"]))
        .await;
    world.agent_down("n1");
    world.pass(600).await;
    let pods = world.pods();
    let pod = pods
        .iter()
        .find(|pod| pod.text_at("/spec/nodeName") == "n1")
        .unwrap();
    assert!(!pod.is_terminating());
    assert_eq!(pod.text_at("/status/phase"), "Running");
    assert_eq!(condition(pod, "Ready")["status"], "False");
    assert_eq!(condition(pod, "ContainersReady")["status"], "True");
    let said = world.said_of(pod.name());
    assert_eq!(said, ["Warning NodeNotReady Node is not ready"]);
}

#[tokio::test(start_paused = true)]
async fn na_013_na_014_a_bare_pod_goes_300_s_after_the_taint_and_its_agent_confirms() {
    let world = world_of(&["n1", "n2"]).await;
    world.bare_pod("p", "n1", json!([])).await;
    world
        .until("it runs", 5, || serves(&world.pod("p").unwrap()))
        .await;
    world.agent_down("n1");
    world
        .until("tainted", 90, || world.taints("n1") == UNREACHABLE)
        .await;
    let took = world
        .until("deleted", 400, || world.pod("p").unwrap().is_terminating())
        .await;
    assert!((290..=310).contains(&took.as_secs()), "{took:?}");
    let pod = world.pod("p").unwrap();
    let target = condition(&pod, "DisruptionTarget");
    assert_eq!(target["status"], "True");
    assert_eq!(target["reason"], "DeletionByTaintManager");
    assert_eq!(
        target["message"],
        "Taint manager: deleting due to NoExecute taint"
    );
    assert_eq!(
        pod.at("/metadata/deletionGracePeriodSeconds"),
        Some(&json!(30))
    );
    world
        .until_said(
            "p",
            "Normal TaintManagerEviction Marking for deletion Pod default/p",
        )
        .await;
    world.pass(600).await;
    assert!(world.pod("p").is_some(), "only its agent can confirm");

    world.agent_up("n1").await;
    world
        .until("confirmed", 5, || world.pod("p").is_none())
        .await;
    world
        .until("clean", 1, || world.taints("n1").is_empty())
        .await;
}

#[tokio::test(start_paused = true)]
async fn na_015_a_taint_that_goes_in_time_costs_nothing() {
    let world = world_of(&["n1", "n2"]).await;
    world.bare_pod("p", "n1", json!([tolerate("k", 20)])).await;
    world
        .set_taints("n1", json!([{"key": "k", "effect": "NoExecute"}]))
        .await;
    world.pass(5).await;
    world.set_taints("n1", json!([])).await;
    world
        .until_said(
            "p",
            "Normal TaintManagerEviction Cancelling deletion of Pod default/p",
        )
        .await;
    world.pass(60).await;
    assert!(serves(&world.pod("p").unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_is_not_tolerated_evicts_at_once_and_one_with_a_limit_after_it() {
    let world = world_of(&["n1", "n2"]).await;
    world.bare_pod("p", "n1", json!([])).await;
    world.bare_pod("q", "n1", json!([tolerate("k", 20)])).await;
    world
        .until("both run", 5, || {
            ["p", "q"]
                .iter()
                .all(|name| serves(&world.pod(name).unwrap()))
        })
        .await;
    let taint = json!([{"key": "k", "effect": "NoExecute"}]);
    world.set_taints("n1", taint).await;
    let took = world
        .until("p is gone", 5, || world.pod("p").is_none())
        .await;
    assert!(took <= Duration::from_secs(2), "{took:?}");
    let took = world
        .until("q is gone", 40, || world.pod("q").is_none())
        .await;
    assert!((15..=26).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn na_016_a_force_delete_needs_no_agent() {
    let world = world_of(&["n1", "n2"]).await;
    let pod = world.bare_pod("p", "n1", json!([])).await;
    world.agent_down("n1");
    let gentle = DeleteOptions::default();
    world
        .delete(&POD, key("default", "p"), gentle)
        .await
        .unwrap();
    world.pass(120).await;
    assert!(world.pod("p").unwrap().is_terminating());
    let force = DeleteOptions::now(pod.uid());
    world
        .delete(&POD, key("default", "p"), force)
        .await
        .unwrap();
    assert!(world.pod("p").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_out_of_service_node_lets_its_terminating_pods_go() {
    let world = world_of(&["n1", "n2"]).await;
    world.bare_pod("p", "n1", json!([])).await;
    world.agent_down("n1");
    world
        .delete(&POD, key("default", "p"), DeleteOptions::default())
        .await
        .unwrap();
    let taint = json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoSchedule"}]);
    world.set_taints("n1", taint).await;
    world.pass(20).await;
    assert!(world.pod("p").is_some(), "the node still counts as Ready");
    world.until("gone", 60, || world.pod("p").is_none()).await;
    assert!(
        world
            .taints("n1")
            .contains(&"node.kubernetes.io/out-of-service:NoSchedule".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn na_017_case_b19_pods_of_a_deleted_node_go_and_are_not_made_again() {
    let world = world_of(&["n1", "n2", "n3"]).await;
    world.daemon("web", "web").await;
    world
        .until("all serve", 10, || world.all_serve(&["n1", "n2", "n3"]))
        .await;
    let mut seen = world.cache().subscribe(&[&POD]);
    world.agent_down("n3");
    world
        .delete(&NODE, key("", "n3"), DeleteOptions::default())
        .await
        .unwrap();
    let of_n3 = || {
        let pods = world.pods();
        pods.iter()
            .filter(|pod| pod.text_at("/spec/nodeName") == "n3")
            .count()
    };
    let took = world.until("its pod is gone", 100, || of_n3() == 0).await;
    assert!((40..=70).contains(&took.as_secs()), "{took:?}");
    let versions = changes(&mut seen);
    let last = versions.last().unwrap();
    assert!(last.new.is_none());
    let last = last.old.as_ref().unwrap().object();
    assert_eq!(last.text_at("/status/phase"), "Failed");
    let target = condition(last, "DisruptionTarget");
    assert_eq!(target["reason"], "DeletionByPodGC");
    assert_eq!(target["message"], "PodGC: node no longer exists");
    world
        .until_said(
            "n3",
            "Normal RemovingNode Node n3 event: Removing Node n3 from Controller",
        )
        .await;

    world.pass(300).await;
    assert_eq!(of_n3(), 0);
    let desired = |wanted: u64| {
        let web = world.get(&DAEMON_SET, "default", "web").unwrap();
        web.at("/status/desiredNumberScheduled") == Some(&json!(wanted))
    };
    assert!(desired(2));
    world.agent_up("n3").await;
    world
        .until("one fresh pod", 5, || {
            desired(3) && world.all_serve(&["n1", "n2", "n3"])
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn case_b35_a_misscheduled_pod_is_not_counted_on_a_node_that_is_gone() {
    let world = world_of(&["n1", "n2", "n3"]).await;
    world.daemon("web", "web").await;
    world
        .until("all serve", 10, || world.all_serve(&["n1", "n2", "n3"]))
        .await;
    let misscheduled = |wanted: u64| {
        let web = world.get(&DAEMON_SET, "default", "web").unwrap();
        web.at("/status/numberMisscheduled") == Some(&json!(wanted))
    };
    let taint = json!([{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]);
    world.set_taints("n3", taint).await;
    world.until("misscheduled 1", 5, || misscheduled(1)).await;
    world.agent_down("n3");
    world
        .delete(&NODE, key("", "n3"), DeleteOptions::default())
        .await
        .unwrap();
    world.until("misscheduled 0", 5, || misscheduled(0)).await;
}

#[tokio::test(start_paused = true)]
async fn case_b23_nodes_that_vanish_together_lose_no_pod() {
    let names = ["n1", "n2", "n3", "n4", "n5"];
    // All of them, and most of them.
    for vanish in [5, 3] {
        let world = world_of(&names).await;
        world.daemon("web", "web").await;
        // The most fragile pods there can be.
        let fragile = json!([tolerate("node.kubernetes.io/unreachable", 0)]);
        for node in names {
            let name = format!("bare-{node}");
            world.bare_pod(&name, node, fragile.clone()).await;
        }
        world.pass(100).await;
        let uids: Vec<String> = world.pods().iter().map(|p| p.uid().to_owned()).collect();
        assert_eq!(uids.len(), 10);
        let mut seen = world.cache().subscribe(&[&POD]);
        for node in &names[..vanish] {
            world.agent_down(node);
            // The link dies for one after the other.
            world.pass(2).await;
        }
        world.pass(120).await;
        assert_eq!(world.condition("n1", "Ready")["status"], "Unknown");
        for node in &names[..vanish] {
            world.agent_up(node).await;
        }
        world
            .until("all Ready", 10, || {
                world.pods().iter().all(|pod| serves(pod))
            })
            .await;
        world.pass(60).await;
        let after: Vec<String> = world.pods().iter().map(|p| p.uid().to_owned()).collect();
        assert_eq!(uids, after);
        let evicted = changes(&mut seen)
            .iter()
            .any(|change| change.subject().object().is_terminating());
        assert!(!evicted, "{vanish} of 5");
        assert!(names.iter().all(|node| world.taints(node).is_empty()));
    }
}

#[tokio::test(start_paused = true)]
async fn case_b77_a_wall_clock_that_jumps_a_day_changes_no_node() {
    let names = ["n1", "n2", "n3", "n4", "n5"];
    let world = world_of(&names).await;
    world.daemon("web", "web").await;
    world
        .until("all serve", 10, || world.all_serve(&names))
        .await;
    world.pass(30).await;
    let before = world.store.revision();
    let wall = world.clock.now();
    world.clock.step(Duration::from_secs(86_400));
    assert!(world.clock.now() >= wall + Duration::from_secs(86_400));
    world.pass(300).await;
    assert_eq!(world.store.revision(), before, "nothing was written at all");
    assert!(world.all_serve(&names));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_never_reports_has_its_own_grace_however_long_the_server_runs() {
    let world = world_of(&["n1", "n2"]).await;
    world.pass(3_600).await;
    let tree = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "paper"}});
    world.create(&NODE, tree).await.unwrap();
    world.pass(55).await;
    assert_eq!(world.condition("paper", "Ready"), Value::Null);
    world
        .until("Unknown", 15, || {
            world.condition("paper", "Ready")["status"] == "Unknown"
        })
        .await;
    let ready = world.condition("paper", "Ready");
    assert_eq!(ready["reason"], "NodeStatusNeverUpdated");
    assert_eq!(ready["message"], "Kubelet never posted node status.");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_server_gives_every_node_its_grace_anew_and_remembers_what_is_stored() {
    let mut world = world_of(&["n1", "n2"]).await;
    world.bare_pod("p", "n1", json!([])).await;
    world.pass(30).await;
    world.restart().await;
    world.pass(35).await;
    assert_eq!(world.condition("n1", "Ready")["status"], "True");
    world.agent_down("n1");
    world
        .until("tainted", 90, || world.taints("n1") == UNREACHABLE)
        .await;
    world.restart().await;
    world.pass(30).await;
    assert_eq!(world.taints("n1"), UNREACHABLE);
    assert_eq!(world.condition("n1", "Ready")["status"], "Unknown");
    world
        .until("deleted", 310, || world.pod("p").unwrap().is_terminating())
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_persons_taints_and_cordon_survive_the_controllers_own() {
    let world = world_of(&["n1", "n2"]).await;
    let own = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
    world.set_taints("n1", own).await;
    world
        .edit(&NODE, key("", "n1"), |node| {
            node.tree_mut()["spec"]["unschedulable"] = true.into();
        })
        .await;
    let cordoned = [
        "k:NoSchedule",
        "node.kubernetes.io/unschedulable:NoSchedule",
    ];
    world
        .until("cordoned", 2, || world.taints("n1") == cordoned)
        .await;
    world.agent_down("n1");
    world
        .until("unreachable", 90, || world.taints("n1").len() == 4)
        .await;
    world.agent_up("n1").await;
    world
        .until("back", 2, || world.taints("n1") == cordoned)
        .await;
    world
        .edit(&NODE, key("", "n1"), |node| {
            node.tree_mut()["spec"]["unschedulable"] = false.into();
        })
        .await;
    world
        .until("uncordoned", 2, || world.taints("n1") == cordoned[..1])
        .await;
}
