//! Which lists merge, and by which key: the table of spec/kube-api.md 9.
//!
//! The table is keyed by the place in the schema, not by the field's name alone: `conditions` of a status merge,
//! a label called `conditions` does not; a pod and a pod template share their rows.

use crate::kind::{self, Kind};

/// A place in the schema: what the mapping there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The object itself.
    DaemonSet,
    Pod,
    Node,
    Namespace,
    ServiceAccount,
    /// An object of a kind without merging lists of its own.
    OtherObject,
    Metadata,
    DaemonSetSpec,
    PodTemplate,
    PodSpec,
    Container,
    PodStatus,
    NodeSpec,
    NodeStatus,
    /// A status whose only merging list is its conditions.
    ConditionsStatus,
    /// A place without merging lists at or below it.
    Plain,
}

/// How the list of a field is patched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListRule {
    /// The list is replaced as a whole.
    Atomic,
    /// Elements with the same value of this key are merged.
    ByKey(&'static str),
    /// A set of scalars.
    Scalars,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    /// The place of its mapping, or of its list's elements.
    pub(crate) place: Place,
    /// The rule of its list, if it is one.
    pub(crate) list: ListRule,
    /// Whether an element that changes loses the keys that the manifest does not have (volumes: their source
    /// is one of many keys).
    pub(crate) retain_keys: bool,
}

impl Place {
    pub(crate) fn of(kind: &Kind) -> Self {
        if *kind == kind::DAEMON_SET {
            Self::DaemonSet
        } else if *kind == kind::POD {
            Self::Pod
        } else if *kind == kind::NODE {
            Self::Node
        } else if *kind == kind::NAMESPACE {
            Self::Namespace
        } else if *kind == kind::SERVICE_ACCOUNT {
            Self::ServiceAccount
        } else {
            Self::OtherObject
        }
    }

    fn is_object(self) -> bool {
        use Place::{DaemonSet, Namespace, Node, OtherObject, Pod, ServiceAccount};
        matches!(
            self,
            DaemonSet | Pod | Node | Namespace | ServiceAccount | OtherObject
        )
    }

