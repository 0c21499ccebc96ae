//! What a caller may do: by group for people, by what is bound to them for nodes (spec/kube-api.md 11, 14).

use std::fmt;

use muster_model::kind::{Kind, SECRET};

use super::caller::{Caller, MASTERS, VIEWERS};
use super::{node, removed};
use crate::cache::Cache;
use crate::status::{ApiError, Reason};

/// What is asked to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "Kubernetes' own words")]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// The word in rules and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether it changes nothing.
    pub fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One question to the authorizer.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// What is to be done.
    pub verb: Verb,
    /// To which kind.
    pub kind: &'static Kind,
    /// `status`, `log`, ...; empty for the object itself.
    pub subresource: &'a str,
    /// Empty: cluster-scoped, or all namespaces.
    pub namespace: &'a str,
    /// The object's name. For lists and watches the one name that a field selector demands. Empty: any.
    pub name: &'a str,
    /// For lists and watches of pods: the one node that a field selector demands. Empty: any.
    pub node: &'a str,
}

impl<'a> Ask<'a> {
    /// About one object.
    pub fn object(verb: Verb, kind: &'static Kind, namespace: &'a str, name: &'a str) -> Self {
        Self {
            verb,
            kind,
            subresource: "",
            namespace,
            name,
            node: "",
        }
    }

    /// About a part of the object.
    #[must_use]
    pub fn of(mut self, subresource: &'a str) -> Self {
        self.subresource = subresource;
        self
    }

    fn resource(&self) -> String {
        if self.subresource.is_empty() {
            self.kind.plural.to_owned()
        } else {
            format!("{}/{}", self.kind.plural, self.subresource)
        }
    }
}

/// Lets the caller do it, or says in Kubernetes' words that they may not.
pub fn authorize(caller: &Caller, ask: &Ask<'_>, cache: &Cache) -> Result<(), ApiError> {
    let allowed = caller.in_group(MASTERS)
        || (caller.in_group(VIEWERS) && ask.verb.is_read() && *ask.kind != SECRET)
        || caller
            .node_name()
            .is_some_and(|name| !removed::is_removed(cache, name) && node::may(name, ask, cache));
    if allowed {
        Ok(())
    } else {
        Err(forbidden(caller, ask))
    }
}

fn forbidden(caller: &Caller, ask: &Ask<'_>) -> ApiError {
    let place = if ask.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{}\"", ask.namespace)
    };
    let why = format!(
        "User \"{}\" cannot {} resource \"{}\" in API group \"{}\" {place}",
        caller.user,
        ask.verb,
        ask.resource(),
        ask.kind.group,
    );
    let error = ApiError::forbidden(ask.kind, ask.name, why);
    debug_assert_eq!(error.reason(), Reason::Forbidden);
    error
}
