//! Whose is it: adopting and releasing pods and ControllerRevisions (spec/daemonset.md 11).

use std::collections::BTreeMap;

use muster_model::object::Object;

use crate::facts::DaemonFacts;

/// What a DaemonSet does about an object of its namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It is its own.
    Mine,
    /// Nobody controls it and the selector matches: add the owner reference, then it is its own.
    Adopt,
    /// It is its own but does not match any more: take the owner reference off; it runs on.
    Release,
    /// It is nobody's business.
    Ignore,
}

/// Decides about one object. Both must be of the same namespace, which the caller sees to by looking nowhere
/// else; `controller_uid` is that of the object's controller reference.
pub fn claim(
    daemon: &DaemonFacts,
    controller_uid: Option<&str>,
    labels: &BTreeMap<String, String>,
    terminating: bool,
) -> Claim {
    // The empty selector of old stored data selects all; it must not take hold of anything.
    let matches = !daemon.selects_all() && daemon.selector.matches(labels);
    match controller_uid {
        Some(uid) if uid != daemon.uid => Claim::Ignore,
        Some(_) if matches || daemon.terminating || daemon.selects_all() => Claim::Mine,
        Some(_) => Claim::Release,
        None if matches && !terminating && !daemon.terminating => Claim::Adopt,
        None => Claim::Ignore,
    }
}

/// The same for an object, which may be of any namespace.
pub fn claim_object(daemon: &DaemonFacts, object: &Object) -> Claim {
    if object.namespace() != daemon.id.namespace {
        return Claim::Ignore;
    }
    let controller = object.controller();
    let uid = controller.as_ref().map(|reference| reference.uid.as_str());
    claim(daemon, uid, &object.labels(), object.is_terminating())
}
