//! A cluster of real processes on the real Docker engine: one server, several agents that share the engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use muster_agent::runtime::docker::{DockerConfig, DockerEngine, DockerRuntime, socket_path};
use muster_agent::runtime::labels::{self, Owner};
use muster_agent::runtime::{ContainerState, ContainerView, Runtime};
use muster_client::{Connection, ContextFlags, Environment, ListOptions, Resources};
use muster_model::kind::{EVENT, Kind, POD};
use muster_model::object::{NamespacedName, Object};
use muster_model::time::SystemClock;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::images;
use crate::ports::free_port;
use crate::processes::{MusterProcess, Ran, unmount_below};
use crate::wait::is_ready;

/// How long things may take on a busy machine before a test gives up.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// An agent, running or not.
struct AgentProcess {
    arguments: Vec<String>,
    process: Option<MusterProcess>,
}

/// Server and agents as child processes. Dropping it kills them and removes every container of its nodes.
pub struct Fleet {
    id: String,
    socket: PathBuf,
    listen: String,
    server: Option<MusterProcess>,
    admin: Connection,
    agents: BTreeMap<String, AgentProcess>,
    root: TempDir,
}

impl Fleet {
    /// A server without nodes, on the engine of `DOCKER_HOST` or the usual one, which has these images.
    ///
    /// # Errors
    /// Whatever stands in the way.
    pub async fn start(images: &[&str]) -> anyhow::Result<Self> {
        let socket = socket_path(std::env::var("DOCKER_HOST").ok().as_deref())?;
        Self::start_on(&socket, images).await
    }

