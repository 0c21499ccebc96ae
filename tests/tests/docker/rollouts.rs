//! What controls a rollout beyond its budget, on four nodes each.

use std::collections::{BTreeMap, BTreeSet};

use muster_agent::runtime::docker::{DockerEngine, socket_path};
use muster_model::kind::DAEMON_SET;
use muster_model::object::Object;
use muster_model::time::{Clock, SystemClock};
use muster_testkit::{Fleet, images, is_ready};
use serde_json::{Value, json};
use tokio::process::Command;

use super::{History, IMAGE, container_id, daemon_set, example, wait_for_text};

const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];

/// The image of each node's only pod of an app.
async fn image_by_node(fleet: &Fleet, app: &str) -> BTreeMap<String, String> {
    let pods = fleet.pods(app).await;
    pods.iter()
        .map(|pod| {
            (
                pod.text_at("/spec/nodeName").to_owned(),
                pod.text_at("/spec/containers/0/image").to_owned(),
            )
        })
        .collect()
}

fn condition(daemon: &Object) -> Option<(String, String)> {
    let conditions = daemon.at("/status/conditions")?.as_array()?;
    let found = conditions
        .iter()
        .find(|condition| condition["type"] == "RolloutFailed")?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("reason"), text("message")))
}

async fn until_rolled_back(fleet: &Fleet, name: &str) -> String {
    fleet
        .eventually("the rollout was taken back", || async {
            let daemon = fleet.find(&DAEMON_SET, name).await?;
            let (reason, message) = condition(&daemon)?;
            (reason == "RolledBack").then_some(message)
        })
        .await
}

