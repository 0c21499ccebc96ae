//! Which nodes get a pod, and what is said of the others.

use muster_model::kind::{DAEMON_SET, NAMESPACE, NODE, POD, SERVICE_ACCOUNT};
use muster_model::object::Object;
use muster_testkit::build::{self, Manifest};
use muster_testkit::{Cluster, ClusterOptions, NodeOptions};
use serde_json::json;

use crate::support::{cluster, delete, key, merge, pass, running_web, status};

/// A control plane and a GPU node, both tainted, and two workers.
async fn four_nodes() -> Cluster {
    let mut cluster = Cluster::start(ClusterOptions::paused()).await.unwrap();
    for image in [
        "prom/node-exporter:v1.5.0",
        "fluent/fluentd:v1.11-1",
        "fluent/fluent-bit:3.2",
        "local/idle:v1",
        "img:1",
    ] {
        cluster.engine().add_image(image);
    }
    let nodes = [
        NodeOptions::new("cp").taint("node-role.kubernetes.io/control-plane:NoSchedule"),
        NodeOptions::new("gpu")
            .label("accelerator", "gpu")
            .taint("gpu=true:NoSchedule"),
        NodeOptions::new("w1"),
        NodeOptions::new("w2"),
    ];
    for node in nodes {
        cluster.add_node(node).await.unwrap();
    }
    cluster.until_nodes_ready().await;
    cluster
}

