//! The reasons: why a node runs the daemon, does not run it yet, or should not run it. One enum, one sentence
//! each, and what would help.

use muster_model::affinity::Mismatch;
use muster_model::k8s::api::core::v1::Taint;
use muster_model::reason::taint as taint_key;
use muster_model::taint::{NO_EXECUTE, taint_text};
use muster_model::time::{Timestamp, to_seconds_text};

use crate::hold::Hold;

/// Why a node should not run the daemon.
#[derive(Debug, Clone, PartialEq)]
pub enum No {
    /// The template's `nodeName` names another node.
    OtherNode {
        /// The node it names.
        wanted: String,
    },
    /// `nodeSelector` or required node affinity does not match.
    NotSelected(Mismatch),
    /// A taint is not tolerated.
    Untolerated {
        /// The taint.
        taint: Taint,
    },
    /// There is no such node (any more).
    NodeGone,
}

/// The controller could not do what it wanted, and will try again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setback {
    /// What went wrong, as a clause: `creating a pod was refused: ...`.
    pub why: String,
    /// Since when it goes wrong like this.
    pub since: Timestamp,
    /// When it is tried again.
    pub again_at: Timestamp,
}

/// The state of one DaemonSet on one node. Pods are given by name.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It should run and does: current and available.
    Runs {
        /// The pod.
        pod: String,
    },
    /// It runs and is Ready, but not for `minReadySeconds` yet.
    NotAvailableYet {
        /// The pod.
        pod: String,
        /// When it becomes available, if it stays Ready.
        at: Option<Timestamp>,
    },
    /// Its pod is there and not Ready.
    NotReady {
        /// The pod.
        pod: String,
        /// What the pod says about it; may be empty.
        trouble: String,
    },
    /// It runs an older revision and waits for its turn.
    Outdated {
        /// The pod.
        pod: String,
        /// What it waits for; `None`: that others are available again. [`crate::place()`] knows nothing of it: who
        /// explains fills it in ([`crate::release::Release::hold_of`]).
        hold: Option<Hold>,
        /// What is wrong with the new pod that surges beside it, a clause for people; `None`: nothing, or there is none.
        beside: Option<String>,
    },
    /// The node's agent is out of reach, so that nothing can be done there.
    NodeOutOfReach {
        /// The pod, if there is one.
        pod: Option<String>,
        /// Since when.
        since: Timestamp,
        /// Out of reach since before the rollout: the rollout does not wait for it.
        skipped: bool,
        /// It counts as one that should run the daemon: the template tolerates that it is out of reach.
        desired: bool,
    },
    /// The old pod is still stopping and holds the node.
    Stopping {
        /// The pod.
        pod: String,
    },
    /// Its pod ended: badly, or well although a daemon should not end.
    Ended {
        /// The pod.
        pod: String,
        /// `Failed` or `Succeeded`.
        failed: bool,
        /// What the pod says about it; may be empty.
        trouble: String,
        /// When it is tried again; `None`: at once.
        retry_at: Option<Timestamp>,
    },
    /// It should run and has no pod.
    Missing {
        /// What keeps one from being created; `None`: nothing known, one is about to be. [`crate::place()`] knows
        /// nothing of it: who drives the brain fills it in.
        setback: Option<Setback>,
        /// What keeps the present revision from being made here, where an older one does not fit; filled in likewise.
        hold: Option<Hold>,
    },
    /// It should not run here.
    No {
        /// The rule that decided.
        why: No,
        /// A pod that is there all the same.
        pod: Option<String>,
        /// That pod may stay (only new pods are kept away).
        stays: bool,
    },
}

impl Verdict {
    /// Whether the node should run the daemon.
    pub fn should_run(&self) -> bool {
        !matches!(
            self,
            Self::No { .. } | Self::NodeOutOfReach { desired: false, .. }
        )
    }

