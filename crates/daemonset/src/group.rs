//! Which nodes have their turn together: those of the same wave, the same windows and the same failure domain.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::selector::Selector;

/// The group of a node. Without waves, windows and domains all nodes are in one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Group {
    /// Position of the first wave that selects the node by its labels; the number of waves when none does.
    pub wave: usize,
    /// The window rules that name the node, as bits; 0: it may be updated at any time.
    pub windows: u64,
    /// Its failure domain.
    pub domain: Option<Arc<str>>,
}

/// What sorts nodes into groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grouping {
    /// A selector for each wave that has one.
    pub waves: Vec<Option<Selector>>,
    /// A selector for each window rule.
    pub windows: Vec<Selector>,
    /// The label whose value is the failure domain.
    pub domain: Option<String>,
}

impl Grouping {
    /// The group of a node with these labels.
    pub fn of(&self, labels: &BTreeMap<String, String>) -> Group {
        let selects = |selector: &Option<Selector>| {
            selector
                .as_ref()
                .is_some_and(|selector| selector.matches(labels))
        };
        let windows = self
            .windows
            .iter()
            .enumerate()
            .filter(|(_, selector)| selector.matches(labels))
            .fold(0, |bits, (position, _)| bits | 1_u64 << position);
        Group {
            wave: self
                .waves
                .iter()
                .position(selects)
                .unwrap_or(self.waves.len()),
            windows,
            domain: self
                .domain
                .as_ref()
                .and_then(|label| labels.get(label))
                .map(|value| value.as_str().into()),
        }
    }
}
