//! Updates, budgets, history.

use std::collections::BTreeMap;

use muster_agent::runtime::memory::{Call, PullScript};
use muster_model::kind::{CONTROLLER_REVISION, EVENT, NODE, POD};
use muster_model::object::Object;
use muster_proto::v1::{DaemonSetRef, RolloutStatusReply, RolloutStatusRequest, UndoRequest};
use muster_testkit::check::{self, Watchful, Witness};
use muster_testkit::{Cluster, build};
use serde_json::json;

use crate::support::{
    AN_HOUR, cluster, delete, images_by_node, merge, pass, pod_on, running_web, set_image, status,
};

const FOUR: [&str; 4] = ["n1", "n2", "n3", "n4"];

fn watch(cluster: &Cluster, daemon_set: &str, most: usize) -> Witness {
    let watchful = Watchful {
        pods_per_node: 1,
        budgets: BTreeMap::from([(daemon_set.to_owned(), most)]),
    };
    Witness::start(cluster.registry().cache(), watchful)
}

fn web() -> DaemonSetRef {
    DaemonSetRef {
        namespace: "default".to_owned(),
        name: "web".to_owned(),
    }
}

async fn complete(cluster: &Cluster, daemon_set: &str, nodes: i64) {
    cluster
        .eventually("the roll is complete", AN_HOUR, async || {
            cluster.is_complete(daemon_set, nodes).then_some(())
        })
        .await;
}

/// The images of a DaemonSet's revisions, by number.
fn history(cluster: &Cluster, daemon_set: &str) -> Vec<(i64, String)> {
    let mut found: Vec<(i64, String)> = cluster
        .objects(&CONTROLLER_REVISION)
        .iter()
        .filter(|revision| {
            revision
                .controller()
                .is_some_and(|owner| owner.name == daemon_set)
        })
        .map(|revision| {
            let image = revision.text_at("/data/spec/template/spec/containers/0/image");
            let number = revision.at("/revision").and_then(serde_json::Value::as_i64);
            (number.unwrap_or(0), image.to_owned())
        })
        .collect();
    found.sort();
    found
}

fn all_run(cluster: &Cluster, daemon_set: &str, image: &str) -> bool {
    images_by_node(cluster, daemon_set)
        .iter()
        .all(|(_, running)| running == image)
}

