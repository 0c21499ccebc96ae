//! A server of one node, in memory: it speaks the contract and remembers what it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use muster_agent::{Connect, DialError};
use muster_client::connect::connect_plain;
use muster_client::dial::BoxedIo;
use muster_client::{ConnectError, Connection};
use muster_model::object::Object;
use muster_proto::v1::{
    self, agent_report::Report, node_service_server, pod_event::Type, resource_service_server,
    tunnel_reply, tunnel_request,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

#[derive(Default)]
pub(crate) struct State {
    pub(crate) node: Option<Object>,
    pub(crate) registrations: usize,
    pub(crate) pods: BTreeMap<String, Object>,
    pub(crate) objects: BTreeMap<(String, String), Object>,
    pub(crate) events: Vec<Value>,
    pub(crate) gone: Vec<String>,
    pub(crate) status_messages: usize,
    pub(crate) heartbeats: usize,
    pub(crate) cluster_id: String,
    /// Ready ever reported False after it was True, by pod.
    pub(crate) ready_lost: Vec<String>,
    /// ConfigMaps and Secrets are not given out.
    pub(crate) objects_away: bool,
    /// What containers were ever reported to wait for.
    pub(crate) waits: BTreeSet<String>,
    revision: u64,
    watchers: Vec<mpsc::Sender<v1::PodEvent>>,
    object_watchers: Vec<(String, String, mpsc::Sender<v1::WatchEvent>)>,
    tunnel: Option<mpsc::Sender<v1::TunnelRequest>>,
    replies: BTreeMap<u64, Vec<tunnel_reply::Reply>>,
}

/// The server.
#[derive(Clone)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
    up: Arc<Mutex<Option<CancellationToken>>>,
    incoming: mpsc::Sender<DuplexStream>,
}

impl Fake {
    pub(crate) fn start() -> Self {
        let (incoming, arrivals) = mpsc::channel(16);
        let fake = Self {
            state: Arc::new(Mutex::new(State {
                cluster_id: "cluster-1".into(),
                ..State::default()
            })),
            changed: watch::channel(0).0,
            up: Arc::new(Mutex::new(Some(CancellationToken::new()))),
            incoming,
        };
        let server = tonic::transport::Server::builder()
            .add_service(node_service_server::NodeServiceServer::new(fake.clone()))
            .add_service(resource_service_server::ResourceServiceServer::new(
                fake.clone(),
            ))
            .serve_with_incoming(ReceiverStream::new(arrivals).map(Ok::<_, std::io::Error>));
        tokio::spawn(server);
        fake
    }

