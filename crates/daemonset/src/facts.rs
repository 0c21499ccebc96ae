//! The few facts the brain needs of a DaemonSet, a Node, a Pod and a ControllerRevision, taken once from the
//! objects. Two objects with equal facts are the same to the brain: a heartbeat changes no [`NodeFacts`], so
//! nobody has to look again.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::SignedDuration;
use muster_model::int_or_percent::IntOrPercent;
use muster_model::k8s::api::apps::v1::DaemonSet;
use muster_model::k8s::api::core::v1::{Node, Taint};
use muster_model::object::{NamespacedName, Object, ObjectError};
use muster_model::pre_pull;
use muster_model::reason::{annotation, condition, taint as taint_key};
use muster_model::selector::{Selector, SelectorError};
use muster_model::time::Timestamp;
use serde_json::{Map, Value};

use crate::control::{Control, OnFailure};
use crate::course::{Condition, Course};
use crate::fit::Wants;
use crate::group::Grouping;
use crate::revision::Settlement;
use crate::status::Numbers;

mod pod;
mod revision;

pub use pod::PodFacts;
pub use revision::RevisionFacts;

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type!(
    /// The name of a node.
    NodeName
);
name_type!(
    /// The uid of a pod: what a decision is really about, since names can come again.
    PodUid
);

/// Why an object gives no facts. Only stored data can be like this: the API refuses it.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// The typed view could not be made.
    #[error("cannot read {kind} {id}: {source}")]
    Decode {
        /// What it should be.
        kind: &'static str,
        /// Which one.
        id: NamespacedName,
        /// Where it is wrong.
        source: ObjectError,
    },
    /// The selector uses an unknown operator or has a wrong number of values.
    #[error("cannot read the selector of DaemonSet {id}: {source}")]
    Selector {
        /// Which one.
        id: NamespacedName,
        /// What is wrong with it.
        source: SelectorError,
    },
}

/// How pods are replaced when the template changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Only when somebody deletes them.
    OnDelete,
    /// By the controller, within a budget.
    RollingUpdate {
        /// How many nodes may be without an available pod.
        max_unavailable: IntOrPercent,
        /// How many nodes may run an old and a new pod together.
        max_surge: IntOrPercent,
    },
}

impl Strategy {
    /// Whether new pods are made beside the old ones: `maxSurge`, scaled over one node, is more than 0.
    pub fn is_surging(self) -> bool {
        matches!(self, Self::RollingUpdate { max_surge, .. } if !max_surge.is_zero())
    }
}

/// What [`crate::place()`] reads of a DaemonSet. While this stays equal, every placement made with it stays true.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// What the template asks of a node.
    pub wants: Wants,
    /// What the template to fall back to asks; `None`: there is none, or no node can be held back.
    pub stable_wants: Option<Wants>,
    /// [`Strategy::is_surging`].
    pub surging: bool,
    /// How long a pod must be Ready to be available.
    pub min_ready_seconds: i32,
    /// Annotation `muster.dev/offline-nodes: count`: unreachable nodes count as Kubernetes counts them.
    pub count_offline: bool,
    /// The template generation as text; `None` when the annotation is absent or no number.
    pub template_generation: Option<String>,
    /// The current revision.
    pub target: Target,
    /// Which nodes have their turn together.
    pub grouping: Grouping,
    /// Images of the current revision are pulled before old pods are stopped.
    pub pre_pull: bool,
    /// How long a new pod may take to become available before it counts as failing.
    pub progress_deadline: Option<SignedDuration>,
}

/// The revision that pods should be of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// Its hash: the value of the label `controller-revision-hash`.
    pub hash: String,
    /// The name of its ControllerRevision.
    pub revision_name: String,
    /// Which try of it this is.
    pub attempt: Attempt,
    /// Since when it is the current one. A node out of reach since before that is not waited for. `None`:
    /// not known, so that every node counts.
    pub since: Option<Timestamp>,
}

impl Target {
    /// What nodes are asked to pull images for, and answer about.
    pub fn pulled_for(&self) -> String {
        pre_pull::tried(&self.hash, self.attempt)
    }
}