    /// Whether a rollout is not over on the node: it should run the daemon, or has a pod and is out of reach, and is not up
    /// to date and available.
    pub fn is_waited_for(&self) -> bool {
        match self {
            Self::Runs { .. } | Self::No { .. } => false,
            Self::NodeOutOfReach { pod, desired, .. } => *desired || pod.is_some(),
            _ => true,
        }
    }

    /// The pod that the verdict is about.
    pub fn pod(&self) -> Option<&str> {
        match self {
            Self::Runs { pod }
            | Self::NotAvailableYet { pod, .. }
            | Self::NotReady { pod, .. }
            | Self::Outdated { pod, .. }
            | Self::Stopping { pod }
            | Self::Ended { pod, .. } => Some(pod),
            Self::NodeOutOfReach { pod, .. } | Self::No { pod, .. } => pod.as_deref(),
            Self::Missing { .. } => None,
        }
    }

    /// The rule that decided, one word, for scripts.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Runs { .. } => "Runs",
            Self::NotAvailableYet { .. } => "NotAvailableYet",
            Self::NotReady { .. } => "NotReady",
            Self::Outdated { .. } => "Outdated",
            Self::NodeOutOfReach { .. } => "NodeOutOfReach",
            Self::Stopping { .. } => "Stopping",
            Self::Ended { failed: true, .. } => "Failed",
            Self::Ended { failed: false, .. } => "Succeeded",
            Self::Missing { .. } => "Missing",
            Self::No { why, .. } => match why {
                No::OtherNode { .. } => "OtherNode",
                No::NotSelected(Mismatch::NodeSelector { .. }) => "NodeSelector",
                No::NotSelected(_) => "NodeAffinity",
                No::Untolerated { .. } => "UntoleratedTaint",
                No::NodeGone => "NodeGone",
            },
        }
    }

    /// The verdict as a sentence for people, without a full stop.
    pub fn sentence(&self) -> String {
        match self {
            Self::Runs { pod } => format!("pod {pod} is up to date and available"),
            Self::NotAvailableYet { pod, at: Some(at) } => {
                format!(
                    "pod {pod} is ready and counts as available at {}",
                    to_seconds_text(*at)
                )
            }
            Self::NotAvailableYet { pod, at: None } => {
                format!(
                    "pod {pod} is ready, but does not say since when, so minReadySeconds never passes"
                )
            }
            Self::NotReady { pod, trouble } if trouble.is_empty() => {
                format!("pod {pod} is not ready yet")
            }
            Self::NotReady { pod, trouble } => format!("pod {pod} is not ready: {trouble}"),
            Self::Outdated {
                pod,
                beside: Some(beside),
                ..
            } => format!("pod {pod} runs an older revision, and {beside}"),
            Self::Outdated {
                pod,
                hold: Some(hold),
                ..
            } => format!("pod {pod} runs an older revision: {hold}"),
            Self::Outdated { pod, .. } => {
                format!("pod {pod} runs an older revision and waits for its turn")
            }
            Self::NodeOutOfReach {
                pod,
                since,
                skipped,
                ..
            } => {
                let since = to_seconds_text(*since);
                let pod = match pod {
                    Some(pod) => format!(", so pod {pod} cannot be looked after"),
                    None => String::new(),
                };
                let rest = if *skipped {
                    "; the rollout does not wait for it"
                } else {
                    ""
                };
                format!("the node's agent is out of reach since {since}{pod}{rest}")
            }
            Self::Stopping { pod } => {
                format!("pod {pod} is still stopping; the next one is created when it is gone")
            }
            Self::Ended {
                pod,
                failed,
                trouble,
                retry_at,
            } => {
                let how = if *failed {
                    "failed"
                } else {
                    "ended, although a daemon should not end"
                };
                let why = if trouble.is_empty() {
                    String::new()
                } else {
                    format!(" ({trouble})")
                };
                let when = match retry_at {
                    Some(at) => format!(
                        "it is deleted and made again at {} (back-off)",
                        to_seconds_text(*at)
                    ),
                    None => "it is being replaced".to_owned(),
                };
                format!("pod {pod} {how}{why}; {when}")
            }
            Self::Missing {
                setback: None,
                hold: None,
            } => "no pod yet, one is being created".to_owned(),
            Self::Missing {
                setback: None,
                hold: Some(hold),
            } => format!("no pod: {hold}, and the older revision does not fit here"),
            Self::Missing {
                setback: Some(setback),
                ..
            } => format!(
                "no pod: {} (since {}); tried again at {}",
                setback.why,
                to_seconds_text(setback.since),
                to_seconds_text(setback.again_at)
            ),
            Self::No { why, pod, stays } => {
                let why = why.sentence();
                match pod {
                    None => why,
                    Some(pod) if *stays => {
                        format!("{why}; pod {pod} stays, because only new pods are kept away")
                    }
                    Some(pod) => format!("{why}; pod {pod} has to go"),
                }
            }
        }
    }

    /// What would close the gap on `node`; empty when nothing is to be done, or nothing can be.
    pub fn fix(&self, node: &str) -> String {
        match self {
            Self::No {
                why: No::NotSelected(mismatch),
                ..
            } => match mismatch.wanted_label() {
                Some((key, "")) => format!("label node {node} with {key}"),
                Some((key, value)) => format!("label node {node} with {key}={value}"),
                None => String::new(),
            },
            // The server put this taint there and would put it there again.
            Self::No {
                why: No::Untolerated { taint },
                ..
            } if taint.key == taint_key::UNREACHABLE => {
                format!("bring the agent of node {node} back")
            }
            Self::No {
                why: No::Untolerated { taint },
                ..
            } => format!(
                "tolerate {} in spec.template.spec.tolerations, or take the taint off node {node}",
                taint_text(taint)
            ),
            Self::NodeOutOfReach { .. } => format!("bring the agent of node {node} back"),
            _ => String::new(),
        }
    }
}

