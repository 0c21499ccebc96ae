//! The task that carries the store's events into the cache.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use muster_model::kind::{KINDS, Kind};
use muster_store::{Revision, Store, WatchError};
use tokio_util::sync::CancellationToken;

use super::Cache;
use crate::registry::keys;

/// How long to wait before asking a store again that could not answer.
const RETRY: Duration = Duration::from_millis(200);

/// Keeps one [`Cache`] current. Whoever made it runs it, once.
#[must_use = "a cache whose feed is not run stands still"]
pub struct Feed {
    cache: Cache,
    store: Arc<dyn Store>,
    after: Revision,
}

impl Feed {
    pub(super) fn new(cache: Cache, store: Arc<dyn Store>, after: Revision) -> Self {
        Self {
            cache,
            store,
            after,
        }
    }

    /// Runs until told to stop, or until the store is closed.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let ended = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Cancel-safe: dropping the future drops the stream; what was applied is in the cache.
                ended = self.follow() => ended,
            };
            match ended {
                WatchError::Closed => return,
                WatchError::TooOld { .. } | WatchError::Future { .. } => {
                    tracing::warn!(%ended, "the cache fell behind the store and reads everything again");
                }
            }
            if let Err(error) = self.relist().await {
                tracing::warn!(%error, "the store could not be listed");
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(RETRY) => {}
                }
            }
        }
    }

    async fn follow(&mut self) -> WatchError {
        let mut events = match self.store.watch("", self.after) {
            Ok(events) => events,
            Err(error) => return error,
        };
        while let Some(batch) = events.next().await {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => return error,
            };
            let Some(revision) = batch.last().map(|event| event.revision) else {
                continue;
            };
            self.cache.inner.state.write().apply(revision, &batch);
            let kinds: BTreeSet<&'static Kind> = batch
                .iter()
                .filter_map(|event| keys::parse(event.key.as_str()))
                .map(|(kind, _)| kind)
                .collect();
            self.reached(revision, kinds.into_iter());
        }
        WatchError::Closed
    }

    async fn relist(&mut self) -> Result<(), WatchError> {
        let listing = self.store.list("", None).await?;
        self.cache
            .inner
            .state
            .write()
            .replace(&listing.entries, listing.revision);
        self.reached(listing.revision, KINDS.iter().copied());
        Ok(())
    }

    /// Wakes whoever waits for this revision, or for a change of one of these kinds. The state is there already.
    fn reached(&mut self, revision: Revision, kinds: impl Iterator<Item = &'static Kind>) {
        self.after = revision;
        self.cache.inner.revision.raise(revision);
        for kind in kinds {
            if let Some(level) = self.cache.inner.kinds.get(kind) {
                level.raise(revision);
            }
        }
    }
}