/// Which try of a revision. What pods showed in the last one says nothing about this one: the cause may be mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attempt {
    /// Its number in the history: another one each time its template comes back.
    pub number: i64,
    /// How often `rollout resume` had it tried again since.
    pub again: u32,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.again {
            0 => write!(f, "{}", self.number),
            again => write!(f, "{}.{again}", self.number),
        }
    }
}

/// A DaemonSet.
#[derive(Debug, Clone, PartialEq)]
pub struct DaemonFacts {
    /// Namespace and name.
    pub id: NamespacedName,
    /// Which of the DaemonSets that ever had this name.
    pub uid: String,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `metadata.generation`.
    pub generation: i64,
    /// Being deleted: nothing is done for it any more.
    pub terminating: bool,
    /// Which pods it may adopt.
    pub selector: Selector,
    /// How pods are replaced.
    pub strategy: Strategy,
    /// How many old revisions are kept.
    pub history_limit: usize,
    /// The pod template, as stored.
    pub template: Value,
    /// All annotations: a new revision gets them.
    pub annotations: BTreeMap<String, String>,
    /// The status as it is stored.
    pub status: Numbers,
    /// `status.collisionCount`.
    pub collision_count: Option<i32>,
    /// The condition about failed rollouts, as it is stored.
    pub condition: Option<Condition>,
    /// What the author asks of rollouts.
    pub control: Control,
    /// Where it stands in its history.
    pub course: Course,
    /// What placing depends on.
    pub rules: Rules,
}

/// Strategy values that stored data may lack; the API fills in the same (spec/daemonset.md 3).
const DEFAULT_MAX_UNAVAILABLE: IntOrPercent = IntOrPercent::Int(1);
const DEFAULT_HISTORY_LIMIT: usize = 10;

impl DaemonFacts {
    /// The facts of a stored DaemonSet. Its [`Target`] and its [`Course`] are still empty: [`revision::settle`] tells them,
    /// [`DaemonFacts::take`] takes them.
    pub fn from_object(object: &Object) -> Result<Self, FactsError> {
        let id = object.namespaced_name();
        let typed: DaemonSet = object.typed().map_err(|source| FactsError::Decode {
            kind: "DaemonSet",
            id: id.clone(),
            source,
        })?;
        Self::from_typed(&typed, object)
    }

    /// The same, when the typed view of `object` is at hand already.
    pub fn from_typed(typed: &DaemonSet, object: &Object) -> Result<Self, FactsError> {
        let id = object.namespaced_name();
        let spec = typed.spec.clone().unwrap_or_default();
        let selector = Selector::from_spec(&spec.selector).map_err(|source| {
            let id = id.clone();
            FactsError::Selector { id, source }
        })?;
        let strategy = strategy(&spec.update_strategy.unwrap_or_default());
        let pod = spec.template.spec.unwrap_or_default();
        let template_generation = object
            .annotation(annotation::TEMPLATE_GENERATION)
            .filter(|text| text.parse::<i64>().is_ok())
            .map(str::to_owned);
        let annotations = object.annotations();
        let (control, _) = Control::read(&annotations);
        let rules = Rules {
            wants: Wants::of(pod),
            stable_wants: None,
            surging: strategy.is_surging(),
            min_ready_seconds: spec.min_ready_seconds.unwrap_or(0),
            count_offline: control.count_offline,
            template_generation,
            target: Target::default(),
            grouping: control.grouping(),
            pre_pull: control.pre_pull && !strategy.is_surging(),
            progress_deadline: control
                .progress_deadline
                .filter(|_| control.on_failure != OnFailure::Off),
        };
        Ok(Self {
            id,
            uid: object.uid().to_owned(),
            created: typed
                .metadata
                .creation_timestamp
                .as_ref()
                .map(|time| time.0),
            generation: object.generation(),
            terminating: object.is_terminating(),
            selector,
            strategy,
            history_limit: spec
                .revision_history_limit
                .map_or(DEFAULT_HISTORY_LIMIT, |limit| {
                    usize::try_from(limit).unwrap_or(0)
                }),
            template: object
                .at("/spec/template")
                .cloned()
                .unwrap_or_else(|| Value::Object(Map::new())),
            annotations,
            status: Numbers::from_object(object),
            condition: Condition::from_object(object),
            control,
            course: Course::default(),
            collision_count: typed
                .status
                .as_ref()
                .and_then(|status| status.collision_count),
            rules,
        })
    }

