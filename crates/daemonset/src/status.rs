//! The numbers of a DaemonSet's status (spec/daemonset.md 14).

use std::fmt;

use muster_model::object::Object;
use serde_json::{Map, Value};

use crate::tally::Tally;

/// The seven counters and `observedGeneration`. What else a status holds (conditions, `collisionCount`) is not
/// the plan's and stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Numbers {
    /// The generation the controller acted on.
    pub observed_generation: i64,
    /// `desiredNumberScheduled`.
    pub desired: i64,
    /// `currentNumberScheduled`.
    pub current: i64,
    /// `numberMisscheduled`.
    pub misscheduled: i64,
    /// `numberReady`.
    pub ready: i64,
    /// `updatedNumberScheduled`.
    pub updated: i64,
    /// `numberAvailable`.
    pub available: i64,
    /// `numberUnavailable`.
    pub unavailable: i64,
}

/// Counters that are written also when 0.
const ALWAYS: [&str; 4] = [
    "currentNumberScheduled",
    "desiredNumberScheduled",
    "numberMisscheduled",
    "numberReady",
];

impl Numbers {
    /// Counted over all nodes, for a pass that acted on `generation`.
    pub fn of(tally: &Tally, generation: i64) -> Self {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        Self {
            observed_generation: generation,
            desired: number(tally.desired),
            current: number(tally.current),
            misscheduled: number(tally.misscheduled),
            ready: number(tally.ready),
            updated: number(tally.updated),
            available: number(tally.available),
            unavailable: number(tally.desired) - number(tally.available),
        }
    }

    /// As a DaemonSet holds them; what is absent is 0.
    pub fn from_object(daemon: &Object) -> Self {
        let number = |field: &str| {
            daemon
                .at("/status")
                .and_then(|status| status.get(field)?.as_i64())
                .unwrap_or_default()
        };
        Self {
            observed_generation: number("observedGeneration"),
            desired: number("desiredNumberScheduled"),
            current: number("currentNumberScheduled"),
            misscheduled: number("numberMisscheduled"),
            ready: number("numberReady"),
            updated: number("updatedNumberScheduled"),
            available: number("numberAvailable"),
            unavailable: number("numberUnavailable"),
        }
    }

    /// Writes them into a DaemonSet's status and leaves the rest of it alone.
    pub fn write_into(self, daemon: &mut Object) {
        let status = daemon
            .tree_mut()
            .entry("status")
            .or_insert_with(|| Value::Object(Map::new()));
        if !status.is_object() {
            *status = Value::Object(Map::new());
        }
        let Some(status) = status.as_object_mut() else {
            return;
        };
        for (field, number) in self.fields() {
            if number != 0 || ALWAYS.contains(&field) {
                status.insert(field.to_owned(), number.into());
            } else {
                status.remove(field);
            }
        }
    }

    fn fields(self) -> [(&'static str, i64); 8] {
        [
            ("observedGeneration", self.observed_generation),
            ("desiredNumberScheduled", self.desired),
            ("currentNumberScheduled", self.current),
            ("numberMisscheduled", self.misscheduled),
            ("numberReady", self.ready),
            ("updatedNumberScheduled", self.updated),
            ("numberAvailable", self.available),
            ("numberUnavailable", self.unavailable),
        ]
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "desired {} current {} ready {} updated {} available {} unavailable {} misscheduled {}, generation {}",
            self.desired,
            self.current,
            self.ready,
            self.updated,
            self.available,
            self.unavailable,
            self.misscheduled,
            self.observed_generation
        )
    }
}
