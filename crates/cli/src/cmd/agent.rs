//! `muster agent`: a node.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use muster_agent::config::parse_taint;
use muster_agent::runtime::Runtime;
use muster_agent::runtime::docker::{DockerConfig, DockerRuntime, socket_path};
use muster_agent::runtime::labels::Owner;
use muster_agent::runtime::memory::{MemoryEngine, MemoryRuntime};
use muster_agent::{Agent, AgentConfig, Amounts, Connect, DialError, ServerConnector};
use muster_client::{Environment, ServerAddress};
use muster_model::k8s::api::core::v1::Taint;
use muster_model::time::SharedClock;
use muster_pki::JoinToken;
use tokio_util::sync::CancellationToken;

use super::chain;
use crate::args::LogFormat;
use crate::failure::{Failure, Outcome};
use crate::session::Session;
use crate::signals;

/// The state directory of an agent that runs as root.
const SYSTEM_STATE_DIR: &str = "/var/lib/muster-agent";

/// What runs containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum RuntimeKind {
    /// The Docker engine of this machine
    #[default]
    Docker,
    /// Nothing: containers are only pretended, for trying things out
    Memory,
}

/// How the agent runs.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  muster agent --server 192.0.2.10:7443 --token muster1.x7k2pa...
                                               join (`muster token create` prints this line)
  muster agent --server muster.lan:7443        later: the node has its own certificate by then
  muster agent --server a:7443,b:7443 --node-labels disk=ssd --system-reserved cpu=100m,memory=128Mi")]
pub(crate) struct AgentArgs {
    /// The join token; only needed the first time
    #[arg(
        long,
        value_name = "TOKEN",
        env = "MUSTER_TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,
    /// A file with the join token
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// Where the node keeps its certificate and what it must not forget
    /// [default: /var/lib/muster-agent as root, else ~/.local/share/muster-agent]
    #[arg(long, value_name = "DIR", env = "MUSTER_STATE_DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    node: NodeArgs,
    /// text or json
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
}

/// What the node is.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Node")]
pub(crate) struct NodeArgs {
    /// The node's name [default: the host's]
    #[arg(long, value_name = "NAME", env = "MUSTER_NODE_NAME")]
    node_name: Option<String>,
    /// Labels of the node, such as disk=ssd,zone=shed
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    node_labels: Vec<(String, String)>,
    /// Taints the node is first made with, such as gpu=only:NoSchedule
    #[arg(long, value_name = "TAINT", value_delimiter = ',', value_parser = taint)]
    register_with_taints: Vec<Taint>,
    /// False: the node is first made cordoned
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    register_schedulable: bool,
    /// The node's address [default: found out]
    #[arg(long, value_name = "IP")]
    node_ip: Option<IpAddr>,
    /// The machine's id at its provider
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    provider_id: String,
    /// What runs containers: docker or memory
    #[arg(long, value_enum, default_value_t, value_name = "RUNTIME")]
    runtime: RuntimeKind,
    /// The engine's socket, as unix:///path
    #[arg(long, value_name = "URL", env = "DOCKER_HOST")]
    docker_host: Option<String>,
    /// Less than the machine has, such as cpu=2,memory=1Gi
    #[arg(long, value_name = "AMOUNTS", default_value = "", hide_default_value = true, value_parser = amounts)]
    capacity: Amounts,
    /// Kept for the host, such as cpu=100m,memory=128Mi
    #[arg(long, value_name = "AMOUNTS", default_value = "", hide_default_value = true, value_parser = amounts)]
    system_reserved: Amounts,
    /// Kept for the agent and the engine
    #[arg(long, value_name = "AMOUNTS", default_value = "", hide_default_value = true, value_parser = amounts)]
    kube_reserved: Amounts,
    /// Most pods
    #[arg(long, value_name = "COUNT", default_value_t = 110)]
    max_pods: i64,
    /// Addresses of a cluster DNS, for pods with that DNS policy
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    cluster_dns: Vec<String>,
    /// Its domain
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    cluster_domain: String,
    /// The resolver file that pods inherit
    #[arg(long, value_name = "FILE", default_value = "/etc/resolv.conf")]
    resolv_conf: PathBuf,
    /// Images pulled at a time; one more may be pulled early, for a revision to come
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    max_parallel_image_pulls: usize,
    /// Containers started at a time; 0: twice the processors
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    max_parallel_starts: usize,
    /// With the registry out of reach a local image serves imagePullPolicy Always, too
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    offline_image_fallback: bool,
    /// Pods without a seccomp profile get the engine's default one
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    seccomp_default: bool,
    /// Sysctls allowed beside the safe ones, such as net.core.somaxconn,kernel.msg*
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    allowed_unsafe_sysctls: Vec<String>,
    /// Secrets may be written to disk where no tmpfs can be mounted
    #[arg(long)]
    secrets_on_disk: bool,
    /// Stop the pods when the node's identity is revoked
    #[arg(long)]
    stop_pods_when_removed: bool,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not KEY=VALUE")),
    }
}

