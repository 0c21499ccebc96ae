//! The way to the engine: socket, negotiation, deadlines, and errors in the runtime's words.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bollard::errors::Error;
use bollard::query_parameters::RemoveImageOptions;
use bollard::{ClientVersion, Docker};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::version::{ApiVersion, negotiate, rewrite};
use crate::runtime::RuntimeError;

/// Where Docker listens unless `DOCKER_HOST` says otherwise.
pub const DEFAULT_SOCKET: &str = "/var/run/docker.sock";
/// How long a short call may take (spec/node-agent.md 1).
pub const CALL_DEADLINE: Duration = Duration::from_secs(120);

/// The client library's own limit; ours are shorter, or a stream is meant to stay open.
const LIBRARY_TIMEOUT_SECONDS: u64 = 365 * 24 * 3600;

/// The socket that a `DOCKER_HOST` value names; the default one when it is not set or empty.
///
/// # Errors
/// `Unsupported` for a remote engine: volumes need the engine's own file system (spec/node-agent.md 29.9).
pub fn socket_path(docker_host: Option<&str>) -> Result<PathBuf, RuntimeError> {
    match docker_host.unwrap_or_default() {
        "" => Ok(PathBuf::from(DEFAULT_SOCKET)),
        host => match host.strip_prefix("unix://") {
            Some(path) if path.starts_with('/') => Ok(PathBuf::from(path)),
            _ => Err(RuntimeError::Unsupported(format!(
                "DOCKER_HOST is {host:?}: only a local engine (unix:///path/to/docker.sock) can run a node's pods"
            ))),
        },
    }
}

/// What an engine can do, as far as create bodies depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Abilities {
    /// The version spoken.
    pub(super) api: ApiVersion,
    /// The lowest `oom_score_adj` it can give. Without CAP_SYS_RESOURCE, as inside another container, an engine cannot
    /// go below its own, and a start that asks for less fails with words that say nothing of it.
    pub(super) lowest_oom_score: i64,
}

/// Reads the lowest score from an engine's `/proc/PID/status` and `/proc/PID/oom_score_adj`. What cannot be read is
/// taken for an engine with all rights.
fn lowest_oom_score(status: &str, own_score: &str) -> i64 {
    const CAP_SYS_RESOURCE: u64 = 1 << 24;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    match effective.and_then(|caps| u64::from_str_radix(caps.trim(), 16).ok()) {
        Some(caps) if caps & CAP_SYS_RESOURCE == 0 => own_score.trim().parse().unwrap_or(0).max(0),
        _ => -1000,
    }
}

/// A negotiated connection; cheap to clone. Each call opens a socket of its own, so a hanging one blocks no other.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) docker: Docker,
    pub(super) abilities: Abilities,
}

/// A local Docker engine, spoken to over its socket. Connects when first used, and again when it was lost.
pub struct DockerEngine {
    socket: PathBuf,
    call_deadline: Duration,
    connection: Mutex<Arc<OnceCell<Connection>>>,
}

impl DockerEngine {
    /// The engine behind this socket. Nothing is sent yet.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self::with_deadline(socket, CALL_DEADLINE)
    }

    /// The same with another limit for short calls.
    pub fn with_deadline(socket: impl Into<PathBuf>, call_deadline: Duration) -> Self {
        Self {
            socket: socket.into(),
            call_deadline,
            connection: Mutex::default(),
        }
    }

    /// The socket it listens on.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Asks the engine who it is, every time: its version text and the API version to speak.
    pub(super) async fn ask_version(&self) -> Result<(String, ApiVersion), RuntimeError> {
        let limit = self.call_deadline;
        let (engine, api) = within("version", limit, async {
            self.connect()
                .await
                .map(|(engine, found)| (engine, found.abilities.api))
        })
        .await
        .inspect_err(|error| self.forget_if_lost(error))?;
        // An engine that was upgraded behind the socket is spoken to anew.
        let cell = self.connection.lock().clone();
        if cell
            .get()
            .is_some_and(|connection| connection.abilities.api != api)
        {
            *self.connection.lock() = Arc::default();
        }
        Ok((engine, api))
    }

    pub(super) async fn connection(&self) -> Result<Connection, RuntimeError> {
        let cell = self.connection.lock().clone();
        let connection = cell.get_or_try_init(|| async {
            let (_, connection) = self.connect().await?;
            // Here and not in `connect`: that one is also the health check of every few seconds.
            let lowest = connection.abilities.lowest_oom_score;
            if lowest > -1000 {
                tracing::info!(
                    lowest,
                    "the engine lacks CAP_SYS_RESOURCE: no container can be protected from the OOM killer"
                );
            }
            Ok(connection)
        });
        connection.await.cloned()
    }

    async fn connect(&self) -> Result<(String, Connection), RuntimeError> {
        let socket = self.socket.to_string_lossy();
        let version = ClientVersion {
            major_version: 1,
            minor_version: 41,
        };
        let docker = Docker::connect_with_unix(&socket, LIBRARY_TIMEOUT_SECONDS, &version)
            .map_err(runtime_error)?;
        let unversioned = docker
            .clone()
            .with_request_modifier(|request| rewrite(request, None, None));
        let found = unversioned.version().await.map_err(runtime_error)?;
        let engine = found.version.unwrap_or_default();
        let api = negotiate(
            &engine,
            &found.api_version.unwrap_or_default(),
            found.min_api_version.as_deref(),
        )?;
        let docker = docker.with_request_modifier(move |request| rewrite(request, Some(api), None));
        let abilities = Abilities {
            api,
            lowest_oom_score: self.lowest_oom_score().await,
        };
        Ok((engine, Connection { docker, abilities }))
    }

    /// Looks at the process behind the socket, which is on this host.
    async fn lowest_oom_score(&self) -> i64 {
        let stream = tokio::net::UnixStream::connect(&self.socket).await;
        let Some(pid) = stream
            .ok()
            .and_then(|stream| stream.peer_cred().ok()?.pid())
        else {
            return -1000;
        };
        let read = async |file: &str| {
            tokio::fs::read_to_string(format!("/proc/{pid}/{file}"))
                .await
                .unwrap_or_default()
        };
        lowest_oom_score(&read("status").await, &read("oom_score_adj").await)
    }

    /// Takes a name off a local image, and removes the image when that was its last one and nothing runs it. Fine when
    /// there is no such image.
    ///
    /// # Errors
    /// What the engine says.
    pub async fn remove_image(&self, reference: &str) -> Result<(), RuntimeError> {
        let options = RemoveImageOptions {
            force: true,
            ..RemoveImageOptions::default()
        };
        let removed = self
            .call("remove image", async move |connection| {
                connection
                    .docker
                    .remove_image(reference, Some(options), None)
                    .await
                    .map(drop)
            })
            .await;
        match removed {
            Err(RuntimeError::NotFound(_)) => Ok(()),
            other => other,
        }
    }

    /// Makes one call within the usual deadline.
    pub(super) async fn call<T, F>(
        &self,
        what: &'static str,
        make: impl FnOnce(Connection) -> F,
    ) -> Result<T, RuntimeError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.call_within(what, self.call_deadline, make).await
    }

    /// Makes one call, negotiating before it where that is still to do.
    pub(super) async fn call_within<T, F>(
        &self,
        what: &'static str,
        limit: Duration,
        make: impl FnOnce(Connection) -> F,
    ) -> Result<T, RuntimeError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let work = async { make(self.connection().await?).await.map_err(runtime_error) };
        // Boxed, since the library's futures carry whole bodies and are large.
        within(what, limit, Box::pin(work))
            .await
            .inspect_err(|error| self.forget_if_lost(error))
    }

    /// After the engine was lost it may come back as another version.
    pub(super) fn forget_if_lost(&self, error: &RuntimeError) {
        if matches!(error, RuntimeError::Unreachable(_)) {
            *self.connection.lock() = Arc::default();
        }
    }
}

