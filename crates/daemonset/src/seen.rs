//! The pods of one node, judged and in order, and what placing does with them (spec/daemonset.md 10.1).

use jiff::SignedDuration;
use muster_model::pod_status::{Availability, Phase};
use muster_model::time::Timestamp;

use crate::facts::{NodeFacts, PodFacts, PodUid, Rules};
use crate::fit::Fit;
use crate::place::{Counts, DeleteWhy, PodRef};

/// A pod with what was judged of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeenPod<'a> {
    pub(crate) facts: &'a PodFacts,
    pub(crate) updated: bool,
    pub(crate) availability: Availability,
    /// It is not Ready only as far as anybody knows, because its agent is out of reach, or has not spoken of it since it is
    /// back: it may well serve. When that is over; [`Timestamp::MAX`]: nobody knows.
    pub(crate) unheard_until: Option<Timestamp>,
}

/// An agent that is back has told how its pods are by then: it connects, hears what the server takes them for, and objects.
const TOLD_WITHIN: SignedDuration = SignedDuration::from_secs(40);

/// See [`SeenPod::unheard_until`].
fn unheard_until(
    pod: &PodFacts,
    node: &NodeFacts,
    rules: &Rules,
    now: Timestamp,
) -> Option<Timestamp> {
    if pod.ready || rules.count_offline {
        return None;
    }
    if node.unreachable_since.is_some() {
        return Some(Timestamp::MAX);
    }
    let back = node.reachable_since.filter(|back| *back <= now)?;
    let until = back.checked_add(TOLD_WITHIN).ok()?;
    let since = pod.unready_since?;
    (since <= back && now < until).then_some(until)
}

impl SeenPod<'_> {
    pub(crate) fn is_available(&self) -> bool {
        self.availability == Availability::Available
    }

    pub(crate) fn reference(&self) -> PodRef {
        PodRef::of(self.facts)
    }
}

/// The pods of one node that count: oldest first, without those that are both terminal and terminating.
pub(crate) struct Seen<'a> {
    pub(crate) pods: Vec<SeenPod<'a>>,
}

/// What placing does on one node.
#[derive(Default)]
pub(crate) struct Actions {
    pub(crate) create: bool,
    pub(crate) deletes: Vec<(PodRef, DeleteWhy)>,
}

impl Actions {
    pub(crate) fn deletes(&self, pod: &PodFacts) -> bool {
        self.deletes.iter().any(|(gone, _)| gone.uid == pod.uid)
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.create && self.deletes.is_empty()
    }
}

impl<'a> Seen<'a> {
    /// The pods that count, oldest first, judged at `now`.
    pub(crate) fn sort(
        pods: &'a [PodFacts],
        node: &NodeFacts,
        rules: &Rules,
        now: Timestamp,
    ) -> Self {
        let mut pods: Vec<SeenPod<'a>> = pods
            .iter()
            .filter(|pod| !(pod.terminating && pod.phase.is_terminal()))
            .map(|facts| SeenPod {
                facts,
                updated: facts.is_updated(rules),
                availability: facts.availability(rules, now),
                unheard_until: unheard_until(facts, node, rules, now),
            })
            .collect();
        pods.sort_by(|a, b| a.facts.age_order().cmp(&b.facts.age_order()));
        Self { pods }
    }

    /// Pods that are not terminal, stopping ones included: they have, or may have, containers on the node.
    pub(crate) fn live(&self) -> usize {
        self.pods
            .iter()
            .filter(|pod| !pod.facts.phase.is_terminal())
            .count()
    }

    /// Failed pods that stay until their back-off has passed.
    fn waiting_for_back_off(&self, actions: &Actions) -> usize {
        let failed = self.pods.iter().filter(|pod| {
            pod.facts.phase == Phase::Failed
                && !pod.facts.terminating
                && !actions.deletes(pod.facts)
        });
        failed.count()
    }

