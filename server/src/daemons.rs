//! A DaemonSet as a person asks about it: every node's verdict, computed from the cache with the same pure
//! functions that the controller uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_daemonset::facts::FactsError;
use muster_daemonset::hold::Hold;
use muster_daemonset::release::Release;
use muster_daemonset::{
    Claim, DaemonFacts, NodeFacts, NodeName, Placement, Placements, PodFacts, RevisionFacts,
    Verdict, claim_object, place, place_gone, revision,
};
use muster_model::k8s::api::apps::v1::DaemonSet;
use muster_model::k8s::api::core::v1::{Node, Pod};
use muster_model::kind::{CONTROLLER_REVISION, EVENT, NODE, POD};
use muster_model::object::Object;
use muster_model::reason::condition;
use muster_model::time::{Moment, Timestamp, parse, to_seconds_text};

use crate::cache::{Cache, Stored};
use crate::controllers::Troubles;
use crate::status::ApiError;

/// One DaemonSet with all that belongs to it, at one moment.
pub(crate) struct DaemonView {
    pub(crate) facts: DaemonFacts,
    /// Oldest number first.
    pub(crate) history: Vec<(RevisionFacts, Arc<Stored>)>,
    pods: BTreeMap<NodeName, Vec<PodFacts>>,
    now: Moment,
}

/// One node's row.
pub(crate) struct Row {
    pub(crate) node: NodeName,
    pub(crate) placement: Placement,
    /// The pod that speaks for the node.
    pub(crate) pod: Option<PodFacts>,
    /// Since when the node, which should run it, has no available pod; `None`: it has one, or should not.
    pub(crate) uncovered_since: Option<Timestamp>,
}

impl DaemonView {
    /// Looks at a stored DaemonSet.
    pub(crate) fn of(
        cache: &Cache,
        troubles: &Troubles,
        stored: &Stored,
        now: Moment,
    ) -> Result<Self, ApiError> {
        let typed = stored
            .typed::<DaemonSet>()
            .map_err(|error| ApiError::internal(error.to_string()))?;
        let mut facts = DaemonFacts::from_typed(&typed, stored.object()).map_err(unreadable)?;
        let mine = |object: &Object| claim_object(&facts, object) == Claim::Mine;
        let mut history = Vec::new();
        let mut pods: BTreeMap<NodeName, Vec<PodFacts>> = BTreeMap::new();
        for owned in cache.owned_by(stored.uid()) {
            if !mine(owned.object()) {
                continue;
            }
            if *owned.kind == CONTROLLER_REVISION {
                history.push((RevisionFacts::from_object(owned.object()), owned));
            } else if *owned.kind == POD
                && let Ok(typed) = owned.typed::<Pod>()
            {
                let pod = PodFacts::from_typed(&typed);
                if let Some(node) = pod.node.clone() {
                    pods.entry(node).or_default().push(pod);
                }
            }
        }
        history.sort_by_key(|(revision, _)| revision.number);
        let revisions: Vec<RevisionFacts> = history
            .iter()
            .map(|(revision, _)| revision.clone())
            .collect();
        let settlement = revision::settle(&facts, &revisions);
        facts.take(&settlement);
        let target = &mut facts.rules.target;
        let begun = troubles.known().begun(&facts.uid, &target.hash);
        target.since = begun.or(target.since);
        Ok(Self {
            facts,
            history,
            pods,
            now,
        })
    }

    /// Every node's row, in order of names; nodes that are gone and still have pods come with them.
    pub(crate) fn rows(&self, cache: &Cache, troubles: &Troubles) -> Vec<Row> {
        self.course(cache, troubles).0
    }

