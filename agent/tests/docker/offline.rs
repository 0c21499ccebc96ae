//! A whole agent over real Docker, without a server: pods of its checkpoint, adoption, and what people do to containers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_agent::checkpoint::{Checkpoint, PodRecord};
use muster_agent::runtime::labels;
use muster_agent::runtime::{ContainerState, ContainerView, LogOptions};
use muster_agent::worker::memory::Remembered;
use muster_agent::{Agent, AgentConfig, AgentError, Connect, DialError};
use muster_client::Connection;
use muster_model::time::SystemClock;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Docker;

/// An agent that runs until it is told to stop.
struct Running {
    stop: CancellationToken,
    task: JoinHandle<Result<(), AgentError>>,
}

impl Running {
    fn start(docker: &Docker, state: &Path) -> Self {
        let owner = &docker.world.owners[0];
        let config = AgentConfig {
            node_ip: Some([127, 0, 0, 1].into()),
            allow_loopback_node_ip: true,
            ..AgentConfig::new(owner.node.clone(), Some(state.to_owned()))
        };
        let away = || -> BoxFuture<'static, Result<Connection, DialError>> {
            async { Err(DialError::NoToken) }.boxed()
        };
        let connector: Arc<dyn Connect> = Arc::new(away);
        let (stop, runtime) = (CancellationToken::new(), docker.world.nodes[0].clone());
        let work = Agent::run(
            config,
            runtime,
            SystemClock::shared(),
            connector,
            stop.clone(),
        );
        Self {
            stop,
            task: tokio::spawn(work),
        }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

/// Waits until the pod consists of a running sandbox and a running container that are as wanted.
async fn until_runs(
    docker: &Docker,
    wanted: impl Fn(&ContainerView, &ContainerView) -> bool,
) -> (ContainerView, ContainerView) {
    let looked = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            let running: Vec<_> = docker.runtime().list().await.unwrap();
            let running = running
                .into_iter()
                .filter(|view| matches!(view.state, ContainerState::Running { .. }));
            let (sandboxes, containers): (Vec<_>, Vec<_>) = running.partition(|view| {
                view.labels.get(labels::TYPE).map(String::as_str) == Some(labels::TYPE_SANDBOX)
            });
            if let ([sandbox], [container]) = (&sandboxes[..], &containers[..])
                && wanted(sandbox, container)
            {
                return (sandbox.clone(), container.clone());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    match looked.await {
        Ok(pair) => pair,
        Err(_) => panic!(
            "the pod never ran as wanted: {:#?}",
            docker.runtime().list().await
        ),
    }
}

/// Waits until the pod's checkpoint tells of this container.
async fn until_kept(state: &Path, uid: &str, container: &ContainerView) {
    let file = state.join(format!("checkpoint/pods/{uid}.json"));
    let kept = tokio::time::timeout(Duration::from_secs(60), async {
        while !std::fs::read_to_string(&file).is_ok_and(|text| text.contains(&container.id.0)) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    kept.await.expect("the container is in the checkpoint");
}

#[tokio::test]
async fn na_028_092_096_101_an_agent_without_a_server_keeps_its_pod_on_docker() {
    let docker = Docker::new().await;
    let state = tempfile::tempdir().unwrap();
    let uid = "7c1fcd1e-0000-4000-8000-000000000001";
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": uid},
        "spec": {
            "nodeName": docker.world.owners[0].node,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "c", "image": "t:1", "imagePullPolicy": "IfNotPresent",
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    });
    let record = PodRecord {
        object,
        remembered: Remembered::default(),
        boot_id: String::new(),
    };
    Checkpoint::open(state.path())
        .unwrap()
        .put_pod(uid, &record)
        .unwrap();

    let agent = Running::start(&docker, state.path());
    let (sandbox, first) = until_runs(&docker, |_, _| true).await;
    assert!(
        sandbox
            .name
            .starts_with(&format!("k8s_POD_p_default_{uid}_")),
        "{sandbox:?}"
    );
    assert!(
        first.name.starts_with(&format!("k8s_c_p_default_{uid}_")),
        "{first:?}"
    );
    assert_eq!(first.labels[labels::SANDBOX_ID], sandbox.id.0);
    agent.stop().await;

    let agent = Running::start(&docker, state.path());
    let count = |view: &ContainerView| view.labels[labels::RESTART_COUNT].parse::<u32>().unwrap();
    assert_eq!(
        until_runs(&docker, |_, _| true).await,
        (sandbox.clone(), first.clone()),
        "a new agent adopts"
    );
    docker
        .runtime()
        .stop(&first.id, Duration::from_secs(30))
        .await
        .unwrap();
    let (same, second) = until_runs(&docker, |_, container| container.id != first.id).await;
    assert_eq!(
        (&same.id, count(&second)),
        (&sandbox.id, count(&first) + 1),
        "{second:?}"
    );

    docker.runtime().remove(&sandbox.id).await.unwrap();
    let (other, third) = until_runs(&docker, |other, third| {
        other.id != sandbox.id && third.id != second.id
    })
    .await;
    assert!(
        other.name.ends_with("_1") && count(&third) > count(&second),
        "{other:?} {third:?}"
    );
    until_kept(state.path(), uid, &third).await;
    agent.stop().await;

    for container in docker.runtime().list().await.unwrap() {
        docker.runtime().remove(&container.id).await.unwrap();
    }
    let agent = Running::start(&docker, state.path());
    let (_, fourth) = until_runs(&docker, |_, _| true).await;
    assert_eq!(fourth.labels[labels::POD_UID], uid);
    assert_eq!(count(&fourth), count(&third) + 1, "{fourth:?}");
    agent.stop().await;
}

#[tokio::test]
async fn na_045_a_pod_that_shares_nothing_runs_without_a_sandbox() {
    let docker = Docker::new().await;
    let state = tempfile::tempdir().unwrap();
    let uid = "7c1fcd1e-0000-4000-8000-000000000002";
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "h", "namespace": "default", "uid": uid},
        "spec": {
            "nodeName": docker.world.owners[0].node,
            "hostNetwork": true,
            "containers": [{"name": "c", "image": "t:1", "command": ["sh", "-c", "head -n 1 /etc/hosts; exec sleep 60"]}],
        },
    });
    let record = PodRecord {
        object,
        remembered: Remembered::default(),
        boot_id: String::new(),
    };
    Checkpoint::open(state.path())
        .unwrap()
        .put_pod(uid, &record)
        .unwrap();
    let agent = Running::start(&docker, state.path());
    let hosts = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            if let [only] = &docker.runtime().list().await.unwrap()[..]
                && matches!(only.state, ContainerState::Running { .. })
            {
                let lines = docker.log(&only.id, LogOptions::default()).await;
                if let Some(line) = lines.into_iter().next() {
                    assert_eq!(only.labels[labels::CONTAINER_NAME], "c");
                    return line;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert_eq!(
        hosts.await.unwrap(),
        "# Kubernetes-managed hosts file (host network).\n"
    );
    agent.stop().await;
}
