//! The way to the server: one connection, three streams, and a return after each loss (spec/node-agent.md 2, 3, 27).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use muster_client::{Backoff, ClientError, Connection};
use muster_model::k8s::api::core::v1::Node;
use muster_model::kind;
use muster_model::object::Object;
use muster_model::pod_status;
use muster_model::time;
use muster_proto::v1::{self, agent_report::Report, pod_event::Type};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::admit::NodeObject;
use crate::identity::{Connect, DialError, IdentityFile};
use crate::moment::Mono;
use crate::node;
use crate::outbox::Sent;
use crate::pods::PodInput;
use crate::shared::Shared;
use crate::tunnel;

/// Reports on their way at a time: what comes meanwhile is told in one message after them.
const UNANSWERED: usize = 2;
/// Room for reports and heartbeats on the stream; full means the link stands still, and everything waits.
const STREAM_ROOM: usize = 16;
/// A stream that does not open within this is a failure.
const OPENING: Duration = Duration::from_secs(30);
/// The same trouble is logged once in this time.
const LOG_AGAIN: Duration = Duration::from_secs(60);
/// A refused confirmation is tried again after this.
const REFUSED_AGAIN: Duration = Duration::from_secs(10);
/// A session of this length was a good one: the next redial is quick again.
const LASTED: Duration = Duration::from_secs(10);
/// Credentials are looked after this often.
const MAINTENANCE: Duration = Duration::from_secs(6 * 3600);
/// The heartbeat is spread by this part of its period, so that agents do not beat in step.
const HEARTBEAT_JITTER: f64 = 0.04;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("cannot register: {0}")]
    Register(ClientError),
    #[error("the {what} stream ended: {source}")]
    Stream {
        what: &'static str,
        source: ClientError,
    },
    #[error("the {0} stream ended")]
    Ended(&'static str),
    #[error("the {0} stream did not open within 30 s")]
    Slow(&'static str),
    #[error("the agent is stopping")]
    Stopping,
}

/// A session's parts.
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) connector: Arc<dyn Connect>,
    pub(crate) pods: mpsc::Sender<PodInput>,
    pub(crate) connection: watch::Sender<Option<Connection>>,
    pub(crate) identity: IdentityFile,
    pub(crate) stop: CancellationToken,
}

impl Session {
    /// Stays in touch with the server until the agent stops.
    pub(crate) async fn run(mut self) {
        let (first, longest) = self.shared.config.pace.redial;
        let mut backoff = Backoff::new(first, longest, self.shared.config.seed)
            .with_jitter(muster_client::backoff::Jitter::Full);
        let mut logged: Option<(String, Mono)> = None;
        let stop = self.stop.clone();
        while !stop.is_cancelled() {
            let began = self.shared.now().mono;
            let Some(ended) = stop.run_until_cancelled(self.once()).await else {
                break;
            };
            self.connection.send_replace(None);
            if self.shared.now().mono.since(began) >= LASTED {
                backoff.reset();
            }
            if let Err(error) = ended {
                self.log(&mut logged, &error);
                self.heed_removal(&error).await;
            }
            let _ = stop
                .run_until_cancelled(tokio::time::sleep(backoff.next_delay()))
                .await;
        }
        self.connection.send_replace(None);
    }

    fn log(&self, logged: &mut Option<(String, Mono)>, error: &SessionError) {
        let (text, now) = (error.to_string(), self.shared.now().mono);
        let again = logged
            .as_ref()
            .is_none_or(|(last, at)| *last != text || now.since(*at) >= LOG_AGAIN);
        if again {
            tracing::warn!(node = %self.shared.config.node_name, error = %text, "no connection to the server; pods run on");
            *logged = Some((text, now));
        }
    }

    /// A removed node keeps its pods, unless it was told otherwise.
    async fn heed_removal(&self, error: &SessionError) {
        let SessionError::Register(refused) = error else {
            return;
        };
        let removed = refused.has_reason("Forbidden") || refused.has_reason("Unauthorized");
        if removed && self.shared.config.stop_pods_when_removed {
            // A manager that has gone has no pods to stop.
            let _ = self.pods.send(PodInput::StopAll).await;
        }
    }

    async fn once(&mut self) -> Result<(), SessionError> {
        let connection = self.connector.connect().await?;
        self.register(&connection).await?;
        self.shared.outbox.start_over();
        self.connection.send_replace(Some(connection.clone()));
        let connector = Arc::clone(&self.connector);
        let maintenance = async {
            loop {
                tokio::time::sleep(MAINTENANCE).await;
                connector.maintain(&connection).await;
            }
        };
        let ended = tokio::select! {
            biased;
            () = maintenance => Ok(()),
            ended = Box::pin(report(&self.shared, &connection)) => ended,
            ended = Box::pin(watch_pods(&self.shared, &self.pods, &connection)) => ended,
            ended = Box::pin(tunnel::serve(Arc::clone(&self.shared), connection.clone())) => {
                ended.map_err(|source| SessionError::Stream { what: "tunnel", source })
            }
        };
        match ended {
            Err(SessionError::Ended("node")) => Ok(()),
            other => other,
        }
    }

