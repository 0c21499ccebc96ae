//! Gaps: nodes that should run the daemon and have no available pod, and since when.
//!
//! Whoever saw a gap open knows its age. Who did not (a controller that has just started) takes what the objects
//! say: the gap is as old as the oldest sign of it that is still there. It can be older than that, where pods have come
//! and gone; and younger, where nothing is left of a pod that worked.

use muster_model::time::Timestamp;

use crate::facts::{DaemonFacts, NodeFacts, PodFacts};
use crate::place::Placement;

/// What is remembered of a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Nobody has looked at this DaemonSet yet.
    None,
    /// Somebody looks at it, and has not seen a gap on this node: if there is one, it has just opened.
    Closed,
    /// The gap is open since then.
    Open(Timestamp),
}

impl Placement {
    /// Whether the node should run the daemon and none of its pods is available.
    pub fn is_gap(&self) -> bool {
        self.counts.desired && !self.served
    }
}

/// Since when a gap is open, as far as is known. `pods` are the daemon's pods on the node.
pub fn since(
    daemon: &DaemonFacts,
    node: &NodeFacts,
    pods: &[PodFacts],
    memory: Memory,
    now: Timestamp,
) -> Timestamp {
    let begun = match memory {
        Memory::Open(since) => Some(since),
        Memory::Closed if pods.is_empty() => Some(now),
        // A pod that has lost its readiness says when.
        Memory::Closed | Memory::None => pods.iter().filter_map(lost).min(),
    };
    // There was no gap before there was a node and a DaemonSet, whatever a name or an adopted pod brings along.
    begun
        .max(daemon.created.max(node.created))
        .map_or(now, |since| since.min(now))
}

/// Since when a gap is open on a node that is looked at again; `None`: there is none. `before` is the node's
/// placement of the last look.
pub fn follow(
    before: Option<&Placement>,
    after: &Placement,
    unseen: impl FnOnce() -> Timestamp,
    now: Timestamp,
) -> Option<Timestamp> {
    if !after.is_gap() {
        return None;
    }
    let opened_now = before.is_some_and(|before| !before.is_gap());
    Some(if opened_now { now } else { unseen() })
}

/// Since when a pod that is not available is not: its word when it is not Ready; otherwise (it is Ready, but not for
/// long enough, or says nothing) it may never have been.
fn lost(pod: &PodFacts) -> Option<Timestamp> {
    pod.unready_since.or(pod.created)
}

#[cfg(test)]
mod tests {
    use muster_model::object::Object;
    use serde_json::{Value, json};

    use super::*;
    use crate::place::place;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + seconds).unwrap()
    }

    fn text(seconds: i64) -> String {
        muster_model::time::to_seconds_text(at(seconds))
    }

    fn object(tree: Value) -> Object {
        Object::from_value(tree).unwrap()
    }

    fn daemon() -> DaemonFacts {
        DaemonFacts::from_object(&object(json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "d", "creationTimestamp": text(10)},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}}, "minReadySeconds": 5,
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}},
            },
        })))
        .unwrap()
    }

    fn node(created: i64) -> NodeFacts {
        let tree = json!({"metadata": {"name": "n1", "creationTimestamp": text(created)}});
        NodeFacts::from_object(&object(tree)).unwrap()
    }

    fn pod(created: i64, ready: &str, changed: i64) -> PodFacts {
        let condition =
            json!({"type": "Ready", "status": ready, "lastTransitionTime": text(changed)});
        PodFacts::from_object(&object(json!({
            "metadata": {"name": "web-1", "uid": "p", "creationTimestamp": text(created)},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running", "conditions": [condition]},
        })))
        .unwrap()
    }

    #[test]
    fn what_is_not_remembered_is_told_by_the_oldest_sign_of_it() {
        let unseen = |node: &NodeFacts, pods: &[PodFacts]| {
            since(&daemon(), node, pods, Memory::None, at(100))
        };
        let (early, late) = (node(5), node(40));
        assert_eq!(unseen(&early, &[]), at(10), "the DaemonSet came last");
        assert_eq!(unseen(&late, &[]), at(40), "the node came last");
        let unready = pod(20, "False", 60);
        assert_eq!(unseen(&early, std::slice::from_ref(&unready)), at(60));
        let warming = pod(50, "True", 98);
        assert_eq!(
            unseen(&early, std::slice::from_ref(&warming)),
            at(50),
            "it may never have been"
        );
        assert_eq!(unseen(&early, &[warming, unready]), at(50));
        let adopted = pod(1, "False", 2);
        assert_eq!(unseen(&late, &[adopted]), at(40));
        let tomorrow = pod(20, "False", 1_000);
        assert_eq!(
            unseen(&early, &[tomorrow]),
            at(100),
            "a clock that is ahead"
        );
    }

    #[test]
    fn what_is_remembered_holds_for_the_node_it_was_seen_on() {
        let told = |node: &NodeFacts, pods: &[PodFacts], memory| {
            since(&daemon(), node, pods, memory, at(100))
        };
        let unready = [pod(90, "False", 95)];
        assert_eq!(told(&node(5), &unready, Memory::Open(at(30))), at(30));
        assert_eq!(
            told(&node(40), &[], Memory::Open(at(30))),
            at(40),
            "another node of that name"
        );
        assert_eq!(told(&node(5), &unready, Memory::Closed), at(95));
        assert_eq!(told(&node(5), &[], Memory::Closed), at(100));
    }

    #[test]
    fn a_gap_opens_when_the_last_available_pod_is_lost_and_closes_with_the_next() {
        let look = |pods: &[PodFacts], now| place(&daemon(), &node(5), pods, None, at(now));
        let runs = look(&[pod(20, "True", 25)], 60);
        let down = look(&[pod(20, "False", 61)], 62);
        let gone = look(&[], 70);
        assert!(!runs.is_gap() && down.is_gap() && gone.is_gap());
        let unseen = || at(7);
        assert_eq!(follow(None, &down, unseen, at(62)), Some(at(7)));
        assert_eq!(follow(Some(&runs), &down, unseen, at(62)), Some(at(62)));
        assert_eq!(follow(Some(&down), &gone, unseen, at(70)), Some(at(7)));
        assert_eq!(follow(Some(&gone), &runs, unseen, at(80)), None);
        // Two pods while surging: one that serves is enough, whichever.
        let both = [pod(20, "False", 61), pod(50, "True", 52)];
        assert!(!look(&both, 70).is_gap());
        let waiting = look(&[pod(20, "True", 67)], 70);
        assert!(waiting.is_gap(), "ready, but not for long enough");
    }
}
