//! A watch that outlives lost connections: it resumes where it was, and starts over when that is forgotten.

use std::time::Duration;

use futures::StreamExt;
use muster_client::resources::Watch;
use muster_client::{Backoff, ClientError, ListOptions, Resources, WatchEvent, WatchEventType};
use muster_model::kind::Kind;
use muster_model::object::Object;

use crate::failure::Outcome;

/// How long a person is made to wait between attempts, at most.
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// The changes of a kind, one after the other.
pub(crate) struct Follow {
    resources: Resources,
    kind: &'static Kind,
    namespace: String,
    options: ListOptions,
    from: String,
    stream: Option<Watch>,
    backoff: Backoff,
}

impl Follow {
    /// The changes after this revision; with an empty one every object first.
    pub(crate) fn new(
        resources: Resources,
        kind: &'static Kind,
        namespace: &str,
        options: ListOptions,
        from: &str,
    ) -> Self {
        let backoff = Backoff::new(
            Duration::from_millis(100),
            LONGEST_DELAY,
            u64::from(std::process::id()),
        );
        Self {
            resources,
            kind,
            namespace: namespace.to_owned(),
            options,
            from: from.to_owned(),
            stream: None,
            backoff,
        }
    }

    /// The next change. Fails only when it makes no sense to try again.
    pub(crate) async fn next(&mut self) -> Outcome<(WatchEventType, Object)> {
        loop {
            match self.attempt().await {
                Ok(WatchEvent::Object {
                    kind,
                    object,
                    resource_version,
                }) => {
                    self.from = resource_version;
                    self.backoff.reset();
                    return Ok((kind, object));
                }
                Ok(WatchEvent::Bookmark { resource_version }) => self.from = resource_version,
                Err(error) => {
                    self.stream = None;
                    if error.is_expired() {
                        // Everything there is comes again as ADDED: better twice than not at all.
                        self.from = String::new();
                    } else if !error.is_retryable() {
                        return Err(error.into());
                    }
                    tracing::info!(%error, "watch interrupted");
                    tokio::time::sleep(self.backoff.next_delay()).await;
                }
            }
        }
    }

    async fn attempt(&mut self) -> Result<WatchEvent, ClientError> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            empty => {
                let opened = self
                    .resources
                    .watch(self.kind, &self.namespace, &self.options, &self.from)
                    .await?;
                empty.insert(opened)
            }
        };
        match stream.next().await {
            Some(event) => event,
            None => Err(ClientError::Lost("the watch ended".to_owned())),
        }
    }
}

/// The selection of one object by its name.
pub(crate) fn only(name: &str) -> ListOptions {
    ListOptions {
        field_selector: format!("metadata.name={name}"),
        ..ListOptions::default()
    }
}
