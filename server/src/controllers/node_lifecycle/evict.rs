//! When a pod has to leave a node for its NoExecute taints (spec/node-agent.md 5, NoExecute eviction). Pure.

use std::time::Duration;

use muster_model::k8s::api::core::v1::{Taint, Toleration};
use muster_model::taint::{NO_EXECUTE, tolerates};

/// What a pod's tolerations say to a node's NoExecute taints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stay {
    /// For good.
    Forever,
    /// This long after the taints were first seen; zero: leave now.
    For(Duration),
}

/// How long the pod may stay. Every taint needs a toleration; the shortest `tolerationSeconds` of those that
/// matched counts, where zero and less mean now.
pub(super) fn stay(taints: &[Taint], tolerations: &[Toleration]) -> Stay {
    let mut shortest: Option<i64> = None;
    for taint in taints.iter().filter(|taint| taint.effect == NO_EXECUTE) {
        let mut matching = tolerations
            .iter()
            .filter(|toleration| tolerates(toleration, taint))
            .peekable();
        if matching.peek().is_none() {
            return Stay::For(Duration::ZERO);
        }
        for seconds in matching.filter_map(|toleration| toleration.toleration_seconds) {
            shortest = Some(shortest.map_or(seconds, |least| least.min(seconds)));
        }
    }
    match shortest {
        None => Stay::Forever,
        Some(seconds) => Stay::For(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, effect: &str) -> Taint {
        Taint {
            key: key.into(),
            effect: effect.into(),
            value: None,
            time_added: None,
        }
    }

    fn toleration(key: &str, seconds: Option<i64>) -> Toleration {
        Toleration {
            key: Some(key.into()),
            operator: Some("Exists".into()),
            effect: Some(NO_EXECUTE.into()),
            value: None,
            toleration_seconds: seconds,
        }
    }

    #[test]
    fn the_shortest_matching_limit_counts() {
        let both = [taint("a", NO_EXECUTE), taint("b", NO_EXECUTE)];
        let cases = [
            ("no taints", stay(&[], &[]), Stay::Forever),
            (
                "NoSchedule asks nobody to leave",
                stay(&[taint("a", "NoSchedule")], &[]),
                Stay::Forever,
            ),
            (
                "not tolerated",
                stay(&both, &[toleration("a", None)]),
                Stay::For(Duration::ZERO),
            ),
            (
                "for good",
                stay(&both, &[toleration("a", None), toleration("b", None)]),
                Stay::Forever,
            ),
            (
                "the smaller of two",
                stay(
                    &both,
                    &[toleration("a", Some(300)), toleration("b", Some(20))],
                ),
                Stay::For(Duration::from_secs(20)),
            ),
            (
                "negative means now",
                stay(&both[..1], &[toleration("a", Some(-1))]),
                Stay::For(Duration::ZERO),
            ),
        ];
        for (name, found, wanted) in cases {
            assert_eq!(found, wanted, "{name}");
        }
    }
}
