//! A channel with an identity: where the typed services are made.

use std::fmt;
use std::time::Duration;

use muster_proto::MAX_MESSAGE_BYTES;
use muster_proto::v1::daemon_set_service_client::DaemonSetServiceClient;
use muster_proto::v1::node_service_client::NodeServiceClient;
use muster_proto::v1::pod_service_client::PodServiceClient;
use muster_proto::v1::resource_service_client::ResourceServiceClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use crate::connect::{ConnectError, ConnectOptions, connect_noting};
use crate::error::ClientError;
use crate::refusal::Refusal;
use crate::resources::Resources;

/// How long a call that answers once may take, unless told otherwise.
pub const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// A channel whose calls carry a bearer token when there is one.
pub type Service = InterceptedService<Channel, Bearer>;

/// Puts a bearer token on every call.
#[derive(Clone, Default)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Bearer(set)"
        } else {
            "Bearer(none)"
        })
    }
}

impl Bearer {
    /// With this token; `None` when it has characters that no header may carry.
    pub fn new(token: &str) -> Option<Self> {
        let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().ok()?;
        value.set_sensitive(true);
        Some(Self(Some(value)))
    }
}

impl Interceptor for Bearer {
    fn call(
        &mut self,
        mut request: tonic::Request<()>,
    ) -> Result<tonic::Request<()>, tonic::Status> {
        if let Some(value) = &self.0 {
            request
                .metadata_mut()
                .insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// A connection to a server. Cheap to clone; all clones share one channel.
#[derive(Debug, Clone)]
pub struct Connection {
    channel: Channel,
    bearer: Bearer,
    deadline: Duration,
    refusal: Refusal,
}

impl Connection {
    /// Connects with certificates only.
    pub async fn open(options: &ConnectOptions) -> Result<Self, ConnectError> {
        let (channel, refusal) = connect_noting(options).await?;
        Ok(Self {
            refusal,
            ..Self::over(channel)
        })
    }

    /// Over a channel at hand.
    pub fn over(channel: Channel) -> Self {
        Self {
            channel,
            bearer: Bearer::default(),
            deadline: CALL_DEADLINE,
            refusal: Refusal::default(),
        }
    }

    /// With a bearer token on every call.
    #[must_use]
    pub fn with_bearer(mut self, bearer: Bearer) -> Self {
        self.bearer = bearer;
        self
    }

    /// With another deadline for calls that answer once. Streams have none.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The deadline for calls that answer once.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The channel beneath.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// A request with this connection's deadline.
    pub fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.set_timeout(self.deadline);
        request
    }

    /// What a failed call over this connection means.
    pub fn fault(&self, status: &tonic::Status) -> ClientError {
        match ClientError::from_status(status, self.deadline) {
            ClientError::Lost(reason) => match self.refusal.reason() {
                Some(refusal) => ClientError::Connect(refusal),
                None => ClientError::Lost(reason),
            },
            error => error,
        }
    }

    /// Objects of every kind.
    pub fn resources(&self) -> Resources {
        let client = ResourceServiceClient::new(self.service())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Resources::new(client, self.clone())
    }

    /// Coverage, rollouts, history.
    pub fn daemonsets(&self) -> DaemonSetServiceClient<Service> {
        DaemonSetServiceClient::new(self.service())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// Logs.
    pub fn pods(&self) -> PodServiceClient<Service> {
        PodServiceClient::new(self.service()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// What a node's agent says.
    pub fn nodes(&self) -> NodeServiceClient<Service> {
        NodeServiceClient::new(self.service())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn service(&self) -> Service {
        InterceptedService::new(self.channel.clone(), self.bearer.clone())
    }
}