    async fn register(&mut self, connection: &Connection) -> Result<(), SessionError> {
        let shared = Arc::clone(&self.shared);
        let config = &shared.config;
        let status = self.shared.node_status.lock().clone();
        let wanted = node::registration(config, status);
        let object = Object::from_typed(&kind::NODE, &wanted).map_err(|error| {
            SessionError::Register(ClientError::from_status(
                &tonic::Status::internal(error.to_string()),
                connection.deadline(),
            ))
        })?;
        let request = connection.request(v1::RegisterRequest {
            node: object.to_bytes().into(),
            machine_id: config.machine.machine_id.clone(),
            boot_id: config.machine.boot_id.clone(),
        });
        let reply = connection
            .nodes()
            .register(request)
            .await
            .map_err(|status| {
                SessionError::Register(ClientError::from_status(&status, connection.deadline()))
            })?
            .into_inner();
        let stored = Object::from_bytes(&reply.node).ok();
        if let Some(stored) = &stored {
            self.remember(stored, &reply.cluster_id);
            if let Ok(node) = stored.typed::<Node>() {
                self.tell(PodInput::Node(NodeObject::of(&node))).await?;
            }
        }
        let word = if reply.created {
            "registered"
        } else {
            "registered again"
        };
        tracing::info!(node = %config.node_name, cluster = %reply.cluster_id, "{word}");
        self.tell(PodInput::StreamBegan {
            cluster_id: reply.cluster_id,
        })
        .await
    }

    fn remember(&mut self, stored: &Object, cluster_id: &str) {
        let before = self.identity.clone();
        stored.uid().clone_into(&mut self.identity.node_uid);
        cluster_id.clone_into(&mut self.identity.cluster_id);
        {
            let mut host = self.shared.host.write();
            if host.cluster != cluster_id {
                let mut changed = (**host).clone();
                cluster_id.clone_into(&mut changed.cluster);
                *host = Arc::new(changed);
            }
        }
        if let (Some(dir), true) = (&self.shared.config.state_dir, self.identity != before)
            && let Err(error) = self.identity.store(dir)
        {
            tracing::warn!(%error, "the identity file could not be written");
        }
        if let Some(checkpoint) = &self.shared.checkpoint
            && let Err(error) = checkpoint.put_node(stored)
        {
            tracing::warn!(%error, "the node could not be kept on disk");
        }
    }

    async fn tell(&self, input: PodInput) -> Result<(), SessionError> {
        self.pods
            .send(input)
            .await
            .map_err(|_| SessionError::Stopping)
    }
}

async fn opened<T>(
    what: &'static str,
    connection: &Connection,
    opening: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, SessionError> {
    match tokio::time::timeout(OPENING, opening).await {
        Err(_) => Err(SessionError::Slow(what)),
        Ok(Err(status)) => Err(stream_error(what, connection, &status)),
        Ok(Ok(response)) => Ok(response.into_inner()),
    }
}

fn stream_error(
    what: &'static str,
    connection: &Connection,
    status: &tonic::Status,
) -> SessionError {
    SessionError::Stream {
        what,
        source: ClientError::from_status(status, connection.deadline()),
    }
}

/// What is on its way. Dropped with anything left in it, that goes back to where it came from.
struct OnTheWay<'a> {
    shared: &'a Shared,
    sent: VecDeque<(u64, Option<Sent>)>,
}

impl Drop for OnTheWay<'_> {
    fn drop(&mut self) {
        self.sent
            .drain(..)
            .filter_map(|(_, sent)| sent)
            .for_each(|sent| self.shared.outbox.lost(sent));
    }
}