fn example(text: &str) -> Object {
    let mut read = muster_model::codec::read_manifests("example", text.as_bytes()).unwrap();
    assert_eq!(read.len(), 1);
    let mut tree = read.remove(0).object.into_tree();
    let namespace = &mut tree["metadata"]["namespace"];
    if namespace.is_null() {
        *namespace = "default".into();
    }
    Object::from_value(tree).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_examples_land_where_they_belong_and_say_why_not_elsewhere() {
    let cluster = four_nodes().await;

    let exporter = example(include_str!("../../../examples/node-exporter.yaml"));
    let written = cluster.create(&exporter).await.unwrap();
    let about_nodes = |warnings: &[String]| -> Vec<String> {
        let chosen = warnings.iter().filter(|text| text.contains("ready node"));
        chosen.cloned().collect()
    };
    assert_eq!(about_nodes(&written.warnings), Vec::<String>::new());
    cluster.until_ready("node-exporter", 4).await;
    assert_eq!(cluster.ready_on("node-exporter"), ["cp", "gpu", "w1", "w2"]);

    let fluentd = example(include_str!("../../../examples/fluentd-logging.yaml"));
    let written = cluster.create(&fluentd).await.unwrap();
    assert_eq!(
        about_nodes(&written.warnings),
        [
            "1 ready node will have no pod (gpu): taint gpu=true:NoSchedule is not tolerated; to change that, tolerate \
             gpu=true:NoSchedule in spec.template.spec.tolerations, or take the taint off node gpu [UntoleratedTaints]",
            "1 ready node will have no pod (cp): taint node-role.kubernetes.io/control-plane:NoSchedule is not tolerated; \
             to change that, tolerate node-role.kubernetes.io/control-plane:NoSchedule in \
             spec.template.spec.tolerations, or take the taint off node cp [UntoleratedTaints]",
        ]
    );
    cluster.until_ready("fluentd-logging", 2).await;
    assert_eq!(cluster.ready_on("fluentd-logging"), ["w1", "w2"]);
    let rows = cluster.coverage("fluentd-logging").await.unwrap();
    let told: Vec<(&str, bool, &str)> = rows
        .iter()
        .map(|row| (row.node.as_str(), row.should_run, row.rule.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("cp", false, "UntoleratedTaint"),
            ("gpu", false, "UntoleratedTaint"),
            ("w1", true, "Runs"),
            ("w2", true, "Runs"),
        ]
    );
    assert_eq!(rows[1].why, "taint gpu=true:NoSchedule is not tolerated");
    assert_eq!(
        rows[1].fix,
        "tolerate gpu=true:NoSchedule in spec.template.spec.tolerations, or take the taint off node gpu"
    );

    let monitor = example(include_str!("../../../examples/gpu-monitor.yaml"));
    cluster.create(&monitor).await.unwrap();
    cluster.until_ready("gpu-monitor", 1).await;
    assert_eq!(cluster.ready_on("gpu-monitor"), ["gpu"]);

    // A service account that does not exist keeps pods away, and says so.
    let logging = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "logging"}});
    cluster
        .create(&Manifest::of(logging).object())
        .await
        .unwrap();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "log-agent", "namespace": "logging"}});
    cluster
        .create(&Manifest::of(account).object())
        .await
        .unwrap();
    assert!(cluster.object(&NAMESPACE, "logging").is_some());
    assert!(
        cluster
            .object(&SERVICE_ACCOUNT, "logging/log-agent")
            .is_some()
    );
    let agent = example(include_str!("../../../examples/log-agent.yaml"));
    cluster.create(&agent).await.unwrap();
    cluster.until_ready("logging/log-agent", 2).await;

    // A toleration brings the daemon to the node that the taint kept free.
    let tolerations = json!([{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]);
    let patch = json!({"spec": {"template": {"spec": {"tolerations": tolerations}}}});
    merge(&cluster, &DAEMON_SET, "fluentd-logging", patch).await;
    cluster.until_ready("fluentd-logging", 3).await;
    assert_eq!(cluster.ready_on("fluentd-logging"), ["gpu", "w1", "w2"]);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_come_go_change_labels_or_taints_gain_and_lose_the_daemon() {
    let mut cluster = cluster(&["n1", "n2"]).await;
    let web = build::daemon_set("web").node_selector("disk", "ssd");
    let written = cluster.create(&web.object()).await.unwrap();
    assert_eq!(
        written.warnings[0],
        "none of 2 nodes will have a pod: node selector disk=ssd not matched (n1, n2); to change that, label node n1 with \
         disk=ssd [MatchesNoNode]"
    );
    for node in ["n1", "n2"] {
        merge(
            &cluster,
            &NODE,
            node,
            json!({"metadata": {"labels": {"disk": "ssd"}}}),
        )
        .await;
    }
    cluster.until_ready("web", 2).await;
    cluster
        .add_node(NodeOptions::new("n3").label("disk", "ssd"))
        .await
        .unwrap();
    cluster.until_ready("web", 3).await;

    merge(
        &cluster,
        &NODE,
        "n1",
        json!({"metadata": {"labels": {"disk": "hdd"}}}),
    )
    .await;
    cluster.until_ready("web", 2).await;
    assert_eq!(cluster.ready_on("web"), ["n2", "n3"]);

    let taint = json!({"spec": {"taints": [{"key": "out", "effect": "NoExecute"}]}});
    merge(&cluster, &NODE, "n2", taint).await;
    cluster.until_ready("web", 1).await;
    merge(&cluster, &NODE, "n2", json!({"spec": {"taints": null}})).await;
    cluster.until_ready("web", 2).await;

    cluster.lose_node("n3").await.unwrap();
    delete(&cluster, &NODE, "n3").await;
    cluster.until_ready("web", 1).await;
    assert_eq!(cluster.ready_on("web"), ["n2"]);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn case_b27_one_matching_node_gets_the_only_pod_and_the_others_are_explained() {
    let mut cluster = cluster(&["n1", "n2"]).await;
    cluster
        .add_node(NodeOptions::new("n3").label("disk", "ssd"))
        .await
        .unwrap();
    cluster.until_nodes_ready().await;
    let web = build::daemon_set("web").node_selector("disk", "ssd");
    cluster.create(&web.object()).await.unwrap();
    cluster.until_ready("web", 1).await;
    pass(60).await;
    assert_eq!(cluster.objects(&POD).len(), 1);
    let rows = cluster.coverage("web").await.unwrap();
    for row in &rows[..2] {
        assert_eq!(row.why, "node selector disk=ssd not matched");
        assert_eq!(row.fix, format!("label node {} with disk=ssd", row.node));
    }
    assert_eq!(rows[2].rule, "Runs");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn case_b31_the_same_manifest_again_changes_nothing() {
    let cluster = cluster(&["n1"]).await;
    for number in 2..=30 {
        let node = build::node(&format!("n{number}"), true);
        cluster.create(&node.object()).await.unwrap();
    }
    let web = build::daemon_set("web").node_selector("kubernetes.io/hostname", "n1");
    cluster.create(&web.object()).await.unwrap();
    cluster.until_ready("web", 1).await;
    let before = cluster.object(&DAEMON_SET, "web").unwrap();
    let patch = web.tree().to_string();
    let again = cluster
        .resources()
        .patch(
            &DAEMON_SET,
            &key(&DAEMON_SET, "web"),
            muster_client::PatchType::Strategic,
            patch.as_bytes(),
            &muster_client::WriteOptions::default(),
        )
        .await
        .unwrap()
        .object;
    assert_eq!(again.resource_version(), before.resource_version());
    assert_eq!(again.generation(), before.generation());
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn case_b33_case_b35_a_later_taint_misschedules_and_a_deleted_node_is_forgotten() {
    let mut cluster = running_web(&["n1", "n2", "n3"]).await;
    let pods = cluster.pods_of("web").len();
    let taint =
        json!({"spec": {"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]}});
    merge(&cluster, &NODE, "n3", taint).await;
    let counts = |cluster: &Cluster| {
        [
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberReady",
            "numberMisscheduled",
        ]
        .map(|field| status(cluster, "web", field))
    };
    cluster
        .until("the pod on n3 counts as misscheduled", || {
            counts(&cluster) == [2, 2, 2, 1]
        })
        .await;
    assert_eq!(cluster.pods_of("web").len(), pods);
    let rows = cluster.coverage("web").await.unwrap();
    let n3 = &rows[2];
    assert_eq!((n3.node.as_str(), n3.should_run), ("n3", false));
    assert!(
        n3.why
            .starts_with("taint dedicated=x:NoSchedule is not tolerated; pod web-"),
        "{n3:?}"
    );
    assert!(
        n3.why
            .ends_with(" stays, because only new pods are kept away"),
        "{n3:?}"
    );
    cluster.lose_node("n3").await.unwrap();
    delete(&cluster, &NODE, "n3").await;
    cluster
        .until("nothing is misscheduled any more", || {
            counts(&cluster) == [2, 2, 2, 0]
        })
        .await;
    cluster.stop().await;
}
