//! `NodeService`: joining, registering, and the three streams of an agent.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use muster_model::kind::NODE;
use muster_model::names;
use muster_model::object::NamespacedName;
use muster_pki::{CertificateAuthority, issue};
use muster_proto::v1;
use muster_proto::v1::node_service_server::NodeService;
use muster_proto::v1::pod_event::Type;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::{answer, caller};
use crate::agents::{self, register};
use crate::auth::{Caller, removed};
use crate::cache::Change;
use crate::events::Recorder;
use crate::heartbeats::Heartbeats;
use crate::leases::{self, Leases};
use crate::machines;
use crate::metrics::Metrics;
use crate::node_feed::NodeFeeds;
use crate::registry::Registry;
use crate::status::{ApiError, Reason};
use crate::tokens;
use crate::tunnel::Tunnels;

/// Reports answered in one go at most: a burst of statuses is one commit.
const REPORTS: usize = 64;

/// The service.
pub struct Nodes {
    pub(crate) registry: Registry,
    pub(crate) metrics: Metrics,
    pub(crate) heartbeats: Heartbeats,
    pub(crate) leases: Leases,
    pub(crate) events: Recorder,
    pub(crate) ca: Arc<CertificateAuthority>,
    pub(crate) feeds: NodeFeeds,
    pub(crate) tunnels: Tunnels,
    pub(crate) cluster_id: String,
    pub(crate) stop: CancellationToken,
}

impl Nodes {
    /// The node that calls; everybody else is refused.
    fn node(&self, caller: &Caller) -> Result<String, ApiError> {
        match caller.node_name() {
            Some(node) if removed::is_removed(self.registry.cache(), node) => {
                Err(removed::refusal(node))
            }
            Some(node) => Ok(node.to_owned()),
            None if caller.is_anonymous() => Err(ApiError::unauthorized()),
            None => {
                let why = format!(
                    "User \"{}\" is no node: this call is for agents",
                    caller.user
                );
                Err(ApiError::forbidden(&NODE, "", why))
            }
        }
    }

    fn beat(&self, node: &str) {
        self.heartbeats.beat(node);
        self.leases.renew(node);
    }

    /// Two machines must never share one identity (spec/node-agent.md 2).
    async fn check_machine(&self, node: &str, machine_id: &str) -> Result<(), ApiError> {
        let former = machines::former(&self.registry, node).await;
        let key = NamespacedName::new("", node);
        let stored = self.registry.cache().get(&NODE, &key);
        let lives = match &stored {
            // One this server has not heard yet counts from the server's start: it may just be dialling again.
            Some(_) => self.heartbeats.silent_for(node) < leases::DURATION,
            None => self.heartbeats.heard_within(node, leases::DURATION),
        };
        let same = former.is_none_or(|former| machine_id.is_empty() || former == machine_id);
        if same || !lives {
            return Ok(());
        }
        let message = format!("node name \"{node}\" is in use by another live machine");
        if let Some(stored) = stored {
            self.events.warning(
                "muster-server",
                stored.object(),
                "NodeNameInUse",
                message.clone(),
            );
        }
        Err(ApiError::new(Reason::Conflict, message).about(&NODE, node))
    }

    fn sign(&self, csr_pem: &str, node: &str) -> Result<v1::JoinReply, ApiError> {
        let now = self.registry.now();
        let certificate_pem =
            issue::sign_node_csr(&self.ca, csr_pem, node, now, issue::NODE_VALIDITY)
                .map_err(|error| ApiError::bad_request(error.to_string()))?;
        Ok(v1::JoinReply {
            certificate_pem,
            ca_pem: self.ca.cert_pem().to_owned(),
        })
    }

    async fn join_one(&self, request: &v1::JoinRequest) -> Result<v1::JoinReply, ApiError> {
        let token = tokens::check(self.registry.cache(), &request.token, self.registry.now())?;
        let faults = names::check_subdomain(&request.node_name);
        if !faults.is_empty() {
            let node = &request.node_name;
            return Err(ApiError::bad_request(format!(
                "node name \"{node}\": {}",
                faults.join("; ")
            )));
        }
        self.check_machine(&request.node_name, &request.machine_id)
            .await?;
        let reply = self.sign(&request.csr_pem, &request.node_name)?;
        removed::readmit(&self.registry, &request.node_name).await?;
        tracing::info!(node = request.node_name, token, "a node joined");
        Ok(reply)
    }