    /// Every node's row, and where the rollout stands by them.
    pub(crate) fn course(&self, cache: &Cache, troubles: &Troubles) -> (Vec<Row>, Stand) {
        let known = troubles.known();
        let mut rows = BTreeMap::new();
        let mut warnings = Warnings::default();
        for stored in cache.list(&NODE).items {
            let Ok(typed) = stored.typed::<Node>() else {
                continue;
            };
            let node = NodeFacts::from_typed(&typed);
            let pods = self.pods.get(&node.name).map_or(&[][..], Vec::as_slice);
            let retry_at = known.backoff.retry_at(&self.facts, &node.name, self.now);
            let placement = place(&self.facts, &node, pods, retry_at, self.now.wall);
            let gap = placement
                .is_gap()
                .then(|| known.gap_since(&self.facts, &node, pods, self.now.wall));
            let mut row = self.row(node.name, placement, pods);
            row.uncovered_since = gap;
            match &mut row.placement.verdict {
                Verdict::Missing { setback, .. } => {
                    *setback = known.setback(&self.facts.uid).cloned()
                }
                // The pod itself does not say: its node may, or what was told of it.
                Verdict::NotReady { trouble, .. } if trouble.is_empty() => {
                    let told = || warnings.of(cache, &self.facts.id.namespace, row.pod.as_ref()?);
                    *trouble = node_trouble(&typed).or_else(told).unwrap_or_default();
                }
                _ => {}
            }
            rows.insert(row.node.clone(), row);
        }
        for (node, pods) in &self.pods {
            if !rows.contains_key(node)
                && let Some(placement) = place_gone(pods)
            {
                rows.insert(node.clone(), self.row(node.clone(), placement, pods));
            }
        }
        let stand = self.tell_holds(&mut rows);
        (rows.into_values().collect(), stand)
    }

    /// Says what old pods wait for, node by node and as a whole.
    fn tell_holds(&self, rows: &mut BTreeMap<NodeName, Row>) -> Stand {
        let all = rows.iter();
        let placements: Placements = all
            .map(|(node, row)| (node.clone(), row.placement.clone()))
            .collect();
        let release = Release::of(&self.facts, &placements, self.now.wall);
        for row in rows.values_mut() {
            let found = match row.placement.verdict {
                Verdict::Outdated { .. } => release.hold_of(&placements, &row.placement),
                Verdict::Missing { .. } => release.hold_of_missing(&placements, &row.placement),
                _ => None,
            };
            if let Verdict::Outdated { hold, .. } | Verdict::Missing { hold, .. } =
                &mut row.placement.verdict
            {
                *hold = found;
            }
        }
        let (wave, waves) = release
            .wave()
            .unwrap_or((0, self.facts.control.waves.len()));
        // A failure is told also where no old pod is left that it could hold: the rollout will not end by itself.
        let halted = || {
            let why = Arc::clone(self.facts.failed()?);
            Some(Hold::Halted { why })
        };
        let hold = release.hold().filter(|_| placements.is_any_waiting());
        let hold = hold
            .or_else(halted)
            .or_else(|| Hold::of_all(holds_left(rows)).cloned())
            .or_else(|| lost_in_the_middle(rows));
        Stand {
            wave,
            waves,
            hold: hold.map(|hold| hold.of_rollout()).unwrap_or_default(),
        }
    }

    fn row(&self, node: NodeName, placement: Placement, pods: &[PodFacts]) -> Row {
        let name = placement.verdict.pod();
        let pod = pods.iter().find(|pod| Some(&*pod.name) == name).cloned();
        Row {
            node,
            placement,
            pod,
            uncovered_since: None,
        }
    }

    /// Its history and its pods, by node.
    pub(crate) fn into_parts(self) -> (Vec<RevisionFacts>, BTreeMap<NodeName, Vec<PodFacts>>) {
        let history = self.history.into_iter().map(|(revision, _)| revision);
        (history.collect(), self.pods)
    }

    /// All its pods.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &PodFacts> {
        self.pods.values().flatten()
    }

    /// Whether a pod counts as available now.
    pub(crate) fn is_available(&self, pod: &PodFacts) -> bool {
        pod.is_available(&self.facts.rules, self.now.wall)
    }

    /// The nodes that a rollout still waits for, and why.
    pub(crate) fn waiting(rows: &[Row]) -> Vec<String> {
        rows.iter()
            .filter(|row| row.placement.verdict.is_waited_for())
            .map(|row| format!("{}: {}", row.node, row.placement.verdict.sentence()))
            .collect()
    }
}

