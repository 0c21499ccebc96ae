//! What is known of every node between two looks, with the one number that evictions depend on. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::judge::Health;
use crate::cache::Stored;

/// The nodes there are.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    nodes: BTreeMap<String, Member>,
    /// How many of them are lost: kept up to date, so that one node's change costs no pass over all.
    lost: usize,
}

/// One node.
#[derive(Debug)]
pub(super) struct Member {
    /// As last seen.
    pub(super) stored: Arc<Stored>,
    pub(super) health: Health,
    /// When it was first judged lost, on the monotonic clock.
    pub(super) lost_since: Option<Duration>,
    /// Whether its pods were marked not Ready since it was last well.
    pub(super) pods_marked: bool,
}

impl Fleet {
    pub(super) fn get(&self, node: &str) -> Option<&Member> {
        self.nodes.get(node)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.nodes.keys()
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn lost(&self) -> usize {
        self.lost
    }

    /// Takes in how a node is at `now`.
    pub(super) fn set(&mut self, stored: &Arc<Stored>, health: Health, now: Duration) {
        let before = self
            .remove(stored.name())
            .filter(|member| member.stored.uid() == stored.uid() && member.health.is_lost());
        let (lost_since, pods_marked) = match (health.is_lost(), before) {
            (true, Some(before)) => (before.lost_since, before.pods_marked),
            (true, None) => (Some(now), false),
            (false, _) => (None, false),
        };
        self.lost += usize::from(health.is_lost());
        let member = Member {
            stored: Arc::clone(stored),
            health,
            lost_since,
            pods_marked,
        };
        self.nodes.insert(stored.name().to_owned(), member);
    }

    pub(super) fn pods_are_marked(&mut self, node: &str) {
        if let Some(member) = self.nodes.get_mut(node) {
            member.pods_marked = true;
        }
    }

    pub(super) fn remove(&mut self, node: &str) -> Option<Member> {
        let member = self.nodes.remove(node)?;
        self.lost -= usize::from(member.health.is_lost());
        Some(member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::kind::NODE;
    use muster_model::object::Object;
    use muster_store::Revision;
    use serde_json::json;

    fn node(uid: &str) -> Arc<Stored> {
        let tree =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": uid}});
        Arc::new(Stored::new(
            &NODE,
            Object::from_value(tree).unwrap(),
            Revision(1),
        ))
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_node_is_lost_since_it_was_first_found_so() {
        let mut fleet = Fleet::default();
        fleet.set(&node("a"), Health::Ready, at(1));
        assert_eq!((fleet.len(), fleet.lost()), (1, 0));
        fleet.set(&node("a"), Health::NotReady, at(2));
        fleet.pods_are_marked("n1");
        fleet.set(&node("a"), Health::Unknown, at(3));
        let member = fleet.get("n1").unwrap();
        assert_eq!((member.lost_since, member.pods_marked), (Some(at(2)), true));
        assert_eq!(fleet.lost(), 1);

        fleet.set(&node("b"), Health::Unknown, at(4));
        let member = fleet.get("n1").unwrap();
        assert_eq!(
            (member.lost_since, member.pods_marked),
            (Some(at(4)), false),
            "another node of the same name"
        );
        assert_eq!(fleet.lost(), 1);
        fleet.remove("n1");
        assert_eq!((fleet.len(), fleet.lost()), (0, 0));
    }
}
