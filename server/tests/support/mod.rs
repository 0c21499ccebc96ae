//! A server in memory, and clients of any identity.
#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test file uses its part"
)]

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use muster_model::kind::Kind;
use muster_model::object::Object;
use muster_model::time::{Clock, SharedClock, Timestamp};
use muster_pki::{CertificateAuthority, Issued, issue};
use muster_proto::v1;
use muster_proto::v1::daemon_set_service_client::DaemonSetServiceClient;
use muster_proto::v1::node_service_client::NodeServiceClient;
use muster_proto::v1::pod_service_client::PodServiceClient;
use muster_proto::v1::resource_service_client::ResourceServiceClient;
use muster_server::listen::{PipeConnector, pipes};
use muster_server::registry::Registry;
use muster_server::{Config, RunningServer, Server};
use muster_store::{MemoryStore, Store};
use parking_lot::Mutex;
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

pub const START: &str = "2026-01-31T10:00:00Z";

/// A clock that tests set.
pub struct TestClock {
    now: Mutex<(Timestamp, Duration)>,
}

impl TestClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            now: Mutex::new((START.parse().unwrap(), Duration::ZERO)),
        })
    }

    pub fn advance(&self, by: Duration) {
        let mut now = self.now.lock();
        now.0 += by;
        now.1 += by;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.now.lock().0
    }

    fn monotonic(&self) -> Duration {
        self.now.lock().1
    }
}

pub struct Cluster {
    pub server: RunningServer,
    pub clock: Arc<TestClock>,
    pub ca: Arc<CertificateAuthority>,
    pub pipes: PipeConnector,
    pub stop: CancellationToken,
}

impl Cluster {
    /// A server without controllers, over a fresh memory store.
    pub async fn start() -> Self {
        Self::over(Arc::new(MemoryStore::new()), false).await
    }

    /// The same with controllers.
    pub async fn with_controllers() -> Self {
        Self::over(Arc::new(MemoryStore::new()), true).await
    }

    pub async fn over(store: Arc<dyn Store>, controllers: bool) -> Self {
        let clock = TestClock::new();
        let ca = Arc::new(CertificateAuthority::generate("test", clock.now()).unwrap());
        let (listener, pipes) = pipes();
        let stop = CancellationToken::new();
        let config = Config {
            controllers,
            seed: Some(7),
            ..Config::new(Arc::clone(&ca))
        };
        let shared: SharedClock = clock.clone();
        let server = Server::start(config, listener, store, shared, stop.clone())
            .await
            .unwrap();
        Self {
            server,
            clock,
            ca,
            pipes,
            stop,
        }
    }

    pub fn registry(&self) -> &Registry {
        self.server.registry()
    }

    /// A channel as this user of these groups.
    pub async fn channel_as(&self, user: &str, groups: &[&str]) -> Channel {
        let groups: Vec<String> = groups.iter().map(|g| (*g).to_owned()).collect();
        let issued = issue::issue_client(
            &self.ca,
            user,
            &groups,
            self.clock.now(),
            Duration::from_secs(86_400),
        )
        .unwrap();
        self.channel(Some(issued)).await
    }

    pub async fn admin(&self) -> Api {
        Api::new(self.channel_as("admin", &["system:masters"]).await)
    }

    pub async fn viewer(&self) -> Api {
        Api::new(self.channel_as("viewer", &["muster:viewers"]).await)
    }

    pub async fn node(&self, name: &str) -> Api {
        Api::new(
            self.channel_as(&format!("system:node:{name}"), &["system:nodes"])
                .await,
        )
    }

    pub async fn anonymous(&self) -> Api {
        Api::new(self.channel(None).await)
    }

    pub async fn channel(&self, identity: Option<Issued>) -> Channel {
        let config = Arc::new(self.client_config(identity));
        let pipes = self.pipes.clone();
        let connector = tower::service_fn(move |_: http::Uri| {
            let (config, pipes) = (Arc::clone(&config), pipes.clone());
            async move {
                let pipe = pipes.connect().await?;
                let name = ServerName::try_from("muster-server").unwrap();
                let stream = tokio_rustls::TlsConnector::from(config)
                    .connect(name, pipe)
                    .await?;
                Ok::<_, std::io::Error>(TokioIo::new(stream))
            }
        });
        Endpoint::from_static("https://muster-server")
            .connect_with_connector(connector)
            .await
            .unwrap()
    }

    pub fn client_config(&self, identity: Option<Issued>) -> rustls::ClientConfig {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.ca.cert_der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_details(
            provider,
            Arc::new(TestTime(self.clock.clone())),
        )
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
        let mut config = match identity {
            Some(issued) => builder
                .with_client_auth_cert(issued.chain().unwrap(), issued.key().unwrap())
                .unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }
}

struct TestTime(Arc<TestClock>);

impl std::fmt::Debug for TestTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestTime")
    }
}

impl rustls::time_provider::TimeProvider for TestTime {
    fn current_time(&self) -> Option<rustls_pki_types::UnixTime> {
        let seconds = u64::try_from(self.0.now().as_second()).unwrap();
        Some(rustls_pki_types::UnixTime::since_unix_epoch(
            Duration::from_secs(seconds),
        ))
    }
}

/// The services, as one identity.
#[derive(Clone)]
pub struct Api {
    pub resources: ResourceServiceClient<Channel>,
    pub daemonsets: DaemonSetServiceClient<Channel>,
    pub nodes: NodeServiceClient<Channel>,
    pub pods: PodServiceClient<Channel>,
}

pub fn reference(kind: &Kind, namespace: &str, name: &str) -> Option<v1::ResourceRef> {
    Some(v1::ResourceRef {
        group: kind.group.to_owned(),
        version: kind.version.to_owned(),
        resource: kind.plural.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: String::new(),
    })
}