    /// The same on the engine behind this socket.
    ///
    /// # Errors
    /// Whatever stands in the way.
    pub async fn start_on(socket: &Path, images: &[&str]) -> anyhow::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        images::ensure_images(&DockerEngine::new(socket), images).await?;
        let root = tempfile::tempdir()?;
        let listen = format!("127.0.0.1:{}", free_port());
        let server = start_server(root.path(), &listen)?;
        let admin = connect(&server, root.path()).await?;
        Ok(Self {
            id: format!(
                "fleet-{}-{}",
                std::process::id(),
                COUNT.fetch_add(1, Ordering::Relaxed)
            ),
            socket: socket.to_owned(),
            listen,
            server: Some(server),
            admin,
            agents: BTreeMap::new(),
            root,
        })
    }

    /// A fleet with plain nodes of these names, all Ready.
    ///
    /// # Errors
    /// Whatever stands in the way.
    pub async fn with_nodes(images: &[&str], names: &[&str]) -> anyhow::Result<Self> {
        let mut fleet = Self::start(images).await?;
        for name in names {
            fleet.add_agent(name, &[]).await?;
        }
        fleet.until_nodes_ready().await;
        Ok(fleet)
    }

    /// Starts an agent with a token of its own. Its node is called [`Fleet::node`].
    ///
    /// # Errors
    /// When no token is to be had, or the process does not start.
    pub async fn add_agent(&mut self, name: &str, more: &[&str]) -> anyhow::Result<()> {
        let token = self.ok(&["token", "create", "--print=token"]).await;
        let mut arguments = [
            "agent",
            "--server",
            &self.listen,
            "--token",
            token.trim(),
            "--node-ip",
            "127.0.0.1",
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.extend(["--node-name".to_owned(), self.node(name)]);
        arguments.extend([
            "--state-dir".to_owned(),
            self.state_dir(name).display().to_string(),
        ]);
        arguments.extend([
            "--docker-host".to_owned(),
            format!("unix://{}", self.socket.display()),
        ]);
        arguments.extend(more.iter().map(|&word| word.to_owned()));
        let agent = AgentProcess {
            arguments,
            process: None,
        };
        self.agents.insert(name.to_owned(), agent);
        self.start_agent(name)
    }

    /// The node of an agent: unique on the engine.
    pub fn node(&self, name: &str) -> String {
        format!("{}-{name}", self.id)
    }

    /// Where an agent keeps its state.
    pub fn state_dir(&self, name: &str) -> PathBuf {
        self.root.path().join(format!("agent-{name}"))
    }

    /// A directory of the fleet's own, removed with it.
    pub fn directory(&self) -> &Path {
        self.root.path()
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        kubeconfig(self.root.path())
    }

    /// Where the server listens.
    pub fn address(&self) -> &str {
        &self.listen
    }

    /// Kills the server as `kill -9` does.
    pub fn kill_server(&mut self) {
        self.server = None;
    }

    /// Starts the server again, on its old port and data.
    ///
    /// # Errors
    /// When it does not answer in time.
    pub async fn start_server(&mut self) -> anyhow::Result<()> {
        let server = start_server(self.root.path(), &self.listen)?;
        self.admin = connect(&server, self.root.path()).await?;
        self.server = Some(server);
        Ok(())
    }

    /// Kills an agent as `kill -9` does.
    pub fn kill_agent(&mut self, name: &str) {
        if let Some(agent) = self.agents.get_mut(name) {
            agent.process = None;
        }
    }

    /// Starts an agent that was killed, with its former arguments.
    ///
    /// # Errors
    /// When there is none of that name, or it does not start.
    pub fn start_agent(&mut self, name: &str) -> anyhow::Result<()> {
        let log = self.root.path().join(format!("agent-{name}.log"));
        let agent = self.agents.get_mut(name).context("no such agent")?;
        agent.process = Some(MusterProcess::start(&agent.arguments, &log)?);
        Ok(())
    }

    /// What an agent has logged.
    pub fn agent_log(&self, name: &str) -> String {
        let log = self.root.path().join(format!("agent-{name}.log"));
        std::fs::read_to_string(log).unwrap_or_default()
    }

    /// What the server has logged.
    pub fn server_log(&self) -> String {
        std::fs::read_to_string(self.root.path().join("server.log")).unwrap_or_default()
    }

    /// Runs `muster ARGS` as the administrator.
    ///
    /// # Panics
    /// When it cannot be run at all.
    pub async fn cli(&self, arguments: &[&str]) -> Ran {
        let kubeconfig = self.kubeconfig().display().to_string();
        let mut all = vec!["--kubeconfig", &kubeconfig];
        all.extend(arguments);
        match MusterProcess::cli(&all).await {
            Ok(ran) => ran,
            Err(error) => panic!("{arguments:?}: {error:#}"),
        }
    }

    /// The same for a command that must succeed; what it printed.
    ///
    /// # Panics
    /// When it does not succeed.
    pub async fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.cli(arguments).await;
        assert_eq!(ran.code, 0, "{arguments:?}\n{}{}", ran.out, ran.err);
        ran.out
    }

    /// Applies a manifest with the CLI.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn apply(&self, manifest: &Value) -> String {
        let path = self.root.path().join("apply.json");
        match std::fs::write(&path, manifest.to_string()) {
            Ok(()) => self.ok(&["apply", "-f", &path.display().to_string()]).await,
            Err(error) => panic!("cannot write {}: {error}", path.display()),
        }
    }

    /// The administrator's calls on objects.
    pub fn resources(&self) -> Resources {
        self.admin.resources()
    }

    /// Every object of a kind; none while the server does not answer.
    pub async fn list(&self, kind: &Kind) -> Vec<Object> {
        let listed = self
            .resources()
            .list(kind, "", &ListOptions::default())
            .await;
        listed.map(|list| list.items).unwrap_or_default()
    }

    /// An object of `default`, if the server answers and has it.
    pub async fn find(&self, kind: &Kind, name: &str) -> Option<Object> {
        let key = NamespacedName::new("default", name);
        self.resources().get(kind, &key).await.ok()
    }

    /// The pods with the label `app: NAME`.
    pub async fn pods(&self, app: &str) -> Vec<Object> {
        let mut pods = self.list(&POD).await;
        pods.retain(|pod| pod.label("app") == Some(app));
        pods
    }

    /// The messages of the events about an object with this reason.
    pub async fn events(&self, object: &str, reason: &str) -> Vec<String> {
        let events = self.list(&EVENT).await;
        let about = |event: &&Object| {
            event.text_at("/involvedObject/name") == object && event.text_at("/reason") == reason
        };
        let message = |event: &Object| event.text_at("/message").to_owned();
        events.iter().filter(about).map(message).collect()
    }

    /// An agent's containers as the engine has them.
    pub fn runtime(&self, name: &str) -> DockerRuntime {
        self.runtime_of(&self.node(name))
    }

    fn runtime_of(&self, node: &str) -> DockerRuntime {
        let config = DockerConfig::new(Owner::new(node, ""), SystemClock::shared());
        DockerRuntime::new(DockerConfig {
            socket: self.socket.clone(),
            ..config
        })
    }

    /// The running containers of a node that are no sandboxes.
    pub async fn running(&self, name: &str) -> Vec<ContainerView> {
        let mut all = self.runtime(name).list().await.unwrap_or_default();
        all.retain(|view| {
            matches!(view.state, ContainerState::Running { .. })
                && view.labels.get(labels::TYPE).map(String::as_str) == Some(labels::TYPE_CONTAINER)
        });
        all
    }

    /// Looks again and again until `look` answers something.
    ///
    /// # Panics
    /// When it has not for long: with what was waited for and what the cluster looks like.
    pub async fn eventually<T, F, Fut>(&self, what: &str, mut look: F) -> T
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Option<T>>,
    {
        let give_up = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look().await {
                return found;
            }
            if Instant::now() >= give_up {
                panic!(
                    "waited {PATIENCE:?} in vain: {what}\n{}",
                    self.report().await
                );
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until every agent's node is Ready.
    pub async fn until_nodes_ready(&self) {
        self.eventually("every node is Ready", || async {
            let nodes = self.list(&muster_model::kind::NODE).await;
            (nodes.len() == self.agents.len() && nodes.iter().all(is_ready)).then_some(())
        })
        .await;
    }

    /// Waits until `count` pods of an app are Ready and no other pod of it is left.
    pub async fn until_ready(&self, app: &str, count: usize) -> Vec<Object> {
        self.eventually(&format!("{count} pods of {app} are Ready"), || async {
            let pods = self.pods(app).await;
            (pods.len() == count && pods.iter().all(is_ready)).then_some(pods)
        })
        .await
    }

    /// Waits until a pod of `default` is as wanted.
    pub async fn until_pod(&self, name: &str, wanted: impl Fn(&Object) -> bool) -> Object {
        self.eventually(&format!("pod {name} is as wanted"), || async {
            self.find(&POD, name).await.filter(|pod| wanted(pod))
        })
        .await
    }

    /// What the cluster looks like, and the last lines of every log.
    async fn report(&self) -> String {
        let mut text = String::new();
        for arguments in [
            ["get", "nodes", "-A", "-o=wide"].as_slice(),
            &["get", "pods", "-A", "-o=wide"],
            &["events", "-A"],
        ] {
            let ran = self.cli(arguments).await;
            text.push_str(&format!("# {arguments:?}\n{}{}", ran.out, ran.err));
        }
        for pod in self.list(&POD).await {
            let statuses = pod.at("/status/containerStatuses");
            text.push_str(&format!("# {}: {:?}\n", pod.name(), statuses));
        }
        text.push_str(&format!("# server\n{}", tail(&self.server_log())));
        for name in self.agents.keys() {
            let log = self.agent_log(name);
            text.push_str(&format!("# agent {name}\n{}", tail(&log)));
        }
        text
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // The agents first: they would start what is removed again.
        let names: Vec<_> = self.agents.keys().cloned().collect();
        self.agents.clear();
        self.server = None;
        let nodes: Vec<_> = names.iter().map(|name| self.runtime(name)).collect();
        // A thread with a runtime of its own: the test's is in the middle of ending, perhaps by a panic.
        let cleaner = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                for node in nodes {
                    for container in node.list().await.unwrap_or_default() {
                        let _ = node.remove(&container.id).await;
                    }
                }
            });
        });
        let _ = cleaner.join();
        unmount_below(self.root.path());
    }
}