fn taint(text: &str) -> Result<Taint, String> {
    parse_taint(text).ok_or_else(|| {
        format!("{text:?} is not KEY=VALUE:EFFECT, with NoSchedule, PreferNoSchedule or NoExecute for EFFECT")
    })
}

fn amounts(text: &str) -> Result<Amounts, String> {
    Amounts::parse(text).map_err(|error| error.to_string())
}

impl NodeArgs {
    /// The agent's settings.
    pub(crate) fn config(&self, state_dir: &Path) -> AgentConfig {
        // Engines mount only what has an absolute path.
        let state_dir = std::path::absolute(state_dir).unwrap_or_else(|_| state_dir.to_owned());
        let mut config = AgentConfig::new("", Some(state_dir));
        config.node_name = self
            .node_name
            .clone()
            .unwrap_or_else(|| config.machine.host_name.clone());
        config.labels = self.node_labels.iter().cloned().collect();
        config.taints.clone_from(&self.register_with_taints);
        config.register_schedulable = self.register_schedulable;
        config.node_ip = self.node_ip;
        config.allow_loopback_node_ip = self.node_ip.is_some_and(|address| address.is_loopback());
        config.provider_id.clone_from(&self.provider_id);
        config.capacity = self.capacity.clone();
        config.system_reserved = self.system_reserved.clone();
        config.kube_reserved = self.kube_reserved.clone();
        config.max_pods = self.max_pods;
        config.cluster_dns.clone_from(&self.cluster_dns);
        config.cluster_domain.clone_from(&self.cluster_domain);
        config.resolv_conf.clone_from(&self.resolv_conf);
        config.max_parallel_pulls = self.max_parallel_image_pulls.max(1);
        config.max_parallel_starts = self.max_parallel_starts;
        config.offline_image_fallback = self.offline_image_fallback;
        config.seccomp_default = self.seccomp_default;
        config
            .allowed_unsafe_sysctls
            .clone_from(&self.allowed_unsafe_sysctls);
        config.secrets_on_disk = self.secrets_on_disk;
        config.stop_pods_when_removed = self.stop_pods_when_removed;
        config
    }

    /// What runs this node's containers.
    pub(crate) fn runtime(
        &self,
        config: &AgentConfig,
        clock: SharedClock,
    ) -> Outcome<Arc<dyn Runtime>> {
        let owner = Owner::new(&config.node_name, "");
        if self.runtime == RuntimeKind::Memory {
            let engine = MemoryEngine::new(clock);
            engine.pull_anything();
            return Ok(Arc::new(MemoryRuntime::new(engine, owner)));
        }
        let mut docker = DockerConfig::new(owner, clock);
        docker.socket = socket_path(self.docker_host.as_deref())
            .map_err(|error| Failure::new(error.to_string()))?;
        Ok(Arc::new(DockerRuntime::new(docker)))
    }
}

impl AgentArgs {
    /// Runs the agent until a signal. Stopping stops no container.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        let addresses = addresses(session.flags.server.as_deref())?;
        let state_dir = self
            .state_dir
            .clone()
            .unwrap_or_else(|| state_dir(&session.environment));
        let token = self.token(&state_dir)?;
        let config = self.node.config(&state_dir);
        let runtime = self.node.runtime(&config, session.clock.clone())?;
        let stop = CancellationToken::new();
        let work = run(
            config,
            runtime,
            addresses,
            token,
            session.clock.clone(),
            stop.clone(),
        );
        tokio::select! {
            outcome = work => outcome,
            outcome = signals::watch(stop) => outcome,
        }
    }

    /// The token, unless the node has joined already and none is at hand.
    fn token(&self, state_dir: &Path) -> Outcome<Option<String>> {
        let has_joined = has_joined(state_dir);
        let text = match (&self.token, &self.token_file) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(path)) => match fs::read_to_string(path) {
                Ok(text) => Some(text.trim().to_owned()),
                Err(error) if error.kind() == io::ErrorKind::NotFound && has_joined => None,
                Err(error) => {
                    return Err(Failure::new(format!(
                        "cannot read {}: {error}",
                        path.display()
                    )));
                }
            },
            (None, None) => None,
        };
        match &text {
            Some(token) => {
                drop(JoinToken::parse(token).map_err(|error| Failure::new(error.to_string()))?)
            }
            None if has_joined => {}
            None => {
                return Err(Failure::new(
                    "this node has not joined yet: give it a token with --token or --token-file (`muster token create` \
                     on the server prints one)",
                ));
            }
        }
        Ok(text)
    }
}

/// Runs an agent until `stop`.
pub(crate) async fn run(
    config: AgentConfig,
    runtime: Arc<dyn Runtime>,
    addresses: Vec<ServerAddress>,
    token: Option<String>,
    clock: SharedClock,
    stop: CancellationToken,
) -> Outcome {
    let state_dir = config.state_dir.clone().unwrap_or_default();
    let connector = ServerConnector::new(
        addresses,
        token,
        &config.node_name,
        &config.machine.machine_id,
        &state_dir,
        clock.clone(),
    );
    config
        .check()
        .map_err(|error| chain("the agent cannot run", &error))?;
    if !has_joined(&state_dir) {
        first_join(&connector).await?;
    }
    Box::pin(Agent::run(
        config,
        runtime,
        clock,
        Arc::new(connector),
        stop,
    ))
    .await
    .map_err(|error| chain("the agent cannot run", &error))
}