    async fn register_one(
        &self,
        caller: &Caller,
        request: &v1::RegisterRequest,
    ) -> Result<v1::RegisterReply, ApiError> {
        let node = self.node(caller)?;
        self.check_machine(&node, &request.machine_id).await?;
        let removed = machines::claim(&self.registry, &node, &request.machine_id).await?;
        // From here on the name is in use.
        self.heartbeats.beat(&node);
        let (stored, created) = register::register(&self.registry, caller, &node, request).await?;
        self.beat(&node);
        if removed > 0 {
            let message = format!(
                "Node {node} is another machine now, pods of the former one removed: {removed}"
            );
            self.events
                .normal("muster-server", stored.object(), "MachineChanged", message);
        }
        tracing::info!(node, created, removed, "a node registered");
        Ok(v1::RegisterReply {
            node: stored.bytes.clone(),
            cluster_id: self.cluster_id.clone(),
            created,
        })
    }

    fn open_report(
        &self,
        caller: Caller,
        reports: Streaming<v1::AgentReport>,
    ) -> Result<BoxStream<'static, Result<v1::ReportAck, Status>>, ApiError> {
        let node = self.node(&caller)?;
        self.beat(&node);
        let counted = self.metrics.agent();
        let desk = agents::Desk {
            registry: self.registry.clone(),
            events: self.events.clone(),
            caller,
            node: node.clone(),
        };
        let (heartbeats, leases) = (self.heartbeats.clone(), self.leases.clone());
        let batches = reports
            .take_until(self.stop.clone().cancelled_owned())
            .ready_chunks(REPORTS);
        let acks = batches.then(move |batch| {
            let _ = &counted;
            // Whatever it says, it is alive.
            heartbeats.beat(&node);
            leases.renew(&node);
            let desk = desk.clone();
            async move {
                let mut good = Vec::with_capacity(batch.len());
                let mut lost = None;
                for report in batch {
                    match report {
                        Ok(report) => good.push(report),
                        Err(status) => lost = Some(status),
                    }
                }
                let mut acks: Vec<Result<v1::ReportAck, Status>> =
                    desk.take(good).await.into_iter().map(Ok).collect();
                acks.extend(lost.map(Err));
                stream::iter(acks)
            }
        });
        Ok(acks.flatten().boxed())
    }

    fn open_pods(
        &self,
        caller: &Caller,
    ) -> Result<BoxStream<'static, Result<v1::PodEvent, Status>>, ApiError> {
        let node = self.node(caller)?;
        // Opened before the snapshot is taken, so that no change falls between the two.
        let changes = self.feeds.open(&node);
        let view = self.registry.cache().node_view(&node);
        let shown = view.revision;
        let mut first: Vec<v1::PodEvent> = view
            .node
            .iter()
            .map(|node| pod_event(Type::Node, node.bytes.clone(), node.revision.0))
            .collect();
        first.extend(
            view.pods
                .iter()
                .map(|pod| pod_event(Type::Set, pod.bytes.clone(), pod.revision.0)),
        );
        first.push(pod_event(
            Type::SnapshotComplete,
            bytes::Bytes::new(),
            shown.0,
        ));
        let later = ReceiverStream::new(changes)
            .filter(move |change| std::future::ready(change.revision > shown))
            .filter_map(move |change| std::future::ready(change_event(&node, &change)))
            .map(Ok)
            // The receiver ended: this stream was too slow for its node's changes.
            .chain(stream::once(async {
                Err(Status::from(ApiError::new(
                    Reason::Expired,
                    "this stream was too slow for its node's changes: open it again",
                )))
            }));
        Ok(stream::iter(first.into_iter().map(Ok))
            .chain(later)
            .take_until(self.stop.clone().cancelled_owned())
            .boxed())
    }

    fn open_tunnel(
        &self,
        caller: &Caller,
        mut replies: Streaming<v1::TunnelReply>,
    ) -> Result<BoxStream<'static, Result<v1::TunnelRequest, Status>>, ApiError> {
        let node = self.node(caller)?;
        let (open, requests) = self.tunnels.open(&node);
        // Read in the same stream that is written: when either side ends, so does the other.
        let reading = async move {
            while let Some(Ok(reply)) = replies.next().await {
                open.deliver(reply).await;
            }
        };
        let requests = ReceiverStream::new(requests).map(Ok);
        Ok(crate::agents::drive(requests, reading)
            .take_until(self.stop.clone().cancelled_owned())
            .boxed())
    }
}

