//! What a seed stands for: a cluster to begin with, and what happens to it.

use std::fmt;
use std::time::Duration;

/// A whole run, before it is run.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Where it comes from, and what every chance in the run comes from.
    pub seed: u64,
    /// The machines at the beginning.
    pub nodes: Vec<NodePlan>,
    /// The DaemonSets at the beginning.
    pub sets: Vec<SetPlan>,
    /// What the images `img:1`, `img:2`, ... do.
    pub images: Vec<Nature>,
    /// What happens.
    pub steps: Vec<Step>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlan {
    /// Its name.
    pub name: String,
    /// Its label `zone`.
    pub zone: &'static str,
    /// With the taint `dedicated:NoSchedule`.
    pub dedicated: bool,
}

/// A DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetPlan {
    /// Its name.
    pub name: &'static str,
    /// How its pods are replaced.
    pub strategy: Strategy,
    /// How long a pod must be Ready.
    pub min_ready_seconds: u64,
    /// Only on nodes of this zone.
    pub zone: Option<&'static str>,
    /// Tolerates the taint `dedicated`.
    pub tolerates: bool,
    /// `revisionHistoryLimit`.
    pub history_limit: u64,
    /// With a readiness probe.
    pub probed: bool,
    /// What its author asks of rollouts beyond that.
    pub controls: Controls,
}

/// What is asked of rollouts by annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Controls {
    /// `halt` or `rollback` when a new revision fails.
    pub on_failure: Option<&'static str>,
    /// How long a new pod may take, in seconds.
    pub deadline: Option<u64>,
    /// So many nodes first, and watched for so many seconds.
    pub canary: Option<(u64, u64)>,
    /// So many nodes stay on the old revision.
    pub partition: Option<u64>,
    /// Images are pulled early.
    pub pre_pull: bool,
    /// One node of each zone at a time.
    pub by_zone: bool,
    /// Nodes of one zone are updated at some times only.
    pub windows: bool,
}

/// A number of nodes, or a share of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// So many.
    Nodes(u64),
    /// So many of a hundred.
    Percent(u64),
}

/// How pods are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Only when somebody deletes them.
    OnDelete,
    /// Old ones are deleted, at most so many nodes being out.
    Replace(Share),
    /// New ones are made beside the old ones, on at most so many nodes.
    Surge(Share),
}

/// What the containers of an image do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    /// It runs.
    Good,
    /// It takes so long to start, to become ready and to stop.
    Slow(Duration),
    /// It ends so long after each start.
    Crashing(Duration),
    /// Its command is not there.
    Unstartable,
    /// No registry has it.
    Unpullable,
    /// It runs and never says that it is ready.
    NeverReady,
}

/// One thing that happens, and how long the world then goes on by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What.
    pub act: Act,
    /// Then so much time passes.
    pub pass: Duration,
}

/// What can happen. Machines, DaemonSets and images are numbers: of those there are at that time, counted round and round,
/// so that a step means something whatever happened before it.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    missing_docs,
    reason = "named as what they do; the fields are numbers of machines, DaemonSets and images"
)]
pub enum Act {
    Nothing,
    // A person.
    SetImage {
        set: usize,
        image: usize,
    },
    SetStrategy {
        set: usize,
        strategy: Strategy,
    },
    Restart {
        set: usize,
    },
    Undo {
        set: usize,
    },
    Pause {
        set: usize,
        on: bool,
    },
    Promote {
        set: usize,
    },
    TryAgain {
        set: usize,
    },
    Tolerate {
        set: usize,
        on: bool,
    },
    DeletePod {
        set: usize,
        pod: usize,
    },
    DeleteSet {
        set: usize,
    },
    CreateSet {
        set: usize,
    },
    Label {
        node: usize,
        zone: &'static str,
    },
    Taint {
        node: usize,
        effect: Option<&'static str>,
    },
    Cordon {
        node: usize,
        on: bool,
    },
    AddNode {
        zone: &'static str,
        dedicated: bool,
    },
    RemoveNode {
        node: usize,
    },
    // Faults.
    Crash {
        container: usize,
    },
    SlowStart {
        node: usize,
        by: Duration,
    },
    EngineRestart {
        node: usize,
    },
    KillAgent {
        node: usize,
    },
    StartAgent {
        node: usize,
    },
    RestartAgent {
        node: usize,
    },
    StopAgent {
        node: usize,
    },
    Reboot {
        node: usize,
    },
    LoseNode {
        node: usize,
    },
    Partition {
        node: usize,
    },
    PartitionAll,
    Heal {
        node: usize,
    },
    HealAll,
    Delay {
        node: usize,
        most: Duration,
    },
    Stall {
        node: usize,
    },
    KillServer,
    StopServer,
    StartServer,
    Store {
        mood: Mood,
    },
    ClockStep {
        seconds: i64,
    },
    Skew {
        node: usize,
        seconds: i64,
    },
}

/// How the store takes writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// As it should.
    Fine,
    /// Late.
    Slow(Duration),
    /// Not at all.
    Refusing,
    /// It writes, and says it could not.
    Lying,
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnDelete => f.write_str("OnDelete"),
            Self::Replace(share) => write!(f, "maxUnavailable {share}"),
            Self::Surge(share) => write!(f, "maxSurge {share}"),
        }
    }
}

impl fmt::Display for SetPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}, minReadySeconds {}",
            self.name, self.strategy, self.min_ready_seconds
        )?;
        if let Some(zone) = self.zone {
            write!(f, ", zone {zone}")?;
        }
        if self.tolerates {
            f.write_str(", tolerates dedicated")?;
        }
        if self.probed {
            f.write_str(", probed")?;
        }
        write!(f, ", history {}", self.history_limit)?;
        if self.controls != Controls::default() {
            write!(f, ", {:?}", self.controls)?;
        }
        Ok(())
    }
}

impl fmt::Display for NodePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dedicated = if self.dedicated { ", dedicated" } else { "" };
        write!(f, "{}: zone {}{dedicated}", self.name, self.zone)
    }
}
