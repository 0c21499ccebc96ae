//! The same container by bare Docker calls: what an agent's start is measured against.
//!
//! The shape (image, limits, mounts, log driver, namespaces) is read off a pod's containers that the agent has made;
//! only names and labels differ, so that no agent takes them for its own.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use bollard::models::{ContainerCreateBody, ContainerState};
use bollard::query_parameters::{
    CreateContainerOptions, ListContainersOptions, RemoveContainerOptions,
};
use bollard::{ClientVersion, Docker};
use muster_agent::runtime::labels::{NODE, POD_UID, SANDBOX_CONTAINER_NAME};
use muster_model::time::{self, Timestamp};

/// Marks the containers of this benchmark.
const LABEL: &str = "bench.muster.dev/run";
/// Between two looks at a container that is to start.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// No start takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The API of the oldest engine that agents work with.
const API: ClientVersion = ClientVersion {
    major_version: 1,
    minor_version: 41,
};

/// The engine, without anything of ours in between.
pub(crate) struct Bare {
    docker: Docker,
    /// Whose containers these are.
    run: String,
}

/// The containers of a pod: one, or a sandbox and one that joins it.
pub(crate) struct Shape {
    sandbox: Option<ContainerCreateBody>,
    container: ContainerCreateBody,
}

/// When a container was first seen running.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Started {
    /// As the engine says.
    pub(crate) at: Timestamp,
    /// When looking at it showed it.
    pub(crate) seen: std::time::Instant,
}

impl Bare {
    /// On this socket; `run` tells this benchmark's containers from others.
    pub(crate) fn new(socket: &Path, run: &str) -> anyhow::Result<Self> {
        let docker = Docker::connect_with_unix(&socket.to_string_lossy(), 120, &API)?;
        Ok(Self {
            docker,
            run: run.to_owned(),
        })
    }

    /// Reads the shape off a running pod.
    pub(crate) async fn shape_of(&self, pod_uid: &str) -> anyhow::Result<Shape> {
        let containers = self.of_label(&format!("{POD_UID}={pod_uid}")).await?;
        let (mut sandbox, mut container) = (None, None);
        for id in containers {
            let found = self.docker.inspect_container(&id, None).await?;
            let name = found.name.clone().unwrap_or_default();
            let is_sandbox = name.contains(&format!("k8s_{SANDBOX_CONTAINER_NAME}_"));
            let config = found
                .config
                .context("a container without a configuration")?;
            let mut body: ContainerCreateBody =
                serde_json::from_value(serde_json::to_value(config)?)?;
            body.host_config = found.host_config;
            // It follows from the network where that is shared, and is the engine's choice where not.
            body.hostname = None;
            body.domainname = None;
            body.labels = Some(HashMap::from([(LABEL.to_owned(), self.run.clone())]));
            if is_sandbox {
                sandbox = Some(body);
            } else {
                container = Some(body);
            }
        }
        let container = container.context("the pod has no container")?;
        Ok(Shape { sandbox, container })
    }

    /// Starts that shape: create and start for each of its containers. Answers the container that matters.
    pub(crate) async fn start(&self, shape: &Shape, name: &str) -> anyhow::Result<String> {
        let mut container = shape.container.clone();
        if let Some(sandbox) = &shape.sandbox {
            let id = self
                .make(&format!("{name}-sandbox"), sandbox.clone())
                .await?;
            if let Some(host) = &mut container.host_config {
                let joined = Some(format!("container:{id}"));
                for mode in [
                    &mut host.network_mode,
                    &mut host.ipc_mode,
                    &mut host.pid_mode,
                ] {
                    if mode
                        .as_deref()
                        .is_some_and(|mode| mode.starts_with("container:"))
                    {
                        mode.clone_from(&joined);
                    }
                }
            }
        }
        self.make(name, container).await
    }

    async fn make(&self, name: &str, body: ContainerCreateBody) -> anyhow::Result<String> {
        let options = CreateContainerOptions {
            name: Some(name.to_owned()),
            platform: String::new(),
        };
        let made = self.docker.create_container(Some(options), body).await?;
        self.docker.start_container(&made.id, None).await?;
        Ok(made.id)
    }

    /// Looks until this container runs.
    pub(crate) async fn running(&self, name: &str) -> anyhow::Result<Started> {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            // Not there yet is the usual answer at first.
            let found = self.docker.inspect_container(name, None).await.ok();
            let state = found.and_then(|found| found.state);
            if let Some(at) = state.as_ref().and_then(started_at) {
                let seen = std::time::Instant::now();
                return Ok(Started { at, seen });
            }
            if tokio::time::Instant::now() > end {
                bail!("container {name} does not run after {PATIENCE:?}");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Removes the bare containers of this run, and with `node` the containers of that node.
    pub(crate) async fn clean(&self, node: Option<&str>) -> anyhow::Result<()> {
        let mut left = self.of_label(&format!("{LABEL}={}", self.run)).await?;
        if let Some(node) = node {
            left.extend(self.of_label(&format!("{NODE}={node}")).await?);
        }
        for id in left {
            let options = RemoveContainerOptions {
                force: true,
                v: true,
                ..RemoveContainerOptions::default()
            };
            self.docker.remove_container(&id, Some(options)).await?;
        }
        Ok(())
    }

    async fn of_label(&self, label: &str) -> anyhow::Result<Vec<String>> {
        let options = ListContainersOptions {
            all: true,
            filters: Some(HashMap::from([(
                "label".to_owned(),
                vec![label.to_owned()],
            )])),
            ..ListContainersOptions::default()
        };
        let found = self.docker.list_containers(Some(options)).await?;
        Ok(found
            .into_iter()
            .filter_map(|container| container.id)
            .collect())
    }
}

fn started_at(state: &ContainerState) -> Option<Timestamp> {
    let running = state.running == Some(true);
    state
        .started_at
        .as_deref()
        .filter(|_| running)
        .and_then(time::parse)
}