fn pod_event(kind: Type, object: bytes::Bytes, revision: u64) -> v1::PodEvent {
    v1::PodEvent {
        r#type: kind.into(),
        object,
        resource_version: revision.to_string(),
    }
}

/// How a change looks to one node; `None`: it does not concern it.
fn change_event(node: &str, change: &Change) -> Option<v1::PodEvent> {
    let revision = change.revision.0;
    if *change.kind() == NODE {
        // A deleted Node is shown by nothing: the agent notices when it next reports its status.
        return change
            .new
            .as_ref()
            .map(|new| pod_event(Type::Node, new.bytes.clone(), revision));
    }
    let mine = |object: &muster_model::object::Object| object.text_at("/spec/nodeName") == node;
    match (&change.new, &change.old) {
        (Some(new), _) if mine(new.object()) => {
            Some(pod_event(Type::Set, new.bytes.clone(), revision))
        }
        (_, Some(old)) if mine(old.object()) => Some(pod_event(
            Type::Removed,
            change.last_state().bytes.clone(),
            revision,
        )),
        _ => None,
    }
}

#[tonic::async_trait]
impl NodeService for Nodes {
    type ReportStream = BoxStream<'static, Result<v1::ReportAck, Status>>;
    type WatchPodsStream = BoxStream<'static, Result<v1::PodEvent, Status>>;
    type TunnelStream = BoxStream<'static, Result<v1::TunnelRequest, Status>>;

    async fn join(
        &self,
        request: Request<v1::JoinRequest>,
    ) -> Result<Response<v1::JoinReply>, Status> {
        let since = Instant::now();
        let reply = self.join_one(request.get_ref()).await;
        if let Err(error) = &reply {
            let peer = caller(&request).peer;
            tracing::warn!(node = request.get_ref().node_name, peer, %error, "a join was refused");
        }
        answer(&self.metrics, "JOIN", Some(&NODE), since, reply).map(Response::new)
    }

    async fn renew(
        &self,
        request: Request<v1::RenewRequest>,
    ) -> Result<Response<v1::JoinReply>, Status> {
        let since = Instant::now();
        let reply = self
            .node(&caller(&request))
            .and_then(|node| self.sign(&request.get_ref().csr_pem, &node));
        answer(&self.metrics, "RENEW", Some(&NODE), since, reply).map(Response::new)
    }

    async fn register(
        &self,
        request: Request<v1::RegisterRequest>,
    ) -> Result<Response<v1::RegisterReply>, Status> {
        let since = Instant::now();
        let caller = caller(&request);
        let reply = self.register_one(&caller, request.get_ref()).await;
        answer(&self.metrics, "REGISTER", Some(&NODE), since, reply).map(Response::new)
    }

    async fn report(
        &self,
        request: Request<Streaming<v1::AgentReport>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let since = Instant::now();
        let stream = self.open_report(caller(&request), request.into_inner());
        answer(&self.metrics, "REPORT", Some(&NODE), since, stream).map(Response::new)
    }

    async fn watch_pods(
        &self,
        request: Request<v1::WatchPodsRequest>,
    ) -> Result<Response<Self::WatchPodsStream>, Status> {
        let since = Instant::now();
        let stream = self.open_pods(&caller(&request));
        answer(&self.metrics, "WATCHPODS", Some(&NODE), since, stream).map(Response::new)
    }

    async fn tunnel(
        &self,
        request: Request<Streaming<v1::TunnelReply>>,
    ) -> Result<Response<Self::TunnelStream>, Status> {
        let since = Instant::now();
        let caller = caller(&request);
        let stream = self.open_tunnel(&caller, request.into_inner());
        answer(&self.metrics, "TUNNEL", Some(&NODE), since, stream).map(Response::new)
    }
}
