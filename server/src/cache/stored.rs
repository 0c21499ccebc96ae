//! One version of one object, encoded once, and the change from one version to the next.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use muster_model::kind::Kind;
use muster_model::object::{NamespacedName, Object, ObjectError};
use muster_store::Revision;
use serde::de::DeserializeOwned;

use super::splice;

fn set_version(object: &mut Object, revision: Revision) {
    if revision == Revision(0) {
        object.metadata_mut().remove("resourceVersion");
    } else {
        object
            .metadata_mut()
            .insert("resourceVersion".to_owned(), revision.to_string().into());
    }
}

/// One version of one object: the final bytes that every reader is sent, and its parsed forms, each
/// made at most once and only when somebody asks.
pub struct Stored {
    /// The object's kind.
    pub kind: &'static Kind,
    /// Namespace (empty for cluster-scoped kinds) and name.
    pub key: NamespacedName,
    /// The revision that wrote this version: its `resourceVersion`.
    pub revision: Revision,
    /// The object's compact JSON with `metadata.resourceVersion`.
    pub bytes: Bytes,
    object: OnceLock<Arc<Object>>,
    typed: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Stored {
    /// A version as the store has it: `object` without resourceVersion. This is the one place where the
    /// resourceVersion goes in. Revision 0 (a dry run that was never written) leaves it out.
    pub fn new(kind: &'static Kind, mut object: Object, revision: Revision) -> Self {
        set_version(&mut object, revision);
        let bytes = Bytes::from(object.to_bytes());
        Self::of(kind, object, bytes, revision)
    }

    /// As [`Stored::new`], for an object that was just read from `value`: the resourceVersion is put into that text, so that
    /// nothing is encoded again.
    pub(super) fn read(
        kind: &'static Kind,
        mut object: Object,
        value: &[u8],
        revision: Revision,
    ) -> Self {
        let Some(bytes) = splice::with_version(value, revision) else {
            return Self::new(kind, object, revision);
        };
        set_version(&mut object, revision);
        Self::of(kind, object, Bytes::from(bytes), revision)
    }

    fn of(kind: &'static Kind, object: Object, bytes: Bytes, revision: Revision) -> Self {
        Self {
            kind,
            key: object.namespaced_name(),
            revision,
            bytes,
            object: OnceLock::from(Arc::new(object)),
            typed: OnceLock::new(),
        }
    }

    /// The JSON tree, with resourceVersion.
    pub fn object(&self) -> &Arc<Object> {
        self.object.get_or_init(|| {
            Arc::new(
                Object::from_bytes(&self.bytes)
                    .expect("these bytes were encoded from an Object by Stored::new"),
            )
        })
    }

    /// The typed view, decoded on first use and shared afterwards. One type per kind is remembered; asking
    /// for another one decodes anew.
    pub fn typed<T: DeserializeOwned + Send + Sync + 'static>(
        &self,
    ) -> Result<Arc<T>, ObjectError> {
        if let Some(known) = self.typed.get()
            && let Ok(view) = Arc::downcast::<T>(Arc::clone(known))
        {
            return Ok(view);
        }
        let view = Arc::new(self.object().typed::<T>()?);
        // Losing the race is fine: both views are equal.
        let _ = self
            .typed
            .set(Arc::clone(&view) as Arc<dyn Any + Send + Sync>);
        Ok(view)
    }

    /// Takes the typed view that was made to check the object.
    pub(super) fn with_view(self, view: Option<Arc<dyn Any + Send + Sync>>) -> Self {
        if let Some(view) = view {
            let _ = self.typed.set(view);
        }
        self
    }

    /// The object's uid.
    pub fn uid(&self) -> &str {
        self.object().uid()
    }

    /// The object's namespace; empty for cluster-scoped kinds.
    pub fn namespace(&self) -> &str {
        &self.key.namespace
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        &self.key.name
    }

    /// The tree as it is stored: without resourceVersion.
    pub(crate) fn to_stored_object(&self) -> Object {
        let mut object = Object::clone(self.object());
        object.metadata_mut().remove("resourceVersion");
        object
    }

    /// Whether a parsed form is being kept.
    pub(super) fn is_parsed(&self) -> bool {
        self.object.get().is_some() || self.typed.get().is_some()
    }

    /// The same version without its parsed forms: what a log of the past keeps.
    pub(super) fn slim(&self) -> Self {
        Self {
            kind: self.kind,
            key: self.key.clone(),
            revision: self.revision,
            bytes: self.bytes.clone(),
            object: OnceLock::new(),
            typed: OnceLock::new(),
        }
    }
}

impl fmt::Debug for Stored {
    /// Names only: objects may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}@{}", self.kind, self.key, self.revision)
    }
}

/// One object going from one version to the next.
#[derive(Debug)]
pub struct Change {
    /// When.
    pub revision: Revision,
    /// The version before; `None`: the object is new.
    pub old: Option<Arc<Stored>>,
    /// The version after; `None`: the object is gone.
    pub new: Option<Arc<Stored>>,
    last: OnceLock<Arc<Stored>>,
}

impl Change {
    pub(super) fn new(
        revision: Revision,
        old: Option<Arc<Stored>>,
        new: Option<Arc<Stored>>,
    ) -> Self {
        debug_assert!(
            old.is_some() || new.is_some(),
            "a change has a before or an after"
        );
        Self {
            revision,
            old,
            new,
            last: OnceLock::new(),
        }
    }

    /// The newer of the two versions there are.
    pub fn subject(&self) -> &Arc<Stored> {
        self.new
            .as_ref()
            .or(self.old.as_ref())
            .expect("a change has a before or an after")
    }

    /// The object's kind.
    pub fn kind(&self) -> &'static Kind {
        self.subject().kind
    }

    /// The object's namespace and name.
    pub fn key(&self) -> &NamespacedName {
        &self.subject().key
    }

    /// What a DELETED event shows: the last state, with the resourceVersion of the deletion. Encoded once,
    /// however many watchers there are.
    pub fn last_state(&self) -> &Arc<Stored> {
        self.last.get_or_init(|| {
            let subject = self.subject();
            Arc::new(Stored::new(
                subject.kind,
                subject.to_stored_object(),
                self.revision,
            ))
        })
    }

    /// How many bytes keeping this change costs, about.
    pub(super) fn weight(&self) -> usize {
        self.old.as_ref().map_or(0, |s| s.bytes.len())
            + self.new.as_ref().map_or(0, |s| s.bytes.len())
            + 256
    }

    pub(super) fn slim(&self) -> Self {
        let slim =
            |stored: &Option<Arc<Stored>>| stored.as_ref().map(|stored| Arc::new(stored.slim()));
        Self::new(self.revision, slim(&self.old), slim(&self.new))
    }
}
