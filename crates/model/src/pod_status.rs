//! What a pod's status says: phase, ready, available (spec/daemonset.md 12).

use jiff::SignedDuration;
use serde_json::Value;

use crate::k8s::api::core::v1::{Pod, PodCondition};
use crate::object::Object;
use crate::reason::condition;
use crate::time::Timestamp;

/// `status.phase`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Phase {
    /// Accepted, not all containers started. Also what an absent phase means.
    #[default]
    Pending,
    /// Bound to a node, at least one container runs or (re)starts.
    Running,
    /// All containers ended well and stay so.
    Succeeded,
    /// All containers ended, at least one badly; or the node refused the pod.
    Failed,
    /// The node does not tell.
    Unknown,
}

impl Phase {
    /// Reads the field; absent or empty is `Pending`, what is not known is `Unknown`.
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            None | Some("" | "Pending") => Self::Pending,
            Some("Running") => Self::Running,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            Some(_) => Self::Unknown,
        }
    }

    /// As Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }

    /// `Succeeded` or `Failed`: no container of the pod will ever run again.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The pod's phase.
pub fn phase(pod: &Pod) -> Phase {
    Phase::parse(
        pod.status
            .as_ref()
            .and_then(|status| status.phase.as_deref()),
    )
}

/// Whether the pod is `Succeeded` or `Failed`.
pub fn is_terminal(pod: &Pod) -> bool {
    phase(pod).is_terminal()
}

/// The condition of that type, if the pod has it.
pub fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == type_)
}

/// Whether the condition `Ready` is `True`. Phase, deletion and containers are not looked at.
pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, condition::READY).is_some_and(|ready| ready.status == "True")
}

/// The status of the condition Ready (`True`, `False`, `Unknown`) of a stored Pod or Node; `None`: it does not say. For where
/// the typed view would be made for nothing else.
pub fn ready_word(object: &Object) -> Option<&str> {
    stored_condition(object, condition::READY)?["status"].as_str()
}

/// The condition of that type of a stored object; `None`: it has none.
pub fn stored_condition<'a>(object: &'a Object, type_: &str) -> Option<&'a Value> {
    let conditions = object.at("/status/conditions")?.as_array()?;
    conditions.iter().find(|c| c["type"] == type_)
}

/// Since when the pod is Ready, by the condition's own time; `None` when it is not Ready or does not say.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, condition::READY).filter(|ready| ready.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Since when the pod is not Ready, by the condition's own time; `None` when it is Ready or does not say.
pub fn unready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, condition::READY).filter(|ready| ready.status != "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Ready long enough or not, and what to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// Not Ready.
    NotReady,
    /// Ready, available at this time if it stays so. `None`: the condition does not say since when it is Ready,
    /// so that `minReadySeconds` never passes.
    Waiting(Option<Timestamp>),
    /// Ready for at least `minReadySeconds`.
    Available,
}

/// Judges readiness at `now`: available when `min_ready_seconds` is 0 (or less), or when `ready_since` is set and
/// at least that long ago.
pub fn availability(
    ready: bool,
    ready_since: Option<Timestamp>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Availability {
    if !ready {
        return Availability::NotReady;
    }
    if min_ready_seconds <= 0 {
        return Availability::Available;
    }
    let wait = SignedDuration::from_secs(i64::from(min_ready_seconds));
    match ready_since.map(|since| since.checked_add(wait).unwrap_or(Timestamp::MAX)) {
        None => Availability::Waiting(None),
        Some(at) if at <= now => Availability::Available,
        Some(at) => Availability::Waiting(Some(at)),
    }
}

/// Whether the pod is available at `now`.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    availability(is_ready(pod), ready_since(pod), min_ready_seconds, now) == Availability::Available
}

/// When a Ready pod becomes available, if that is still to come at `now`.
pub fn available_at(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Timestamp> {
    match availability(is_ready(pod), ready_since(pod), min_ready_seconds, now) {
        Availability::Waiting(at) => at,
        Availability::NotReady | Availability::Available => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(ready: &str, since: Option<&str>) -> Pod {
        let mut ready = json!({"type": "Ready", "status": ready});
        if let Some(since) = since {
            ready["lastTransitionTime"] = since.into();
        }
        serde_json::from_value(
            json!({"metadata": {}, "status": {"phase": "Running", "conditions": [ready]}}),
        )
        .unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn ready_is_the_condition_alone() {
        assert!(is_ready(&pod("True", None)));
        assert!(!is_ready(&pod("False", None)));
        assert!(!is_ready(&pod("Unknown", None)));
        assert!(!is_ready(&Pod::default()));
    }

    #[test]
    fn available_after_min_ready_seconds() {
        let ready = pod("True", Some("2026-01-01T00:00:00Z"));
        assert!(!is_available(&ready, 10, at("2026-01-01T00:00:09Z")));
        assert_eq!(
            available_at(&ready, 10, at("2026-01-01T00:00:09Z")),
            Some(at("2026-01-01T00:00:10Z"))
        );
        assert!(is_available(&ready, 10, at("2026-01-01T00:00:10Z")));
        assert_eq!(available_at(&ready, 10, at("2026-01-01T00:00:10Z")), None);
        assert!(is_available(
            &pod("True", None),
            0,
            at("2026-01-01T00:00:00Z")
        ));
        assert!(
            !is_available(&pod("True", None), 1, at("2026-01-01T01:00:00Z")),
            "not known since when"
        );
        assert!(!is_available(
            &pod("False", Some("2026-01-01T00:00:00Z")),
            0,
            at("2026-01-01T01:00:00Z")
        ));
    }

    #[test]
    fn an_absent_phase_is_pending() {
        assert_eq!(phase(&Pod::default()), Phase::Pending);
        assert_eq!(Phase::parse(Some("Odd")), Phase::Unknown);
        assert!(
            Phase::Failed.is_terminal()
                && Phase::Succeeded.is_terminal()
                && !Phase::Running.is_terminal()
        );
    }
}
