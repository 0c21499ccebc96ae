//! A TLS channel to a server, with deadlines and keep-alive.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::rt::TokioIo;
use muster_model::time::{SharedClock, SystemClock};
use rustls::{AlertDescription, CertificateError};
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tower::Service;

use crate::address::ServerAddress;
use crate::dial::{BoxedIo, Dial, Dialer, Tcp};
use crate::error::innermost;
use crate::refusal::{Noting, Refusal};
use crate::tls::{Identity, MaterialError, SERVER_NAME, Trust, client_config};

/// How long a connection may take to be made, TLS included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a quiet connection is asked whether it lives: below the idle limits of common NATs.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
/// How long the answer may take before the connection counts as dead.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a connection needs.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// Where the server is. With a dialer of one's own it only serves messages.
    pub address: ServerAddress,
    /// How it is recognised.
    pub trust: Trust,
    /// The client certificate; `None` for a join, or with a bearer token.
    pub identity: Option<Identity>,
    dialer: Dialer,
    clock: ClientClock,
}

/// What certificates are judged by; no part of what a connection says of itself.
#[derive(Clone)]
struct ClientClock(SharedClock);

impl fmt::Debug for ClientClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientClock")
    }
}

impl ConnectOptions {
    /// Over TCP, without a client certificate, with the default time-out.
    pub fn new(address: ServerAddress, trust: Trust) -> Self {
        let dial = Arc::new(Tcp::new(address.clone()));
        Self {
            address,
            trust,
            identity: None,
            dialer: Dialer {
                dial,
                timeout: CONNECT_TIMEOUT,
            },
            clock: ClientClock(SystemClock::shared()),
        }
    }

    /// With this client certificate.
    #[must_use]
    pub fn with_identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Over connections of another making, such as in-memory pipes. TLS runs on top all the same.
    #[must_use]
    pub fn with_dialer(mut self, dial: Arc<dyn Dial>) -> Self {
        self.dialer.dial = dial;
        self
    }

    /// Judging certificates by this clock instead of the machine's: for simulations.
    #[must_use]
    pub fn with_clock(mut self, clock: SharedClock) -> Self {
        self.clock = ClientClock(clock);
        self
    }

    /// With another limit for making a connection.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.dialer.timeout = timeout;
        self
    }
}

/// Why there is no connection. The text says what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Nothing listens there.
    #[error(
        "connection to {address} was refused: is the server running, and is the address right?"
    )]
    Refused {
        /// The server's address.
        address: ServerAddress,
    },
    /// No answer in time.
    #[error("no answer from {address} within {} s: check the address, the network and firewalls", after.as_secs_f32())]
    TimedOut {
        /// The server's address.
        address: ServerAddress,
        /// The limit.
        after: Duration,
    },
    /// Any other trouble of the network, the name service included.
    #[error("cannot reach {address}: {reason}")]
    Unreachable {
        /// The server's address.
        address: ServerAddress,
        /// The system's words.
        reason: String,
    },
    /// The server belongs to another cluster, or someone sits in between.
    #[error(
        "the server at {address} has a certificate of another CA: it is not the server this identity or token is for \
         (or it was set up anew: get a new kubeconfig or token from it)"
    )]
    ForeignCa {
        /// The server's address.
        address: ServerAddress,
    },
    /// The server's certificate has expired, or is of the future.
    #[error(
        "the certificate of the server at {address} is not valid now ({reason}): check the clocks of both machines"
    )]
    NotValidNow {
        /// The server's address.
        address: ServerAddress,
        /// `expired` or `not valid yet`.
        reason: &'static str,
    },
    /// A good certificate, but not one of a Muster server.
    #[error(
        "the server at {address} is signed by the right CA but its certificate is not for a Muster server"
    )]
    NotAServer {
        /// The server's address.
        address: ServerAddress,
    },
    /// The server refused our certificate.
    #[error("the server refused our certificate ({reason}): get a new kubeconfig, or join again")]
    Rejected {
        /// What the server said.
        reason: String,
    },
    /// Something else than TLS answered.
    #[error("TLS with {address} failed: {reason}: is that a Muster server's port?")]
    Tls {
        /// The server's address.
        address: ServerAddress,
        /// What went wrong.
        reason: String,
    },
    /// Our own certificates are unusable.
    #[error(transparent)]
    Material(#[from] MaterialError),
}

