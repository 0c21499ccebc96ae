//! The facts of a pod.

use std::sync::Arc;

use jiff::SignedDuration;
use muster_model::affinity::pinned_node;
use muster_model::k8s::api::core::v1::Pod;
use muster_model::object::Object;
use muster_model::pod_status::{self, Availability, Phase};
use muster_model::pre_pull::{self, Answer, Request};
use muster_model::reason::{annotation, label};
use muster_model::time::Timestamp;

use super::{FactsError, NodeName, PodUid, Rules};
use crate::{failure, trouble};

/// A pod that a DaemonSet owns (or has just adopted).
#[derive(Debug, Clone, PartialEq)]
pub struct PodFacts {
    /// Its name.
    pub name: Arc<str>,
    /// Its uid.
    pub uid: PodUid,
    /// The node it is bound to, or pinned to by affinity; `None`: neither.
    pub node: Option<NodeName>,
    /// Whether `spec.nodeName` is set.
    pub bound: bool,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// Its phase.
    pub phase: Phase,
    /// Being deleted.
    pub terminating: bool,
    /// The condition Ready is True.
    pub ready: bool,
    /// Since when it is Ready.
    pub ready_since: Option<Timestamp>,
    /// Since when it is not Ready; `None`: it is, or does not say.
    pub unready_since: Option<Timestamp>,
    /// It was available before, as far as the driver has seen: the pod itself does not tell.
    pub was_available: bool,
    /// Label `controller-revision-hash`.
    pub hash: Option<String>,
    /// Label `pod-template-generation`.
    pub template_generation: Option<String>,
    /// In words, what keeps it from being Ready; empty when it does not say.
    pub trouble: String,
    /// In words, how it shows that its revision is at fault; `None`: it does not.
    pub failing: Option<String>,
    /// In which try of its revision it was made; `None`: it does not say.
    pub attempt: Option<String>,
    /// For what its node was asked to pull images ([`super::Target::pulled_for`]).
    pub pull_asked: Option<String>,
    /// What the node answered.
    pub pull_answer: Option<Answer>,
}

impl PodFacts {
    /// The facts of a stored Pod.
    pub fn from_object(object: &Object) -> Result<Self, FactsError> {
        let typed: Pod = object.typed().map_err(|source| FactsError::Decode {
            kind: "Pod",
            id: object.namespaced_name(),
            source,
        })?;
        Ok(Self::from_typed(&typed))
    }

    /// The facts of a typed Pod.
    pub fn from_typed(pod: &Pod) -> Self {
        let spec = pod.spec.as_ref();
        let bound_to = spec
            .and_then(|spec| spec.node_name.as_deref())
            .filter(|n| !n.is_empty());
        let pinned_to = || pinned_node(spec.and_then(|spec| spec.affinity.as_ref()));
        let own_label = |key: &str| {
            pod.metadata
                .labels
                .as_ref()
                .and_then(|all| all.get(key))
                .cloned()
        };
        let own_annotation = |key: &str| pod.metadata.annotations.as_ref()?.get(key);
        Self {
            name: pod.metadata.name.as_deref().unwrap_or_default().into(),
            uid: pod.metadata.uid.as_deref().unwrap_or_default().into(),
            node: bound_to.or_else(pinned_to).map(NodeName::from),
            bound: bound_to.is_some(),
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            phase: pod_status::phase(pod),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            ready: pod_status::is_ready(pod),
            ready_since: pod_status::ready_since(pod),
            unready_since: pod_status::unready_since(pod),
            was_available: false,
            hash: own_label(label::CONTROLLER_REVISION_HASH),
            template_generation: own_label(label::POD_TEMPLATE_GENERATION),
            trouble: trouble::of_pod(pod),
            failing: failure::of_pod(pod).then(|| failure::words(pod)),
            attempt: own_annotation(annotation::TRY).cloned(),
            pull_asked: pull_asked(pod),
            pull_answer: pull_answer(pod),
        }
    }

    /// Since when it has been Ready long enough; `None` when it does not say.
    pub(crate) fn available_since(&self, rules: &Rules) -> Option<Timestamp> {
        let wait = SignedDuration::from_secs(i64::from(rules.min_ready_seconds));
        self.ready_since?.checked_add(wait).ok()
    }

    /// Whether it is of the current revision (spec/daemonset.md 12).
    pub fn is_updated(&self, rules: &Rules) -> bool {
        let same_hash = self.hash.as_deref() == Some(rules.target.hash.as_str());
        let same_generation = rules.template_generation.is_some()
            && self.template_generation == rules.template_generation;
        same_hash || same_generation
    }

    /// Ready long enough, at `now`?
    pub fn availability(&self, rules: &Rules, now: Timestamp) -> Availability {
        pod_status::availability(self.ready, self.ready_since, rules.min_ready_seconds, now)
    }

    /// Whether it is available at `now`.
    pub fn is_available(&self, rules: &Rules, now: Timestamp) -> bool {
        self.availability(rules, now) == Availability::Available
    }

    /// The order 'oldest first' among the pods of one node: bound ones before unbound, then the earlier
    /// `creationTimestamp`, then the smaller name.
    pub fn age_order(&self) -> (bool, Timestamp, &str) {
        (
            !self.bound,
            self.created.unwrap_or(Timestamp::MAX),
            &self.name,
        )
    }
}

fn pull_asked(pod: &Pod) -> Option<String> {
    let annotations = pod.metadata.annotations.as_ref()?;
    let request = Request::parse(annotations.get(annotation::PRE_PULL)?)?;
    Some(request.revision)
}

fn pull_answer(pod: &Pod) -> Option<Answer> {
    let said = pod_status::condition(pod, pre_pull::CONDITION)?;
    let (reason, message) = (said.reason.as_deref()?, said.message.as_deref()?);
    Answer::read(reason, message)
}
