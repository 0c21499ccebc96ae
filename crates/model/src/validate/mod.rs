//! Validation, one file per kind: every fault at once, each with its field path (spec/daemonset.md 4).
//!
//! Everything here works on the defaulted JSON tree and never panics, whatever the tree holds. A value of a
//! wrong type counts as absent: refusing it as such is the strict decoder's work, which runs before.

mod config;
mod controller_revision;
mod daemonset;
mod daemonset_policy;
mod event;
mod lease;
mod metadata;
mod namespace;
mod node;
mod pod;
mod priority_class;
mod selector;
mod view;
mod warning;

use crate::field_path::FieldError;
use crate::kind::{self, Kind};
use crate::object::Object;

use view::{Faults, View};

/// What is wrong with a new object.
pub fn create(kind: &Kind, object: &Object) -> Vec<FieldError> {
    let mut faults = Faults::new();
    let root = View::root(object);
    metadata::check(kind, &root, &mut faults);
    if *kind == kind::DAEMON_SET {
        daemonset::check(&root, &mut faults);
    } else if *kind == kind::POD {
        pod::check(&root, &mut faults);
    } else if *kind == kind::NODE {
        node::check(&root, &mut faults);
    } else if *kind == kind::CONFIG_MAP {
        config::check_config_map(&root, &mut faults);
    } else if *kind == kind::SECRET {
        config::check_secret(&root, &mut faults);
    } else if *kind == kind::CONTROLLER_REVISION {
        controller_revision::check(&root, &mut faults);
    } else if *kind == kind::PRIORITY_CLASS {
        priority_class::check(&root, &mut faults);
    } else if *kind == kind::DAEMON_SET_POLICY {
        daemonset_policy::check(&root, &mut faults);
    } else if *kind == kind::NAMESPACE {
        namespace::check(&root, &mut faults);
    } else if *kind == kind::LEASE {
        lease::check(&root, &mut faults);
    } else if *kind == kind::EVENT {
        event::check(&root, &mut faults);
    }
    without_repeats(faults)
}

/// What is wrong with an object that is to replace `old`: all that [`create`] finds, then what may not change.
/// Metadata that the server owns (uid, creation time, ...) may be left out of `new`.
pub fn update(kind: &Kind, new: &Object, old: &Object) -> Vec<FieldError> {
    let mut faults = create(kind, new);
    let (new, old) = (View::root(new), View::root(old));
    metadata::check_update(&new, &old, &mut faults);
    if *kind == kind::DAEMON_SET {
        daemonset::check_update(&new, &old, &mut faults);
    } else if *kind == kind::POD {
        pod::check_update(&new, &old, &mut faults);
    } else if *kind == kind::NODE {
        node::check_update(&new, &old, &mut faults);
    } else if *kind == kind::CONFIG_MAP {
        config::check_config_map_update(&new, &old, &mut faults);
    } else if *kind == kind::SECRET {
        config::check_secret_update(&new, &old, &mut faults);
    } else if *kind == kind::CONTROLLER_REVISION {
        controller_revision::check_update(&new, &old, &mut faults);
    } else if *kind == kind::PRIORITY_CLASS {
        priority_class::check_update(&new, &old, &mut faults);
    }
    without_repeats(faults)
}

/// What is wrong with a write of the `status` subresource; `new` carries the stored spec already.
pub fn update_status(kind: &Kind, new: &Object, old: &Object) -> Vec<FieldError> {
    let mut faults = Faults::new();
    let (new, old) = (View::root(new), View::root(old));
    metadata::check(kind, &new, &mut faults);
    metadata::check_update(&new, &old, &mut faults);
    if *kind == kind::DAEMON_SET {
        daemonset::check_status_update(&new, &old, &mut faults);
    } else if *kind == kind::POD {
        pod::check_status(&new, &mut faults);
    } else if *kind == kind::NODE {
        node::check_status(&new, &mut faults);
    } else if *kind == kind::NAMESPACE {
        namespace::check_status(&new, &mut faults);
    }
    without_repeats(faults)
}

/// What is not wrong but worth one line to the author, each line naming its field. Of the defaulted object.
pub fn warnings(kind: &Kind, object: &Object) -> Vec<String> {
    warning::of(kind, &View::root(object))
}

/// The message of the 422 Status (spec/daemonset.md 4.1): `DaemonSet.apps "web" is invalid: ` and the faults, one
/// alone, several as `[a, b]`.
pub fn invalid_message(kind: &Kind, name: &str, faults: &[FieldError]) -> String {
    let texts: Vec<String> = faults.iter().map(FieldError::to_string).collect();
    let body = match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    format!("{} \"{name}\" is invalid: {body}", kind.qualified_kind())
}

fn without_repeats(faults: Faults) -> Vec<FieldError> {
    let mut kept: Vec<FieldError> = Vec::with_capacity(faults.len());
    for fault in faults {
        if !kept.contains(&fault) {
            kept.push(fault);
        }
    }
    kept
}

#[cfg(test)]
mod tests;
