//! What holds a rollout back, on a node or as a whole, in words.

use std::fmt;
use std::sync::Arc;

use muster_model::time::{Timestamp, to_seconds_text};

/// Why an old pod is not replaced now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// Somebody paused the rollout.
    Paused,
    /// The annotations cannot be read.
    Unreadable {
        /// What is wrong.
        why: String,
    },
    /// The revision failed.
    Halted {
        /// How.
        why: Arc<str>,
    },
    /// Waves: a wave before is not through.
    Wave {
        /// That wave, from 1.
        wave: usize,
        /// Of how many.
        waves: usize,
        /// Which nodes it lets through, as written.
        nodes: String,
        /// What is waited for.
        wait: WaveWait,
    },
    /// As many nodes as the partition allows have the new revision.
    Partition {
        /// How many stay.
        stays: usize,
    },
    /// No window is open.
    Window {
        /// When the next one opens.
        opens_at: Option<Timestamp>,
    },
    /// Too many nodes of its failure domain are being updated or out.
    Domain {
        /// The domain.
        domain: Arc<str>,
    },
    /// The new images are being pulled on the node.
    Pulling,
    /// They could not be pulled there.
    PullFailed {
        /// Why.
        why: String,
    },
    /// `OnDelete`: somebody has to delete the pod.
    OnDelete,
    /// Nodes that went out of reach in the middle of the rollout use up the budget.
    OutOfReach {
        /// Their names, one after the other.
        nodes: String,
    },
    /// With `on-failure`: as many nodes as the budget allows try the new revision, and it is not available there.
    Unproven,
}

/// What a wave waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaveWait {
    /// So many of its nodes are not updated and available yet.
    Nodes(usize),
    /// It is being watched until then.
    Until(Timestamp),
    /// Somebody has to promote it.
    Promotion,
    /// It has no node that can be reached, and no other node has tried the revision: somebody has to promote it.
    Nobody,
}

impl Hold {
    /// What holds a rollout as a whole, when every node that is left is held; `None`: it goes on somewhere, or is about to.
    /// Of several windows the one that opens first counts, of several other reasons the first.
    pub fn of_all<'a>(holds: impl IntoIterator<Item = Option<&'a Self>>) -> Option<&'a Self> {
        let mut whole: Option<&Self> = None;
        for hold in holds {
            let hold = hold.filter(|hold| !matches!(hold, Self::Pulling))?;
            whole = match (whole, hold) {
                (None, _) => Some(hold),
                (
                    Some(Self::Window { opens_at: before }),
                    Self::Window {
                        opens_at: Some(opens_at),
                    },
                ) if before.is_none_or(|before| *opens_at < before) => Some(hold),
                (Some(_), _) => whole,
            };
        }
        whole
    }

    /// The same clause, said of a rollout and not of a node.
    pub fn of_rollout(&self) -> String {
        match self {
            Self::Window { opens_at: Some(at) } => format!(
                "the next maintenance window opens at {}",
                to_seconds_text(*at)
            ),
            Self::Window { opens_at: None } => "no maintenance window ever opens".to_owned(),
            Self::PullFailed { why } => format!("the new images cannot be pulled: {why}"),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Hold {
    /// A clause for people: what is waited for, and what would help.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused => f.write_str("the rollout is paused (`muster rollout resume`)"),
            Self::Unreadable { why } => write!(f, "an annotation cannot be read: {why}"),
            Self::Halted { why } => write!(
                f,
                "the rollout was stopped: {why} (`muster rollout undo`, or `resume` to try again)"
            ),
            Self::Wave {
                wave,
                waves,
                nodes,
                wait,
            } => {
                write!(f, "wave {wave} of {waves} ({nodes}) ")?;
                match wait {
                    WaveWait::Nodes(1) => f.write_str("has 1 node to go"),
                    WaveWait::Nodes(nodes) => write!(f, "has {nodes} nodes to go"),
                    WaveWait::Until(at) => {
                        write!(f, "is through and watched until {}", to_seconds_text(*at))
                    }
                    WaveWait::Promotion => f.write_str(
                        "is through; somebody has to let it go on (`muster rollout promote`)",
                    ),
                    WaveWait::Nobody => f.write_str(
                        "has no node to try the new revision on: label one, or let the rollout go on untried \
                         (`muster rollout promote`)",
                    ),
                }
            }
            Self::Partition { stays: 1 } => {
                f.write_str("the partition keeps 1 node on the older revision")
            }
            Self::Partition { stays } => {
                write!(f, "the partition keeps {stays} nodes on the older revision")
            }
            Self::Window { opens_at: Some(at) } => write!(
                f,
                "its maintenance window opens at {}",
                to_seconds_text(*at)
            ),
            Self::Window { opens_at: None } => f.write_str("its maintenance window never opens"),
            Self::Domain { domain } => write!(
                f,
                "enough nodes of failure domain {domain} are being updated or out"
            ),
            Self::Unproven => {
                f.write_str("the new revision is not available yet where it was tried")
            }
            Self::Pulling => f.write_str("the new images are being pulled there"),
            Self::PullFailed { why } => write!(f, "the new images cannot be pulled there: {why}"),
            Self::OutOfReach { nodes } => write!(
                f,
                "nodes out of reach count as out, and no more may be: bring the agents of {nodes} back"
            ),
            Self::OnDelete => {
                f.write_str("the strategy is OnDelete: it is replaced when somebody deletes it")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(opens_at: &str) -> Hold {
        Hold::Window {
            opens_at: opens_at.parse().ok(),
        }
    }

    fn whole(holds: &[Option<Hold>]) -> Option<String> {
        Hold::of_all(holds.iter().map(Option::as_ref)).map(Hold::of_rollout)
    }

    #[test]
    fn a_rollout_is_held_when_every_node_that_is_left_is() {
        let partition = Some(Hold::Partition { stays: 3 });
        assert_eq!(whole(&[]), None);
        assert_eq!(
            whole(&[partition.clone(), partition.clone()]).as_deref(),
            Some("the partition keeps 3 nodes on the older revision")
        );
        assert_eq!(whole(&[partition.clone(), None]), None);
        // Pulling comes to an end by itself.
        assert_eq!(whole(&[partition, Some(Hold::Pulling)]), None);
    }

    #[test]
    fn of_several_windows_the_first_that_opens_is_told() {
        let (early, late) = ("2026-01-02T02:00:00Z", "2026-01-03T02:00:00Z");
        for order in [["never", late, early], [early, "never", late]] {
            let holds = order.map(|opens_at| Some(window(opens_at)));
            let expected = format!("the next maintenance window opens at {early}");
            assert_eq!(whole(&holds), Some(expected));
        }
        assert_eq!(
            whole(&[Some(window("never"))]).as_deref(),
            Some("no maintenance window ever opens")
        );
    }
}
