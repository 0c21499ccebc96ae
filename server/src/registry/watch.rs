//! Watches: changes after a revision, seen through a selection (spec/kube-api.md 8).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use muster_model::kind::Kind;
use muster_store::Revision;
use tokio::time::Instant;

use super::Registry;
use super::selection::Selection;
use crate::auth::Caller;
use crate::cache::{Change, Stored, Subscription};
use crate::status::ApiError;

/// How often a quiet watch that asked for it is sent a bookmark.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long a revision from the future is waited for.
const FUTURE_WITHIN: Duration = Duration::from_secs(3);

/// What is to be watched.
#[derive(Debug, Clone)]
pub struct WatchQuery {
    /// `None`: every namespace.
    pub namespace: Option<String>,
    /// Which objects.
    pub selection: Selection,
    /// Start after this revision; `None`: ADDED for everything there is, then live.
    pub after: Option<Revision>,
    /// Send bookmarks.
    pub bookmarks: bool,
}

impl Default for WatchQuery {
    fn default() -> Self {
        Self {
            namespace: None,
            selection: Selection::everything(),
            after: None,
            bookmarks: false,
        }
    }
}

/// One thing a watcher is told.
#[derive(Debug, Clone)]
pub enum WatchItem {
    /// The object is new, or begins to match.
    Added(Arc<Stored>),
    /// The object changed.
    Modified(Arc<Stored>),
    /// The object is gone, or no longer matches: its last state, with the revision of that.
    Deleted(Arc<Stored>),
    /// Nothing happened up to this revision.
    Bookmark(Revision),
}

/// A watch. After an error it ends: `Expired` means list again.
pub type WatchStream = BoxStream<'static, Result<WatchItem, ApiError>>;

impl WatchItem {
    /// The item's resourceVersion.
    pub fn revision(&self) -> Revision {
        match self {
            Self::Added(stored) | Self::Modified(stored) | Self::Deleted(stored) => stored.revision,
            Self::Bookmark(revision) => *revision,
        }
    }
}

struct Watch {
    registry: Registry,
    subscription: Subscription,
    query: WatchQuery,
    ready: VecDeque<WatchItem>,
    /// The newest revision the watcher has been told of.
    told: Revision,
    bookmark_at: Instant,
    ended: bool,
}

impl Registry {
    /// Watches objects of a kind.
    pub async fn watch(
        &self,
        _caller: &Caller,
        kind: &'static Kind,
        mut query: WatchQuery,
    ) -> Result<WatchStream, ApiError> {
        query.namespace = query
            .namespace
            .filter(|namespace| kind.namespaced && !namespace.is_empty());
        let mut ready = VecDeque::new();
        let (subscription, told) = match query.after.filter(|after| after.0 != 0) {
            None => {
                let (snapshot, subscription) = self.cache().list_and_subscribe(&[kind]);
                let wanted = snapshot
                    .items
                    .into_iter()
                    .filter(|stored| query.matches(stored));
                ready.extend(wanted.map(WatchItem::Added));
                (subscription, snapshot.revision)
            }
            Some(after) => {
                if !self.cache().wait_for(after, FUTURE_WITHIN).await {
                    return Err(ApiError::too_large_version(
                        after.0,
                        self.cache().revision().0,
                    ));
                }
                let subscription = self
                    .cache()
                    .subscribe_after(kind, after)
                    .map_err(|error| ApiError::too_old(error.asked.0, error.oldest.0))?;
                (subscription, after)
            }
        };
        let watch = Watch {
            registry: self.clone(),
            subscription,
            query,
            ready,
            told,
            bookmark_at: Instant::now() + BOOKMARK_EVERY,
            ended: false,
        };
        Ok(stream::unfold(watch, |mut watch| async move {
            watch.next().await.map(|item| (item, watch))
        })
        .boxed())
    }
}

impl WatchQuery {
    fn matches(&self, stored: &Stored) -> bool {
        self.namespace
            .as_ref()
            .is_none_or(|namespace| *namespace == stored.key.namespace)
            && self.selection.matches(stored.object())
    }

    /// How a change looks through this query; `None`: it cannot be seen.
    fn view(&self, change: &Change) -> Option<WatchItem> {
        let was = change.old.as_ref().is_some_and(|old| self.matches(old));
        match &change.new {
            Some(new) if self.matches(new) => Some(if was {
                WatchItem::Modified(Arc::clone(new))
            } else {
                WatchItem::Added(Arc::clone(new))
            }),
            // Stopped matching: the watcher is shown the new object. Gone: the last one.
            Some(_) | None if was => Some(WatchItem::Deleted(Arc::clone(change.last_state()))),
            _ => None,
        }
    }
}

impl Watch {
    async fn next(&mut self) -> Option<Result<WatchItem, ApiError>> {
        if self.ended {
            return None;
        }
        loop {
            if let Some(item) = self.ready.pop_front() {
                self.told = self.told.max(item.revision());
                return Some(Ok(item));
            }
            let changes = if self.query.bookmarks {
                tokio::select! {
                    biased;
                    // First, so that changes that are none of this watch's never keep it from its bookmarks.
                    () = tokio::time::sleep_until(self.bookmark_at) => {
                        self.bookmark();
                        continue;
                    }
                    // Cancel-safe: `next` takes nothing out before it returns.
                    changes = self.subscription.next() => changes,
                }
            } else {
                self.subscription.next().await
            };
            match changes {
                Ok(changes) => self
                    .ready
                    .extend(changes.iter().filter_map(|change| self.query.view(change))),
                Err(_) => {
                    self.ended = true;
                    return Some(Err(ApiError::too_old(
                        self.told.0,
                        self.registry.cache().revision().0,
                    )));
                }
            }
        }
    }

    /// Puts a bookmark in line, after whatever happened before it.
    fn bookmark(&mut self) {
        self.bookmark_at = Instant::now() + BOOKMARK_EVERY;
        // Read before looking, so that nothing up to here can be missed.
        let revision = self.registry.cache().revision();
        if let Ok(changes) = self.subscription.ready() {
            self.ready
                .extend(changes.iter().filter_map(|change| self.query.view(change)));
            // A later batch may still hold changes up to here: only an empty-handed look is proof.
            if changes.is_empty() && revision >= self.told {
                self.ready.push_back(WatchItem::Bookmark(revision));
            }
        }
    }
}
