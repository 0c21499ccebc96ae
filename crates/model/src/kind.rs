//! The table of served kinds.

use std::fmt;

/// One served kind: a row of [`KINDS`]. Compared by identity of group, version and kind.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version within the group, such as `v1`.
    pub version: &'static str,
    /// The kind's name, such as `DaemonSet`.
    pub kind: &'static str,
    /// Plural resource name, such as `daemonsets`.
    pub plural: &'static str,
    /// Singular resource name, such as `daemonset`.
    pub singular: &'static str,
    /// Short names that command lines accept, such as `ds`.
    pub short_names: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Whether `get all` shows it.
    pub in_all: bool,
    /// Whether it has a `status` subresource.
    pub has_status: bool,
    /// Whether `metadata.generation` counts changes of its `spec`.
    pub has_generation: bool,
}

macro_rules! kinds {
    ($($name:ident = $group:literal $version:literal $kind:literal $plural:literal $singular:literal [$($short:literal),*] $namespaced:literal $in_all:literal $has_status:literal $has_generation:literal;)*) => {
        $(
            #[doc = concat!("`", $kind, "` of `", $group, "/", $version, "`.")]
            pub static $name: Kind = Kind {
                group: $group, version: $version, kind: $kind, plural: $plural, singular: $singular,
                short_names: &[$($short),*], namespaced: $namespaced, in_all: $in_all,
                has_status: $has_status, has_generation: $has_generation,
            };
        )*
        /// Every served kind, in the order in which they are listed to users.
        pub static KINDS: &[&Kind] = &[$(&$name),*];
    };
}

//                group version kind plural singular short                       namespaced all status generation
kinds! {
    NAMESPACE = "" "v1" "Namespace" "namespaces" "namespace" ["ns"] false false true false;
    NODE = "" "v1" "Node" "nodes" "node" ["no"] false false true false;
    POD = "" "v1" "Pod" "pods" "pod" ["po"] true true true true;
    EVENT = "" "v1" "Event" "events" "event" ["ev"] true false false false;
    CONFIG_MAP = "" "v1" "ConfigMap" "configmaps" "configmap" ["cm"] true false false false;
    SECRET = "" "v1" "Secret" "secrets" "secret" [] true false false false;
    SERVICE_ACCOUNT = "" "v1" "ServiceAccount" "serviceaccounts" "serviceaccount" ["sa"] true false false false;
    DAEMON_SET = "apps" "v1" "DaemonSet" "daemonsets" "daemonset" ["ds"] true true true true;
    CONTROLLER_REVISION = "apps" "v1" "ControllerRevision" "controllerrevisions" "controllerrevision" [] true false false false;
    LEASE = "coordination.k8s.io" "v1" "Lease" "leases" "lease" [] true false false false;
    PRIORITY_CLASS = "scheduling.k8s.io" "v1" "PriorityClass" "priorityclasses" "priorityclass" ["pc"] false false false true;
    DAEMON_SET_POLICY = "muster.dev" "v1" "DaemonSetPolicy" "daemonsetpolicies" "daemonsetpolicy" ["dsp"] false false false true;
}

impl Kind {
    /// `apiVersion` as objects spell it: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Resource name with its group, as error messages spell it: `pods`, `daemonsets.apps`.
    pub fn qualified_resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Singular name with the group, as kubectl prints objects: `pod`, `daemonset.apps`.
    pub fn qualified_singular(&self) -> String {
        if self.group.is_empty() {
            self.singular.to_owned()
        } else {
            format!("{}.{}", self.singular, self.group)
        }
    }

    /// Kind with the group, as validation messages spell it: `Pod`, `DaemonSet.apps`.
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() {
            self.kind.to_owned()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.group == other.group && self.version == other.version
    }
}

impl Eq for Kind {}

impl std::hash::Hash for Kind {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.group.hash(state);
        self.kind.hash(state);
    }
}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kind {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.group, self.plural).cmp(&(other.group, other.plural))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.qualified_kind())
    }
}

/// The kind with this `apiVersion` and `kind`, as objects name themselves.
pub fn by_api_version(api_version: &str, kind: &str) -> Option<&'static Kind> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    KINDS
        .iter()
        .find(|k| k.group == group && k.version == version && k.kind == kind)
        .copied()
}

/// The kind with this group, version and plural resource name, as requests name it.
pub fn by_resource(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    KINDS
        .iter()
        .find(|k| k.group == group && k.version == version && k.plural == plural)
        .copied()
}

/// The kind a person means: plural, singular, short name or kind in any case, optionally followed by
/// `.group` (`ds`, `DaemonSet`, `daemonsets.apps`).
pub fn by_word(word: &str) -> Option<&'static Kind> {
    let word = word.to_ascii_lowercase();
    let (name, group) = match word.split_once('.') {
        Some((name, group)) => (name.to_owned(), Some(group.to_owned())),
        None => (word, None),
    };
    KINDS
        .iter()
        .find(|k| {
            group.as_deref().is_none_or(|g| g == k.group)
                && (k.plural == name
                    || k.singular == name
                    || k.short_names.contains(&name.as_str()))
        })
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_every_word_for_it() {
        for word in [
            "ds",
            "daemonset",
            "daemonsets",
            "DaemonSet",
            "daemonsets.apps",
            "daemonset.apps",
        ] {
            assert_eq!(by_word(word), Some(&DAEMON_SET), "{word}");
        }
        assert_eq!(by_word("daemonsets.extensions"), None);
        assert_eq!(by_word("deploy"), None);
    }

    #[test]
    fn a_kind_is_found_by_api_version() {
        assert_eq!(by_api_version("apps/v1", "DaemonSet"), Some(&DAEMON_SET));
        assert_eq!(by_api_version("v1", "Pod"), Some(&POD));
        assert_eq!(by_api_version("apps/v1beta1", "DaemonSet"), None);
    }
}