    /// What placing does with them.
    pub(crate) fn act(&self, fit: &Fit, rules: &Rules, retry_at: Option<Timestamp>) -> Actions {
        let mut actions = Actions::default();
        if !fit.keep {
            let staying = self.pods.iter().filter(|pod| !pod.facts.terminating);
            actions.deletes = staying
                .map(|pod| (pod.reference(), DeleteWhy::Misplaced))
                .collect();
            return actions;
        }
        let mut running = Vec::new();
        for pod in self.pods.iter().filter(|pod| !pod.facts.terminating) {
            match pod.facts.phase {
                Phase::Failed if retry_at.is_none() => {
                    actions.deletes.push((pod.reference(), DeleteWhy::Failed));
                }
                Phase::Failed => {}
                Phase::Succeeded => actions
                    .deletes
                    .push((pod.reference(), DeleteWhy::Succeeded)),
                Phase::Pending | Phase::Running | Phase::Unknown => running.push(*pod),
            }
        }
        if rules.surging {
            // Two live pods on a node are the most there may ever be: with two already there (one or both of
            // them stopping) the next one waits. So it does beside two that failed: a node that refuses one after
            // the other is asked again at the pace of the back-off.
            let places = self.live() + self.waiting_for_back_off(&actions);
            actions.create = fit.run && running.is_empty() && places < 2;
            thin_out_surge(&running, rules, &mut actions);
        } else {
            actions.create = fit.run && self.pods.is_empty();
            let stays = best(running.iter());
            for pod in running
                .iter()
                .filter(|pod| stays.as_ref() != Some(&pod.facts.uid))
            {
                actions.deletes.push((pod.reference(), DeleteWhy::Excess));
            }
        }
        actions
    }

    /// What the node counts for in the status.
    pub(crate) fn counts(&self, fit: &Fit) -> Counts {
        let Some(first) = self.pods.first() else {
            return Counts {
                desired: fit.run,
                ..Counts::default()
            };
        };
        Counts {
            desired: fit.run,
            current: fit.run,
            misscheduled: !fit.run,
            ready: fit.run && first.facts.ready,
            available: fit.run && first.is_available(),
            updated: fit.run && first.updated,
        }
    }

    /// When the answer changes by the mere passing of time.
    pub(crate) fn changes_at(&self, retry_at: Option<Timestamp>) -> Option<Timestamp> {
        let becomes_available = self.pods.iter().filter_map(|pod| match pod.availability {
            Availability::Waiting(at) => at,
            Availability::NotReady | Availability::Available => None,
        });
        let waits = |pod: &&SeenPod<'_>| pod.facts.phase == Phase::Failed && !pod.facts.terminating;
        let retry = retry_at.filter(|_| self.pods.iter().any(|pod| waits(&pod)));
        let heard = self.pods.iter().filter_map(|pod| pod.unheard_until);
        let heard = heard.filter(|until| *until < Timestamp::MAX);
        becomes_available.chain(retry).chain(heard).min()
    }
}

/// Which of several running pods stays: the oldest of those that serve best. Spec 10.1 says the oldest; but to
/// delete an available pod in favour of one that is not would take the node out, which only the budget may.
fn best<'a>(pods: impl Iterator<Item = &'a SeenPod<'a>>) -> Option<PodUid> {
    let rank = |pod: &&SeenPod<'_>| match pod.availability {
        Availability::Available => 0,
        Availability::Waiting(_) => 1,
        Availability::NotReady => 2,
    };
    // `min_by_key` takes the first of equals, and the pods come oldest first.
    pods.min_by_key(rank).map(|pod| pod.facts.uid.clone())
}

/// At most one old and one new pod stay, and the old one only while it is needed (spec/daemonset.md 10.1).
fn thin_out_surge(running: &[SeenPod<'_>], rules: &Rules, actions: &mut Actions) {
    if running.len() < 2 {
        return;
    }
    let new = best(running.iter().filter(|pod| pod.updated));
    let old = best(running.iter().filter(|pod| !pod.updated));
    for pod in running {
        let stays = if pod.updated { &new } else { &old };
        if stays.as_ref() != Some(&pod.facts.uid) {
            actions.deletes.push((pod.reference(), DeleteWhy::Excess));
        }
    }
    let find = |uid: &Option<PodUid>| {
        running
            .iter()
            .find(|pod| Some(&pod.facts.uid) == uid.as_ref())
    };
    if let (Some(old), Some(new)) = (find(&old), find(&new)) {
        // Where there is a way back, one moment of the old pod's weakness does not leave the node with one that fails.
        let way_back = rules.stable_wants.is_some() && new.facts.failing.is_some();
        let may_serve = old.facts.ready || old.unheard_until.is_some();
        if new.is_available() || !(may_serve || way_back) {
            actions.deletes.push((old.reference(), DeleteWhy::Replaced));
        }
    }
}
