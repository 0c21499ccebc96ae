//! `DaemonSetPolicy`: what is done about the findings of the admission checks, by namespace.
//!
//! The checks themselves are in the `muster-daemonset` crate; here are their names, what is done about each when
//! nobody says otherwise, and how several policies come to one ruling.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::k8s::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use crate::selector::Selector;

macro_rules! checks {
    ($($(#[$doc:meta])* $name:ident $default:ident,)*) => {
        /// A check that every new or changed DaemonSet goes through. The names are what policies, warnings and
        /// scripts say: they stay.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Check {
            $($(#[$doc])* $name,)*
        }

        impl Check {
            /// Every check, in the order in which findings are told.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Every check's name, in the same order.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// What is done about it where no policy names it.
            pub fn default_level(self) -> Level {
                match self {
                    $(Self::$name => Level::$default,)*
                }
            }
        }
    };
}

checks! {
    /// A node of the cluster has a taint that the pods do not tolerate.
    UntoleratedTaints Warn,
    /// `nodeSelector`, required node affinity or `nodeName` match none of the cluster's nodes.
    MatchesNoNode Warn,
    /// A rolling update of a container that never says whether it works.
    NoReadinessProbe Warn,
    /// A container that does not say how much CPU and memory it needs.
    NoResourceRequests Warn,
    /// Nothing is updated until somebody deletes pods.
    OnDelete Warn,
    /// No earlier revision is kept: there is no undo.
    NoHistory Warn,
    /// An image by the tag `latest`, or by none.
    LatestTag Warn,
    /// A port of the node and a surge: two pods of one node cannot both have it.
    HostPortSurge Warn,
    /// A hostPath that says nothing of what it should find.
    HostPathWithoutType Ignore,
    /// An annotation below `muster.dev/` that is not read where it is: misspelt, or in the template.
    UnknownAnnotation Warn,
}

impl Check {
    /// The check of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|check| check.name() == name)
    }
}

/// What is done about a finding. The larger is the stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Nothing.
    Ignore,
    /// The author is told.
    Warn,
    /// The write is refused.
    Refuse,
}

impl Level {
    /// Every level's name.
    pub const NAMES: &[&str] = &["Ignore", "Warn", "Refuse"];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ignore => "Ignore",
            Self::Warn => "Warn",
            Self::Refuse => "Refuse",
        }
    }

    /// The level of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Ignore, Self::Warn, Self::Refuse]
            .into_iter()
            .find(|level| level.name() == name)
    }
}

/// A DaemonSetPolicy (`muster.dev/v1`, cluster-scoped), as it is written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, expecting = "a map")]
pub struct DaemonSetPolicy {
    /// `muster.dev/v1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// `DaemonSetPolicy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// As every object's.
    pub metadata: ObjectMeta,
    /// What it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<DaemonSetPolicySpec>,
}

/// What a policy says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, expecting = "a map")]
pub struct DaemonSetPolicySpec {
    /// Whose DaemonSets it is about; absent: everybody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<PolicyNamespaces>,
    /// Name of a [`Check`] -> name of a [`Level`]. What is not named is left to other policies, or to the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks: Option<BTreeMap<String, String>>,
}

/// Namespaces: those named and those selected.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, expecting = "a map")]
pub struct PolicyNamespaces {
    /// By name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// By the namespace's labels; an empty selector selects all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

impl DaemonSetPolicySpec {
    /// Whether it is about the DaemonSets of the namespace with this name and these labels.
    pub fn covers(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        let Some(namespaces) = &self.namespaces else {
            return true;
        };
        let named = namespaces
            .names
            .iter()
            .flatten()
            .any(|name| name == namespace);
        let selects = |selector: &LabelSelector| {
            // Validation let only selectors in that can be read.
            Selector::from_spec(selector).is_ok_and(|selector| selector.matches(labels))
        };
        named || namespaces.selector.as_ref().is_some_and(selects)
    }

    fn level(&self, check: Check) -> Option<Level> {
        let name = self.checks.as_ref()?.get(check.name())?;
        Level::named(name)
    }
}

/// What all policies of a namespace come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ruling {
    decided: BTreeMap<Check, (Level, String)>,
}

