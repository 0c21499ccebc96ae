//! Probes of containers (spec/node-agent.md 19).
//!
//! ```text
//!   step ── which are due ──> run ─┬─ exec ──> Runtime::exec
//!    ▲                             ├─ http, tcp, grpc ──> Runtime::dial
//!    └──── state <── Reply ────────┘
//! ```
//! [`state`] is pure: what is due, and what results come to. The handlers carry one probe out and judge nothing but its
//! single answer. All connections go through [`Runtime::dial`](crate::runtime::Runtime::dial), so that pods that exist in memory only can be probed.

mod exec;
mod grpc;
mod http;
pub mod state;
mod tcp;
mod tls;

use std::net::SocketAddr;
use std::time::Duration;

use muster_client::dial::BoxedIo;
use muster_model::k8s::api::core::v1::{Container, Probe};
use muster_model::k8s::apimachinery::pkg::util::intstr::IntOrString;

pub use self::state::ProbeKind;
use self::state::Settings;
use crate::runtime::{ContainerId, Runtime};
use crate::worker::actions::EventNote;

/// How this prober names itself to what it asks.
const USER_AGENT: &str = "kube-probe/1.32";
/// Most bytes of an answer that are read and told of.
pub const MAX_OUTPUT: usize = 10 * 1024;
/// Tries of a probe that cannot be carried out.
const TRIES: usize = 3;

/// What one run of a probe came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It passed.
    Success,
    /// It passed, and something is odd.
    Warning(String),
    /// It did not pass.
    Failure(String),
    /// It could not be carried out, which says nothing of the container.
    Error(String),
}

/// What to probe.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The container, as its pod wants it: it names the ports.
    pub container: &'a Container,
    /// The running one.
    pub id: &'a ContainerId,
    /// The pod's address: the host that is asked unless the probe names another.
    pub pod_ip: &'a str,
}

impl Reply {
    /// What is recorded on the pod; nothing for a plain success.
    pub fn event(&self, kind: ProbeKind, container: &str) -> Option<EventNote> {
        let (reason, text) = match self {
            Self::Success => return None,
            Self::Warning(text) => (
                "ProbeWarning",
                format!("{} probe warning: {text}", kind.title()),
            ),
            Self::Failure(text) => (
                "Unhealthy",
                format!("{} probe failed: {text}", kind.title()),
            ),
            Self::Error(text) => {
                let text = format!(
                    "{} probe errored and resulted in unknown state: {text}",
                    kind.title()
                );
                ("Unhealthy", text)
            }
        };
        Some(EventNote::warning(Some(container), reason, text))
    }
}

/// Runs a probe once; again, a few times, while it cannot be carried out. Its own time limit bounds each try.
pub async fn run(runtime: &dyn Runtime, target: Target<'_>, probe: &Probe) -> Reply {
    let limit = Settings::of(probe).timeout;
    let mut reply = Reply::Error("the probe has no handler".to_owned());
    for _ in 0..TRIES {
        reply = once(runtime, target, probe, limit).await;
        if !matches!(reply, Reply::Error(_)) {
            break;
        }
    }
    reply
}

async fn once(runtime: &dyn Runtime, target: Target<'_>, probe: &Probe, limit: Duration) -> Reply {
    if let Some(action) = &probe.exec {
        return exec::probe(runtime, target.id, action, limit).await;
    }
    // Boxed: the futures of whole protocols are large, and most probes are of one kind only.
    let asked = if let Some(action) = &probe.http_get {
        Box::pin(http::probe(runtime, target, action, limit)).await
    } else if let Some(action) = &probe.tcp_socket {
        tcp::probe(runtime, target, action, limit).await
    } else if let Some(action) = &probe.grpc {
        Box::pin(grpc::probe(runtime, target, action, limit)).await
    } else {
        Err("the probe has no handler".to_owned())
    };
    asked.unwrap_or_else(Reply::Error)
}

/// The number of a port that is given by number or by the name of one of the container's ports.
fn port_number(container: &Container, port: &IntOrString) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let named = container
                .ports
                .iter()
                .flatten()
                .find(|port| port.name.as_deref() == Some(name));
            match named {
                Some(port) => port.container_port,
                None => match name.parse() {
                    Ok(number) => number,
                    Err(_) => return Err(format!("couldn't find port: {name:?}")),
                },
            }
        }
    };
    match u16::try_from(number) {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("invalid port number: {number}")),
    }
}

/// The host to ask: the probe's own, else the pod's address.
fn host_of<'a>(own: Option<&'a str>, target: Target<'a>) -> Result<&'a str, String> {
    let host = own.filter(|host| !host.is_empty()).unwrap_or(target.pod_ip);
    if host.is_empty() {
        return Err("the pod has no address yet".to_owned());
    }
    Ok(host)
}

/// `HOST:PORT`, an IPv6 address in brackets.
fn join(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Connects. The error is worded as probes have always told it.
async fn dial(runtime: &dyn Runtime, host: &str, port: u16) -> Result<BoxedIo, String> {
    let place = join(host, port);
    let address = match host.parse() {
        Ok(ip) => SocketAddr::new(ip, port),
        Err(_) => {
            let found = tokio::net::lookup_host((host, port)).await;
            match found.map(|mut all| all.next()) {
                Ok(Some(address)) => address,
                _ => return Err(format!("dial tcp: lookup {host}: no such host")),
            }
        }
    };
    runtime.dial(address).await.map_err(|error| {
        let words = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
            std::io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
            std::io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
            std::io::ErrorKind::TimedOut => "connect: connection timed out".to_owned(),
            _ => format!("connect: {error}"),
        };
        format!("dial tcp {place}: {words}")
    })
}

#[cfg(test)]
mod tests;
