//! Event reasons, condition types, well-known labels, annotations, taints and finalizers.

/// Labels.
pub mod label {
    /// On pods and ControllerRevisions: which revision of the template.
    pub const CONTROLLER_REVISION_HASH: &str = "controller-revision-hash";
    /// On pods: the template generation, as text.
    pub const POD_TEMPLATE_GENERATION: &str = "pod-template-generation";
    /// The host name.
    pub const HOSTNAME: &str = "kubernetes.io/hostname";
    /// The operating system, `linux`.
    pub const OS: &str = "kubernetes.io/os";
    /// The processor architecture in Go's names.
    pub const ARCH: &str = "kubernetes.io/arch";
    /// The older name of [`OS`].
    pub const BETA_OS: &str = "beta.kubernetes.io/os";
    /// The older name of [`ARCH`].
    pub const BETA_ARCH: &str = "beta.kubernetes.io/arch";
    /// On namespaces: their own name.
    pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
    /// Prefix of role labels on nodes.
    pub const NODE_ROLE_PREFIX: &str = "node-role.kubernetes.io/";
}

/// Annotations.
pub mod annotation {
    /// On DaemonSets and ControllerRevisions: the template generation, as text.
    pub const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
    /// Why a revision was made, in its author's words.
    pub const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";
    /// On pod templates: when a restart was asked for.
    pub const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";
    /// What client-side apply was last told, so that it knows what a manifest dropped.
    pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    /// On nodes: which labels the agent's command line set.
    pub const AGENT_LABELS: &str = "muster.dev/agent-labels";
    /// On DaemonSets: `count` makes unreachable nodes count against the budget (design.md, the budget rule).
    pub const OFFLINE_NODES: &str = "muster.dev/offline-nodes";
    /// On DaemonSets: `"true"` stops a rollout where it is.
    pub const PAUSED: &str = "muster.dev/paused";
    /// On DaemonSets: `halt` or `rollback` when a new revision fails.
    pub const ON_FAILURE: &str = "muster.dev/on-failure";
    /// On DaemonSets: on how many nodes (or percent of them) a revision must fail to count as failed; 1.
    pub const FAILURE_THRESHOLD: &str = "muster.dev/failure-threshold";
    /// On DaemonSets: how long a new pod may take to become available before its node counts as failed.
    pub const PROGRESS_DEADLINE: &str = "muster.dev/progress-deadline";
    /// On DaemonSets: the nodes that get a new revision first: a number, a percentage or a label selector.
    pub const CANARY: &str = "muster.dev/canary";
    /// On DaemonSets: how long the canary is watched; absent: until somebody promotes it.
    pub const CANARY_PAUSE: &str = "muster.dev/canary-pause";
    /// On DaemonSets: the waves after the canary, separated by `;`, each as [`CANARY`].
    pub const WAVES: &str = "muster.dev/waves";
    /// On DaemonSets: how long each wave is watched before the next.
    pub const WAVE_PAUSE: &str = "muster.dev/wave-pause";
    /// On DaemonSets: how many nodes (or percent of them) stay on the old revision.
    pub const PARTITION: &str = "muster.dev/partition";
    /// On DaemonSets: `"true"` has new images pulled on a node before its old pod is stopped. On pods: which images
    /// that are ([`crate::pre_pull`]).
    pub const PRE_PULL: &str = "muster.dev/pre-pull";
    /// On DaemonSets: when nodes may be updated, by node labels, one rule a line.
    pub const MAINTENANCE_WINDOWS: &str = "muster.dev/maintenance-windows";
    /// On DaemonSets: the node label whose values are failure domains.
    pub const FAILURE_DOMAIN: &str = "muster.dev/failure-domain";
    /// On DaemonSets: how many nodes of one failure domain may be updated at once; 1.
    pub const MAX_UPDATING_PER_DOMAIN: &str = "muster.dev/max-updating-per-domain";
    /// On pods, and so on pod templates: caps the pause between restarts of a container, below the node's own cap.
    pub const MAX_RESTART_DELAY: &str = "muster.dev/max-restart-delay";
    /// On ControllerRevisions: when it was first available on every node that should run it.
    pub const AVAILABLE_EVERYWHERE: &str = "muster.dev/available-everywhere";
    /// On ControllerRevisions: since when it is the current one again, after others were.
    pub const CURRENT_SINCE: &str = "muster.dev/current-since";
    /// On ControllerRevisions: why its rollout was stopped.
    pub const FAILED: &str = "muster.dev/failed";
    /// On ControllerRevisions that failed: which revision the server put in its place, and a hash of the manifest applied
    /// last before.
    pub const TAKEN_BACK: &str = "muster.dev/taken-back";
    /// On ControllerRevisions: through how many waves somebody let it pass; `all`: through all.
    pub const PROMOTED: &str = "muster.dev/promoted";
    /// On ControllerRevisions: how often `rollout resume` had it tried again. On pods: in which try of its revision the pod
    /// was made, so that the answers of one try are not held against the next.
    pub const TRY: &str = "muster.dev/try";
}

