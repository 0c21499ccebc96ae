//! What can be asked of the registry: one write, its options and its answer.

use std::fmt;
use std::sync::Arc;

use muster_model::kind::Kind;
use muster_model::object::{NamespacedName, Object};
use muster_store::{Key, Revision};

use super::keys;

use crate::cache::Stored;
use crate::status::ApiError;

/// A change made to the newest version of an object. Called again when somebody else was faster.
pub type Edit = Arc<dyn Fn(&mut Object) -> Result<(), ApiError> + Send + Sync>;

/// What must be true of the stored object. The default asks nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Precondition {
    /// This very object, not a later one of the same name.
    pub uid: Option<String>,
    /// This very version.
    pub revision: Option<Revision>,
}

impl Precondition {
    /// This very object.
    pub fn uid(uid: impl Into<String>) -> Self {
        Self {
            uid: Some(uid.into()),
            revision: None,
        }
    }

    /// This very version of this very object.
    pub fn version(stored: &Stored) -> Self {
        Self {
            uid: Some(stored.uid().to_owned()),
            revision: Some(stored.revision),
        }
    }
}

/// What becomes of an object's dependents when it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// The object goes at once, its dependents are collected afterwards.
    Background,
    /// The object waits until its dependents with `blockOwnerDeletion` are gone.
    Foreground,
    /// The dependents lose their owner reference and stay.
    Orphan,
}

impl Propagation {
    /// Reads `Background`, `Foreground` or `Orphan`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Background" => Some(Self::Background),
            "Foreground" => Some(Self::Foreground),
            "Orphan" => Some(Self::Orphan),
            _ => None,
        }
    }
}

/// How to delete (spec/kube-api.md 9, delete).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// `None`: background, unless the object already carries a finalizer that says otherwise.
    pub propagation: Option<Propagation>,
    /// Seconds a pod may take; `None`: the pod's own; 0: at once.
    pub grace_seconds: Option<i64>,
    /// What must be true of the object.
    pub precondition: Precondition,
    /// Do everything but store.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Remove at once, this very object: the agent's confirmation, and a force delete.
    pub fn now(uid: impl Into<String>) -> Self {
        Self {
            grace_seconds: Some(0),
            precondition: Precondition::uid(uid),
            ..Self::default()
        }
    }
}

/// Options of a create, update or patch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Do everything but store: admission, validation and the answer are real.
    pub dry_run: bool,
    /// What to do about unknown and duplicate fields of a patch's result.
    pub field_validation: FieldValidation,
}

pub use crate::admit::FieldValidation;

/// One write of a batch.
#[derive(Clone)]
pub struct Write {
    pub(super) kind: &'static Kind,
    pub(super) action: Action,
    pub(super) dry_run: bool,
}

#[derive(Clone)]
pub(super) enum Action {
    Create {
        object: Object,
    },
    Replace {
        object: Object,
        status: bool,
    },
    Edit {
        key: NamespacedName,
        status: bool,
        precondition: Precondition,
        edit: Edit,
    },
    Delete {
        key: NamespacedName,
        options: DeleteOptions,
    },
}

impl Write {
    /// Creates an object; with `metadata.generateName` and no name, the name is made.
    pub fn create(kind: &'static Kind, object: Object) -> Self {
        Self {
            kind,
            action: Action::Create { object },
            dry_run: false,
        }
    }

    /// Replaces an object except its status. A `resourceVersion` in it must be the stored one.
    pub fn update(kind: &'static Kind, object: Object) -> Self {
        Self {
            kind,
            action: Action::Replace {
                object,
                status: false,
            },
            dry_run: false,
        }
    }

    /// Replaces an object's status (and labels, annotations). A `resourceVersion` in it must be the stored one.
    pub fn update_status(kind: &'static Kind, object: Object) -> Self {
        Self {
            kind,
            action: Action::Replace {
                object,
                status: true,
            },
            dry_run: false,
        }
    }

    /// Changes the newest version in place; what the edit does to the status is ignored.
    pub fn edit<F>(
        kind: &'static Kind,
        key: NamespacedName,
        precondition: Precondition,
        edit: F,
    ) -> Self
    where
        F: Fn(&mut Object) -> Result<(), ApiError> + Send + Sync + 'static,
    {
        Self {
            kind,
            action: Action::Edit {
                key,
                status: false,
                precondition,
                edit: Arc::new(edit),
            },
            dry_run: false,
        }
    }

    /// Changes the newest version's status in place; what the edit does to the spec is ignored.
    pub fn edit_status<F>(
        kind: &'static Kind,
        key: NamespacedName,
        precondition: Precondition,
        edit: F,
    ) -> Self
    where
        F: Fn(&mut Object) -> Result<(), ApiError> + Send + Sync + 'static,
    {
        Self {
            kind,
            action: Action::Edit {
                key,
                status: true,
                precondition,
                edit: Arc::new(edit),
            },
            dry_run: false,
        }
    }

    /// Deletes an object, or begins to.
    pub fn delete(kind: &'static Kind, key: NamespacedName, options: DeleteOptions) -> Self {
        let dry_run = options.dry_run;
        Self {
            kind,
            action: Action::Delete { key, options },
            dry_run,
        }
    }

    /// Do everything but store.
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// What is done, in a word or two, for logs.
    pub(super) fn verb(&self) -> &'static str {
        match &self.action {
            Action::Create { .. } => "create",
            Action::Replace { status: false, .. } => "update",
            Action::Replace { status: true, .. } => "update status",
            Action::Edit { status: false, .. } => "edit",
            Action::Edit { status: true, .. } => "edit status",
            Action::Delete { .. } => "delete",
        }
    }

    /// Where the object lies; `None` while its name is not made yet.
    pub(super) fn store_key(&self) -> Option<Key> {
        let key = match &self.action {
            Action::Create { object } | Action::Replace { object, .. } => object.namespaced_name(),
            Action::Edit { key, .. } | Action::Delete { key, .. } => key.clone(),
        };
        (!key.name.is_empty()).then(|| keys::of(self.kind, &key))
    }

    /// The object's name, as far as it is known.
    pub fn name(&self) -> &str {
        match &self.action {
            Action::Create { object } | Action::Replace { object, .. } => object.name(),
            Action::Edit { key, .. } | Action::Delete { key, .. } => &key.name,
        }
    }
}

impl fmt::Debug for Write {
    /// Names only: objects may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.verb(), self.kind, self.name())
    }
}

/// The answer to a write.
#[derive(Debug, Clone)]
pub struct Written {
    /// The object as it is now; when it is gone, as it was last.
    pub stored: Arc<Stored>,
    /// True when the object is no longer there.
    pub gone: bool,
    /// True when anything was stored; false for a write that changed nothing and for a dry run.
    pub changed: bool,
    /// What the author should know, one sentence each.
    pub warnings: Vec<String>,
}