    pub(crate) fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }

    fn note(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Ends every stream and refuses new ones.
    pub(crate) fn go_down(&self) {
        if let Some(token) = self.up.lock().take() {
            token.cancel();
        }
        let mut state = self.state();
        state.watchers.clear();
        state.object_watchers.clear();
        state.tunnel = None;
    }

    pub(crate) fn come_up(&self) {
        *self.up.lock() = Some(CancellationToken::new());
    }

    fn token(&self) -> Result<CancellationToken, Status> {
        self.up
            .lock()
            .clone()
            .ok_or_else(|| Status::unavailable("down"))
    }

    /// Stores a pod bound to the node and tells of it.
    pub(crate) fn put_pod(&self, pod: Value) -> String {
        let mut object = Object::from_value(pod).unwrap();
        let uid = object.uid().to_owned();
        let mut state = self.state();
        state.revision += 1;
        let revision = state.revision.to_string();
        object
            .metadata_mut()
            .insert("resourceVersion".into(), revision.clone().into());
        if let Some(former) = state.pods.get(&uid)
            && let Some(status) = former.at("/status").cloned()
        {
            object.tree_mut().insert("status".into(), status);
        }
        let event = pod_event(Type::Set, &object);
        state.pods.insert(uid.clone(), object);
        state
            .watchers
            .retain(|watcher| watcher.try_send(event.clone()).is_ok());
        uid
    }

    /// Asks for the pod's end within this grace.
    pub(crate) fn delete_pod(&self, uid: &str, grace: i64) {
        let mut tree = self.state().pods[uid].tree().clone();
        tree["metadata"]["deletionTimestamp"] = json!("2026-01-31T11:00:00Z");
        tree["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        self.put_pod(tree);
    }

    /// What a server does that has not heard of the node for too long, told once the link works again.
    pub(crate) fn lose_sight(&self) {
        let mut state = self.state();
        state
            .pods
            .values_mut()
            .for_each(|pod| say_ready(pod, "False"));
        let node = state.node.as_mut().unwrap();
        say_ready(node, "Unknown");
        let event = pod_event(Type::Node, node);
        state
            .watchers
            .retain(|watcher| watcher.try_send(event.clone()).is_ok());
    }

    /// The server writes that a pod is not Ready, of a node that it takes to be out of reach, when that is back already.
    pub(crate) fn take_down(&self, uid: &str) {
        let mut state = self.state();
        let pod = state.pods.get_mut(uid).unwrap();
        say_ready(pod, "False");
        let event = pod_event(Type::Set, pod);
        state
            .watchers
            .retain(|watcher| watcher.try_send(event.clone()).is_ok());
    }

    /// The object goes, whatever the agent says.
    pub(crate) fn force_delete(&self, uid: &str) {
        let mut state = self.state();
        let Some(object) = state.pods.remove(uid) else {
            return;
        };
        let event = pod_event(Type::Removed, &object);
        state
            .watchers
            .retain(|watcher| watcher.try_send(event.clone()).is_ok());
    }

    pub(crate) fn put_object(&self, resource: &str, tree: Value) {
        let mut object = Object::from_value(tree).unwrap();
        let mut state = self.state();
        state.revision += 1;
        let revision = state.revision.to_string();
        object
            .metadata_mut()
            .insert("resourceVersion".into(), revision.clone().into());
        let name = object.name().to_owned();
        let event = v1::WatchEvent {
            r#type: v1::watch_event::Type::Modified.into(),
            object: object.to_bytes().into(),
            resource_version: revision,
        };
        for (watched, selector, watcher) in &state.object_watchers {
            if watched == resource && *selector == format!("metadata.name={name}") {
                let _ = watcher.try_send(event.clone());
            }
        }
        state.objects.insert((resource.to_owned(), name), object);
    }

    /// Waits until something holds of the state; fails after ten minutes of the tests' time.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&State) -> bool) {
        let mut changes = self.changed.subscribe();
        let wait = async {
            loop {
                if holds(&self.state()) {
                    return;
                }
                let _ = tokio::time::timeout(Duration::from_millis(200), changes.changed()).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(900), wait)
            .await
            .is_err()
        {
            let state = self.state();
            let pods: Vec<_> = state
                .pods
                .values()
                .map(|p| p.at("/status").cloned())
                .collect();
            panic!("never: {what}; pods: {pods:#?}");
        }
    }

    pub(crate) async fn until_running(&self, uid: &str) {
        self.until("the pod is ready", |state| is_ready(state, uid))
            .await;
    }

    pub(crate) fn status(&self, uid: &str) -> Value {
        self.state()
            .pods
            .get(uid)
            .and_then(|pod| pod.at("/status").cloned())
            .unwrap_or_default()
    }

    /// Asks for a log over the tunnel: the text, or code and message.
    pub(crate) async fn logs(&self, query: v1::LogsQuery) -> Result<String, (i32, String)> {
        let id = {
            let mut state = self.state();
            state.revision += 1;
            state.revision
        };
        self.until("the tunnel is open", |state| state.tunnel.is_some())
            .await;
        let sender = self.state().tunnel.clone().unwrap();
        let request = Some(tunnel_request::Request::Logs(query));
        sender
            .send(v1::TunnelRequest { id, request })
            .await
            .unwrap();
        let ended = |state: &State| {
            state.replies.get(&id).is_some_and(|list| {
                list.iter()
                    .any(|reply| !matches!(reply, tunnel_reply::Reply::Data(_)))
            })
        };
        self.until("the log ends", ended).await;
        let mut text = Vec::new();
        for reply in self.state().replies.remove(&id).unwrap() {
            match reply {
                tunnel_reply::Reply::Data(data) => text.extend_from_slice(&data),
                tunnel_reply::Reply::Error(error) => return Err((error.code, error.message)),
                tunnel_reply::Reply::Done(_) => {}
            }
        }
        Ok(String::from_utf8(text).unwrap())
    }
}

pub(crate) fn is_ready(state: &State, uid: &str) -> bool {
    let Some(pod) = state.pods.get(uid) else {
        return false;
    };
    let conditions = pod.at("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn waits_of(status: &Value) -> impl Iterator<Item = String> {
    let containers = status["containerStatuses"].as_array().into_iter().flatten();
    containers
        .filter_map(|container| Some(container["state"]["waiting"]["reason"].as_str()?.to_owned()))
}

fn say_ready(object: &mut Object, word: &str) {
    let status = object.tree_mut().get_mut("status").unwrap();
    for condition in status["conditions"].as_array_mut().unwrap() {
        if condition["type"] == "Ready" {
            condition["status"] = word.into();
        }
    }
}

fn pod_event(kind: Type, object: &Object) -> v1::PodEvent {
    v1::PodEvent {
        r#type: kind.into(),
        object: object.to_bytes().into(),
        resource_version: object.resource_version().to_owned(),
    }
}

impl Connect for Fake {
    fn connect(&self) -> BoxFuture<'_, Result<Connection, DialError>> {
        let (incoming, up) = (self.incoming.clone(), self.up.lock().is_some());
        Box::pin(async move {
            let refused = || {
                DialError::Connect(ConnectError::TimedOut {
                    address: "127.0.0.1:1".parse().unwrap(),
                    after: Duration::ZERO,
                })
            };
            if !up {
                return Err(refused());
            }
            let dial = move || {
                let incoming = incoming.clone();
                let dialled: BoxFuture<'static, std::io::Result<BoxedIo>> = Box::pin(async move {
                    let (client, server) = tokio::io::duplex(64 * 1024);
                    incoming.send(server).await.map_err(std::io::Error::other)?;
                    Ok(Box::new(client) as BoxedIo)
                });
                dialled
            };
            let channel = connect_plain(Arc::new(dial)).await.map_err(|_| refused())?;
            Ok(Connection::over(channel))
        })
    }
}