    /// Takes what the history says: the current revision, and where the DaemonSet stands.
    pub fn take(&mut self, settlement: &Settlement) {
        self.rules.target = settlement.target.clone();
        self.take_course(settlement.course.clone());
    }

    /// Keeps what is known of the history, for newer facts of the same DaemonSet, until it is looked at again.
    pub fn keep_history_of(&mut self, before: &Self) {
        self.rules.target = before.rules.target.clone();
        self.take_course(before.course.clone());
    }

    fn take_course(&mut self, course: Course) {
        let stable = course.stable.as_ref();
        self.rules.stable_wants = stable
            .filter(|_| self.control.holds_back())
            .map(|stable| stable.wants.clone());
        self.course = course;
    }

    /// Why the rollout is stopped; `None`: it is not, or nobody asks for that (any more).
    pub fn failed(&self) -> Option<&Arc<str>> {
        let failed = self.course.failed.as_ref();
        failed.filter(|_| self.control.on_failure != OnFailure::Off)
    }

    /// The empty selector of old stored data: nothing is done for it (spec/daemonset.md 9, step 2).
    pub fn selects_all(&self) -> bool {
        self.selector.is_empty()
    }
}

fn strategy(strategy: &muster_model::k8s::api::apps::v1::DaemonSetUpdateStrategy) -> Strategy {
    if strategy.type_.as_deref() == Some("OnDelete") {
        return Strategy::OnDelete;
    }
    let rolling = strategy.rolling_update.clone().unwrap_or_default();
    let read = |value: Option<_>, default| {
        value
            .and_then(|value| IntOrPercent::parse(&value).ok())
            .unwrap_or(default)
    };
    Strategy::RollingUpdate {
        max_unavailable: read(rolling.max_unavailable, DEFAULT_MAX_UNAVAILABLE),
        max_surge: read(rolling.max_surge, IntOrPercent::Int(0)),
    }
}

/// A node.
#[derive(Debug, Clone)]
pub struct NodeFacts {
    /// Its name.
    pub name: NodeName,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// `spec.taints`, in order.
    pub taints: Vec<Taint>,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// Since when its agent is out of reach, by the Ready condition (`Unknown`) or the taint `unreachable`.
    pub unreachable_since: Option<Timestamp>,
    /// It was out of reach, if ever, before that: when its agent last said something new about being ready. `None`: it
    /// does not say. Not compared: an agent that comes back changes [`Self::unreachable_since`] too, and whatever else
    /// it says of being ready is nobody's business.
    pub reachable_since: Option<Timestamp>,
}

impl PartialEq for NodeFacts {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            name,
            labels,
            taints,
            created,
            unreachable_since,
            reachable_since: _,
        } = self;
        *name == other.name
            && *labels == other.labels
            && *taints == other.taints
            && *created == other.created
            && *unreachable_since == other.unreachable_since
    }
}

impl NodeFacts {
    /// The facts of a stored Node.
    pub fn from_object(object: &Object) -> Result<Self, FactsError> {
        let typed: Node = object.typed().map_err(|source| FactsError::Decode {
            kind: "Node",
            id: object.namespaced_name(),
            source,
        })?;
        Ok(Self::from_typed(&typed))
    }

    /// The facts of a typed Node.
    pub fn from_typed(node: &Node) -> Self {
        let taints = node
            .spec
            .as_ref()
            .and_then(|spec| spec.taints.clone())
            .unwrap_or_default();
        let by_taint = taints
            .iter()
            .filter(|taint| taint.key == taint_key::UNREACHABLE)
            .filter_map(|taint| taint.time_added.as_ref().map(|time| time.0))
            .min();
        let ready = node
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten())
            .find(|found| found.type_ == condition::READY);
        let turned = ready.and_then(|found| found.last_transition_time.as_ref().map(|time| time.0));
        let is_unknown = ready.is_some_and(|found| found.status == "Unknown");
        let by_condition = turned.filter(|_| is_unknown);
        Self {
            name: node.metadata.name.clone().unwrap_or_default().into(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints,
            created: node.metadata.creation_timestamp.as_ref().map(|time| time.0),
            // The taints come after the condition, perhaps by a clock that was set in between.
            unreachable_since: by_condition.or(by_taint),
            reachable_since: turned.filter(|_| !is_unknown),
        }
    }
}