async fn report(shared: &Shared, connection: &Connection) -> Result<(), SessionError> {
    let (sender, receiver) = mpsc::channel(STREAM_ROOM);
    let mut rng = StdRng::seed_from_u64(shared.config.seed);
    let period = shared.config.pace.heartbeat;
    let mut next_beat = || period.mul_f64(1.0 - HEARTBEAT_JITTER * rng.random_range(0.0..=1.0));
    let mut way = OnTheWay {
        shared,
        sent: VecDeque::new(),
    };
    let mut sequence = 0_u64;
    let mut stamp = |report| {
        sequence += 1;
        (
            sequence,
            v1::AgentReport {
                sequence,
                report: Some(report),
            },
        )
    };
    let heartbeat = || {
        Report::Heartbeat(v1::Heartbeat {
            time: time::to_micros_text(shared.clock.now()),
        })
    };
    let (number, first) = stamp(heartbeat());
    way.sent.push_back((number, None));
    sender
        .send(first)
        .await
        .map_err(|_| SessionError::Ended("report"))?;
    let mut nodes = connection.nodes();
    let opening = Box::pin(nodes.report(ReceiverStream::new(receiver)));
    let mut acks = opened("report", connection, opening).await?;
    let beat = tokio::time::sleep(next_beat());
    tokio::pin!(beat);
    loop {
        let reports = way.sent.iter().filter(|(_, sent)| sent.is_some()).count();
        let mut ready = None;
        let due = shared.outbox.due().map(|due| shared.until(due));
        tokio::select! {
            biased;
            ack = acks.message() => match ack {
                Ok(Some(ack)) => taken(shared, &mut way, &ack)?,
                Ok(None) => return Err(SessionError::Ended("report")),
                Err(status) => return Err(stream_error("report", connection, &status)),
            },
            () = &mut beat => {
                beat.as_mut().reset(tokio::time::Instant::now() + next_beat());
                ready = Some((heartbeat(), None));
            }
            () = shared.outbox.changed(), if reports < UNANSWERED => {}
            () = tokio::time::sleep(due.unwrap_or_default()), if reports < UNANSWERED && due.is_some() => {}
        }
        // A notice may stand for several things: everything that waits is sent, as far as there is room.
        let mut next = ready;
        loop {
            if next.is_none()
                && way.sent.iter().filter(|(_, sent)| sent.is_some()).count() < UNANSWERED
            {
                next = shared
                    .outbox
                    .next(&shared.config.node_name, shared.now().mono)
                    .map(|(report, sent)| (report, Some(sent)));
            }
            let Some((report, sent)) = next.take() else {
                break;
            };
            let (number, message) = stamp(report);
            way.sent.push_back((number, sent));
            sender
                .send(message)
                .await
                .map_err(|_| SessionError::Ended("report"))?;
        }
    }
}

fn taken(shared: &Shared, way: &mut OnTheWay<'_>, ack: &v1::ReportAck) -> Result<(), SessionError> {
    while way
        .sent
        .front()
        .is_some_and(|(number, _)| *number <= ack.sequence)
    {
        let Some((number, sent)) = way.sent.pop_front() else {
            break;
        };
        let refused = number == ack.sequence && !ack.error.is_empty();
        match sent {
            // The heartbeat is refused when the Node is gone: register again.
            None if refused => {
                tracing::info!(node = %shared.config.node_name, why = ack.error, "the node is to be registered again");
                return Err(SessionError::Ended("node"));
            }
            None => {}
            Some(sent) if refused => {
                tracing::warn!(node = %shared.config.node_name, why = ack.error, "the server refused a report");
                shared
                    .outbox
                    .refused(sent, shared.now().mono.plus(REFUSED_AGAIN));
            }
            Some(sent) => shared.outbox.taken(sent),
        }
    }
    Ok(())
}

async fn watch_pods(
    shared: &Shared,
    pods: &mpsc::Sender<PodInput>,
    connection: &Connection,
) -> Result<(), SessionError> {
    let send = async |input| pods.send(input).await.map_err(|_| SessionError::Stopping);
    loop {
        let request = v1::WatchPodsRequest {
            boot_id: shared.config.machine.boot_id.clone(),
        };
        let mut nodes = connection.nodes();
        let mut events = opened("pod", connection, Box::pin(nodes.watch_pods(request))).await?;
        let again = async {
            shared.snapshot_again.notified().await;
            tokio::time::sleep(shared.config.pace.second_snapshot).await;
        };
        tokio::pin!(again);
        loop {
            let event = tokio::select! {
                biased;
                event = events.message() => event,
                () = &mut again => break,
            };
            let event = match event {
                Ok(Some(event)) => event,
                Ok(None) => return Err(SessionError::Ended("pod")),
                Err(status) => return Err(stream_error("pod", connection, &status)),
            };
            let type_ = event.r#type();
            let object = || Object::from_bytes(&event.object);
            match type_ {
                Type::SnapshotComplete => send(PodInput::SnapshotComplete).await?,
                Type::Set | Type::Removed => match object() {
                    Ok(object) if type_ == Type::Set => {
                        let is_well = node::is_ready(&shared.node_status.lock());
                        if is_well && pod_status::ready_word(&object) == Some("False") {
                            shared.outbox.contradicted(object.uid());
                        }
                        send(PodInput::Set(object)).await?;
                    }
                    Ok(object) => send(PodInput::Removed(object)).await?,
                    Err(error) => tracing::warn!(%error, "a pod from the server could not be read"),
                },
                Type::Node => {
                    if let Ok(node) = object().and_then(|object| object.typed::<Node>()) {
                        send(PodInput::Node(NodeObject::of(&node))).await?;
                        // The link stood still until the server gave the node up, and marked its pods not Ready.
                        // Nothing here has changed, so that without this nothing would be told for minutes.
                        if node::is_unknown(&node) {
                            let status = shared.node_status.lock().clone();
                            shared.outbox.tell_again(status);
                        }
                    }
                }
                Type::Unspecified => {}
            }
        }
        let cluster_id = shared.host().cluster.clone();
        send(PodInput::StreamBegan { cluster_id }).await?;
    }
}
