//! Noting, at each look, which nodes are without an available pod that should have one.

use std::collections::BTreeMap;

use muster_daemonset::{NodeFacts, NodeName};
use muster_model::object::NamespacedName;
use muster_model::time::Moment;

use super::Inner;
use super::set::Set;

impl Inner {
    /// Brings the placements up to date, and notes for those who ask since when nodes are gaps.
    pub(super) fn refresh(
        &self,
        set: &mut Set,
        nodes: &BTreeMap<NodeName, NodeFacts>,
        now: Moment,
    ) {
        let looked_at = set.refresh(nodes, &self.troubles.known(), now);
        self.troubles.note_gaps(&set.facts.uid, looked_at);
    }

    /// The same for a sync that failed, perhaps before it looked at the nodes: gaps open and age all the same.
    pub(super) fn note_gaps_of(&self, key: &NamespacedName) {
        let now = self.registry.clock().moment();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Some(set) = state.index.sets.get_mut(key) {
            self.refresh(set, &state.index.nodes, now);
        }
    }
}
