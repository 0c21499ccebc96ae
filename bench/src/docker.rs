//! From a bound pod to its running container, against the same container started by bare Docker calls.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_agent::runtime::docker::{DockerEngine, socket_path};
use muster_client::{Connection, DeleteOptions, ListOptions, WriteOptions};
use muster_model::kind::POD;
use muster_model::object::{NamespacedName, Object};
use muster_testkit::images::ensure_images;
use serde::Serialize;
use serde_json::json;

use crate::bare::Bare;
use crate::figures::{Report, Spread, complain, row, table};
use crate::part::Part;
use crate::site::{Site, StoreKind};
use crate::view::View;

const IMAGE: &str = "local/idle:v1";
const NAMESPACE: &str = "default";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often each is started; the two take turns
    #[arg(long, default_value_t = 20)]
    runs: usize,
    /// The muster binary to measure, instead of the same libraries in this one
    #[arg(long, value_name = "FILE")]
    muster: Option<PathBuf>,
}

/// Both shapes.
#[derive(Debug, Serialize)]
pub(crate) struct DockerReport {
    runs: usize,
    shapes: Vec<ShapeReport>,
}

#[derive(Debug, Serialize)]
struct ShapeReport {
    shape: &'static str,
    /// Bare Docker calls that make it.
    calls: u32,
    /// From before the pod's create call to the engine's `StartedAt`.
    agent: Spread,
    /// From before the first bare call to the engine's `StartedAt`.
    bare: Spread,
    /// Median over median.
    ratio: f64,
    /// The same two as seen by looking at the container.
    agent_seen: Spread,
    bare_seen: Spread,
    ratio_seen: f64,
}

/// A node of this machine: a server, an agent over Docker, and the engine beside them.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) server: Part,
    pub(crate) agent: Part,
    pub(crate) connection: Connection,
    pub(crate) bare: Bare,
    site: Site,
}

impl Node {
    /// Starts server and agent, and waits until the node is Ready.
    pub(crate) async fn start(directory: &Path, muster: Option<&Path>) -> anyhow::Result<Self> {
        let socket = socket_path(std::env::var("DOCKER_HOST").ok().as_deref())?;
        let engine = DockerEngine::new(&socket);
        ensure_images(&engine, &[IMAGE]).await?;
        let name = format!("bench-{}", std::process::id());
        let bare = Bare::new(&socket, &name)?;
        let site = Site::open(directory)?;
        let (server, address) = match muster {
            Some(muster) => site.start_muster_server(muster).await?,
            None => site.start_server(StoreKind::Sled).await?,
        };
        let connection = site.admin(&address).await?;
        let mut view = View::of_nodes(&connection).await?;
        let agent = match muster {
            Some(muster) => site.start_muster_agent(muster, &address, &name)?,
            None => site.start_agent(&address, &name).await?,
        };
        view.until("the node Ready", |world| world.ready_nodes() == 1)
            .await?;
        Ok(Self {
            name,
            server,
            agent,
            connection,
            bare,
            site,
        })
    }

    /// Makes a bound pod; answers its uid.
    pub(crate) async fn create(&self, name: &str, host_network: bool) -> anyhow::Result<String> {
        let tree = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "bench"}},
            "spec": {
                "nodeName": self.name,
                "hostNetwork": host_network,
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
                    "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}},
                }],
            },
        });
        let made = self
            .connection
            .resources()
            .create(&POD, &Object::from_value(tree)?, &WriteOptions::default())
            .await
            .context("cannot create the pod")?;
        Ok(made.object.uid().to_owned())
    }

    /// Deletes a pod and waits until it is gone.
    pub(crate) async fn delete(&self, name: &str) -> anyhow::Result<()> {
        let only = ListOptions {
            field_selector: format!("metadata.name={name}"),
            ..ListOptions::default()
        };
        let mut view = View::of_pods(&self.connection, &only).await?;
        let key = NamespacedName::new(NAMESPACE, name);
        self.connection
            .resources()
            .delete(&POD, &key, &DeleteOptions::default())
            .await
            .context("cannot delete the pod")?;
        view.until("the pod gone", |world| world.pods.is_empty())
            .await?;
        Ok(())
    }

    /// Stops everything and removes what is left on the engine, however the benchmark went.
    pub(crate) async fn stop<T>(self, outcome: anyhow::Result<T>) -> anyhow::Result<T> {
        let stopped = self.agent.stop().await.and(self.server.stop().await);
        let cleaned = self.bare.clean(Some(&self.name)).await;
        let found = outcome?;
        stopped.and(cleaned)?;
        Ok(found)
    }

    /// The name of a pod's only container on the engine.
    pub(crate) fn container(pod: &str, uid: &str) -> String {
        format!("k8s_main_{pod}_{NAMESPACE}_{uid}_0")
    }
}