#[tonic::async_trait]
impl node_service_server::NodeService for Fake {
    type ReportStream = BoxStream<'static, Result<v1::ReportAck, Status>>;
    type WatchPodsStream = BoxStream<'static, Result<v1::PodEvent, Status>>;
    type TunnelStream = BoxStream<'static, Result<v1::TunnelRequest, Status>>;

    async fn join(&self, _: Request<v1::JoinRequest>) -> Result<Response<v1::JoinReply>, Status> {
        Err(Status::unimplemented("join"))
    }

    async fn renew(&self, _: Request<v1::RenewRequest>) -> Result<Response<v1::JoinReply>, Status> {
        Err(Status::unimplemented("renew"))
    }

    async fn register(
        &self,
        request: Request<v1::RegisterRequest>,
    ) -> Result<Response<v1::RegisterReply>, Status> {
        self.token()?;
        let mut state = self.state();
        let mut node = Object::from_bytes(&request.get_ref().node).unwrap();
        let created = state.node.is_none();
        node.metadata_mut().insert("uid".into(), "node-uid".into());
        state.registrations += 1;
        state.node = Some(node.clone());
        let reply = v1::RegisterReply {
            node: node.to_bytes().into(),
            cluster_id: state.cluster_id.clone(),
            created,
        };
        drop(state);
        self.note();
        Ok(Response::new(reply))
    }

    async fn report(
        &self,
        request: Request<Streaming<v1::AgentReport>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let token = self.token()?;
        let fake = self.clone();
        let acks = request
            .into_inner()
            .map(move |report| Ok(fake.take(report?)))
            .take_until(token.cancelled_owned());
        Ok(Response::new(acks.boxed()))
    }

    async fn watch_pods(
        &self,
        _: Request<v1::WatchPodsRequest>,
    ) -> Result<Response<Self::WatchPodsStream>, Status> {
        let token = self.token()?;
        let (sender, receiver) = mpsc::channel(1024);
        let mut state = self.state();
        let mut first: Vec<_> = state
            .pods
            .values()
            .map(|pod| pod_event(Type::Set, pod))
            .collect();
        first.push(v1::PodEvent {
            r#type: Type::SnapshotComplete.into(),
            ..v1::PodEvent::default()
        });
        state.watchers.push(sender);
        let stream = futures::stream::iter(first)
            .chain(ReceiverStream::new(receiver))
            .map(Ok);
        Ok(Response::new(
            stream.take_until(token.cancelled_owned()).boxed(),
        ))
    }

    async fn tunnel(
        &self,
        request: Request<Streaming<v1::TunnelReply>>,
    ) -> Result<Response<Self::TunnelStream>, Status> {
        let token = self.token()?;
        let (sender, receiver) = mpsc::channel(16);
        self.state().tunnel = Some(sender);
        self.note();
        let fake = self.clone();
        let mut replies = request.into_inner();
        tokio::spawn(async move {
            while let Some(Ok(reply)) = replies.next().await {
                if let Some(what) = reply.reply {
                    fake.state().replies.entry(reply.id).or_default().push(what);
                    fake.note();
                }
            }
        });
        let requests = ReceiverStream::new(receiver)
            .map(Ok)
            .take_until(token.cancelled_owned());
        Ok(Response::new(requests.boxed()))
    }
}