/// Joins before anything else, so that whoever typed a wrong token or address is told at once. What may mend itself is
/// left to the agent, which dials for ever.
async fn first_join(connector: &ServerConnector) -> Outcome {
    let Err(error) = connector.connect().await else {
        return Ok(());
    };
    let may_mend = match &error {
        DialError::Connect(error) => error.is_retryable(),
        DialError::Join(error) => error.is_retryable(),
        DialError::Token(_) | DialError::NoToken | DialError::Keep { .. } => false,
    };
    if may_mend {
        Ok(())
    } else {
        Err(Failure::new(error.to_string()))
    }
}

fn has_joined(state_dir: &Path) -> bool {
    state_dir.join("credentials/node.crt").exists()
}

/// The servers to dial, one or several.
fn addresses(flag: Option<&str>) -> Outcome<Vec<ServerAddress>> {
    let Some(text) = flag else {
        return Err(Failure::new(
            "which server? Give its address with --server HOST:PORT (`muster token create` prints the whole command)",
        ));
    };
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            part.parse()
                .map_err(|error: muster_client::AddressError| Failure::new(error.to_string()))
        })
        .collect()
}

fn state_dir(environment: &Environment) -> PathBuf {
    if environment.is_root {
        return PathBuf::from(SYSTEM_STATE_DIR);
    }
    match (&environment.xdg_data_home, &environment.home) {
        (Some(data), _) => data.join("muster-agent"),
        (None, Some(home)) => home.join(".local/share/muster-agent"),
        (None, None) => PathBuf::from(".muster-agent"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn parse(line: &str) -> AgentArgs {
        match Cli::try_parse_from(line.split_whitespace())
            .unwrap()
            .command
        {
            Command::Agent(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_flags_become_the_agents_settings() {
        let args = parse(
            "muster agent --server a:1 --node-name pi-1 --node-labels disk=ssd,zone=shed --register-with-taints \
             gpu=only:NoSchedule --system-reserved cpu=100m,memory=128Mi --max-pods 20 --register-schedulable=false \
             --max-parallel-image-pulls 3",
        );
        let config = args.node.config(Path::new("/state"));
        assert_eq!(config.node_name, "pi-1");
        assert_eq!(config.state_dir.as_deref(), Some(Path::new("/state")));
        assert_eq!(config.labels["zone"], "shed");
        assert_eq!(config.taints[0].effect, "NoSchedule");
        assert_eq!(
            config.system_reserved,
            Amounts::parse("cpu=100m,memory=128Mi").unwrap()
        );
        assert_eq!(
            (
                config.max_pods,
                config.register_schedulable,
                config.max_parallel_pulls
            ),
            (20, false, 3)
        );
        config.check().unwrap();
    }

    #[test]
    fn a_relative_state_directory_is_made_absolute() {
        let config = parse("muster agent --server a:1")
            .node
            .config(Path::new("state"));
        let here = std::env::current_dir().unwrap();
        assert_eq!(config.state_dir, Some(here.join("state")));
    }

    #[test]
    fn wrong_flags_are_refused_by_the_command_line() {
        for flags in [
            "--node-labels disk",
            "--register-with-taints a:Never",
            "--capacity cpu=x",
            "--node-ip nowhere",
        ] {
            let line = format!("muster agent --server a:1 {flags}");
            assert!(
                Cli::try_parse_from(line.split_whitespace()).is_err(),
                "{flags}"
            );
        }
    }

    #[test]
    fn a_node_that_has_not_joined_needs_a_token() {
        let folder = tempfile::tempdir().unwrap();
        let none = parse("muster agent --server a:1");
        assert!(
            none.token(folder.path())
                .unwrap_err()
                .text
                .contains("has not joined yet")
        );
        let cut = parse("muster agent --server a:1 --token muster1.x7k2pa");
        assert!(
            cut.token(folder.path())
                .unwrap_err()
                .text
                .contains("cut short")
        );
        fs::create_dir(folder.path().join("credentials")).unwrap();
        fs::write(folder.path().join("credentials/node.crt"), "x").unwrap();
        assert_eq!(none.token(folder.path()).unwrap(), None);
        let gone = parse("muster agent --server a:1 --token-file /does/not/exist");
        assert_eq!(gone.token(folder.path()).unwrap(), None);
    }

    #[test]
    fn several_servers_may_be_named() {
        assert_eq!(addresses(Some("a:1, b")).unwrap().len(), 2);
        assert!(addresses(None).unwrap_err().text.contains("which server?"));
        assert!(
            addresses(Some("http://a"))
                .unwrap_err()
                .text
                .contains("TLS only")
        );
    }
}