    /// What the field of this name holds here.
    pub(crate) fn field(self, name: &str) -> Field {
        let at = |place| Field {
            place,
            list: ListRule::Atomic,
            retain_keys: false,
        };
        let by = |key, place| Field {
            place,
            list: ListRule::ByKey(key),
            retain_keys: false,
        };
        let retaining = |key| Field {
            place: Self::Plain,
            list: ListRule::ByKey(key),
            retain_keys: true,
        };
        let scalars = Field {
            place: Self::Plain,
            list: ListRule::Scalars,
            retain_keys: false,
        };
        match (self, name) {
            (place, "metadata") if place.is_object() || place == Self::PodTemplate => {
                at(Self::Metadata)
            }
            (Self::Metadata, "ownerReferences") => by("uid", Self::Plain),
            (Self::Metadata, "finalizers") => scalars,
            (Self::DaemonSet, "spec") => at(Self::DaemonSetSpec),
            (Self::DaemonSetSpec, "template") => at(Self::PodTemplate),
            (Self::Pod | Self::PodTemplate, "spec") => at(Self::PodSpec),
            (Self::PodSpec, "containers" | "initContainers" | "ephemeralContainers") => {
                by("name", Self::Container)
            }
            (Self::PodSpec, "volumes" | "resourceClaims") => retaining("name"),
            (Self::PodSpec, "imagePullSecrets" | "schedulingGates") => by("name", Self::Plain),
            (Self::PodSpec, "hostAliases") => by("ip", Self::Plain),
            (Self::PodSpec, "topologySpreadConstraints") => by("topologyKey", Self::Plain),
            (Self::Container, "ports") => by("containerPort", Self::Plain),
            (Self::Container, "env") => by("name", Self::Plain),
            (Self::Container, "volumeMounts") => by("mountPath", Self::Plain),
            (Self::Container, "volumeDevices") => by("devicePath", Self::Plain),
            (Self::Pod, "status") => at(Self::PodStatus),
            (Self::PodStatus, "podIPs" | "hostIPs") => by("ip", Self::Plain),
            (Self::PodStatus, "resourceClaimStatuses") => retaining("name"),
            (Self::Node, "spec") => at(Self::NodeSpec),
            (Self::NodeSpec, "podCIDRs") => scalars,
            (Self::Node, "status") => at(Self::NodeStatus),
            (Self::NodeStatus, "addresses") => by("type", Self::Plain),
            (Self::PodStatus | Self::NodeStatus | Self::ConditionsStatus, "conditions") => {
                by("type", Self::Plain)
            }
            (Self::DaemonSet | Self::Namespace, "status") => at(Self::ConditionsStatus),
            (Self::ServiceAccount, "secrets") => by("name", Self::Plain),
            _ => at(Self::Plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(kind: &Kind, path: &str) -> (ListRule, bool) {
        let mut place = Place::of(kind);
        let mut field = Field {
            place,
            list: ListRule::Atomic,
            retain_keys: false,
        };
        for name in path.split('.') {
            field = place.field(name);
            place = field.place;
        }
        (field.list, field.retain_keys)
    }

    #[test]
    fn the_merge_keys_are_those_of_the_specification() {
        use ListRule::{Atomic, ByKey, Scalars};
        let pod = [
            ("containers", ByKey("name")),
            ("initContainers", ByKey("name")),
            ("ephemeralContainers", ByKey("name")),
            ("imagePullSecrets", ByKey("name")),
            ("hostAliases", ByKey("ip")),
            ("topologySpreadConstraints", ByKey("topologyKey")),
            ("schedulingGates", ByKey("name")),
            ("tolerations", Atomic),
            ("readinessGates", Atomic),
            ("containers.ports", ByKey("containerPort")),
            ("containers.env", ByKey("name")),
            ("initContainers.env", ByKey("name")),
            ("containers.volumeMounts", ByKey("mountPath")),
            ("containers.volumeDevices", ByKey("devicePath")),
            ("containers.envFrom", Atomic),
            ("containers.args", Atomic),
            ("containers.command", Atomic),
            ("volumes.configMap.items", Atomic),
        ];
        for (path, wanted) in pod {
            assert_eq!(
                rule(&kind::POD, &format!("spec.{path}")),
                (wanted, false),
                "{path}"
            );
            assert_eq!(
                rule(&kind::DAEMON_SET, &format!("spec.template.spec.{path}")),
                (wanted, false),
                "{path}"
            );
        }
        for path in ["volumes", "resourceClaims"] {
            assert_eq!(
                rule(&kind::POD, &format!("spec.{path}")),
                (ByKey("name"), true),
                "{path}"
            );
        }
        for (kind, path, wanted) in [
            (&kind::POD, "metadata.ownerReferences", ByKey("uid")),
            (&kind::LEASE, "metadata.finalizers", Scalars),
            (
                &kind::DAEMON_SET,
                "spec.template.metadata.finalizers",
                Scalars,
            ),
            (&kind::POD, "metadata.labels.finalizers", Atomic),
            (&kind::POD, "status.conditions", ByKey("type")),
            (&kind::POD, "status.podIPs", ByKey("ip")),
            (&kind::POD, "status.hostIPs", ByKey("ip")),
            (&kind::POD, "status.containerStatuses", Atomic),
            (&kind::NODE, "spec.podCIDRs", Scalars),
            (&kind::NODE, "spec.taints", Atomic),
            (&kind::NODE, "status.conditions", ByKey("type")),
            (&kind::NODE, "status.addresses", ByKey("type")),
            (&kind::NODE, "status.images", Atomic),
            (&kind::NAMESPACE, "status.conditions", ByKey("type")),
            (&kind::NAMESPACE, "spec.finalizers", Atomic),
            (&kind::DAEMON_SET, "status.conditions", ByKey("type")),
            (&kind::SERVICE_ACCOUNT, "secrets", ByKey("name")),
            (&kind::SERVICE_ACCOUNT, "imagePullSecrets", Atomic),
            (&kind::EVENT, "spec.containers", Atomic),
        ] {
            assert_eq!(rule(kind, path), (wanted, false), "{path}");
        }
    }
}
