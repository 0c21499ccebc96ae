//! The deterministic simulation: a whole cluster, a seed of faults, and what must hold after every step.
//!
//! ```text
//! seed ──► Scenario (pure: nodes, DaemonSets, images, steps)
//!             │ World performs a step: a person's act, a fault, or nothing but time
//!             ▼
//! Cluster (testkit): real server, controllers and agents, engines in memory, tokio's paused clock
//!             │ every commit of the store, as it happens        every look at the engines
//!             ▼                                                  ▼
//! Seen ──► oracles: pods per node, the budget, acknowledged writes, watches, containers, verdicts, rest
//!             ▼
//! Outcome: the trace, and what was broken, with the command that plays it again
//! ```
//!
//! The same seed gives the same trace, to the letter. The oracles know the rules of the user's book and nothing of the
//! controller's code. `docs/simulation.md` is the user's page.

mod acts;
mod farm;
mod generate;
mod heal;
mod manifest;
mod objects;
mod oracle;
mod panics;
mod play;
mod scenario;
mod seen;
mod shrink;
mod trace;
mod watcher;
mod world;

pub use farm::{Farm, Report, Verdict};
pub use generate::Size;
pub use play::{Outcome, play};
pub use scenario::{Act, Scenario, Step};
pub use shrink::shrink;