impl Fake {
    fn take(&self, report: v1::AgentReport) -> v1::ReportAck {
        let mut state = self.state();
        let mut error = String::new();
        match report.report {
            Some(Report::Heartbeat(_)) => {
                state.heartbeats += 1;
                if state.node.is_none() {
                    error = "nodes \"n1\" not found".into();
                }
            }
            Some(Report::NodeStatus(bytes)) => {
                let status = Object::from_bytes(&bytes)
                    .unwrap()
                    .at("/status")
                    .cloned()
                    .unwrap();
                if let Some(node) = &mut state.node {
                    node.tree_mut().insert("status".into(), status);
                }
            }
            Some(Report::PodStatuses(statuses)) => {
                state.status_messages += 1;
                for update in statuses.pods {
                    let status: Value = serde_json::from_slice(&update.status).unwrap();
                    state.waits.extend(waits_of(&status));
                    let was_ready = is_ready(&state, &update.uid);
                    let Some(pod) = state.pods.get_mut(&update.uid) else {
                        continue;
                    };
                    pod.tree_mut().insert("status".into(), status);
                    if was_ready && !is_ready(&state, &update.uid) {
                        state.ready_lost.push(update.uid);
                    }
                }
            }
            Some(Report::Events(events)) => {
                state.events.extend(
                    events
                        .events
                        .iter()
                        .map(|e| serde_json::from_slice::<Value>(e).unwrap()),
                );
            }
            Some(Report::PodGone(gone)) => {
                if let Some(object) = state.pods.remove(&gone.uid) {
                    let event = pod_event(Type::Removed, &object);
                    state
                        .watchers
                        .retain(|watcher| watcher.try_send(event.clone()).is_ok());
                }
                state.gone.push(gone.uid);
            }
            None => {}
        }
        drop(state);
        self.note();
        v1::ReportAck {
            sequence: report.sequence,
            error,
        }
    }
}

#[tonic::async_trait]
impl resource_service_server::ResourceService for Fake {
    type WatchStream = BoxStream<'static, Result<v1::WatchEvent, Status>>;

    async fn get(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::ObjectReply>, Status> {
        self.token()?;
        let wanted = request.into_inner().resource.unwrap();
        if self.state().objects_away {
            return Err(Status::unavailable("not now"));
        }
        let key = (wanted.resource.clone(), wanted.name.clone());
        match self.state().objects.get(&key) {
            Some(object) => Ok(Response::new(v1::ObjectReply {
                object: object.to_bytes().into(),
                warnings: Vec::new(),
            })),
            None => {
                let status = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404,
                                    "message": format!("{} \"{}\" not found", wanted.resource, wanted.name)});
                Err(Status::with_details(
                    tonic::Code::NotFound,
                    "not found",
                    status.to_string().into(),
                ))
            }
        }
    }

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let token = self.token()?;
        let wanted = request.into_inner();
        let (sender, receiver) = mpsc::channel(64);
        let (resource, selector) = (
            wanted.resource.unwrap().resource,
            wanted.selection.unwrap().field_selector,
        );
        self.state()
            .object_watchers
            .push((resource, selector, sender));
        let events = ReceiverStream::new(receiver)
            .map(Ok)
            .take_until(token.cancelled_owned());
        Ok(Response::new(events.boxed()))
    }

    async fn list(&self, _: Request<v1::ListRequest>) -> Result<Response<v1::ListReply>, Status> {
        Err(Status::unimplemented("list"))
    }

    async fn create(
        &self,
        _: Request<v1::CreateRequest>,
    ) -> Result<Response<v1::ObjectReply>, Status> {
        Err(Status::unimplemented("create"))
    }

    async fn update(
        &self,
        _: Request<v1::UpdateRequest>,
    ) -> Result<Response<v1::ObjectReply>, Status> {
        Err(Status::unimplemented("update"))
    }

    async fn patch(
        &self,
        _: Request<v1::PatchRequest>,
    ) -> Result<Response<v1::ObjectReply>, Status> {
        Err(Status::unimplemented("patch"))
    }

    async fn delete(
        &self,
        _: Request<v1::DeleteRequest>,
    ) -> Result<Response<v1::DeleteReply>, Status> {
        Err(Status::unimplemented("delete"))
    }
}
