//! The labels containers carry, by which alone they are recognised (spec/node-agent.md 9).

use std::collections::BTreeMap;

use super::Labels;

/// Name of the node a container belongs to: the ownership label.
pub const NODE: &str = "muster.dev/node";
/// Identity of the server the node belongs to, so that two clusters may share one engine.
pub const CLUSTER: &str = "muster.dev/cluster";
/// Version of this labelling; its value is [`FORMAT_VERSION`].
pub const FORMAT: &str = "muster.dev/format";
/// The version that this build writes.
pub const FORMAT_VERSION: &str = "1";
/// Pod name.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Pod namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Pod UID.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Container name; [`SANDBOX_CONTAINER_NAME`] for the sandbox.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// What [`CONTAINER_NAME`] says on a sandbox.
pub const SANDBOX_CONTAINER_NAME: &str = "POD";
/// [`TYPE_SANDBOX`] or [`TYPE_CONTAINER`].
pub const TYPE: &str = "io.kubernetes.docker.type";
/// A sandbox.
pub const TYPE_SANDBOX: &str = "podsandbox";
/// Any other container.
pub const TYPE_CONTAINER: &str = "container";
/// Container id of the sandbox a container joined; absent where there is none.
pub const SANDBOX_ID: &str = "io.kubernetes.sandbox.id";
/// Hash over what forces a restart, lower-case hex.
pub const HASH: &str = "io.kubernetes.container.hash";
/// Restart count (containers) or attempt number (sandboxes), decimal.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// Path of the termination message inside the container.
pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// `File` or `FallbackToLogsOnError`.
pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// Absolute path of the log link.
pub const LOG_PATH: &str = "io.kubernetes.container.logpath";
/// The pod's `terminationGracePeriodSeconds`.
pub const TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
/// The delete request's grace, in seconds.
pub const DELETION_GRACE_PERIOD: &str = "io.kubernetes.pod.deletionGracePeriod";
/// JSON of the preStop handler, so that an orphan is still stopped politely.
pub const PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
/// JSON of the container's ports.
pub const PORTS: &str = "io.kubernetes.container.ports";

/// Whose containers a runtime shows and touches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// Node name.
    pub node: String,
    /// Server identity; empty where none is known, then the node name alone decides.
    pub cluster: String,
}

impl Owner {
    /// The owner of a node's containers within a cluster.
    pub fn new(node: impl Into<String>, cluster: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            cluster: cluster.into(),
        }
    }

    /// Whether a container with these labels is this owner's.
    pub fn owns(&self, labels: &Labels) -> bool {
        labels.get(NODE) == Some(&self.node)
            && (self.cluster.is_empty() || labels.get(CLUSTER) == Some(&self.cluster))
    }

    /// The labels of a new container: what the spec says, and the ownership labels whatever it says.
    pub fn stamp(&self, labels: &Labels) -> Labels {
        let mut stamped = labels.clone();
        stamped.insert(NODE.to_owned(), self.node.clone());
        if !self.cluster.is_empty() {
            stamped.insert(CLUSTER.to_owned(), self.cluster.clone());
        }
        stamped.insert(FORMAT.to_owned(), FORMAT_VERSION.to_owned());
        stamped
    }

    /// The filter values (`KEY=VALUE`) that make an engine list only this owner's containers.
    pub fn filters(&self) -> Vec<String> {
        let mut filters = vec![format!("{NODE}={}", self.node)];
        if !self.cluster.is_empty() {
            filters.push(format!("{CLUSTER}={}", self.cluster));
        }
        filters
    }
}

/// What to do when a container name is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NameConflict {
    /// A dead container of the same pod holds it: remove that one and try again.
    RemoveHolder,
    /// Somebody else's or a running one: take this name instead.
    Rename(String),
}

/// Decides a name conflict (spec/node-agent.md 9). `attempt` counts from 0 within one create call.
pub(crate) fn resolve_name_conflict(
    owner: &Owner,
    name: &str,
    wanted: &Labels,
    holder_id: &str,
    holder: &BTreeMap<String, String>,
    holder_runs: bool,
    attempt: u32,
) -> NameConflict {
    let same_pod = owner.owns(holder)
        && wanted
            .get(POD_UID)
            .is_some_and(|uid| !uid.is_empty() && holder.get(POD_UID) == Some(uid));
    if same_pod && !holder_runs {
        return NameConflict::RemoveHolder;
    }
    let suffix = crc32c::crc32c(format!("{holder_id}/{attempt}").as_bytes());
    NameConflict::Rename(format!("{name}_{suffix:08x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn na_100_a_container_belongs_to_the_node_and_cluster_its_labels_name() {
        let mine = labels(&[(NODE, "n1"), (CLUSTER, "c1")]);
        assert!(Owner::new("n1", "c1").owns(&mine));
        assert!(Owner::new("n1", "").owns(&mine));
        assert!(!Owner::new("n2", "c1").owns(&mine));
        assert!(!Owner::new("n1", "c2").owns(&mine));
        assert!(!Owner::new("n1", "").owns(&labels(&[("app", "web")])));
    }

    #[test]
    fn ownership_labels_win_over_what_a_spec_says() {
        let stamped = Owner::new("n1", "c1").stamp(&labels(&[(NODE, "forged"), ("app", "web")]));
        assert_eq!(
            stamped,
            labels(&[(NODE, "n1"), (CLUSTER, "c1"), (FORMAT, "1"), ("app", "web")])
        );
    }

    #[test]
    fn a_dead_holder_of_the_same_pod_makes_room_and_others_keep_their_name() {
        let owner = Owner::new("n1", "");
        let wanted = labels(&[(POD_UID, "u1")]);
        let ours = labels(&[(NODE, "n1"), (POD_UID, "u1")]);
        let decide = |holder: &Labels, runs| {
            resolve_name_conflict(&owner, "k8s_c", &wanted, "abc", holder, runs, 0)
        };
        assert_eq!(decide(&ours, false), NameConflict::RemoveHolder);
        for (holder, runs) in [
            (ours.clone(), true),
            (labels(&[(NODE, "n2"), (POD_UID, "u1")]), false),
            (labels(&[(NODE, "n1"), (POD_UID, "u2")]), false),
            (labels(&[]), false),
        ] {
            let NameConflict::Rename(name) = decide(&holder, runs) else {
                panic!("{holder:?} was to stay")
            };
            let suffix = name.strip_prefix("k8s_c_").unwrap();
            assert!(
                suffix.len() == 8 && suffix.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{name}"
            );
        }
    }
}