pub fn status_of(reference: Option<v1::ResourceRef>) -> Option<v1::ResourceRef> {
    reference.map(|reference| v1::ResourceRef {
        subresource: "status".to_owned(),
        ..reference
    })
}

/// The Status object of a refusal.
pub fn failure(status: &tonic::Status) -> Value {
    serde_json::from_slice(status.details()).unwrap_or_else(|_| panic!("no Status in {status:?}"))
}

pub fn message(status: &tonic::Status) -> String {
    failure(status)["message"].as_str().unwrap().to_owned()
}

impl Api {
    pub fn new(channel: Channel) -> Self {
        let most = 64 * 1024 * 1024;
        Self {
            resources: ResourceServiceClient::new(channel.clone())
                .max_decoding_message_size(most)
                .max_encoding_message_size(most),
            daemonsets: DaemonSetServiceClient::new(channel.clone()),
            nodes: NodeServiceClient::new(channel.clone()),
            pods: PodServiceClient::new(channel),
        }
    }

    pub async fn create(&self, kind: &Kind, tree: &Value) -> Result<Object, tonic::Status> {
        self.create_with_warnings(kind, tree)
            .await
            .map(|(object, _)| object)
    }

    pub async fn create_with_warnings(
        &self,
        kind: &Kind,
        tree: &Value,
    ) -> Result<(Object, Vec<String>), tonic::Status> {
        let namespace = tree["metadata"]["namespace"].as_str().unwrap_or_default();
        let request = v1::CreateRequest {
            resource: reference(kind, namespace, ""),
            object: tree.to_string().into(),
            options: None,
        };
        let reply = self.resources.clone().create(request).await?.into_inner();
        Ok((Object::from_bytes(&reply.object).unwrap(), reply.warnings))
    }

    pub async fn get(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Object, tonic::Status> {
        let request = v1::GetRequest {
            resource: reference(kind, namespace, name),
        };
        let reply = self.resources.clone().get(request).await?.into_inner();
        Ok(Object::from_bytes(&reply.object).unwrap())
    }

    pub async fn update(&self, kind: &Kind, object: &Object) -> Result<Object, tonic::Status> {
        self.put(reference(kind, object.namespace(), object.name()), object)
            .await
    }

    pub async fn update_status(
        &self,
        kind: &Kind,
        object: &Object,
    ) -> Result<Object, tonic::Status> {
        self.put(
            status_of(reference(kind, object.namespace(), object.name())),
            object,
        )
        .await
    }

    async fn put(
        &self,
        resource: Option<v1::ResourceRef>,
        object: &Object,
    ) -> Result<Object, tonic::Status> {
        let request = v1::UpdateRequest {
            resource,
            object: object.to_bytes().into(),
            options: None,
        };
        let reply = self.resources.clone().update(request).await?.into_inner();
        Ok(Object::from_bytes(&reply.object).unwrap())
    }

    pub async fn patch(
        &self,
        resource: Option<v1::ResourceRef>,
        form: v1::PatchType,
        patch: &Value,
    ) -> Result<Object, tonic::Status> {
        let request = v1::PatchRequest {
            resource,
            r#type: form.into(),
            patch: patch.to_string().into(),
            options: None,
        };
        let reply = self.resources.clone().patch(request).await?.into_inner();
        Ok(Object::from_bytes(&reply.object).unwrap())
    }

    pub async fn delete(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<v1::DeleteReply, tonic::Status> {
        let resource = reference(kind, namespace, name);
        let request = v1::DeleteRequest {
            resource,
            ..v1::DeleteRequest::default()
        };
        Ok(self.resources.clone().delete(request).await?.into_inner())
    }

    pub async fn list(
        &self,
        kind: &Kind,
        namespace: &str,
        labels: &str,
        fields: &str,
    ) -> Result<Vec<Object>, tonic::Status> {
        let request = v1::ListRequest {
            resource: reference(kind, namespace, ""),
            selection: Some(v1::Selection {
                label_selector: labels.to_owned(),
                field_selector: fields.to_owned(),
            }),
            ..v1::ListRequest::default()
        };
        let reply = self.resources.clone().list(request).await?.into_inner();
        Ok(reply
            .items
            .iter()
            .map(|item| Object::from_bytes(item).unwrap())
            .collect())
    }

    pub async fn watch(
        &self,
        kind: &Kind,
        labels: &str,
        after: &str,
    ) -> tonic::Streaming<v1::WatchEvent> {
        let request = v1::WatchRequest {
            resource: reference(kind, "", ""),
            selection: Some(v1::Selection {
                label_selector: labels.to_owned(),
                field_selector: String::new(),
            }),
            resource_version: after.to_owned(),
            bookmarks: false,
        };
        self.resources
            .clone()
            .watch(request)
            .await
            .unwrap()
            .into_inner()
    }
}

/// The DaemonSet of the scenarios.
pub fn daemon(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "web", "image": "img:1"}]},
            },
        },
    })
}

pub fn pod(name: &str, node: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"containers": [{"name": "web", "image": "img:1"}]},
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = node.into();
    }
    pod
}

pub fn node(name: &str, machine: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "status": {
            "nodeInfo": {"machineID": machine, "bootID": "b", "systemUUID": "", "kernelVersion": "", "osImage": "",
                "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "linux",
                "architecture": "amd64"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                "lastHeartbeatTime": START, "lastTransitionTime": START}],
        },
    })
}

/// Waits until something holds, or says what was waited for.
pub async fn eventually<T, F, Fut>(what: &str, mut look: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited in vain: {what}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