impl ConnectError {
    /// Whether another attempt may succeed without anybody doing anything.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. }
                | Self::TimedOut { .. }
                | Self::Unreachable { .. }
                | Self::Tls { .. }
        )
    }

    /// The connect error that lies at the bottom of a transport's error, if one does.
    pub fn beneath(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(found.clone());
            }
            next = error.source();
        }
        None
    }

    fn of_io(address: &ServerAddress, error: &io::Error) -> Self {
        let address = address.clone();
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused { address },
            _ => Self::Unreachable {
                address,
                reason: error.to_string(),
            },
        }
    }

    /// What a failed handshake means.
    fn of_handshake(address: &ServerAddress, error: &io::Error) -> Self {
        let address = address.clone();
        let Some(tls) = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
        else {
            return Self::Tls {
                address,
                reason: error.to_string(),
            };
        };
        match tls {
            rustls::Error::InvalidCertificate(fault) => match fault {
                // A CA of the same name but another key shows as a bad signature.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    Self::ForeignCa { address }
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    Self::NotValidNow {
                        address,
                        reason: "expired",
                    }
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    Self::NotValidNow {
                        address,
                        reason: "not valid yet",
                    }
                }
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => Self::NotAServer { address },
                other => Self::Tls {
                    address,
                    reason: format!("bad server certificate: {other}"),
                },
            },
            rustls::Error::AlertReceived(alert) => Self::of_alert(*alert),
            other => Self::Tls {
                address,
                reason: other.to_string(),
            },
        }
    }

    fn of_alert(alert: AlertDescription) -> Self {
        let reason = match alert {
            AlertDescription::CertificateExpired => "it has expired",
            AlertDescription::UnknownCA => "it is of another CA",
            AlertDescription::CertificateRevoked => "it was revoked",
            AlertDescription::CertificateRequired => "one is required",
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError => "it was not accepted",
            other => {
                return Self::Rejected {
                    reason: format!("TLS alert {other:?}"),
                };
            }
        };
        Self::Rejected {
            reason: reason.to_owned(),
        }
    }

    /// With TLS 1.3 the server judges our certificate after the handshake, so its refusal comes with the
    /// first call: reads it out of a call's error.
    pub fn alert_beneath(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            let tls = match error.downcast_ref::<io::Error>() {
                Some(io) => io
                    .get_ref()
                    .and_then(|inner| inner.downcast_ref::<rustls::Error>()),
                None => error.downcast_ref::<rustls::Error>(),
            };
            if let Some(rustls::Error::AlertReceived(alert)) = tls {
                return Some(Self::of_alert(*alert));
            }
            next = error.source();
        }
        None
    }
}

/// Connects, and answers once the handshake is done. The channel reconnects by itself when the connection is
/// lost; calls made meanwhile fail with UNAVAILABLE. [`crate::Connection::open`] does the same and can tell more
/// about failed calls.
pub async fn connect(options: &ConnectOptions) -> Result<Channel, ConnectError> {
    connect_noting(options).await.map(|(channel, _)| channel)
}

pub(crate) async fn connect_noting(
    options: &ConnectOptions,
) -> Result<(Channel, Refusal), ConnectError> {
    let connector = Connector::new(options)?;
    let refusal = connector.refusal.clone();
    match endpoint().connect_with_connector(connector).await {
        Ok(channel) => Ok((channel, refusal)),
        Err(error) => Err(ConnectError::beneath(&error)
            .or_else(|| refusal.reason())
            .unwrap_or_else(|| ConnectError::Tls {
                address: options.address.clone(),
                reason: innermost(&error),
            })),
    }
}

/// Over a connection without TLS: only for tests in one process, where the peer is known by other means.
pub async fn connect_plain(dial: Arc<dyn Dial>) -> Result<Channel, tonic::transport::Error> {
    let connector = Plain { dial };
    endpoint().connect_with_connector(connector).await
}

fn endpoint() -> Endpoint {
    // The address is the dialer's affair; this name only fills the `:authority` of requests. The scheme says
    // "http" because the connector, not tonic, does the TLS.
    Endpoint::from_static("http://muster-server")
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
}

type Stream = Noting<tokio_rustls::client::TlsStream<BoxedIo>>;

/// What tonic calls for each new connection.
#[derive(Clone)]
struct Connector {
    address: ServerAddress,
    dialer: Dialer,
    tls: TlsConnector,
    refusal: Refusal,
}

impl Connector {
    fn new(options: &ConnectOptions) -> Result<Self, ConnectError> {
        let config = client_config(
            &options.trust,
            options.identity.as_ref(),
            options.clock.0.clone(),
        )?;
        Ok(Self {
            address: options.address.clone(),
            dialer: options.dialer.clone(),
            tls: TlsConnector::from(Arc::new(config)),
            refusal: Refusal::default(),
        })
    }

    async fn connection(self) -> Result<TokioIo<Stream>, ConnectError> {
        let after = self.dialer.timeout;
        let work = async {
            let io = self
                .dialer
                .dial
                .dial()
                .await
                .map_err(|error| ConnectError::of_io(&self.address, &error))?;
            let name = ServerName::try_from(SERVER_NAME).expect("a fixed DNS name");
            self.tls
                .connect(name, io)
                .await
                .map_err(|error| ConnectError::of_handshake(&self.address, &error))
        };
        match tokio::time::timeout(after, work).await {
            Ok(Ok(stream)) => {
                self.refusal.clear();
                Ok(TokioIo::new(Noting::new(stream, self.refusal.clone())))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ConnectError::TimedOut {
                address: self.address.clone(),
                after,
            }),
        }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Self::Response, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connection())
    }
}

#[derive(Clone)]
struct Plain {
    dial: Arc<dyn Dial>,
}

impl Service<Uri> for Plain {
    type Response = TokioIo<BoxedIo>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connection = self.dial.dial();
        Box::pin(async move { Ok(TokioIo::new(connection.await?)) })
    }
}