/// What holds each node that a rollout waits for. Nothing happens on nodes out of reach: they are left out.
fn holds_left(rows: &BTreeMap<NodeName, Row>) -> impl Iterator<Item = Option<&Hold>> {
    rows.values()
        .map(|row| &row.placement.verdict)
        .filter(|verdict| verdict.is_waited_for())
        .filter(|verdict| !matches!(verdict, Verdict::NodeOutOfReach { .. }))
        .map(|verdict| match verdict {
            Verdict::Outdated {
                hold, beside: None, ..
            }
            | Verdict::Missing { hold, .. } => hold.as_ref(),
            _ => None,
        })
}

/// The hold of a rollout whose every node in reach waits for its turn, while others were lost in the middle of it: those
/// use up the budget.
fn lost_in_the_middle(rows: &BTreeMap<NodeName, Row>) -> Option<Hold> {
    let all = rows
        .iter()
        .map(|(node, row)| (node, &row.placement.verdict));
    let (lost, left): (Vec<_>, Vec<_>) = all
        .filter(|(_, verdict)| verdict.is_waited_for())
        .partition(|(_, verdict)| matches!(verdict, Verdict::NodeOutOfReach { .. }));
    let in_line = |verdict: &Verdict| {
        matches!(
            verdict,
            Verdict::Outdated {
                hold: None,
                beside: None,
                ..
            }
        )
    };
    let counted: Vec<&str> = lost
        .iter()
        .filter(|(_, verdict)| matches!(verdict, Verdict::NodeOutOfReach { skipped: false, .. }))
        .map(|(node, _)| node.as_str())
        .collect();
    let is_stuck = !left.is_empty() && left.iter().all(|(_, verdict)| in_line(verdict));
    (is_stuck && !counted.is_empty()).then(|| Hold::OutOfReach {
        nodes: counted.join(", "),
    })
}

/// Where a rollout stands between its waves, and what holds it as a whole.
#[derive(Debug, Default)]
pub(crate) struct Stand {
    /// The wave that is open, from 1; 0: there are none, or all are through.
    pub(crate) wave: usize,
    pub(crate) waves: usize,
    /// In words; empty: nothing.
    pub(crate) hold: String,
}

/// Why nothing is Ready on a node whose agent says that it is not.
fn node_trouble(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions
        .iter()
        .find(|found| found.type_ == condition::READY && found.status == "False")?;
    let said = ready.message.as_deref().unwrap_or_default();
    Some(format!("the node is not ready: {said}"))
}

/// The newest Warning event of each pod of a namespace, read when the first is asked for.
#[derive(Default)]
struct Warnings {
    by_uid: Option<BTreeMap<String, (Timestamp, Arc<Stored>)>>,
}

impl Warnings {
    fn of(&mut self, cache: &Cache, namespace: &str, pod: &PodFacts) -> Option<String> {
        let by_uid = self.by_uid.get_or_insert_with(|| newest(cache, namespace));
        let (at, event) = by_uid.get(pod.uid.as_str())?;
        let event = event.object();
        let (reason, message) = (event.text_at("/reason"), event.text_at("/message"));
        let at = to_seconds_text(*at);
        Some(format!("{reason}: {message} (last told at {at})"))
    }
}

fn newest(cache: &Cache, namespace: &str) -> BTreeMap<String, (Timestamp, Arc<Stored>)> {
    let mut by_uid: BTreeMap<String, (Timestamp, Arc<Stored>)> = BTreeMap::new();
    for event in cache.list_ns(&EVENT, namespace).items {
        let object = event.object();
        // That its node was not ready is said of a pod by the server itself, and may be over: the node says if not.
        if object.text_at("/type") != "Warning"
            || object.text_at("/involvedObject/kind") != "Pod"
            || object.text_at("/reason") == "NodeNotReady"
        {
            continue;
        }
        let times = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime"];
        let Some(at) = times.iter().find_map(|path| parse(object.text_at(path))) else {
            continue;
        };
        let uid = object.text_at("/involvedObject/uid").to_owned();
        match by_uid.get(&uid) {
            Some((later, _)) if *later > at => {}
            _ => {
                by_uid.insert(uid, (at, event));
            }
        }
    }
    by_uid
}

pub(crate) fn unreadable(error: FactsError) -> ApiError {
    ApiError::internal(error.to_string())
}
