//! The manifests of `examples/` run as they are.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use super::{example, wait_for_text};
use muster_model::kind::{NAMESPACE, NODE};
use muster_model::object::NamespacedName;
use muster_testkit::Fleet;

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane:NoSchedule";

/// A file that others may read while it is there.
struct HostFile(PathBuf);

impl Drop for HostFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_two_log_agents_follow_the_hosts_logs_on_the_workers() {
    let mut fleet = Fleet::start(&["fluent/fluent-bit:3.2", "fluent/fluentd:v1.11-1"])
        .await
        .unwrap();
    let nodes: [(&str, &[&str]); 4] = [
        ("cp", &["--register-with-taints", CONTROL_PLANE]),
        (
            "gpu",
            &[
                "--register-with-taints",
                "gpu=only:NoSchedule",
                "--node-labels",
                "accelerator=gpu",
            ],
        ),
        ("w1", &["--node-labels", "disk=ssd"]),
        ("w2", &["--node-labels", "disk=hdd,zone=shed"]),
    ];
    for (name, flags) in nodes {
        fleet.add_agent(name, flags).await.unwrap();
    }
    fleet.until_nodes_ready().await;

    let log_agent = example("log-agent.yaml");
    let ran = fleet.cli(&["apply", "-f", &log_agent]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.err.contains("namespaces \"logging\" not found"),
        "{ran:?}"
    );
    fleet
        .ok(&["apply", "--create-namespace", "-f", &log_agent])
        .await;
    fleet
        .ok(&["apply", "-f", &example("fluentd-logging.yaml")])
        .await;
    fleet
        .ok(&["rollout", "status", "ds/log-agent", "-n", "logging"])
        .await;
    fleet.ok(&["rollout", "status", "ds/fluentd-logging"]).await;
    assert!(
        fleet
            .resources()
            .get(&NAMESPACE, &NamespacedName::new("", "logging"))
            .await
            .is_ok()
    );

    for (set, namespace) in [("log-agent", "logging"), ("fluentd-logging", "default")] {
        let text = fleet.ok(&["explain", set, "-n", namespace]).await;
        for part in [
            format!("taint {CONTROL_PLANE} is not tolerated"),
            "taint gpu=only:NoSchedule is not tolerated".to_owned(),
            format!(
                "{}: tolerate gpu=only:NoSchedule in spec.template.spec.tolerations, or take the taint off node",
                fleet.node("gpu")
            ),
            format!("{set} should run on 2 of 4 nodes, and is available on 2."),
        ] {
            assert!(text.contains(&part), "{part:?} is not in\n{text}");
        }
    }
    for (name, containers) in [("cp", 0), ("gpu", 0), ("w1", 2), ("w2", 2)] {
        assert_eq!(fleet.running(name).await.len(), containers, "{name}");
    }

    // Written after the pods started, as everything is that matters.
    let id = fleet.node("line");
    let file = HostFile(PathBuf::from(format!("/var/log/muster-test-{id}.log")));
    let mut log = fs::File::create(&file.0).unwrap();
    writeln!(log, "hello from {id}").unwrap();
    for (set, namespace) in [("log-agent", "logging"), ("fluentd-logging", "default")] {
        let target = format!("ds/{set}");
        let line = format!("{}: hello from {id}", file.0.display());
        let command = ["logs", &target, "-n", namespace, "--all-pods", "--tail=-1"];
        wait_for_text(&fleet, &command, |text| text.matches(&line).count() == 2).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_exporter_tells_of_the_host() {
    let fleet = Fleet::with_nodes(&["prom/node-exporter:v1.5.0"], &["n1"])
        .await
        .unwrap();
    fleet
        .ok(&["apply", "-f", &example("node-exporter.yaml")])
        .await;
    fleet.until_ready("node-exporter", 1).await;
    let metrics = fleet
        .eventually("the exporter answers", || async {
            let address = "127.0.0.1:9100".parse().unwrap();
            let text = super::http_get(address, "/metrics").await.ok()?;
            text.contains("node_uname_info").then_some(text)
        })
        .await;
    let total: f64 = fs::read_to_string("/proc/meminfo")
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
        .unwrap();
    let shown: f64 = metrics
        .lines()
        .find_map(|line| line.strip_prefix("node_memory_MemTotal_bytes "))
        .and_then(|number| number.parse().ok())
        .unwrap();
    assert_eq!(shown, total * 1024.0);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(
        metrics.contains(&format!("release=\"{}\"", release.trim())),
        "the host's kernel"
    );
    // Containers have a root of their own without its options: this one is the host's, seen through the mount.
    assert!(metrics.contains("node_filesystem_size_bytes"), "{metrics}");
    assert_eq!(fleet.list(&NODE).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_cannot_be_created_is_explained() {
    let fleet = Fleet::with_nodes(&[], &["n1"]).await.unwrap();
    let mut set = super::daemon_set("vip", &serde_json::json!({}));
    set["spec"]["template"]["spec"]["priorityClassName"] = "nosuch".into();
    fleet.apply(&set).await;
    let why = "no PriorityClass with name nosuch was found";
    wait_for_text(&fleet, &["explain", "vip"], |text| text.contains(why)).await;
}
