//! What the author of a DaemonSet asks of its rollouts beyond `apps/v1`, in annotations below `muster.dev/`: pause, stop
//! or go back on failure, canary and waves, early pulls, windows, failure domains. None of them: Kubernetes' behaviour.

mod reader;

use std::collections::BTreeMap;

use jiff::SignedDuration;
use muster_model::field_path::{FieldError, FieldPath};
use muster_model::int_or_percent::IntOrPercent;
use muster_model::reason::annotation;
use muster_model::selector::Selector;
use serde_json::Value;

use crate::group::Grouping;
use crate::window::Window;

/// Most waves, canary included.
pub const MOST_WAVES: usize = 32;
/// Most rules of maintenance windows: they are bits of a number.
pub const MOST_WINDOWS: usize = 64;

/// The annotations of a DaemonSet that are read.
pub(crate) const ANNOTATIONS: [&str; 14] = [
    annotation::OFFLINE_NODES,
    annotation::PAUSED,
    annotation::ON_FAILURE,
    annotation::FAILURE_THRESHOLD,
    annotation::PROGRESS_DEADLINE,
    annotation::CANARY,
    annotation::CANARY_PAUSE,
    annotation::WAVES,
    annotation::WAVE_PAUSE,
    annotation::PARTITION,
    annotation::PRE_PULL,
    annotation::MAINTENANCE_WINDOWS,
    annotation::FAILURE_DOMAIN,
    annotation::MAX_UPDATING_PER_DOMAIN,
];

/// What happens when a new revision fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// Nothing besides what the budget does by itself.
    #[default]
    Off,
    /// The rollout stops where it is.
    Halt,
    /// The rollout stops, and the template goes back to the last revision that was available everywhere.
    Rollback,
}

/// Which nodes a wave lets the new revision onto, together with those of the waves before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaveNodes {
    /// The nodes with these labels.
    Selected(Selector),
    /// So many nodes in all.
    Count(IntOrPercent),
}

/// How long a wave is watched once it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// So long.
    For(SignedDuration),
    /// Until somebody promotes the rollout.
    UntilPromoted,
}

/// One wave of a rollout. After the last one come all other nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wave {
    /// Its nodes.
    pub nodes: WaveNodes,
    /// What comes before the next.
    pub pause: Pause,
    /// As its author wrote it.
    pub text: String,
}

/// When nodes with certain labels may be updated. Several rules for a node: when one of them allows it.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowRule {
    /// Which nodes; nodes that no rule names may be updated at any time.
    pub nodes: Selector,
    /// When.
    pub window: Window,
}

/// How many nodes of one failure domain may be updated at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainLimit {
    /// The node label whose values are the domains. A node without it is in none.
    pub label: String,
    /// Nodes of one domain that may be without an available pod, or surging, for another one there to be updated.
    pub most: usize,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Control {
    /// Nothing of a rollout is done.
    pub paused: bool,
    /// What happens when a new revision fails.
    pub on_failure: OnFailure,
    /// On how many nodes it must fail; absent: 1.
    pub failure_threshold: Option<IntOrPercent>,
    /// How long a new pod may take to become available.
    pub progress_deadline: Option<SignedDuration>,
    /// In order; the canary is the first.
    pub waves: Vec<Wave>,
    /// Nodes that stay on the old revision.
    pub partition: Option<IntOrPercent>,
    /// Images are pulled before the old pod is stopped.
    pub pre_pull: bool,
    /// When nodes may be updated.
    pub windows: Vec<WindowRule>,
    /// How many nodes of a failure domain at once.
    pub domain: Option<DomainLimit>,
    /// Nodes out of reach use up the budget.
    pub count_offline: bool,
    /// Stored annotations that cannot be read (the API refuses them): what is wrong with the first. Everything is
    /// held until they are put right.
    pub unreadable: Option<String>,
}

impl Control {
    /// Reads the annotations of a DaemonSet, and says what is wrong with them, by field.
    pub fn read(annotations: &BTreeMap<String, String>) -> (Self, Vec<FieldError>) {
        reader::read(annotations)
    }

    /// What is wrong with the annotations beside the `minReadySeconds` of the same DaemonSet.
    pub fn check_beside(&self, min_ready_seconds: i64) -> Option<FieldError> {
        let deadline = self.progress_deadline?;
        (deadline.as_secs() <= min_ready_seconds).then(|| {
            let field = FieldPath::of("metadata.annotations").key(annotation::PROGRESS_DEADLINE);
            let detail = "must be longer than minReadySeconds, or every new pod counts as failed";
            FieldError::invalid(
                field,
                &Value::from(format!("{}s", deadline.as_secs())),
                detail,
            )
        })
    }

    /// What is wrong with the annotations that the pods get from the template.
    pub fn check_template(annotations: &BTreeMap<String, String>) -> Option<FieldError> {
        reader::check_template(annotations)
    }

    /// Whether some nodes may be held back, so that a pod they lose must come back from an older revision.
    pub fn holds_back(&self) -> bool {
        self.paused
            || self.on_failure != OnFailure::Off
            || !self.waves.is_empty()
            || self.partition.is_some()
            || !self.windows.is_empty()
            || self.unreadable.is_some()
    }

