//! The agent as a whole over real Docker, against a server in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_agent::runtime::Runtime;
use muster_agent::runtime::docker::{DockerConfig, DockerRuntime};
use muster_agent::runtime::labels::Owner;
use muster_agent::{Agent, AgentConfig, AgentError};
use muster_model::time::SystemClock;
use muster_proto::v1::LogsQuery;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::support::server::{Fake, State};
use super::{IMAGE, images, socket};
use muster_agent::runtime::docker::DockerEngine;

/// How long things may take on a busy machine before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(super) struct RealNode {
    name: String,
    pub(super) server: Fake,
    pub(super) runtime: Arc<DockerRuntime>,
    disk: tempfile::TempDir,
    running: Option<(CancellationToken, JoinHandle<Result<(), AgentError>>)>,
}

impl RealNode {
    pub(super) async fn new(name: &str) -> Self {
        let name = format!("test-{}-{name}", std::process::id());
        images::ensure_images(&DockerEngine::new(socket()), &[IMAGE])
            .await
            .expect("Docker answers and takes an image");
        let config = DockerConfig {
            socket: socket(),
            ..DockerConfig::new(Owner::new(&name, ""), SystemClock::shared())
        };
        let runtime = Arc::new(DockerRuntime::new(config));
        let mut node = Self {
            name,
            server: Fake::start(),
            runtime,
            disk: tempfile::tempdir().unwrap(),
            running: None,
        };
        node.start();
        node.server
            .until("the node is there", |state| state.node.is_some())
            .await;
        node
    }

    fn start(&mut self) {
        let mut config = AgentConfig::new(&self.name, Some(self.disk.path().join("state")));
        config.allow_loopback_node_ip = true;
        config.secrets_on_disk = true;
        let stop = CancellationToken::new();
        let run = Agent::run(
            config,
            Arc::clone(&self.runtime) as Arc<dyn Runtime>,
            SystemClock::shared(),
            Arc::new(self.server.clone()),
            stop.clone(),
        );
        self.running = Some((stop, tokio::spawn(run)));
    }

    async fn stop(&mut self) {
        let (stop, task) = self.running.take().unwrap();
        stop.cancel();
        task.await.unwrap().unwrap();
    }

    pub(super) fn pod(&self, name: &str, spec: Value) -> Value {
        let mut pod = super::support::pod_with(name, spec);
        pod["spec"]["nodeName"] = json!(self.name);
        pod
    }

    /// The log, once it is this one; else what it was after a while.
    async fn log_until(&self, query: LogsQuery, wanted: &str) -> String {
        let mut log = String::new();
        let _ = tokio::time::timeout(PATIENCE, async {
            while log != wanted {
                tokio::time::sleep(LOOK_EVERY).await;
                log = self.server.logs(query.clone()).await.unwrap();
            }
        })
        .await;
        log
    }

    pub(super) async fn delete(&self, uid: &str) {
        self.server.delete_pod(uid, 1);
        let gone = |state: &State| state.gone.iter().any(|gone| gone == uid);
        self.server.until("it is confirmed", gone).await;
        let removed = async {
            while !self.runtime.list_pod(uid).await.unwrap().is_empty() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        if tokio::time::timeout(PATIENCE, removed).await.is_err() {
            panic!("containers of {uid} are left");
        }
    }
}

impl Drop for RealNode {
    fn drop(&mut self) {
        if let Some((stop, _)) = &self.running {
            stop.cancel();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn na_028_na_033_na_057_na_073_a_pod_lives_and_goes_on_real_docker() {
    let mut node = RealNode::new("life").await;
    let map = json!({"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "mapped"}});
    node.server.put_object("configmaps", map);
    let script = "trap 'exit 0' TERM; echo $(NAME) $(IP); cat /m/a; echo; echo x > /e/f; ls /e; \
                  tail -n 1 /etc/hosts; while :; do sleep 0.1; done";
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let container = json!({
        "name": "c", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c"], "args": [script],
        "env": [{"name": "NAME", "valueFrom": field("metadata.name")}, {"name": "IP", "valueFrom": field("status.podIP")}],
        "volumeMounts": [{"name": "m", "mountPath": "/m"}, {"name": "e", "mountPath": "/e"}]});
    let volumes = json!([{"name": "m", "configMap": {"name": "m"}}, {"name": "e", "emptyDir": {}}]);
    let uid = node
        .server
        .put_pod(node.pod("p", json!({"containers": [container], "volumes": volumes})));
    node.server.until_running(&uid).await;
    let status = node.server.status(&uid);
    let ip = status["podIP"].as_str().unwrap().to_owned();
    let query = LogsQuery {
        pod: "p".into(),
        pod_uid: uid.clone(),
        ..LogsQuery::default()
    };
    let wanted = format!("p {ip}\nmapped\nf\n{ip}\tp\n");
    let log = node.log_until(query, &wanted).await;
    assert_eq!(log, wanted);

    let ids = |list: Vec<muster_agent::runtime::ContainerView>| -> Vec<_> {
        list.into_iter().map(|c| (c.id, c.state)).collect()
    };
    let before = ids(node.runtime.list_pod(&uid).await.unwrap());
    node.stop().await;
    let told = node.server.state().status_messages;
    node.start();
    let again = |state: &State| state.registrations == 2;
    node.server.until("it registers again", again).await;
    // It tells its pods' statuses once it has reconciled them with the server's.
    let reconciled = move |state: &State| state.status_messages > told;
    node.server.until("it tells its pods", reconciled).await;
    assert_eq!(ids(node.runtime.list_pod(&uid).await.unwrap()), before);
    assert_eq!(node.server.state().ready_lost, Vec::<String>::new());

    node.delete(&uid).await;
    assert!(!node.disk.path().join("state/pods").join(&uid).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn na_045_a_pod_with_the_hosts_network_is_one_container() {
    let node = RealNode::new("host").await;
    let container = json!({
        "name": "c", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "trap 'exit 0' TERM; head -n 1 /etc/hosts; while :; do sleep 0.1; done"]});
    let began = Instant::now();
    let uid = node
        .server
        .put_pod(node.pod("h", json!({"hostNetwork": true, "containers": [container]})));
    node.server.until_running(&uid).await;
    println!("bound to ready: {:?}", began.elapsed());
    assert_eq!(node.runtime.list_pod(&uid).await.unwrap().len(), 1);
    let status = node.server.status(&uid);
    assert_eq!(status["podIP"], status["hostIP"]);
    let query = LogsQuery {
        pod: "h".into(),
        pod_uid: uid.clone(),
        ..LogsQuery::default()
    };
    let log = node
        .log_until(query, "# Kubernetes-managed hosts file (host network).\n")
        .await;
    assert_eq!(log, "# Kubernetes-managed hosts file (host network).\n");
    node.delete(&uid).await;
}