/// Measures both shapes.
pub(crate) async fn run(args: Args) -> anyhow::Result<DockerReport> {
    let directory = tempfile::tempdir()?;
    let node = Node::start(directory.path(), args.muster.as_deref()).await?;
    let runs = args.runs.max(1);
    let measured = async {
        let host = Box::pin(measure(&node, true, runs)).await?;
        let own = Box::pin(measure(&node, false, runs)).await?;
        anyhow::Ok(vec![host, own])
    };
    let outcome = measured.await;
    let shapes = node.stop(outcome).await?;
    Ok(DockerReport { runs, shapes })
}

async fn measure(node: &Node, host_network: bool, runs: usize) -> anyhow::Result<ShapeReport> {
    let (shape, calls) = if host_network {
        ("host network: one container", 2)
    } else {
        ("own network: sandbox and container", 4)
    };
    complain(shape);
    // It stays while the others come and go: the bare ones use its files.
    let pattern = if host_network {
        "pattern-host"
    } else {
        "pattern-own"
    };
    let uid = node.create(pattern, host_network).await?;
    node.bare.running(&Node::container(pattern, &uid)).await?;
    let wanted = node.bare.shape_of(&uid).await?;
    let clock = node.site.clock.clone();
    let (mut agent, mut agent_seen) = (Vec::new(), Vec::new());
    let (mut bare, mut bare_seen) = (Vec::new(), Vec::new());
    let since = |from, to: muster_model::time::Timestamp| {
        Duration::try_from(to.duration_since(from)).unwrap_or_default()
    };
    for run in 0..runs {
        let name = format!("run-{run}");
        let (wall, began) = (clock.now(), Instant::now());
        let uid = node.create(&name, host_network).await?;
        let started = node.bare.running(&Node::container(&name, &uid)).await?;
        agent.push(since(wall, started.at));
        agent_seen.push(started.seen.duration_since(began));
        node.delete(&name).await?;

        let name = format!("{}-{run}", node.name);
        let (wall, began) = (clock.now(), Instant::now());
        let id = node.bare.start(&wanted, &name).await?;
        let started = node.bare.running(&id).await?;
        bare.push(since(wall, started.at));
        bare_seen.push(started.seen.duration_since(began));
        node.bare.clean(None).await?;
    }
    node.delete(pattern).await?;
    let (agent, bare) = (Spread::of(&agent), Spread::of(&bare));
    let (agent_seen, bare_seen) = (Spread::of(&agent_seen), Spread::of(&bare_seen));
    Ok(ShapeReport {
        shape,
        calls,
        agent,
        bare,
        ratio: agent.median_ms / bare.median_ms,
        agent_seen,
        bare_seen,
        ratio_seen: agent_seen.median_ms / bare_seen.median_ms,
    })
}

impl Report for DockerReport {
    fn text(&self) -> String {
        let mut rows = vec![row([
            "SHAPE",
            "BARE CALLS",
            "AGENT ms",
            "BARE ms",
            "RATIO",
            "AGENT SEEN ms",
            "BARE SEEN ms",
            "RATIO",
        ])];
        rows.extend(self.shapes.iter().map(|shape| {
            row([
                shape.shape,
                &shape.calls.to_string(),
                &shape.agent.text(),
                &shape.bare.text(),
                &format!("{:.2}", shape.ratio),
                &shape.agent_seen.text(),
                &shape.bare_seen.text(),
                &format!("{:.2}", shape.ratio_seen),
            ])
        }));
        let runs = self.runs;
        format!(
            "{runs} runs, taking turns; median (min to max)\n\n{}",
            table(&rows)
        )
    }
}