impl No {
    /// The rule as a clause.
    pub fn sentence(&self) -> String {
        match self {
            Self::OtherNode { wanted } => format!("the template names node {wanted}"),
            Self::NotSelected(mismatch) => mismatch.to_string(),
            Self::Untolerated { taint } if taint.effect == NO_EXECUTE => {
                format!(
                    "taint {} is not tolerated and drives pods away",
                    taint_text(taint)
                )
            }
            Self::Untolerated { taint } => format!("taint {} is not tolerated", taint_text(taint)),
            Self::NodeGone => "the node is gone".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_node_without_a_pod_says_what_keeps_it_from_having_one() {
        let expected = "no pod yet, one is being created";
        let missing = Verdict::Missing {
            setback: None,
            hold: None,
        };
        assert_eq!(missing.sentence(), expected);
        let setback = Setback {
            why: "creating a pod was refused: no PriorityClass with name high was found".into(),
            since: at("2026-01-31T10:00:00Z"),
            again_at: at("2026-01-31T10:00:40Z"),
        };
        let missing = Verdict::Missing {
            setback: Some(setback),
            hold: None,
        };
        assert_eq!(
            missing.sentence(),
            "no pod: creating a pod was refused: no PriorityClass with name high was found \
             (since 2026-01-31T10:00:00Z); tried again at 2026-01-31T10:00:40Z"
        );
        assert_eq!(missing.rule(), "Missing");
        assert!(missing.should_run());
    }

    #[test]
    fn a_failed_pod_says_when_the_next_one_is_made() {
        let mut failed = Verdict::Ended {
            pod: "web-1".into(),
            failed: true,
            trouble: "OutOfcpu: Pod was rejected: too much cpu".into(),
            retry_at: Some(at("2026-01-31T10:00:40Z")),
        };
        assert_eq!(
            failed.sentence(),
            "pod web-1 failed (OutOfcpu: Pod was rejected: too much cpu); \
             it is deleted and made again at 2026-01-31T10:00:40Z (back-off)"
        );
        if let Verdict::Ended { retry_at, .. } = &mut failed {
            *retry_at = None;
        }
        assert!(failed.sentence().ends_with("; it is being replaced"));
    }
}
