//! A watch: first what the log still holds after its start, then whatever comes, in one unbroken order. It has a
//! place in the shared log and nothing else, so a slow one holds up nobody; it ends with 'too old' only when the log
//! has really moved past its place.

use crate::core::{Core, Signal};
use crate::{Event, EventStream, Revision, WatchError};
use futures::StreamExt;
use futures::stream;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::watch;

/// How many commits are taken from the log at a time: each time costs a short lock.
const CHUNK: usize = 64;

struct Watch {
    core: Arc<Core>,
    signal: watch::Receiver<Signal>,
    prefix: Box<str>,
    /// Everything up to here was looked at.
    cursor: Revision,
    ready: VecDeque<Vec<Event>>,
    ended: bool,
}

/// The events after a revision, of keys that start with `prefix`.
pub(crate) fn stream(
    core: &Arc<Core>,
    prefix: &str,
    after: Revision,
) -> Result<EventStream, WatchError> {
    let watch = Watch {
        signal: core.subscribe(after)?,
        core: Arc::clone(core),
        prefix: prefix.into(),
        cursor: after,
        ready: VecDeque::new(),
        ended: false,
    };
    let next = |mut watch: Watch| async move { watch.next().await.map(|item| (item, watch)) };
    Ok(stream::unfold(watch, next).boxed())
}

impl Watch {
    async fn next(&mut self) -> Option<Result<Vec<Event>, WatchError>> {
        if self.ended {
            return None;
        }
        loop {
            if let Some(events) = self.ready.pop_front() {
                return Some(Ok(events));
            }
            // Looked at before the log is: whatever is published after this wakes the wait below.
            let closed = self.signal.borrow_and_update().closed;
            let error = match self.read() {
                Ok(true) => continue,
                Ok(false) if !closed => match self.signal.changed().await {
                    Ok(()) => continue,
                    Err(_) => WatchError::Closed,
                },
                Ok(false) => WatchError::Closed,
                Err(error) => error,
            };
            self.ended = true;
            return Some(Err(error));
        }
    }

    /// Takes the next commits from the log; false when there are none.
    fn read(&mut self) -> Result<bool, WatchError> {
        let commits = self.core.after(self.cursor, CHUNK)?;
        let Some(last) = commits.last() else {
            return Ok(false);
        };
        self.cursor = last.revision;
        for commit in &commits {
            let of_prefix = |event: &&Event| event.key.as_str().starts_with(&*self.prefix);
            let events: Vec<Event> = commit.events.iter().filter(of_prefix).cloned().collect();
            if !events.is_empty() {
                self.ready.push_back(events);
            }
        }
        Ok(true)
    }
}
