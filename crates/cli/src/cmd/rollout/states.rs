//! The states of a rollout, one after the other, also when the server is away for a while in between.

use std::time::Duration;

use muster_client::{Backoff, ClientError};
use muster_proto::v1;

use crate::failure::{Failure, Outcome};
use crate::session::Server;

/// How long a person is made to wait between attempts, at most.
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// The states of one rollout.
pub(super) struct States<'s> {
    server: &'s Server,
    target: v1::DaemonSetRef,
    stream: Option<tonic::Streaming<v1::RolloutStatusReply>>,
    /// Whether a cut is worth an attempt: a server that was there once comes back, an address may be wrong.
    outlives_cuts: bool,
    waits: bool,
    backoff: Backoff,
}

impl<'s> States<'s> {
    /// Follows the rollout of a DaemonSet; `waits`: a server that goes away is waited for.
    pub(super) fn of(server: &'s Server, target: v1::DaemonSetRef, waits: bool) -> Self {
        let seed = u64::from(std::process::id());
        Self {
            server,
            target,
            stream: None,
            outlives_cuts: false,
            waits,
            backoff: Backoff::new(Duration::from_millis(100), LONGEST_DELAY, seed),
        }
    }

    /// The next state. Fails only when it makes no sense to try again.
    pub(super) async fn next(&mut self) -> Outcome<v1::RolloutStatusReply> {
        loop {
            match self.attempt().await {
                Ok(state) => {
                    self.backoff.reset();
                    return Ok(state);
                }
                Err(error) => self.cut(error).await?,
            }
        }
    }

    /// After a call about this rollout has failed: waits until the next attempt is due, or fails for good.
    pub(super) async fn cut(&mut self, error: ClientError) -> Outcome {
        self.stream = None;
        if error.is_not_found() {
            return Err(Failure::new("object has been deleted"));
        }
        if !self.outlives_cuts || !error.is_retryable() {
            return Err(error.into());
        }
        tracing::info!(%error, "rollout status interrupted");
        tokio::time::sleep(self.backoff.next_delay()).await;
        Ok(())
    }

    async fn attempt(&mut self) -> Result<v1::RolloutStatusReply, ClientError> {
        let connection = &self.server.connection;
        let stream = match &mut self.stream {
            Some(stream) => stream,
            empty => {
                let request = v1::RolloutStatusRequest {
                    daemonset: Some(self.target.clone()),
                };
                let opened = connection.daemonsets().rollout_status(request).await;
                let opened = opened.map_err(|status| connection.fault(&status))?;
                self.outlives_cuts = self.waits;
                empty.insert(opened.into_inner())
            }
        };
        match stream.message().await {
            Ok(Some(state)) => Ok(state),
            Ok(None) => Err(ClientError::Lost("the stream ended".to_owned())),
            Err(status) => Err(connection.fault(&status)),
        }
    }
}
