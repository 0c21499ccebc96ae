//! Images, ports, memory, paths: what goes wrong is told, and ends by itself.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use muster_agent::runtime::docker::{DockerEngine, socket_path};
use muster_model::kind::POD;
use muster_model::object::Object;
use muster_testkit::ports::{DeafPort, free_port};
use muster_testkit::processes::MusterProcess;
use muster_testkit::{Fleet, images, is_ready};
use serde_json::json;

use super::{History, IMAGE, daemon_set, pod, restarts, shell, status, wait_for_text};

#[tokio::test(flavor = "multi_thread")]
async fn case_b57_b59_b61_host_paths_are_made_as_their_type_says() {
    let fleet = Fleet::with_nodes(&[IMAGE], &["n1"]).await.unwrap();
    let root = fleet.directory().join("host");
    fs::create_dir(&root).unwrap();
    let path = |name: &str| -> PathBuf { root.join(name) };
    let mounts = json!([
        {"name": "file", "mountPath": "/file"}, {"name": "deep", "mountPath": "/deep"},
        {"name": "none", "mountPath": "/none"},
    ]);
    let mut paths = pod("paths", &fleet.node("n1"), &json!({"volumeMounts": mounts}));
    paths["spec"]["volumes"] = json!([
        {"name": "file", "hostPath": {"path": path("f1"), "type": "FileOrCreate"}},
        {"name": "deep", "hostPath": {"path": path("a/b/c"), "type": "DirectoryOrCreate"}},
        {"name": "none", "hostPath": {"path": path("none")}},
    ]);
    fleet.apply(&paths).await;
    let mut wrong = pod(
        "wrong",
        &fleet.node("n1"),
        &json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
    );
    wrong["spec"]["volumes"] =
        json!([{"name": "v", "hostPath": {"path": path("absent"), "type": "Directory"}}]);
    fleet.apply(&wrong).await;
    fleet.until_pod("paths", is_ready).await;
    let file = fs::metadata(path("f1")).unwrap();
    assert!(file.is_file());
    assert_eq!(file.permissions().mode() & 0o7777, 0o644);
    assert_eq!(file.uid(), fs::metadata("/proc/self").unwrap().uid());
    let deep = fs::metadata(path("a/b/c")).unwrap();
    assert!(deep.is_dir());
    assert_eq!(deep.permissions().mode() & 0o7777, 0o755);
    assert!(fs::metadata(path("none")).unwrap().is_dir());
    let words = format!(
        "hostPath type check failed: {} is not a directory",
        path("absent").display()
    );
    fleet
        .eventually("the wrong path is told", || async {
            let told = fleet.events("wrong", "FailedMount").await;
            told.iter().any(|text| text.contains(&words)).then_some(())
        })
        .await;
    assert!(!path("absent").exists());
    fs::create_dir(path("absent")).unwrap();
    fleet.until_pod("wrong", is_ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_b11_a_port_in_use_is_told_and_taken_when_it_is_free() {
    let fleet = Fleet::with_nodes(&[IMAGE], &["n1"]).await.unwrap();
    let port = free_port();
    let ports = json!({"ports": [{"containerPort": 8080, "hostPort": port}]});
    fleet.apply(&daemon_set("first", &ports)).await;
    let first = fleet.until_ready("first", 1).await.remove(0);
    fleet.apply(&daemon_set("second", &ports)).await;
    let text = wait_for_text(&fleet, &["explain", "second"], |text| {
        text.contains(&format!("{port}"))
    })
    .await;
    assert!(text.contains(first.name()), "{text}");
    fleet.ok(&["delete", "ds", "first"]).await;
    fleet.until_ready("second", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_b83_a_container_over_its_memory_limit_is_told_as_such() {
    let fleet = Fleet::with_nodes(&[IMAGE], &["n1"]).await.unwrap();
    let eater = json!({
        "command": shell("exec dd if=/dev/zero of=/dev/null bs=200M count=1"),
        "resources": {"limits": {"memory": "16Mi"}},
    });
    fleet.apply(&pod("eater", &fleet.node("n1"), &eater)).await;
    let told = |pod: &Object| status(pod, "/lastState/terminated/reason") == "OOMKilled";
    let killed = fleet
        .until_pod("eater", |pod| restarts(pod) >= 1 && told(pod))
        .await;
    assert_eq!(*status(&killed, "/lastState/terminated/exitCode"), 137);
    fleet
        .eventually("an event names the limit", || async {
            let text = fleet.cli(&["events", "--for", "pod/eater"]).await.out;
            text.contains("16Mi").then_some(())
        })
        .await;
}

/// An image that the test makes and takes away again.
struct OwnImage {
    engine: DockerEngine,
    reference: String,
}

impl Drop for OwnImage {
    fn drop(&mut self) {
        let _ = std::process::Command::new("docker")
            .args(["rmi", &self.reference])
            .output();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn na_070_an_image_that_no_registry_has_is_waited_for() {
    let fleet = Fleet::with_nodes(&[], &["n1"]).await.unwrap();
    let nobody = DeafPort::new();
    let image = OwnImage {
        engine: DockerEngine::new(
            socket_path(std::env::var("DOCKER_HOST").ok().as_deref()).unwrap(),
        ),
        reference: format!("{}/t:1", nobody.address()),
    };
    let name = &image.reference;
    fleet
        .apply(&pod("p", &fleet.node("n1"), &json!({"image": name})))
        .await;
    let backs_off = |pod: &Object| status(pod, "/state/waiting/reason") == "ImagePullBackOff";
    let waiting = fleet.until_pod("p", backs_off).await;
    let words = status(&waiting, "/state/waiting/message").to_string();
    let start = json!(format!("Back-off pulling image \"{name}\"")).to_string();
    assert!(words.starts_with(start.trim_end_matches('"')), "{words}");
    assert!(words.contains("connection refused"), "{words}");
    fleet
        .eventually("the failed pull is told with its cause", || async {
            let told = fleet.events("p", "Failed").await;
            let why = told.iter().find(|text| text.contains(name));
            why?.contains("connection refused").then_some(())
        })
        .await;
    images::ensure_images(&image.engine, &[name]).await.unwrap();
    fleet.until_pod("p", is_ready).await;
    // Events are told together, a little after what others act on.
    let pulled = fleet
        .eventually("the image's event is told", || async {
            let told = fleet.events("p", "Pulled").await;
            (!told.is_empty()).then_some(told)
        })
        .await;
    assert_eq!(
        pulled,
        [format!(
            "Container image \"{name}\" already present on machine"
        )]
    );
    drop(fleet);
}

#[tokio::test(flavor = "multi_thread")]
async fn na_073_074_a_pod_ends_in_its_grace_or_is_killed_after_it() {
    let fleet = Fleet::with_nodes(&["trap:1"], &["n1"]).await.unwrap();
    let node = fleet.node("n1");
    let trap = json!({"image": "trap:1"});
    let mut polite = pod("polite", &node, &trap);
    polite["spec"]["terminationGracePeriodSeconds"] = 30.into();
    fleet.apply(&polite).await;
    let env = json!([{"name": "HARD", "value": "1"}]);
    let mut stubborn = pod("stubborn", &node, &json!({"image": "trap:1", "env": env}));
    stubborn["spec"]["terminationGracePeriodSeconds"] = 3.into();
    fleet.apply(&stubborn).await;
    fleet.until_pod("polite", is_ready).await;
    fleet.until_pod("stubborn", is_ready).await;
    let history = History::of_pods(&fleet).await;
    let kubeconfig = fleet.kubeconfig().display().to_string();
    let follow = ["--kubeconfig", &kubeconfig, "logs", "polite", "--follow"];
    let log = MusterProcess::start(&follow, &fleet.directory().join("polite.log")).unwrap();
    fleet
        .eventually("the log is followed", || async {
            log.log().contains("started").then_some(())
        })
        .await;
    fleet.ok(&["delete", "pod", "polite", "stubborn"]).await;
    fleet
        .eventually("both are gone", || async {
            fleet.list(&POD).await.is_empty().then_some(())
        })
        .await;
    fleet
        .eventually("the log is followed to its end", || async {
            log.log().contains("term").then_some(())
        })
        .await;
    // The history comes on a way of its own.
    let last = async |name: &str| {
        let ended = |pod: &Object| !status(pod, "/state/terminated").is_null();
        fleet
            .eventually("the end is in the history", || async {
                history.of(name).pop().filter(ended)
            })
            .await
    };
    let (polite, stubborn) = (last("polite").await, last("stubborn").await);
    assert_eq!(*status(&polite, "/state/terminated/exitCode"), 0);
    assert_eq!(
        polite.at("/metadata/deletionGracePeriodSeconds"),
        Some(&json!(30))
    );
    assert_eq!(*status(&stubborn, "/state/terminated/exitCode"), 137);
    assert!(fleet.running("n1").await.is_empty());
}
