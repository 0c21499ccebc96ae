//! From a request and the stored object to what the store is asked to do. No waiting, no writing.
//!
//! Assumptions: the cache shows a state that existed; what changed since is caught by the comparisons that
//! travel with the write. Invariant: a write that changes nothing asks nothing of the store.

use std::sync::Arc;

use muster_model::field_path::{FieldError, FieldPath};
use muster_model::kind::{Kind, NAMESPACE};
use muster_model::object::{NamespacedName, Object};
use muster_model::time;
use muster_store::{Compare, Op, Revision};
use serde_json::Value;

use super::metadata::{
    added_finalizers, bump_generation, carry_over, copy_field, is_same, keep_all_but_status,
    prune_empty, set_propagation,
};
use super::strategy::{self, Grace};
use super::write::{Action, DeleteOptions, Precondition, Write};
use super::{Registry, keys};
use crate::admit;
use crate::auth::{self, Caller};
use crate::cache::Stored;
use crate::status::{ApiError, Cause, NAMESPACE_TERMINATING};

/// What a write comes to.
pub(super) struct Prepared {
    pub(super) compares: Vec<Compare>,
    pub(super) ops: Vec<Op>,
    pub(super) answer: Answer,
    pub(super) warnings: Vec<String>,
}

/// What the author is told once the ops are stored.
pub(super) enum Answer {
    /// Nothing was to be done.
    Unchanged(Arc<Stored>),
    /// This object, at the revision of the commit.
    Written(&'static Kind, Object),
    /// This was the last version.
    Removed(Arc<Stored>),
}

impl Prepared {
    fn unchanged(stored: Arc<Stored>) -> Self {
        Self {
            compares: Vec::new(),
            ops: Vec::new(),
            answer: Answer::Unchanged(stored),
            warnings: Vec::new(),
        }
    }

    fn put(kind: &'static Kind, object: Object, compare: Compare, soft: bool) -> Self {
        let key = keys::of(kind, &object.namespaced_name());
        let op = Op::Put {
            key,
            value: object.to_bytes().into(),
            soft,
        };
        Self {
            compares: vec![compare],
            ops: vec![op],
            answer: Answer::Written(kind, object),
            warnings: Vec::new(),
        }
    }

    fn remove(last: Arc<Stored>) -> Self {
        let key = keys::of(last.kind, &last.key);
        Self {
            compares: vec![Compare::At(key.clone(), last.revision)],
            ops: vec![Op::Delete { key }],
            answer: Answer::Removed(last),
            warnings: Vec::new(),
        }
    }
}

impl Registry {
    /// Decides one write against the newest state this server has seen.
    pub(super) fn prepare(&self, caller: &Caller, write: &Write) -> Result<Prepared, ApiError> {
        let kind = write.kind;
        match &write.action {
            Action::Create { object } => self.prepare_create(caller, kind, object.clone()),
            Action::Replace { object, status } => {
                let old = self.existing(kind, &object.namespaced_name())?;
                check_body_version(kind, object, &old)?;
                self.prepare_update(caller, object.clone(), &old, *status)
            }
            Action::Edit {
                key,
                status,
                precondition,
                edit,
            } => {
                let old = self.existing(kind, key)?;
                check_precondition(precondition, &old)?;
                let mut object = Object::clone(old.object());
                edit(&mut object)?;
                check_body_version(kind, &object, &old)?;
                self.prepare_update(caller, object, &old, *status)
            }
            Action::Delete { key, options } => {
                let old = self.existing(kind, key)?;
                self.prepare_delete(&old, options)
            }
        }
    }

    fn existing(&self, kind: &'static Kind, key: &NamespacedName) -> Result<Arc<Stored>, ApiError> {
        self.cache()
            .get(kind, key)
            .ok_or_else(|| ApiError::not_found(kind, &key.name))
    }

