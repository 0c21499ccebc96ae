//! A reader's cursor over the cache's logs.

use std::sync::Arc;

use futures::{Stream, future};
use muster_model::kind::{KINDS, Kind};

use super::Cache;
use super::level::Gauge;
use super::stored::Change;

/// Changes in one batch at most, unless a single commit has more.
const BATCH: usize = 1_024;

/// Follows the changes of some kinds. Holds nobody up: who is too slow is told so by [`Lagged`], lists
/// again and goes on from there.
pub struct Subscription {
    cache: Cache,
    kinds: Vec<&'static Kind>,
    position: u64,
    changed: Vec<Gauge>,
}

/// The subscriber was so slow that changes it has not seen are forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too slow: changes after the last seen one are no longer remembered")]
pub struct Lagged;

impl Subscription {
    pub(super) fn new(cache: Cache, kinds: &[&'static Kind], position: u64) -> Self {
        // Nobody follows nothing: no kind named means every kind.
        let kinds = if kinds.is_empty() { KINDS } else { kinds };
        let changed = kinds.iter().map(|kind| cache.changed(kind)).collect();
        Self {
            cache,
            kinds: kinds.to_vec(),
            position,
            changed,
        }
    }

    /// The next changes, in revision order, never empty and never cutting a commit in two. Waits when there
    /// are none. Cancel-safe.
    pub async fn next(&mut self) -> Result<Vec<Arc<Change>>, Lagged> {
        loop {
            // Marked seen before looking, so that what comes while looking wakes the next wait.
            for changed in &mut self.changed {
                changed.mark_seen();
            }
            let changes = self.ready()?;
            if !changes.is_empty() {
                return Ok(changes);
            }
            let waits = self.changed.iter().map(|changed| Box::pin(changed.rise()));
            future::select_all(waits).await;
        }
    }

    /// What is there right now, without waiting; empty: nothing new.
    pub fn ready(&mut self) -> Result<Vec<Arc<Change>>, Lagged> {
        let found = self
            .cache
            .inner
            .state
            .read()
            .changes_after(&self.kinds, self.position, BATCH);
        let (changes, reached) = found.ok_or(Lagged)?;
        self.position = reached;
        Ok(changes)
    }

    /// The changes one by one. After [`Lagged`] the stream ends.
    pub fn into_stream(self) -> impl Stream<Item = Result<Arc<Change>, Lagged>> {
        use futures::stream::{self, StreamExt};
        stream::unfold(Some(self), |state| async move {
            let mut subscription = state?;
            match subscription.next().await {
                Ok(changes) => {
                    let items: Vec<_> = changes.into_iter().map(Ok).collect();
                    Some((stream::iter(items), Some(subscription)))
                }
                Err(lagged) => Some((stream::iter(vec![Err(lagged)]), None)),
            }
        })
        .flatten()
    }
}