impl Ruling {
    /// The ruling of these policies, given by name, for a namespace: of several that name a check the strictest
    /// decides, and of equally strict ones the first by name.
    pub fn of<'a>(
        policies: impl IntoIterator<Item = (&'a str, &'a DaemonSetPolicySpec)>,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Self {
        let mut decided: BTreeMap<Check, (Level, String)> = BTreeMap::new();
        for (name, policy) in policies {
            if !policy.covers(namespace, labels) {
                continue;
            }
            for check in Check::ALL {
                let Some(level) = policy.level(*check) else {
                    continue;
                };
                let stricter = decided.get(check).is_none_or(|(strictest, first)| {
                    level > *strictest || (level == *strictest && name < first.as_str())
                });
                if stricter {
                    decided.insert(*check, (level, name.to_owned()));
                }
            }
        }
        Self { decided }
    }

    /// What is done about a check's findings.
    pub fn level(&self, check: Check) -> Level {
        self.decided
            .get(&check)
            .map_or(check.default_level(), |(level, _)| *level)
    }

    /// The policy that decided; `None`: the default holds.
    pub fn policy(&self, check: Check) -> Option<&str> {
        self.decided.get(&check).map(|(_, name)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(tree: serde_json::Value) -> DaemonSetPolicySpec {
        serde_json::from_value(tree).unwrap()
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn names_are_read_back() {
        for (check, name) in Check::ALL.iter().zip(Check::NAMES) {
            assert_eq!(check.name(), *name);
            assert_eq!(Check::named(name), Some(*check));
        }
        for name in Level::NAMES {
            assert_eq!(Level::named(name).map(Level::name), Some(*name));
        }
        assert_eq!(
            (Check::named("onDelete"), Level::named("deny")),
            (None, None)
        );
    }

    #[test]
    fn a_policy_covers_the_namespaces_it_names_and_those_it_selects() {
        let edge = labels(&[("tier", "edge")]);
        let all = spec(json!({"checks": {}}));
        assert!(all.covers("a", &labels(&[])) && all.covers("b", &edge));
        let some = spec(json!({"namespaces": {
            "names": ["a"], "selector": {"matchLabels": {"tier": "edge"}},
        }}));
        assert!(some.covers("a", &labels(&[])) && some.covers("b", &edge));
        assert!(!some.covers("b", &labels(&[("tier", "core")])));
        let everything = spec(json!({"namespaces": {"selector": {}}}));
        assert!(everything.covers("b", &labels(&[])));
        assert!(!spec(json!({"namespaces": {"names": []}})).covers("b", &edge));
    }

    #[test]
    fn the_strictest_policy_decides_and_what_none_names_keeps_its_default() {
        let lax = spec(
            json!({"checks": {"OnDelete": "Ignore", "LatestTag": "Ignore", "NoHistory": "Warn"}}),
        );
        let strict =
            spec(json!({"checks": {"OnDelete": "Refuse", "HostPathWithoutType": "Refuse"}}));
        let elsewhere =
            spec(json!({"namespaces": {"names": ["b"]}, "checks": {"LatestTag": "Refuse"}}));
        let ask = |order: [usize; 3], namespace: &str| {
            let named = [
                ("lax", &lax),
                ("strict", &strict),
                ("elsewhere", &elsewhere),
            ];
            Ruling::of(order.map(|n| named[n]), namespace, &labels(&[]))
        };
        let ruling = ask([0, 1, 2], "a");
        assert_eq!(ruling, ask([2, 1, 0], "a"), "the order is of no matter");
        let told = |check| (ruling.level(check), ruling.policy(check));
        assert_eq!(told(Check::OnDelete), (Level::Refuse, Some("strict")));
        assert_eq!(told(Check::LatestTag), (Level::Ignore, Some("lax")));
        assert_eq!(told(Check::NoHistory), (Level::Warn, Some("lax")));
        assert_eq!(
            told(Check::HostPathWithoutType),
            (Level::Refuse, Some("strict"))
        );
        assert_eq!(told(Check::NoReadinessProbe), (Level::Warn, None));
        assert_eq!(ask([0, 1, 2], "b").level(Check::LatestTag), Level::Refuse);
        assert_eq!(
            Ruling::default().level(Check::HostPathWithoutType),
            Level::Ignore
        );
    }
}