async fn within<T>(
    what: &'static str,
    limit: Duration,
    work: impl Future<Output = Result<T, RuntimeError>>,
) -> Result<T, RuntimeError> {
    let timed_out = |_| RuntimeError::TimedOut {
        what,
        limit_seconds: limit.as_secs(),
    };
    tokio::time::timeout(limit, work).await.map_err(timed_out)?
}

/// The library's error in the runtime's words.
pub(super) fn runtime_error(error: Error) -> RuntimeError {
    match error {
        Error::DockerResponseServerError {
            status_code: 404,
            message,
        } => RuntimeError::NotFound(message),
        Error::DockerResponseServerError {
            status_code: 409,
            message,
        } => RuntimeError::Conflict(message),
        Error::DockerResponseServerError {
            status_code,
            message,
        } => RuntimeError::Refused {
            status: status_code,
            message,
        },
        Error::DockerStreamError { error } => RuntimeError::Refused {
            status: 0,
            message: error,
        },
        Error::RequestTimeoutError => RuntimeError::TimedOut {
            what: "a request",
            limit_seconds: LIBRARY_TIMEOUT_SECONDS,
        },
        Error::SocketNotFoundError(path) => {
            RuntimeError::Unreachable(format!("there is no socket at {path}"))
        }
        error @ (Error::IOError { .. }
        | Error::HyperResponseError { .. }
        | Error::HyperLegacyError { .. }) => RuntimeError::Unreachable(with_causes(&error)),
        error => RuntimeError::Refused {
            status: 0,
            message: with_causes(&error),
        },
    }
}

/// An error with all that lies behind it: the library's first sentence alone rarely names the cause.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_without_the_capability_gives_no_score_below_its_own() {
        let status = |caps: &str| format!("Name:\tdockerd\nCapEff:\t{caps}\n");
        assert_eq!(
            lowest_oom_score(&status("000001ffffffffff"), "-500\n"),
            -1000
        );
        assert_eq!(lowest_oom_score(&status("000001fffeffffff"), "0\n"), 0);
        assert_eq!(lowest_oom_score(&status("000001fffeffffff"), "-500\n"), 0);
        assert_eq!(lowest_oom_score(&status("0000000000000000"), "300\n"), 300);
        assert_eq!(lowest_oom_score("", ""), -1000);
    }

    #[test]
    fn only_a_local_engine_is_accepted() {
        assert_eq!(socket_path(None), Ok(PathBuf::from("/var/run/docker.sock")));
        assert_eq!(
            socket_path(Some("")),
            Ok(PathBuf::from("/var/run/docker.sock"))
        );
        assert_eq!(
            socket_path(Some("unix:///run/user/1000/docker.sock")),
            Ok("/run/user/1000/docker.sock".into())
        );
        for remote in [
            "tcp://10.0.0.1:2375",
            "ssh://host",
            "unix://relative",
            "/var/run/docker.sock",
        ] {
            let Err(RuntimeError::Unsupported(text)) = socket_path(Some(remote)) else {
                panic!("{remote}")
            };
            assert!(text.contains(remote), "{text}");
        }
    }

    #[tokio::test]
    async fn a_missing_socket_is_an_engine_that_is_down() {
        let engine = DockerEngine::new("/nonexistent/docker.sock");
        let error = engine.ask_version().await.unwrap_err();
        assert_eq!(
            error,
            RuntimeError::Unreachable("there is no socket at /nonexistent/docker.sock".to_owned())
        );
        assert_eq!(
            error.to_string(),
            "container runtime is down: there is no socket at /nonexistent/docker.sock"
        );
    }
}
