//! What calls on objects take, and what they give.

use muster_model::object::Object;

/// How the server treats fields it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Drop them in silence.
    Ignore,
    /// Drop them and warn.
    Warn,
    /// Refuse the object.
    #[default]
    Strict,
}

/// The forms of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' strategic merge patch.
    Strategic,
}

/// What to list or watch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListOptions {
    /// `app=web,tier in (a,b)`; empty: all.
    pub label_selector: String,
    /// `spec.nodeName=n1`; empty: all.
    pub field_selector: String,
}

/// How to write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// Do everything but store.
    pub dry_run: bool,
    /// Who writes, for the record.
    pub field_manager: String,
    /// What to do with unknown fields.
    pub field_validation: FieldValidation,
}

/// How to delete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeleteOptions {
    /// `Background`, `Foreground` or `Orphan`; empty: the kind's default.
    pub propagation_policy: String,
    /// `None`: the object's own.
    pub grace_period_seconds: Option<i64>,
    /// Only this incarnation; empty: any.
    pub uid: String,
    /// Only this version; empty: any.
    pub resource_version: String,
    /// Do everything but delete.
    pub dry_run: bool,
}

/// A list at one revision.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectList {
    /// Ordered by namespace, then name.
    pub items: Vec<Object>,
    /// Watch from here.
    pub resource_version: String,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The items.
    pub items: Vec<Object>,
    /// The list's revision, the same on every page.
    pub resource_version: String,
    /// For the next page; empty on the last.
    pub continue_token: String,
}

/// The answer to a write.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// The object as stored.
    pub object: Object,
    /// What its author should know, one sentence each.
    pub warnings: Vec<String>,
}

/// The answer to a delete.
#[derive(Debug, Clone, PartialEq)]
pub struct Deleted {
    /// False: it stays until its finalizers or its pod are done.
    pub gone: bool,
    /// Its last known state, when the server sent it.
    pub object: Option<Object>,
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEventType {
    /// It is new, or came into the selection.
    Added,
    /// It changed.
    Modified,
    /// It is gone, or left the selection.
    Deleted,
}

/// One event of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent {
    /// A change.
    Object {
        /// What happened.
        kind: WatchEventType,
        /// The object; the last state when it was deleted.
        object: Object,
        /// The revision of the change.
        resource_version: String,
    },
    /// Nothing happened up to this revision.
    Bookmark {
        /// The revision.
        resource_version: String,
    },
}

impl WatchEvent {
    /// The revision from which the watch can be resumed.
    pub fn resource_version(&self) -> &str {
        match self {
            Self::Object {
                resource_version, ..
            }
            | Self::Bookmark { resource_version } => resource_version,
        }
    }
}
