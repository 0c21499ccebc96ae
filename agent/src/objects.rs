//! ConfigMaps and Secrets that pods use.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::kind::{self, Kind};
use muster_model::object::Object;

/// A ConfigMap or Secret, by name within its pod's namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Needed {
    /// A Secret rather than a ConfigMap.
    pub secret: bool,
    /// Its name.
    pub name: String,
}

impl Needed {
    /// A ConfigMap.
    pub fn config_map(name: &str) -> Self {
        Self {
            secret: false,
            name: name.to_owned(),
        }
    }

    /// A Secret.
    pub fn secret(name: &str) -> Self {
        Self {
            secret: true,
            name: name.to_owned(),
        }
    }

    /// Its kind.
    pub fn kind(&self) -> &'static Kind {
        if self.secret {
            &kind::SECRET
        } else {
            &kind::CONFIG_MAP
        }
    }

    /// `configmap "X" not found`.
    pub fn not_found(&self) -> String {
        format!("{} \"{}\" not found", self.kind().singular, self.name)
    }
}

/// What became of the search for an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Lookup {
    /// Here it is.
    Found(Arc<Object>),
    /// There is none.
    Missing,
    /// Nobody can say: the server is out of reach and no copy is kept.
    Unreachable(String),
}

/// The objects that one piece of work needs, fetched beforehand.
#[derive(Debug, Clone, Default)]
pub struct ObjectSet(pub BTreeMap<Needed, Lookup>);

impl ObjectSet {
    /// One of them. What was not fetched is missing.
    pub fn lookup(&self, needed: &Needed) -> Lookup {
        self.0.get(needed).cloned().unwrap_or(Lookup::Missing)
    }

    /// Why one of them cannot be read, if so.
    pub fn unreachable(&self) -> Option<&str> {
        self.0.values().find_map(|found| match found {
            Lookup::Unreachable(message) => Some(message.as_str()),
            Lookup::Found(_) | Lookup::Missing => None,
        })
    }
}
