//! `muster up`: a server and a node in one process, for one machine.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use clap::Args;
use muster_client::{ServerAddress, context};
use secrecy::ExposeSecret;
use tokio_util::sync::CancellationToken;

use super::agent::{self, NodeArgs};
use super::server::{self, LocalServer, ServerPlace};
use super::token;
use crate::args::LogFormat;
use crate::failure::{Failure, Outcome};
use crate::session::{Server, Session};
use crate::signals;

/// How long the node's own join token is good for: it is used at once.
const TOKEN_TTL: Duration = Duration::from_secs(600);

/// How both run.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  muster up                                    a cluster of this one machine; stop it with Ctrl-C
  muster up --node-name home --node-labels disk=ssd
  muster up --listen 0.0.0.0:7443 --advertise 192.0.2.10
                                               other machines can join
  muster up --runtime memory --store memory --data-dir /tmp/try
                                               without Docker, leaving nothing running")]
pub(crate) struct UpArgs {
    #[command(flatten)]
    place: ServerPlace,
    #[command(flatten)]
    node: NodeArgs,
    /// text or json
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
}

impl UpArgs {
    /// Runs both until a signal, or until one of them cannot go on. The agent stops first: it may still report.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        let stop_server = CancellationToken::new();
        let local = server::start(
            &self.place,
            &session.environment,
            session.clock.clone(),
            stop_server.clone(),
        )
        .await?;
        server::announce(session, &local)?;
        let stop_agent = CancellationToken::new();
        let agent = Box::pin(self.agent(session, &local, stop_agent.clone()));
        let outcome = tokio::select! {
            outcome = agent => outcome,
            outcome = signals::watch(stop_agent) => outcome,
        };
        tokio::select! {
            () = local.running.stop() => outcome,
            ended = signals::watch(CancellationToken::new()) => ended.and(outcome),
        }
    }

    async fn agent(
        &self,
        session: &Session,
        local: &LocalServer,
        stop: CancellationToken,
    ) -> Outcome {
        let state_dir = match &self.place.data_dir {
            Some(data) => data.join("agent"),
            None => session.environment.data_dir().join("agent"),
        };
        let mut config = self.node.config(&state_dir);
        // The machine may have no other address, and nobody else needs to find it.
        config.allow_loopback_node_ip = true;
        let runtime = self.node.runtime(&config, session.clock.clone())?;
        let address = near_address(local)?;
        let mut flags = muster_client::ContextFlags {
            kubeconfig: Some(local.kubeconfig.clone()),
            ..Default::default()
        };
        // Its kubeconfig may name an address that only others can reach.
        flags.server = Some(address.to_string());
        let target = context::resolve(&flags, &session.environment)?;
        let connection = target.connect().await?;
        let admin = Server {
            connection,
            target,
            namespace: "default".to_owned(),
            namespace_was_given: false,
        };
        let (token, _) = token::make(&admin, session.now(), TOKEN_TTL, "muster up").await?;
        let token = token.text().expose_secret().to_owned();
        agent::run(
            config,
            runtime,
            vec![address],
            Some(token),
            session.clock.clone(),
            stop,
        )
        .await
    }
}

/// The server's own port, on this machine.
fn near_address(local: &LocalServer) -> Outcome<ServerAddress> {
    let address = local
        .running
        .local_addr()
        .ok_or_else(|| Failure::new("the server listens on no network address"))?;
    let host = if address.ip().is_unspecified() {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    } else {
        address.ip()
    };
    Ok(ServerAddress::new(host.to_string(), address.port()))
}
