//! How fast nodes may get NoExecute taints: a slow trickle, less when much of the fleet is out, nothing when
//! all of it is (spec/node-agent.md 5). Pure.

use std::time::Duration;

/// Seconds between two taints, in ordinary times: 0.1 nodes a second.
const ORDINARY: Duration = Duration::from_secs(10);
/// The same when much of a large fleet is out: 0.01 nodes a second.
const DISRUPTED: Duration = Duration::from_secs(100);
/// A fleet larger than this slows down where a smaller one stops.
const LARGE_FLEET: usize = 50;
/// Fewer lost nodes than this are never a disruption.
const FEW: usize = 3;

/// Which lost node may be tainted NoExecute now. A bucket of one taint that fills up with monotonic time.
#[derive(Debug, Clone, Default)]
pub(super) struct EvictionRate {
    last: Option<Duration>,
    /// When so much of the fleet was last out that nothing may be evicted.
    stopped: Option<Duration>,
}

impl EvictionRate {
    /// Takes note of how much of the fleet is out at `now`. `false`: nothing may be evicted, not even what was
    /// already about to be.
    pub(super) fn observe(&mut self, nodes: usize, lost: usize, now: Duration) -> bool {
        let flows = lost == 0 || interval(nodes, lost).is_some();
        if !flows {
            self.stopped = Some(now);
        }
        flows
    }

    /// Whether one more node, lost since `lost_since`, may be tainted at `now`; if so, it is counted. A node waits
    /// for `settle` first, after a stop once more: nodes that vanish together are not noticed at the same
    /// moment, and the first of them must not be evicted before the others are known to be out too.
    pub(super) fn take(
        &mut self,
        nodes: usize,
        lost: usize,
        lost_since: Duration,
        settle: Duration,
        now: Duration,
    ) -> bool {
        let Some(interval) = interval(nodes, lost) else {
            return false;
        };
        let since = self
            .stopped
            .map_or(lost_since, |stopped| stopped.max(lost_since));
        let due = now.saturating_sub(since) >= settle
            && self
                .last
                .is_none_or(|last| now.saturating_sub(last) >= interval);
        if due {
            self.last = Some(now);
        }
        due
    }
}

/// Time between two taints; `None`: none at all.
fn interval(nodes: usize, lost: usize) -> Option<Duration> {
    if lost >= nodes {
        return None;
    }
    // At least 55 %, in whole numbers.
    let disrupted = lost >= FEW && lost * 100 >= nodes * 55;
    match (disrupted, nodes > LARGE_FLEET) {
        (false, _) => Some(ORDINARY),
        (true, true) => Some(DISRUPTED),
        (true, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_secs(15);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn one_node_in_ten_seconds_in_ordinary_times() {
        let mut rate = EvictionRate::default();
        let taken: Vec<u64> = (0..45)
            .filter(|second| rate.take(10, 2, Duration::ZERO, SETTLE, at(*second)))
            .collect();
        assert_eq!(taken, [15, 25, 35]);
    }

    #[test]
    fn after_a_stop_every_node_settles_again() {
        let mut rate = EvictionRate::default();
        assert!(rate.observe(5, 2, at(0)));
        assert!(!rate.observe(5, 5, at(100)));
        assert!(rate.observe(5, 2, at(101)));
        assert!(!rate.take(5, 2, at(0), SETTLE, at(114)));
        assert!(rate.take(5, 2, at(0), SETTLE, at(115)));
    }

    #[test]
    fn case_b23_a_fleet_that_vanishes_together_is_not_evicted() {
        let cases = [
            ("one node of one", 1, 1, None),
            ("all of five", 5, 5, None),
            ("one of two", 2, 1, Some(ORDINARY)),
            ("three of five", 5, 3, None),
            ("two of three", 3, 2, Some(ORDINARY)),
            ("27 of 50", 50, 27, Some(ORDINARY)),
            ("28 of 50", 50, 28, None),
            ("60 of 100", 100, 60, Some(DISRUPTED)),
        ];
        for (name, nodes, lost, wanted) in cases {
            assert_eq!(interval(nodes, lost), wanted, "{name}");
        }
    }
}