    fn prepare_create(
        &self,
        caller: &Caller,
        kind: &'static Kind,
        mut object: Object,
    ) -> Result<Prepared, ApiError> {
        let strategy = strategy::of(kind);
        if !object.resource_version().is_empty() {
            return Err(ApiError::bad_request(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        self.name_it(kind, &mut object)?;
        let mut compares = Vec::new();
        if kind.namespaced {
            compares.push(self.check_namespace(kind, &object)?);
        } else {
            object.metadata_mut().remove("namespace");
        }
        self.stamp_new(kind, &mut object);
        strategy.prepare_create(&mut object)?;
        admit::default(kind, &mut object);
        strategy.finish_create(&mut object, self.cache())?;
        refuse(kind, object.name(), admit::validate_create(kind, &object))?;
        auth::node::admit_create(caller, kind, &object, self.cache())?;
        let key = object.namespaced_name();
        if self.cache().get(kind, &key).is_some() {
            return Err(ApiError::already_exists(kind, &key.name));
        }
        let warnings = self.judge(caller, kind, &object, None)?;
        let companions = strategy.companions(&object);
        let store_key = keys::of(kind, &key);
        let mut prepared = Prepared::put(
            kind,
            object,
            Compare::Absent(store_key),
            strategy.soft(&key),
        );
        prepared.compares.append(&mut compares);
        for (kind, mut companion) in companions {
            self.stamp_new(kind, &mut companion);
            admit::default(kind, &mut companion);
            let key = keys::of(kind, &companion.namespaced_name());
            prepared.ops.push(Op::Put {
                key,
                value: companion.to_bytes().into(),
                soft: false,
            });
        }
        prepared.warnings = warnings;
        Ok(prepared)
    }

    /// What the author of a new or changed object is told; an error when a policy refuses it. Parts of the server
    /// read no warnings, and must be able to write what they decided.
    fn judge(
        &self,
        caller: &Caller,
        kind: &'static Kind,
        new: &Object,
        old: Option<&Object>,
    ) -> Result<Vec<String>, ApiError> {
        let strategy = strategy::of(kind);
        if caller.is_internal() {
            return Ok(Vec::new());
        }
        let known = old.is_some_and(|old| !strategy.is_judged_anew(new, old));
        let mut warnings = if known {
            Vec::new()
        } else {
            admit::warnings(kind, new)
        };
        let advice = strategy.judge(new, old, self.cache());
        refuse(kind, new.name(), advice.faults)?;
        warnings.extend(advice.warnings);
        Ok(warnings)
    }

    fn name_it(&self, kind: &'static Kind, object: &mut Object) -> Result<(), ApiError> {
        if !object.name().is_empty() {
            return Ok(());
        }
        let prefix = object.text_at("/metadata/generateName").to_owned();
        if prefix.is_empty() {
            let field = FieldPath::of("metadata.name");
            let fault = FieldError::required(field, "name or generateName is required");
            return Err(ApiError::invalid(kind, "", &[fault]));
        }
        let name = self.ids().name(&prefix);
        object.metadata_mut().insert("name".into(), name.into());
        Ok(())
    }

    /// The namespace must be there, and must not have begun to go by the time of the commit: what slipped into a
    /// namespace after its content was listed would outlive it.
    fn check_namespace(&self, kind: &'static Kind, object: &Object) -> Result<Compare, ApiError> {
        let namespace = object.namespace();
        if namespace.is_empty() {
            return Err(ApiError::bad_request(
                "an empty namespace may not be set during creation",
            ));
        }
        let key = NamespacedName::new("", namespace);
        let Some(stored) = self.cache().get(&NAMESPACE, &key) else {
            return Err(ApiError::not_found(&NAMESPACE, namespace));
        };
        if stored.object().is_terminating() {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            return Err(
                ApiError::forbidden(kind, object.name(), why).with_cause(Cause {
                    reason: NAMESPACE_TERMINATING.to_owned(),
                    message: format!("namespace {namespace} is being terminated"),
                    field: "metadata.namespace".to_owned(),
                }),
            );
        }
        Ok(Compare::At(keys::of(&NAMESPACE, &key), stored.revision))
    }

    /// Sets the metadata that the server owns on a new object (spec/kube-api.md 9).
    fn stamp_new(&self, kind: &'static Kind, object: &mut Object) {
        object.set_kind(kind);
        let now = time::to_seconds_text(self.now());
        let uid = self.ids().uid();
        let metadata = object.metadata_mut();
        for field in [
            "resourceVersion",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "generation",
        ] {
            metadata.remove(field);
        }
        metadata.insert("uid".into(), uid.into());
        metadata.insert("creationTimestamp".into(), now.into());
        if kind.has_generation {
            metadata.insert("generation".into(), 1.into());
        }
        prune_empty(metadata);
    }

    fn prepare_update(
        &self,
        caller: &Caller,
        mut new: Object,
        stored: &Arc<Stored>,
        status: bool,
    ) -> Result<Prepared, ApiError> {
        let kind = stored.kind;
        if status && !kind.has_status {
            return Err(ApiError::unknown_resource());
        }
        let strategy = strategy::of(kind);
        // It carries its version, which nobody below compares.
        let old: &Object = stored.object();
        if !new.uid().is_empty() && new.uid() != old.uid() {
            return Err(uid_mismatch(kind, old.name(), new.uid(), old.uid()));
        }
        carry_over(kind, &mut new, old);
        refuse(kind, old.name(), added_finalizers(&new, old))?;
        if status {
            keep_all_but_status(&mut new, old);
            strategy.prepare_status(&mut new, old)?;
            refuse(kind, old.name(), admit::validate_status(kind, &new, old))?;
        } else {
            if kind.has_status {
                copy_field("status", &mut new, old);
            }
            admit::default(kind, &mut new);
            strategy.prepare_update(&mut new, old)?;
            if kind.has_generation && strategy.changes_generation(&new, old) {
                bump_generation(&mut new, old);
            }
            refuse(kind, old.name(), admit::validate_update(kind, &new, old))?;
        }
        if is_same(&new, old) {
            return Ok(Prepared::unchanged(Arc::clone(stored)));
        }
        auth::node::admit_update(caller, kind, &new, old, self.cache())?;
        if may_go(kind, &new) {
            return Ok(Prepared::remove(Arc::clone(stored)));
        }
        let warnings = if status {
            Vec::new()
        } else {
            self.judge(caller, kind, &new, Some(old))?
        };
        let compare = Compare::At(keys::of(kind, &stored.key), stored.revision);
        let mut prepared = Prepared::put(kind, new, compare, strategy.soft(&stored.key));
        prepared.warnings = warnings;
        Ok(prepared)
    }

    fn prepare_delete(
        &self,
        stored: &Arc<Stored>,
        options: &DeleteOptions,
    ) -> Result<Prepared, ApiError> {
        let kind = stored.kind;
        let strategy = strategy::of(kind);
        check_precondition(&options.precondition, stored)?;
        let old: &Object = stored.object();
        if let Some(why) = strategy.refuses_deletion(old) {
            return Err(ApiError::forbidden(kind, old.name(), why));
        }
        let mut new = stored.to_stored_object();
        set_propagation(&mut new, options.propagation);
        let grace = strategy.grace(old, options.grace_seconds);
        let held = !new.finalizers().is_empty() || strategy.is_held(&new);
        if grace == Grace::AtOnce && !held {
            return Ok(Prepared::remove(Arc::clone(stored)));
        }
        let seconds = match grace {
            Grace::AtOnce => 0,
            Grace::Seconds(seconds) => seconds,
        };
        let before = old
            .at("/metadata/deletionGracePeriodSeconds")
            .and_then(Value::as_i64);
        // A later deletion may only shorten the grace.
        let shortens = !old.is_terminating() || before.is_some_and(|before| seconds < before);
        if shortens {
            let end =
                self.now() + std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            let metadata = new.metadata_mut();
            metadata.insert(
                "deletionTimestamp".into(),
                time::to_seconds_text(end).into(),
            );
            metadata.insert("deletionGracePeriodSeconds".into(), seconds.into());
        }
        if !old.is_terminating() {
            strategy.begin_deletion(&mut new);
            if kind.has_generation {
                bump_generation(&mut new, old);
            }
        }
        if is_same(&new, old) {
            return Ok(Prepared::unchanged(Arc::clone(stored)));
        }
        let compare = Compare::At(keys::of(kind, &stored.key), stored.revision);
        Ok(Prepared::put(
            kind,
            new,
            compare,
            strategy.soft(&stored.key),
        ))
    }
}

/// Whether a terminating object has nothing left that keeps it.
fn may_go(kind: &'static Kind, object: &Object) -> bool {
    object.is_terminating()
        && object.finalizers().is_empty()
        && !strategy::of(kind).is_held(object)
        && object
            .at("/metadata/deletionGracePeriodSeconds")
            .and_then(Value::as_i64)
            .unwrap_or(0)
            == 0
}

fn refuse(kind: &Kind, name: &str, faults: Vec<FieldError>) -> Result<(), ApiError> {
    if faults.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(kind, name, &faults))
    }
}

fn check_body_version(kind: &Kind, object: &Object, stored: &Stored) -> Result<(), ApiError> {
    match object.resource_version() {
        "" => Ok(()),
        text => match text.parse::<u64>() {
            Ok(number) if Revision(number) == stored.revision => Ok(()),
            Ok(_) => Err(ApiError::modified(kind, stored.name())),
            Err(_) => Err(ApiError::bad_request(format!(
                "metadata.resourceVersion: Invalid value: \"{text}\": must be a number as the server gave it"
            ))),
        },
    }
}

fn check_precondition(precondition: &Precondition, stored: &Stored) -> Result<(), ApiError> {
    if let Some(uid) = &precondition.uid
        && uid != stored.uid()
    {
        return Err(uid_mismatch(stored.kind, stored.name(), uid, stored.uid()));
    }
    if let Some(revision) = precondition.revision
        && revision != stored.revision
    {
        return Err(ApiError::conflict(
            stored.kind,
            stored.name(),
            format!(
                "Precondition failed: ResourceVersion in precondition: {revision}, ResourceVersion in object meta: {}",
                stored.revision
            ),
        ));
    }
    Ok(())
}

fn uid_mismatch(kind: &Kind, name: &str, asked: &str, found: &str) -> ApiError {
    let why =
        format!("Precondition failed: UID in precondition: {asked}, UID in object meta: {found}");
    ApiError::conflict(kind, name, why)
}