#[tokio::test(start_paused = true)]
async fn a_rolling_update_takes_one_node_at_a_time() {
    let cluster = running_web(&FOUR).await;
    let witness = watch(&cluster, "web", 1);
    set_image(&cluster, "web", "img:2").await;
    complete(&cluster, "web", 4).await;
    assert!(all_run(&cluster, "web", "img:2"));
    assert_eq!(witness.worst("web"), 1);
    assert_eq!(witness.pods_seen("web"), 8);
    assert_eq!(witness.finish().await, Vec::<String>::new());
    assert_eq!(
        check::containers_per_node(cluster.engine(), 1),
        Vec::<String>::new()
    );
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_surging_update_leaves_no_node_without_a_ready_pod() {
    let cluster = cluster(&FOUR).await;
    let web = build::daemon_set("web").max_surge(1);
    cluster.create(&web.object()).await.unwrap();
    cluster.until_ready("web", 4).await;
    let watchful = Watchful {
        pods_per_node: 2,
        budgets: BTreeMap::from([("web".to_owned(), 0)]),
    };
    let witness = Witness::start(cluster.registry().cache(), watchful);
    set_image(&cluster, "web", "img:2").await;
    complete(&cluster, "web", 4).await;
    assert!(all_run(&cluster, "web", "img:2"));
    assert_eq!(witness.finish().await, Vec::<String>::new());
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_roll_of_pods_with_a_host_port_is_never_refused_by_its_own_node() {
    let cluster = cluster(&FOUR).await;
    let web = build::daemon_set("web").set(
        "/spec/template/spec/containers/0/ports",
        json!([{"containerPort": 80, "hostPort": 18_080}]),
    );
    cluster.create(&web.object()).await.unwrap();
    cluster.until_ready("web", 4).await;
    for number in 2..=6 {
        set_image(&cluster, "web", &format!("img:{number}")).await;
        complete(&cluster, "web", 4).await;
    }
    let refused: Vec<String> = cluster
        .objects(&EVENT)
        .iter()
        .filter(|event| event.text_at("/reason") == "FailedDaemonPod")
        .map(|event| event.text_at("/message").to_owned())
        .collect();
    assert_eq!(refused, Vec::<String>::new());
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_bad_image_stops_the_roll_at_the_budget_and_a_good_one_mends_it() {
    let cluster = running_web(&FOUR).await;
    let witness = watch(&cluster, "web", 1);
    set_image(&cluster, "web", "nowhere:1").await;
    pass(600).await;
    assert_eq!(cluster.ready_on("web").len(), 3);
    let waiting = cluster.coverage("web").await.unwrap();
    assert!(
        waiting.iter().any(|row| row.why.contains("nowhere:1")),
        "{waiting:?}"
    );
    set_image(&cluster, "web", "img:2").await;
    complete(&cluster, "web", 4).await;
    assert_eq!(witness.finish().await, Vec::<String>::new());
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn with_on_delete_only_deleted_pods_are_updated() {
    let cluster = cluster(&["n1", "n2"]).await;
    cluster
        .create(&build::daemon_set("web").on_delete().object())
        .await
        .unwrap();
    cluster.until_ready("web", 2).await;
    set_image(&cluster, "web", "img:2").await;
    pass(300).await;
    assert!(all_run(&cluster, "web", "img:1"));
    assert_eq!(status(&cluster, "web", "updatedNumberScheduled"), 0);
    let pod = pod_on(&cluster, "web", "n1").unwrap();
    delete(&cluster, &POD, pod.name()).await;
    cluster
        .until("n1 runs the new image", || {
            cluster.ready_on("web").len() == 2
                && images_by_node(&cluster, "web")
                    == [("n1", "img:2"), ("n2", "img:1")]
                        .map(|(node, image)| (node.to_owned(), image.to_owned()))
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn case_b03_a_third_template_before_the_second_is_available_keeps_to_the_budget() {
    let cluster = cluster(&FOUR).await;
    let web = build::daemon_set("web")
        .set("/spec/minReadySeconds", 60)
        .max_unavailable(1);
    cluster.create(&web.object()).await.unwrap();
    complete(&cluster, "web", 4).await;
    let witness = watch(&cluster, "web", 1);
    set_image(&cluster, "web", "img:2").await;
    let half_done = cluster
        .eventually("the first new pod is Ready", AN_HOUR, async || {
            let pods = cluster.pods_of("web");
            pods.into_iter().find(|pod| {
                pod.text_at("/spec/containers/0/image") == "img:2" && muster_testkit::is_ready(pod)
            })
        })
        .await;
    set_image(&cluster, "web", "img:3").await;
    let first = cluster
        .eventually("the first pod of the third template", AN_HOUR, async || {
            let pods = cluster.pods_of("web");
            pods.into_iter()
                .find(|pod| pod.text_at("/spec/containers/0/image") == "img:3")
        })
        .await;
    assert_eq!(
        first.text_at("/spec/nodeName"),
        half_done.text_at("/spec/nodeName")
    );
    complete(&cluster, "web", 4).await;
    assert!(all_run(&cluster, "web", "img:3"));
    assert_eq!(witness.finish().await, Vec::<String>::new());
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn case_b09_a_surge_over_a_host_port_does_not_hang_silently() {
    let cluster = cluster(&["n1", "n2"]).await;
    let web = build::daemon_set("web").max_surge(1).set(
        "/spec/template/spec/containers/0/ports",
        json!([{"containerPort": 80, "hostPort": 18_080}]),
    );
    let made = cluster.create(&web.object()).await.unwrap();
    assert!(
        made.warnings
            .iter()
            .any(|warning| { warning.contains("port 18080") && warning.contains("maxSurge 1") }),
        "{:?}",
        made.warnings
    );
    cluster.until_ready("web", 2).await;
    set_image(&cluster, "web", "img:2").await;
    let mut made = std::collections::BTreeSet::new();
    for _ in 0..120 {
        pass(1).await;
        let pods = cluster.pods_of("web");
        made.extend(pods.iter().map(|pod| pod.name().to_owned()));
    }
    // Two old pods; a new one at once and after 1, 2, 4, 8, 16, 32 and 64 s.
    assert!(made.len() <= 2 + 9, "{made:?}");
    assert_eq!(cluster.ready_on("web").len(), 2, "no old pod has gone");
    let failed = cluster.objects(&EVENT);
    let failed = failed
        .iter()
        .find(|event| event.text_at("/reason") == "FailedDaemonPod");
    assert!(failed.is_some_and(|event| event.text_at("/involvedObject/name") == "web"));
    // One node at a time surges; that one says what is in the way.
    let rows = cluster.coverage("web").await.unwrap();
    let told = rows.iter().find(|row| row.why.contains("18080/TCP"));
    let told = told.unwrap_or_else(|| panic!("{rows:?}"));
    let holder = format!("18080/TCP is held by pod default/{}", told.pod);
    assert!(told.why.contains(&holder), "{told:?}");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn case_b29_a_node_that_no_longer_qualifies_is_not_waited_for() {
    let cluster = cluster(&["n1", "n2", "n3"]).await;
    for node in ["n1", "n2", "n3"] {
        merge(
            &cluster,
            &NODE,
            node,
            json!({"metadata": {"labels": {"web": "yes"}}}),
        )
        .await;
    }
    let web = build::daemon_set("web").node_selector("web", "yes");
    cluster.create(&web.object()).await.unwrap();
    cluster.until_ready("web", 3).await;
    merge(
        &cluster,
        &NODE,
        "n3",
        json!({"metadata": {"labels": {"web": null}}}),
    )
    .await;
    set_image(&cluster, "web", "img:2").await;
    complete(&cluster, "web", 2).await;
    assert_eq!(cluster.ready_on("web"), ["n1", "n2"]);
    assert!(all_run(&cluster, "web", "img:2"));
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn case_b37_a_hand_made_duplicate_does_not_stop_a_rollback() {
    let cluster = running_web(&["n1", "n2"]).await;
    set_image(&cluster, "web", "img:2").await;
    complete(&cluster, "web", 2).await;
    let original = cluster
        .objects(&CONTROLLER_REVISION)
        .into_iter()
        .find(|revision| revision.text_at("/data/spec/template/spec/containers/0/image") == "img:1")
        .unwrap();
    let mut copy = build::changed(&original, "/metadata/name", "web-copy").into_tree();
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        copy["metadata"].as_object_mut().unwrap().remove(field);
    }
    copy["metadata"]["labels"]["controller-revision-hash"] = "copy".into();
    cluster
        .create(&Object::from_value(copy).unwrap())
        .await
        .unwrap();
    let undo = UndoRequest {
        daemonset: Some(web()),
        to_revision: 1,
        dry_run: false,
    };
    let admin = cluster.admin();
    admin.daemonsets().undo(admin.request(undo)).await.unwrap();
    complete(&cluster, "web", 2).await;
    assert!(all_run(&cluster, "web", "img:1"));
    cluster
        .until("the duplicates are one, with the newest number", || {
            history(&cluster, "web") == [(2, "img:2".to_owned()), (3, "img:1".to_owned())]
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn case_b39_revisions_that_run_are_kept_past_the_limit() {
    let cluster = cluster(&["n1", "n2", "n3"]).await;
    let web = build::daemon_set("web")
        .on_delete()
        .set("/spec/revisionHistoryLimit", 2);
    cluster.create(&web.object()).await.unwrap();
    cluster.until_ready("web", 3).await;
    for number in 2..=6 {
        set_image(&cluster, "web", &format!("img:{number}")).await;
        cluster
            .until("the revision is made", || {
                history(&cluster, "web")
                    .last()
                    .is_some_and(|(_, image)| *image == format!("img:{number}"))
            })
            .await;
        if number == 3 {
            let pod = pod_on(&cluster, "web", "n2").unwrap();
            delete(&cluster, &POD, pod.name()).await;
            cluster
                .until("n2 runs the third", || {
                    cluster.ready_on("web").len() == 3
                        && pod_on(&cluster, "web", "n2")
                            .is_some_and(|pod| pod.text_at("/spec/containers/0/image") == "img:3")
                })
                .await;
        }
    }
    cluster
        .until("only what runs and the newest are kept", || {
            let images: Vec<String> = history(&cluster, "web")
                .into_iter()
                .map(|(_, image)| image)
                .collect();
            images == ["img:1", "img:3", "img:6"]
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn ds_121_a_roll_survives_the_death_of_the_server_at_any_point() {
    let mut cluster = running_web(&FOUR).await;
    set_image(&cluster, "web", "img:2").await;
    let mut faults = Vec::new();
    for round in 0..12_u64 {
        let witness = watch(&cluster, "web", 1);
        tokio::time::sleep(std::time::Duration::from_millis(37 * round)).await;
        cluster.kill_server().await;
        faults.extend(witness.finish().await);
        cluster.start_server().await.unwrap();
    }
    let witness = watch(&cluster, "web", 1);
    complete(&cluster, "web", 4).await;
    faults.extend(witness.finish().await);
    assert_eq!(faults, Vec::<String>::new());
    assert!(all_run(&cluster, "web", "img:2"));
    assert_eq!(
        history(&cluster, "web"),
        [(1, "img:1".to_owned()), (2, "img:2".to_owned())]
    );
    assert_eq!(
        check::containers_per_node(cluster.engine(), 1),
        Vec::<String>::new()
    );
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_pulled_early_is_not_pulled_again_while_no_pod_runs() {
    let cluster = cluster(&FOUR).await;
    for image in ["pull:1", "pull:2"] {
        cluster.engine().add_pullable(image, PullScript::default());
    }
    let set = build::daemon_set("web")
        .image("pull:1")
        .annotation("muster.dev/pre-pull", "true")
        .set("/spec/template/spec/containers/0/imagePullPolicy", "Always");
    cluster.create(&set.object()).await.unwrap();
    cluster.until_ready("web", 4).await;
    set_image(&cluster, "web", "pull:2").await;
    complete(&cluster, "web", 4).await;
    let calls = cluster.engine().calls();
    let pulls = calls
        .iter()
        .filter(|call| call.call == Call::Pull && call.target == "pull:2");
    assert_eq!(pulls.count(), 4);
    cluster.stop().await;
}

/// What `rollout status` would say now.
async fn rollout_state(cluster: &Cluster) -> RolloutStatusReply {
    let admin = cluster.admin();
    let request = admin.request(RolloutStatusRequest {
        daemonset: Some(web()),
    });
    let states = admin.daemonsets().rollout_status(request).await;
    states
        .unwrap()
        .into_inner()
        .message()
        .await
        .unwrap()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_lost_nodes_keep_from_going_on_names_them() {
    let cluster = running_web(&["n1", "n2", "n3"]).await;
    set_image(&cluster, "web", "nowhere:1").await;
    cluster
        .eventually("n1 has the new pod", AN_HOUR, async || {
            let pod = pod_on(&cluster, "web", "n1")?;
            (pod.text_at("/spec/containers/0/image") == "nowhere:1").then_some(())
        })
        .await;
    cluster.gate("n1").unwrap().close();
    pass(300).await;
    let state = rollout_state(&cluster).await;
    assert_eq!(
        state.hold,
        "nodes out of reach count as out, and no more may be: bring the agents of n1 back"
    );
    assert!(
        state.waiting[0].starts_with("n1: the node's agent is out of reach since"),
        "{:?}",
        state.waiting
    );
    cluster.gate("n1").unwrap().open();
    set_image(&cluster, "web", "img:2").await;
    complete(&cluster, "web", 3).await;
    cluster.stop().await;
}