/// Finalizers.
pub mod finalizer {
    /// Keeps an owner until its dependents are gone.
    pub const FOREGROUND: &str = "foregroundDeletion";
    /// Keeps an owner until its dependents have lost their reference.
    pub const ORPHAN: &str = "orphan";
    /// In a namespace's `spec.finalizers`: keeps it until it is empty.
    pub const KUBERNETES: &str = "kubernetes";
}

/// Taint keys.
pub mod taint {
    /// The node's Ready condition is False.
    pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
    /// The node's Ready condition is Unknown.
    pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
    /// The node is short of disk.
    pub const DISK_PRESSURE: &str = "node.kubernetes.io/disk-pressure";
    /// The node is short of memory.
    pub const MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";
    /// The node is short of process ids.
    pub const PID_PRESSURE: &str = "node.kubernetes.io/pid-pressure";
    /// The node is cordoned.
    pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
    /// The node's network is not set up.
    pub const NETWORK_UNAVAILABLE: &str = "node.kubernetes.io/network-unavailable";
    /// An administrator says the node is shut down for good.
    pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
}

/// Event reasons of the DaemonSet controller (spec/daemonset.md 9 to 11).
pub mod daemonset_event {
    /// Normal: a pod was created.
    pub const SUCCESSFUL_CREATE: &str = "SuccessfulCreate";
    /// Warning: a pod could not be created.
    pub const FAILED_CREATE: &str = "FailedCreate";
    /// Normal: a pod was deleted.
    pub const SUCCESSFUL_DELETE: &str = "SuccessfulDelete";
    /// Warning: a pod could not be deleted.
    pub const FAILED_DELETE: &str = "FailedDelete";
    /// Warning: a failed pod is about to be deleted.
    pub const FAILED_DAEMON_POD: &str = "FailedDaemonPod";
    /// Normal: a pod that ended well is about to be deleted.
    pub const SUCCEEDED_DAEMON_POD: &str = "SucceededDaemonPod";
    /// Warning: the stored selector is empty.
    pub const SELECTING_ALL: &str = "SelectingAll";
    /// Warning: a new revision failed, and its rollout was stopped.
    pub const ROLLOUT_FAILED: &str = "RolloutFailed";
    /// Warning: the template went back to an earlier revision.
    pub const ROLLED_BACK: &str = "RolledBack";
    /// `source.component` of all of these.
    pub const COMPONENT: &str = "daemonset-controller";
}

/// Pod and node condition types.
pub mod condition {
    /// Pod and node: it serves.
    pub const READY: &str = "Ready";
    /// Pod: every container is ready.
    pub const CONTAINERS_READY: &str = "ContainersReady";
    /// Pod: init containers are done.
    pub const INITIALIZED: &str = "Initialized";
    /// Pod: bound to a node.
    pub const POD_SCHEDULED: &str = "PodScheduled";
    /// Pod: the sandbox runs and has its network.
    pub const POD_READY_TO_START_CONTAINERS: &str = "PodReadyToStartContainers";
    /// Pod: it is being taken away by the cluster.
    pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
    /// Node: short of memory.
    pub const MEMORY_PRESSURE: &str = "MemoryPressure";
    /// Node: short of disk.
    pub const DISK_PRESSURE: &str = "DiskPressure";
    /// Node: short of process ids.
    pub const PID_PRESSURE: &str = "PIDPressure";
}