fn kubeconfig(root: &Path) -> PathBuf {
    root.join("server/admin.kubeconfig")
}

fn start_server(root: &Path, listen: &str) -> anyhow::Result<MusterProcess> {
    let data = root.join("server").display().to_string();
    let arguments = ["server", "--data-dir", &data, "--listen", listen];
    MusterProcess::start(&arguments, &root.join("server.log"))
}

/// Connects as the administrator as soon as the server answers.
async fn connect(server: &MusterProcess, root: &Path) -> anyhow::Result<Connection> {
    let flags = ContextFlags {
        kubeconfig: Some(kubeconfig(root)),
        ..ContextFlags::default()
    };
    let give_up = Instant::now() + PATIENCE;
    loop {
        let connected = async {
            let target = muster_client::context::resolve(&flags, &Environment::default())?;
            let connection = target.connect().await?;
            let options = ListOptions::default();
            connection.resources().list(&POD, "", &options).await?;
            anyhow::Ok(connection)
        };
        match connected.await {
            Ok(connection) => return Ok(connection),
            Err(error) if Instant::now() >= give_up => {
                bail!("the server does not answer: {error:#}\n{}", server.log())
            }
            Err(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    let last = &lines[lines.len().saturating_sub(30)..];
    last.iter().map(|line| format!("  {line}\n")).collect()
}