    /// What sorts nodes into groups.
    pub(crate) fn grouping(&self) -> Grouping {
        Grouping {
            waves: self
                .waves
                .iter()
                .map(|wave| match &wave.nodes {
                    WaveNodes::Selected(selector) => Some(selector.clone()),
                    WaveNodes::Count(_) => None,
                })
                .collect(),
            windows: self.windows.iter().map(|rule| rule.nodes.clone()).collect(),
            domain: self.domain.as_ref().map(|domain| domain.label.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (Control, Vec<String>) {
        let annotations = pairs
            .iter()
            .map(|(key, value)| (format!("muster.dev/{key}"), (*value).to_owned()))
            .collect();
        let (control, faults) = Control::read(&annotations);
        let faults = faults
            .iter()
            .map(|fault| format!("{}: {}", fault.field, fault.body))
            .collect();
        (control, faults)
    }

    #[test]
    fn no_annotation_means_kubernetes_behaviour() {
        assert_eq!(read(&[]), (Control::default(), Vec::new()));
        assert!(!Control::default().holds_back());
    }

    #[test]
    fn every_annotation_is_read() {
        let (control, faults) = read(&[
            ("paused", "true"),
            ("on-failure", "rollback"),
            ("failure-threshold", "10%"),
            ("progress-deadline", "10m"),
            ("canary", "gpu=true,zone in (a,b)"),
            ("waves", "2; 25%; zone=c"),
            ("wave-pause", "30s"),
            ("partition", "3"),
            ("pre-pull", "true"),
            (
                "maintenance-windows",
                "site=shop: daily 02:00-04:00 UTC\n*: Sun 00:00-24:00\n",
            ),
            ("failure-domain", "topology.kubernetes.io/zone"),
            ("max-updating-per-domain", "2"),
            ("offline-nodes", "count"),
        ]);
        assert_eq!(faults, Vec::<String>::new());
        assert!(
            control.paused && control.pre_pull && control.count_offline && control.holds_back()
        );
        assert_eq!(control.on_failure, OnFailure::Rollback);
        assert_eq!(control.failure_threshold, Some(IntOrPercent::Percent(10)));
        assert_eq!(
            control.progress_deadline,
            Some(SignedDuration::from_mins(10))
        );
        assert_eq!(control.partition, Some(IntOrPercent::Int(3)));
        let waves: Vec<&str> = control
            .waves
            .iter()
            .map(|wave| wave.text.as_str())
            .collect();
        assert_eq!(waves, ["gpu=true,zone in (a,b)", "2", "25%", "zone=c"]);
        assert_eq!(control.waves[0].pause, Pause::UntilPromoted);
        assert_eq!(
            control.waves[1].nodes,
            WaveNodes::Count(IntOrPercent::Int(2))
        );
        assert_eq!(
            control.waves[3].pause,
            Pause::For(SignedDuration::from_secs(30))
        );
        assert_eq!(control.windows.len(), 2);
        assert_eq!(control.domain.map(|domain| domain.most), Some(2));
    }

    #[test]
    fn a_deadline_that_no_pod_can_meet_is_refused() {
        let (_, faults) = read(&[("on-failure", "halt"), ("progress-deadline", "0s")]);
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].contains("must be longer than nothing"));
    }

    #[test]
    fn a_cap_of_the_restarts_is_a_duration_that_leaves_a_pause() {
        let check = |text: &str| {
            let key = annotation::MAX_RESTART_DELAY.to_owned();
            let fault = Control::check_template(&BTreeMap::from([(key, text.to_owned())]));
            fault.map(|fault| format!("{}: {}", fault.field, fault.body))
        };
        for readable in ["15", "15s", "1m30s", "1h", "1500ms", "18446744073709551615"] {
            assert_eq!(check(readable), None, "{readable}");
        }
        for (text, expected) in [
            ("", "is not a duration"),
            ("soon", "is not a duration"),
            ("500ms", "must be at least 1s"),
            ("0", "must be at least 1s"),
        ] {
            let fault = check(text).unwrap();
            let start =
                "spec.template.metadata.annotations[muster.dev/max-restart-delay]: Invalid value: ";
            assert!(fault.starts_with(start), "{fault}");
            assert!(fault.contains(expected), "{fault}");
        }
        assert_eq!(Control::check_template(&BTreeMap::new()), None);
    }

    #[test]
    fn what_cannot_be_read_names_its_annotation_and_holds_everything() {
        for (key, value, expected) in [
            ("paused", "yes", "must be \"true\" or \"false\""),
            ("on-failure", "undo", "must be \"halt\""),
            ("canary", "10x", "not \"10x\""),
            ("canary", "101%", "not \"101%\""),
            ("canary", "", "not \"\""),
            ("waves", "2;;3", "not \"\""),
            ("canary", "a in (", "\"a in (\""),
            ("partition", "-1", "must be a number of nodes"),
            ("offline-nodes", "true", "must be \"count\""),
            (
                "canary-pause",
                "5m",
                "means nothing without muster.dev/canary",
            ),
            ("maintenance-windows", "site=a", "is not SELECTOR: DAYS"),
            (
                "maintenance-windows",
                "*: Foo 01:00-02:00",
                "\"Foo\" is no day",
            ),
            ("failure-domain", "a b", "must be the name of a node label"),
            (
                "failure-domain",
                "zone=a",
                "must be the name of a node label",
            ),
        ] {
            let (control, faults) = read(&[(key, value)]);
            assert_eq!(faults.len(), 1, "{key}={value}: {faults:?}");
            let start = format!("metadata.annotations[muster.dev/{key}]: Invalid value: ");
            assert!(faults[0].starts_with(&start), "{}", faults[0]);
            assert!(faults[0].contains(expected), "{}", faults[0]);
            assert!(control.unreadable.is_some() && control.holds_back());
        }
    }
}
