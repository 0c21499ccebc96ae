//! The rounds in which the node's status is computed and, when it changed, told (spec/node-agent.md 4).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use muster_model::k8s::api::core::v1::NodeStatus;
use tokio_util::sync::CancellationToken;

use crate::moment::Mono;
use crate::node::{self, NodeView};
use crate::runtime::RuntimeError;
use crate::shared::Shared;

/// Until the node is ready it is looked at this often, but not for ever.
const EAGER: Duration = Duration::from_millis(100);
const EAGER_FOR: Duration = Duration::from_secs(120);
/// The engine must say who it is within this.
const ANSWER: Duration = Duration::from_secs(10);

/// Rounds until the agent stops.
pub(crate) async fn run(shared: Arc<Shared>, addresses: Vec<IpAddr>, stop: CancellationToken) {
    let began = shared.now().mono;
    let mut told: Option<(NodeStatus, Mono)> = None;
    loop {
        let Some(status) = stop
            .run_until_cancelled(round(&shared, &addresses, ANSWER))
            .await
        else {
            return;
        };
        let now = shared.now().mono;
        let due = told.as_ref().is_none_or(|(last, at)| {
            now.since(*at) >= shared.config.pace.node_status_resend
                || !node::same_but_for_heartbeats(last, &status)
        });
        if due {
            shared.outbox.put_node(status.clone());
            told = Some((status.clone(), now));
        }
        let eager = !node::is_ready(&status) && now.since(began) < EAGER_FOR;
        let pause = if eager {
            EAGER.min(shared.config.pace.node_status)
        } else {
            shared.config.pace.node_status
        };
        if stop
            .run_until_cancelled(tokio::time::sleep(pause))
            .await
            .is_none()
        {
            return;
        }
    }
}

/// Asks the engine, for so long, and computes the status; events of what flipped are recorded.
pub(crate) async fn round(shared: &Shared, addresses: &[IpAddr], patience: Duration) -> NodeStatus {
    let answer = match tokio::time::timeout(patience, shared.runtime.version()).await {
        Ok(answer) => answer,
        Err(_) => Err(RuntimeError::TimedOut {
            what: "version",
            limit_seconds: patience.as_secs(),
        }),
    };
    shared.health.note(&answer, shared.now());
    if let Ok(version) = &answer {
        shared.health.set_version(&version.text);
    }
    let now = shared.now();
    let mut errors = Vec::new();
    if shared
        .health
        .is_down(shared.config.pace.runtime_patience, now.mono)
    {
        errors.push("container runtime is down".to_owned());
    }
    if let Err(RuntimeError::Unsupported(message)) = &answer {
        errors.push(message.clone());
    }
    let seen = NodeView {
        runtime_version: shared.health.version(),
        errors,
        addresses: addresses.to_vec(),
    };
    let before = shared.node_status.lock().clone();
    let status = node::status(&shared.config, &seen, &before, now.wall);
    for note in node::flips(&shared.config.node_name, &before, &status) {
        shared
            .outbox
            .node_event(&shared.config.node_name, &note, now);
    }
    shared.node_status.lock().clone_from(&status);
    status
}
