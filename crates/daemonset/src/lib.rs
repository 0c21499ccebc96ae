//! The brain: who should run what, and why. No IO, no clock, no async, no chance.
//!
//! A DaemonSet says: *one copy of this pod on every node that should have it*. This crate decides what follows
//! from that, and can say why. It is read best in this order:
//!
//! ```text
//!   objects            facts              placement per node           plan
//!   ───────            ─────              ──────────────────           ────
//!   DaemonSet ──┐
//!   Revisions ──┼─► DaemonFacts ─┐
//!   Node ───────┼─► NodeFacts ───┼─ place ─► Placement ─┐
//!   Pods ───────┘   PodFacts ────┘           (Verdict,  ├─ Placements ─ plan ─► creates, deletes,
//!                                             Part)     │  (tallies,            revisions, status,
//!                      …once per changed node… ─────────┘   candidates)         events, next look
//! ```
//!
//! - [`facts`]: the little that counts of an object. Equal facts, nothing to do.
//! - [`claim()`]: which pods and revisions are the DaemonSet's own, which are adopted, which let go.
//! - [`revision::settle`]: which ControllerRevision is the current one ([`facts::Target`]); every pod carries its hash.
//! - [`place()`]: one node. *Should it run the daemon, may it keep it, does it, what is wrong?* The answer has a
//!   [`Verdict`], which is a sentence for people.
//! - [`Placements`]: the answers of all nodes, counted and sorted as they come, so that one changed pod never costs
//!   a pass over all nodes.
//! - [`control`] and [`release`]: what the author holds back (pause, waves, windows, ...), and what is open now.
//! - [`plan()`]: the whole DaemonSet. Missing pods first, then [`rollout`]'s next step within its budget, then status.
//!   `failure` judges whether the new revision has failed, [`course`] what there is to fall back to.
//! - [`pod::pod_for`]: the pod that a creation means. [`backoff`]: when a failed one is tried again.
//! - [`gap`]: since when a node is without an available pod.
//! - [`checks`]: what is legal and will hurt later, told when a DaemonSet is written.
//!
//! Words. *Updated*: of the current revision; *old*: of another. *Ready*: the pod's own word; *available*: Ready for
//! `minReadySeconds`. *Out*: a node without an available pod. *Terminal*: failed or succeeded. *Terminating*: deleted,
//! not gone yet. The rules and their numbers are those of `apps/v1`; where they are stricter, the file says so.
//!
//! ```
//! use muster_daemonset::{DaemonFacts, NodeFacts, Placements, place, plan, revision};
//! use muster_model::object::Object;
//! use serde_json::json;
//!
//! let daemon = Object::from_value(json!({
//!     "metadata": {"name": "web", "namespace": "default", "uid": "d1", "generation": 1},
//!     "spec": {
//!         "selector": {"matchLabels": {"app": "web"}},
//!         "template": {
//!             "metadata": {"labels": {"app": "web"}},
//!             "spec": {"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "web", "image": "img:1"}]},
//!         },
//!     },
//! })).unwrap();
//! let mut daemon = DaemonFacts::from_object(&daemon).unwrap();
//! // No history yet: the settlement says which revision to create; its hash is known already.
//! daemon.rules.target = revision::settle(&daemon, &[]).target;
//!
//! let now = "2026-01-01T00:00:00Z".parse().unwrap();
//! let mut placements = Placements::new();
//! for (name, disk) in [("n0", "ssd"), ("n1", "hdd")] {
//!     let node = Object::from_value(json!({"metadata": {"name": name, "labels": {"disk": disk}}})).unwrap();
//!     let node = NodeFacts::from_object(&node).unwrap();
//!     let placement = place(&daemon, &node, &[], None, now);
//!     placements.set(node.name.clone(), Some(placement));
//! }
//!
//! let plan = plan(&daemon, &placements, &[], now);
//! assert_eq!(plan.creates.len(), 1);
//! assert_eq!(plan.creates[0].node.as_str(), "n0");
//! let why = placements.get(&"n1".into()).unwrap().verdict.sentence();
//! assert_eq!(why, "node selector disk=ssd not matched");
//! ```

pub mod backoff;
pub mod checks;
pub mod claim;
pub mod control;
pub mod course;
pub mod event;
pub mod evidence;
pub mod facts;
mod failure;
pub mod fit;
pub mod gap;
pub mod group;
pub mod hold;
pub mod place;
pub mod plan;
pub mod pod;
pub mod preview;
pub mod release;
pub mod revision;
pub mod rollout;
mod seen;
pub mod status;
pub mod tally;
mod trouble;
pub mod verdict;
pub mod window;

pub use claim::{Claim, claim, claim_object};
pub use facts::{DaemonFacts, NodeFacts, NodeName, PodFacts, PodUid, RevisionFacts};
pub use place::{Placement, place, place_gone};
pub use plan::{Plan, plan};
pub use status::Numbers;
pub use tally::{Placements, Tally};
pub use verdict::{Setback, Verdict};
