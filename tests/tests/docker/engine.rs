//! The engine itself is restarted: a private one, so that nobody else's containers stop.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use muster_agent::runtime::docker::{DockerEngine, SANDBOX_IMAGE};
use muster_model::kind::{NODE, POD};
use muster_testkit::processes::unmount_below;
use muster_testkit::{Fleet, images, is_ready};
use serde_json::json;
use tempfile::TempDir;

use super::{History, IMAGE, daemon_set, pod, restarts, status};

/// How long a daemon may take until it runs containers.
const RUNS_WITHIN: Duration = Duration::from_secs(180);

/// A Docker daemon with directories, a socket and a network of its own.
struct PrivateEngine {
    root: TempDir,
    daemon: Option<Child>,
}

impl PrivateEngine {
    async fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("daemon.json"), "{}").unwrap();
        let mut engine = Self { root, daemon: None };
        engine.start_daemon().await;
        engine
    }

    fn socket(&self) -> PathBuf {
        self.root.path().join("docker.sock")
    }

    async fn start_daemon(&mut self) {
        let at = |name: &str| self.root.path().join(name);
        let log = std::fs::File::create(at("log")).unwrap();
        let daemon = Command::new("unshare")
            .args(["--net", "--", "dockerd", "--storage-driver", "vfs"])
            .args(["--iptables=false", "--ip6tables=false", "--config-file"])
            .arg(at("daemon.json"))
            .arg("--data-root")
            .arg(at("data"))
            .arg("--exec-root")
            .arg(at("exec"))
            .arg("--pidfile")
            .arg(at("pid"))
            .arg("--host")
            .arg(format!("unix://{}", self.socket().display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("unshare (util-linux) and dockerd are installed");
        self.daemon = Some(daemon);
        let give_up = Instant::now() + RUNS_WITHIN;
        while let Err(error) = self.run_a_container().await {
            let log = || std::fs::read_to_string(self.root.path().join("log")).unwrap();
            assert!(Instant::now() < give_up, "{error:#}\n{}", log());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// To its end: an engine that answers does not yet run anything.
    async fn run_a_container(&self) -> anyhow::Result<()> {
        images::ensure_images(&DockerEngine::new(self.socket()), &[IMAGE]).await?;
        let ran = tokio::process::Command::new("docker")
            .arg("--host")
            .arg(format!("unix://{}", self.socket().display()))
            .args(["run", "--rm", IMAGE, "true"])
            .output()
            .await?;
        let words = String::from_utf8_lossy(&ran.stderr);
        anyhow::ensure!(ran.status.success(), "{words}");
        Ok(())
    }

    /// In order, as a service manager stops it: its containers end with it.
    fn stop_daemon(&mut self) {
        let Some(mut daemon) = self.daemon.take() else {
            return;
        };
        let pid = daemon.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let give_up = Instant::now() + Duration::from_secs(40);
        while matches!(daemon.try_wait(), Ok(None)) && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = daemon.kill();
        let _ = daemon.wait();
    }
}

impl Drop for PrivateEngine {
    fn drop(&mut self) {
        self.stop_daemon();
        unmount_below(Path::new(self.root.path()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn na_099_102_after_a_restart_of_the_engine_every_pod_runs_again() {
    let mut engine = PrivateEngine::start().await;
    let mut fleet = Fleet::start_on(&engine.socket(), &[IMAGE]).await.unwrap();
    fleet.add_agent("n1", &[]).await.unwrap();
    fleet.until_nodes_ready().await;
    let node = fleet.node("n1");
    fleet.apply(&daemon_set("web", &json!({}))).await;
    let mut host = pod("host", &node, &json!({}));
    host["spec"]["hostNetwork"] = true.into();
    fleet.apply(&host).await;
    let web = fleet.until_ready("web", 1).await.remove(0);
    let host = fleet.until_pod("host", is_ready).await;

    let history = History::of_pods(&fleet).await;
    engine.stop_daemon();
    fleet
        .eventually("the node says that its engine is away", || async {
            let nodes = fleet.list(&NODE).await;
            (!nodes.iter().all(is_ready)).then_some(())
        })
        .await;
    engine.start_daemon().await;
    for former in [&web, &host] {
        let name = former.name();
        let now = fleet
            .until_pod(name, |pod| is_ready(pod) && restarts(pod) > 0)
            .await;
        assert_eq!((now.uid(), restarts(&now)), (former.uid(), 1), "{name}");
        for version in history.of(name) {
            let waits = status(&version, "/state/waiting/reason");
            assert_ne!(waits, "CrashLoopBackOff", "{version:?}");
        }
    }
    fleet.until_nodes_ready().await;

    // The sandbox's image is deleted by hand, and there is no network to get another from.
    fleet.ok(&["delete", "ds", "web"]).await;
    fleet.ok(&["delete", "pod", "host"]).await;
    fleet
        .eventually("no pod is left", || async {
            fleet.list(&POD).await.is_empty().then_some(())
        })
        .await;
    let docker = DockerEngine::new(engine.socket());
    docker.remove_image(SANDBOX_IMAGE).await.unwrap();
    fleet.apply(&pod("late", &node, &json!({}))).await;
    fleet.until_pod("late", is_ready).await;
    drop(fleet);
}