/// Containers by pod name.
fn containers(pods: &[Object]) -> BTreeMap<String, String> {
    pods.iter()
        .map(|pod| (pod.name().to_owned(), container_id(pod).to_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_death_spiral_of_a_mass_deletion_heals_by_itself() {
    let images = ["local/guard:v1", "local/guard:broken"];
    let fleet = Fleet::with_nodes(&images, &NODES).await.unwrap();
    fleet
        .ok(&["apply", "-f", &example("death-spiral.yaml")])
        .await;
    fleet.until_ready("guard", 4).await;
    fleet
        .ok(&["set", "image", "ds/guard", "guard=local/guard:broken"])
        .await;
    fleet
        .ok(&["delete", "pod", "-l", "app=guard", "--wait=false"])
        .await;
    let why = until_rolled_back(&fleet, "guard").await;
    assert!(why.starts_with("revision 2: it failed on "), "{why}");
    assert!(why.ends_with("; revision 3 took its place"), "{why}");
    // Nobody deletes a pod a second time.
    let pods = fleet
        .eventually("four pods of the old image are ready", || async {
            let pods = fleet.pods("guard").await;
            let fine = |pod: &Object| {
                is_ready(pod) && pod.text_at("/spec/containers/0/image") == "local/guard:v1"
            };
            (pods.len() == 4 && pods.iter().all(fine)).then_some(pods)
        })
        .await;
    let nodes: BTreeSet<&str> = pods
        .iter()
        .map(|pod| pod.text_at("/spec/nodeName"))
        .collect();
    assert_eq!(nodes.len(), 4);
    for reason in ["RolloutFailed", "RolledBack"] {
        fleet
            .eventually(&format!("an event {reason}"), || async {
                (!fleet.events("guard", reason).await.is_empty()).then_some(())
            })
            .await;
    }
    let history = fleet.ok(&["rollout", "history", "ds/guard"]).await;
    assert!(
        history.contains("OUTCOME") && history.contains("failed: "),
        "{history}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_takes_the_blow_and_a_good_version_goes_on_in_waves() {
    let images = [
        "local/monitor:v1",
        "local/monitor:v2",
        "local/monitor:broken",
    ];
    let mut fleet = Fleet::start(&images).await.unwrap();
    for name in NODES {
        let labels: &[&str] = if name == "n3" {
            &["--node-labels", "canary=true"]
        } else {
            &[]
        };
        fleet.add_agent(name, labels).await.unwrap();
    }
    fleet.until_nodes_ready().await;
    fleet
        .ok(&["apply", "-f", &example("safe-rollout.yaml")])
        .await;
    fleet.ok(&["rollout", "status", "ds/monitor"]).await;
    let canary = fleet.node("n3");
    let others = |mut pods: Vec<Object>| {
        pods.retain(|pod| pod.text_at("/spec/nodeName") != canary);
        containers(&pods)
    };
    let before = others(fleet.pods("monitor").await);
    assert_eq!(before.len(), 3);

    fleet
        .ok(&["set", "image", "ds/monitor", "monitor=local/monitor:broken"])
        .await;
    let why = until_rolled_back(&fleet, "monitor").await;
    assert!(
        why.contains(&format!("failed on 1 of 4 nodes ({canary}: ")),
        "{why}"
    );
    fleet.until_ready("monitor", 4).await;
    assert_eq!(
        others(fleet.pods("monitor").await),
        before,
        "only the canary was touched"
    );

    fleet
        .ok(&["set", "image", "ds/monitor", "monitor=local/monitor:v2"])
        .await;
    let text = wait_for_text(&fleet, &["explain", "ds/monitor"], |text| {
        text.contains("wave 1 of 3 (canary=true) is through and watched until")
    })
    .await;
    assert!(
        text.contains("runs an older revision: wave 1 of 3"),
        "{text}"
    );
    let images = image_by_node(&fleet, "monitor").await;
    let new: Vec<&String> = images
        .iter()
        .filter(|(_, image)| *image == "local/monitor:v2")
        .map(|(node, _)| node)
        .collect();
    assert_eq!(new, [&canary]);
    assert_eq!(others(fleet.pods("monitor").await), before);
    fleet.ok(&["rollout", "promote", "ds/monitor"]).await;
    // A quarter of four nodes is the canary itself; two minutes of watching are cut short.
    wait_for_text(&fleet, &["explain", "ds/monitor"], |text| {
        text.contains("wave 2 of 3 (25%) is through and watched until")
    })
    .await;
    fleet
        .ok(&["rollout", "promote", "ds/monitor", "--full"])
        .await;
    fleet.ok(&["rollout", "status", "ds/monitor"]).await;
    let images = image_by_node(&fleet, "monitor").await;
    assert!(
        images.values().all(|image| image == "local/monitor:v2"),
        "{images:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_is_planned_then_paused_in_the_middle_and_resumed() {
    let fleet = Fleet::with_nodes(&[IMAGE, "t:2"], &NODES).await.unwrap();
    let mut set = daemon_set("web", &json!({}));
    // Time enough to pause it before it is through.
    set["spec"]["minReadySeconds"] = 10.into();
    fleet.apply(&set).await;
    fleet.ok(&["rollout", "status", "ds/web"]).await;
    let before = containers(&fleet.pods("web").await);

    set["spec"]["template"]["spec"]["containers"][0]["image"] = "t:2".into();
    let path = fleet.directory().join("new.json");
    std::fs::write(&path, set.to_string()).unwrap();
    let path = path.display().to_string();
    let plan = fleet.ok(&["rollout", "plan", "-f", &path]).await;
    let lines: Vec<&str> = plan.lines().collect();
    assert_eq!(
        lines[0], "daemonset.apps/web: new revision 2 on 4 nodes",
        "{plan}"
    );
    for (line, name) in lines[2..6].iter().zip(NODES) {
        assert!(
            line.contains("replace") && line.ends_with(&fleet.node(name)),
            "{plan}"
        );
    }
    assert!(plan.contains("Nothing was changed."), "{plan}");
    let told: Value = serde_json::from_str(
        &fleet
            .ok(&["rollout", "plan", "-f", &path, "-o", "json"])
            .await,
    )
    .unwrap();
    assert_eq!(
        (&told["revision"], &told["newRevision"]),
        (&json!(2), &json!(true))
    );
    assert_eq!(told["steps"].as_array().map(Vec::len), Some(4));
    assert_eq!(told["mostOut"], 1);
    let stored = fleet.find(&DAEMON_SET, "web").await.unwrap();
    assert_eq!(stored.generation(), 1);
    assert_eq!(containers(&fleet.pods("web").await), before);

    fleet.ok(&["apply", "-f", &path]).await;
    let new = async |fleet: &Fleet| {
        let images = image_by_node(fleet, "web").await;
        images.values().filter(|image| *image == "t:2").count()
    };
    fleet
        .eventually("a first node is updated", || async {
            (new(&fleet).await >= 1).then_some(())
        })
        .await;
    fleet.ok(&["rollout", "pause", "ds/web"]).await;
    let text = wait_for_text(&fleet, &["explain", "ds/web"], |text| {
        text.contains("the rollout is paused") && text.contains("available on 4.")
    })
    .await;
    let (updated, left) = (
        new(&fleet).await,
        text.matches("the rollout is paused").count(),
    );
    assert!((1..4).contains(&updated), "{text}");
    assert_eq!(updated + left, 4, "{text}");
    let plan = fleet.ok(&["rollout", "plan", "ds/web"]).await;
    assert_eq!(plan.matches("stays as it is: ").count(), left, "{plan}");
    fleet.ok(&["rollout", "resume", "ds/web"]).await;
    fleet.ok(&["rollout", "status", "ds/web"]).await;
    assert_eq!(new(&fleet).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_not_there_yet_costs_no_coverage() {
    // A registry that nobody runs, on this machine only.
    const LATE: &str = "127.0.0.1:1/monitor:late";
    let remove = || {
        Command::new("docker")
            .args(["image", "rm", "--force", LATE])
            .output()
    };
    remove().await.unwrap();
    let fleet = Fleet::with_nodes(&[IMAGE], &NODES).await.unwrap();
    let mut set = daemon_set("web", &json!({}));
    set["metadata"]["annotations"] = json!({"muster.dev/pre-pull": "true"});
    fleet.apply(&set).await;
    fleet.ok(&["rollout", "status", "ds/web"]).await;
    let before = containers(&fleet.pods("web").await);
    let history = History::of_pods(&fleet).await;
    fleet
        .ok(&["set", "image", "ds/web", &format!("main={LATE}")])
        .await;
    wait_for_text(&fleet, &["explain", "ds/web"], |text| {
        text.contains("the new images cannot be pulled there: ")
    })
    .await;
    let pods = fleet.pods("web").await;
    assert_eq!(containers(&pods), before);
    for pod in &pods {
        assert!(
            history.of(pod.name()).iter().all(is_ready),
            "{} was not ready",
            pod.name()
        );
    }
    let engine =
        DockerEngine::new(socket_path(std::env::var("DOCKER_HOST").ok().as_deref()).unwrap());
    images::ensure_images(&engine, &[LATE]).await.unwrap();
    fleet.ok(&["rollout", "status", "ds/web"]).await;
    let images = image_by_node(&fleet, "web").await;
    assert!(images.values().all(|image| image == LATE), "{images:?}");
    drop(fleet);
    remove().await.unwrap();
}

/// A window that is shut now and for days.
fn shut() -> String {
    // The first day of the epoch was a Thursday; three days ahead it is far from both midnights.
    const FROM_THURSDAY: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let days = SystemClock::new().now().as_second() / 86_400 + 3;
    let day = FROM_THURSDAY[usize::try_from(days % 7).unwrap()];
    format!("{day} 00:00-00:01 UTC")
}

#[tokio::test(flavor = "multi_thread")]
async fn sites_wait_for_their_window_and_racks_are_updated_a_node_at_a_time() {
    let mut fleet = Fleet::start(&["local/collector:v1", "local/collector:v2"])
        .await
        .unwrap();
    for (name, labels) in [
        ("n1", "rack=a"),
        ("n2", "rack=a"),
        ("n3", "rack=b"),
        ("n4", "rack=b,site=berlin"),
    ] {
        fleet
            .add_agent(name, &["--node-labels", labels])
            .await
            .unwrap();
    }
    fleet.until_nodes_ready().await;
    fleet
        .ok(&["apply", "-f", &example("night-shift.yaml")])
        .await;
    fleet.until_ready("night-shift", 4).await;
    let windows = format!("site=berlin: {}", shut());
    let patch = format!("muster.dev/maintenance-windows={windows}");
    fleet
        .ok(&["annotate", "ds/night-shift", &patch, "--overwrite"])
        .await;
    // The budget alone would let all nodes go at once.
    let budget = json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}}}});
    let key = muster_model::object::NamespacedName::new("default", "night-shift");
    let options = muster_client::WriteOptions::default();
    let form = muster_client::PatchType::Merge;
    fleet
        .resources()
        .patch(
            &DAEMON_SET,
            &key,
            form,
            budget.to_string().as_bytes(),
            &options,
        )
        .await
        .unwrap();
    let history = History::of_pods(&fleet).await;
    let (rack, berlin) = ([fleet.node("n1"), fleet.node("n2")], fleet.node("n4"));
    let before = fleet.pods("night-shift").await;
    let on = |node: &str| {
        let mut pods = before.iter();
        pods.find(|pod| pod.text_at("/spec/nodeName") == node)
            .unwrap()
            .name()
            .to_owned()
    };
    let (first, second) = (on(&rack[0]), on(&rack[1]));
    fleet
        .ok(&[
            "set",
            "image",
            "ds/night-shift",
            "collector=local/collector:v2",
        ])
        .await;
    let text = wait_for_text(&fleet, &["explain", "ds/night-shift"], |text| {
        text.matches("is up to date and available").count() == 3
    })
    .await;
    assert!(text.contains("its maintenance window opens at "), "{text}");
    let images = image_by_node(&fleet, "night-shift").await;
    assert_eq!(images[&berlin], "local/collector:v1");
    // The second node of the rack had its turn when the first one's new pod was ready.
    let at = |pod: &str, wanted: &dyn Fn(&Object) -> bool| {
        let versions = history.of(pod);
        let version = versions.iter().find(|version| wanted(version))?;
        let revision = version.text_at("/metadata/resourceVersion");
        revision.parse::<u64>().ok()
    };
    let pods = fleet.pods("night-shift").await;
    let new = pods
        .iter()
        .find(|pod| pod.text_at("/spec/nodeName") == rack[0])
        .unwrap();
    let (first_deleted, ready, second_deleted) = fleet
        .eventually("the history has all of it", || async {
            Some((
                at(&first, &Object::is_terminating)?,
                at(new.name(), &is_ready)?,
                at(&second, &Object::is_terminating)?,
            ))
        })
        .await;
    assert!(first_deleted < ready && ready < second_deleted);
}
