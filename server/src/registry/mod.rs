//! Every object, whoever asks: what both doors (gRPC, REST) and all controllers go through.
//!
//! ```text
//! caller --> admit (decode, default, validate) --> prepare (pure) --> commit --> store
//!                                                     ^                 |
//!                                                     +---- cache <-----+  (answers once the cache shows it)
//! ```
//!
//! Reads come from the cache. A write is decided against the cache (`prepare`), travels with comparisons
//! against what it was decided on (`commit`), and is decided again when somebody else was faster. What
//! differs between kinds is in one `Strategy` each.

mod commit;
mod daemonset;
pub(crate) mod daemonset_policy;
mod ids;
pub mod keys;
pub mod lease;
mod list;
mod metadata;
pub mod namespace;
mod node;
mod patch;
mod plain;
mod pod;
mod pod_admission;
mod prepare;
pub mod priority_class;
mod selection;
mod strategy;
mod watch;
mod write;

use std::sync::Arc;

use muster_model::kind::Kind;
use muster_model::object::{NamespacedName, Object};
use muster_model::time::{Moment, SharedClock, Timestamp};
use muster_store::Store;

pub use ids::Ids;
pub(crate) use metadata::same_but;

pub use list::{ListQuery, Page};
pub use selection::Selection;
pub use watch::{WatchItem, WatchQuery, WatchStream};
pub use write::{
    DeleteOptions, Edit, FieldValidation, Precondition, Propagation, Write, WriteOptions, Written,
};

pub use muster_model::patch::PatchForm;

use crate::auth::Caller;
use crate::cache::{Cache, Stored};
use crate::status::ApiError;

/// Access to every object. Cheap to clone.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    cache: Cache,
    clock: SharedClock,
    ids: Ids,
}

impl Registry {
    /// A registry over a store and the cache that follows it.
    pub fn new(store: Arc<dyn Store>, cache: Cache, clock: SharedClock, ids: Ids) -> Self {
        Self {
            inner: Arc::new(Inner {
                store,
                cache,
                clock,
                ids,
            }),
        }
    }

    /// The cache that all reads come from.
    pub fn cache(&self) -> &Cache {
        &self.inner.cache
    }

    /// The clock of everything this server does.
    pub fn clock(&self) -> &SharedClock {
        &self.inner.clock
    }

    /// The server's source of chance.
    pub fn ids(&self) -> &Ids {
        &self.inner.ids
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// The same, by both clocks.
    pub(crate) fn moment(&self) -> Moment {
        self.inner.clock.moment()
    }

    /// One object.
    pub fn get(
        &self,
        _caller: &Caller,
        kind: &'static Kind,
        key: &NamespacedName,
    ) -> Result<Arc<Stored>, ApiError> {
        self.cache()
            .get(kind, key)
            .ok_or_else(|| ApiError::not_found(kind, &key.name))
    }

    /// Creates an object in the namespace that it names.
    pub async fn create(
        &self,
        caller: &Caller,
        kind: &'static Kind,
        object: Object,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        self.write(caller, Write::create(kind, object).dry_run(options.dry_run))
            .await
    }

    /// Replaces an object except its status.
    pub async fn update(
        &self,
        caller: &Caller,
        kind: &'static Kind,
        object: Object,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        self.write(caller, Write::update(kind, object).dry_run(options.dry_run))
            .await
    }

    /// Replaces an object's status.
    pub async fn update_status(
        &self,
        caller: &Caller,
        kind: &'static Kind,
        object: Object,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        self.write(
            caller,
            Write::update_status(kind, object).dry_run(options.dry_run),
        )
        .await
    }

    /// Deletes an object, or begins to.
    pub async fn delete(
        &self,
        caller: &Caller,
        kind: &'static Kind,
        key: NamespacedName,
        options: DeleteOptions,
    ) -> Result<Written, ApiError> {
        self.write(caller, Write::delete(kind, key, options)).await
    }

    /// Deletes every object that a query selects, each as if it were deleted alone. Objects that are gone
    /// meanwhile are no error; the first other refusal is the answer, after all have been tried.
    pub async fn delete_collection(
        &self,
        caller: &Caller,
        kind: &'static Kind,
        query: &ListQuery,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Stored>>, ApiError> {
        let page = self.list(caller, kind, query)?;
        let writes: Vec<Write> = page
            .items
            .iter()
            .map(|stored| Write::delete(kind, stored.key.clone(), options.clone()))
            .collect();
        let mut deleted = Vec::with_capacity(writes.len());
        let mut refused = None;
        for answer in self.carry_out(caller, &writes).await {
            match answer {
                Ok(written) => deleted.push(written.stored),
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    refused.get_or_insert(error);
                }
            }
        }
        refused.map_or(Ok(deleted), Err)
    }
}
