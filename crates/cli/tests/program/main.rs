//! The real `muster` program against a real server: what a person types, what comes back, and with which exit code.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod coverage;
mod muster;
mod policies;
mod rollout;
mod shell;

use muster::{Said, cluster, muster};
use muster_testkit::{NodeOptions, build};

const WEB: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: web
spec:
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
        - name: main
          image: img:1
"#;

fn file(cluster: &muster_testkit::Cluster, name: &str, text: &str) -> String {
    let path = cluster.directory().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_is_applied_explained_rolled_out_undone_and_deleted() {
    let mut cluster = cluster(&["n1"]).await;
    cluster
        .add_node(NodeOptions::new("gpu").taint("gpu=true:NoSchedule"))
        .await
        .unwrap();
    cluster.until_nodes_ready().await;
    let web = file(&cluster, "web.yaml", WEB);

    let said = muster(&cluster, &["apply", "-f", &web]).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.out, "daemonset.apps/web created\n");
    assert!(
        said.err.contains(
            "1 ready node will have no pod (gpu): taint gpu=true:NoSchedule is not tolerated"
        ),
        "{said:?}"
    );
    let again = muster(&cluster, &["apply", "-f", &web]).await;
    assert_eq!(
        (again.code, again.out.as_str()),
        (0, "daemonset.apps/web unchanged\n")
    );

    let status = muster(&cluster, &["rollout", "status", "ds/web"]).await;
    assert_eq!(status.code, 0, "{status:?}");
    assert!(
        status
            .out
            .ends_with("daemon set \"web\" successfully rolled out\n"),
        "{status:?}"
    );
    let row = muster(&cluster, &["get", "ds", "web", "--no-headers"]).await;
    let cells: Vec<&str> = row.out.split_whitespace().collect();
    assert_eq!(cells[..6], ["web", "1", "1", "1", "1", "1"], "{row:?}");

    let why = muster(&cluster, &["explain", "ds/web"]).await;
    assert_eq!(why.code, 0);
    assert!(
        why.out
            .contains("taint gpu=true:NoSchedule is not tolerated"),
        "{why:?}"
    );

    let second = file(&cluster, "web2.yaml", &WEB.replace("img:1", "img:2"));
    let said = muster(&cluster, &["apply", "-f", &second]).await;
    assert_eq!(said.out, "daemonset.apps/web configured\n", "{said:?}");
    let status = muster(&cluster, &["rollout", "status", "ds/web"]).await;
    assert_eq!(status.code, 0, "{status:?}");
    let undone = muster(&cluster, &["rollout", "undo", "ds/web"]).await;
    assert_eq!(
        (undone.code, undone.out.as_str()),
        (0, "daemonset.apps/web rolled back\n")
    );
    cluster.until_ready("web", 1).await;
    let image = "jsonpath={.spec.template.spec.containers[0].image}";
    let image = muster(&cluster, &["get", "ds", "web", "-o", image]).await;
    assert_eq!(image.out.trim_end(), "img:1", "{image:?}");

    let gone = muster(&cluster, &["delete", "ds", "web"]).await;
    assert_eq!(gone.code, 0, "{gone:?}");
    assert_eq!(gone.out, "daemonset.apps \"web\" deleted\n");
    cluster
        .until("its pods are gone", || {
            cluster.objects(&muster_model::kind::POD).is_empty()
        })
        .await;
    let missing = muster(&cluster, &["get", "ds", "web"]).await;
    assert_eq!(missing.code, 1);
    assert_eq!(
        missing.err,
        "Error from server (NotFound): daemonsets.apps \"web\" not found\n"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_named_and_changes_nothing() {
    let cluster = cluster(&[]).await;
    let refused = |said: Said, code: i32, words: &[&str]| {
        assert_eq!(said.code, code, "{said:?}");
        for word in words {
            assert!(said.err.contains(word), "no {word:?} in {said:?}");
        }
        assert!(!said.err.contains("panicked"), "{said:?}");
    };
    let path = file(
        &cluster,
        "wrong.yaml",
        &WEB.replace("{app: web}\n  template", "{app: other}\n  template"),
    );
    refused(
        muster(&cluster, &["apply", "-f", &path]).await,
        1,
        &[
            "The DaemonSet \"web\" is invalid",
            "spec.template.metadata.labels",
            "`selector` does not match template `labels`",
        ],
    );
    let path = file(&cluster, "typo.yaml", &WEB.replace("image:", "imagee:"));
    refused(
        muster(&cluster, &["apply", "-f", &path]).await,
        1,
        &["spec.template.spec.containers[0].imagee"],
    );
    let path = file(&cluster, "broken.yaml", "apiVersion: apps/v1\nkind: [\n");
    refused(
        muster(&cluster, &["apply", "-f", &path]).await,
        1,
        &["broken.yaml"],
    );
    let path = file(
        &cluster,
        "kind.yaml",
        &WEB.replace("kind: DaemonSet", "kind: DaemonSett"),
    );
    refused(
        muster(&cluster, &["apply", "-f", &path]).await,
        1,
        &["DaemonSett"],
    );
    refused(
        muster(&cluster, &["apply", "-f", "nowhere.yaml"]).await,
        1,
        &["nowhere.yaml"],
    );
    refused(muster(&cluster, &["get", "dragons"]).await, 1, &["dragons"]);
    refused(muster(&cluster, &["frobnicate"]).await, 2, &["frobnicate"]);
    refused(
        muster(&cluster, &["rollout", "status", "ds/nobody"]).await,
        1,
        &["nobody", "not found"],
    );
    let lost = file(
        &cluster,
        "lost.yaml",
        &WEB.replace("  name: web", "  name: web\n  namespace: lost"),
    );
    refused(
        muster(&cluster, &["apply", "-f", &lost]).await,
        1,
        &["namespaces \"lost\" not found", "--create-namespace"],
    );
    assert!(cluster.objects(&muster_model::kind::DAEMON_SET).is_empty());
    let made = muster(&cluster, &["apply", "-f", &lost, "--create-namespace"]).await;
    assert_eq!(
        (made.code, made.out.as_str()),
        (0, "namespace/lost created\ndaemonset.apps/web created\n"),
        "{made:?}"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_server_is_an_error_with_a_way_out() {
    let mut cluster = cluster(&[]).await;
    cluster.stop_server().await;
    let said = muster(&cluster, &["get", "nodes"]).await;
    assert_eq!(said.code, 1);
    assert_eq!(
        said.err,
        format!(
            "error: connection to {} was refused: is the server running, and is the address right?\n",
            cluster.server_address().unwrap()
        )
    );
    cluster.start_server().await.unwrap();
    assert_eq!(muster(&cluster, &["get", "nodes"]).await.code, 0);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_made_by_the_program_lets_a_node_join_and_logs_be_read() {
    let mut cluster = cluster(&[]).await;
    let made = muster(&cluster, &["token", "create"]).await;
    assert_eq!(made.code, 0, "{made:?}");
    let token = made
        .out
        .split_whitespace()
        .find(|word| word.starts_with("muster1."))
        .unwrap()
        .to_owned();
    cluster
        .add_node(NodeOptions::new("n1").token(&token))
        .await
        .unwrap();
    cluster.until_nodes_ready().await;
    let nodes = muster(&cluster, &["get", "nodes", "--no-headers"]).await;
    assert!(
        nodes.out.starts_with("n1 ") && nodes.out.contains(" Ready "),
        "{nodes:?}"
    );

    let behaviour = muster_agent::runtime::memory::Behaviour {
        log_lines: vec!["hello".to_owned(), "world".to_owned()],
        ..Default::default()
    };
    cluster.engine().add_image("talk:1");
    cluster.engine().set_behaviour("talk:1", behaviour);
    let pod = build::pod("talker", "n1").image("talk:1").object();
    cluster.create(&pod).await.unwrap();
    cluster
        .until("it talks", || {
            cluster
                .object(&muster_model::kind::POD, "talker")
                .is_some_and(|pod| muster_testkit::is_ready(&pod))
        })
        .await;
    let said = muster(&cluster, &["logs", "talker", "--tail=1"]).await;
    assert_eq!((said.code, said.out.as_str()), (0, "world\n"), "{said:?}");
    let said = muster(&cluster, &["logs", "nobody"]).await;
    assert_eq!(said.code, 1);
    cluster.stop().await;
}
