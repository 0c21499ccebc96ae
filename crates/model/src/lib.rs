//! Kubernetes objects and everything that can be said of them without IO.
//!
//! What is kept of an object is its JSON tree ([`object::Object`]); the types of the `k8s-openapi`
//! crate, re-exported here once as [`k8s`], are the typed view of it. The decoder of that crate drops
//! what it does not know, so strict decoding, patches and storage work on the tree.

pub use k8s_openapi as k8s;

pub mod affinity;
pub mod apply;
pub mod bootstrap_token;
pub mod codec;
pub mod defaults;
pub mod field_path;
pub mod image;
pub mod int_or_percent;
pub mod kind;
pub mod names;
pub mod object;
pub mod patch;
pub mod pod_status;
pub mod policy;
pub mod pre_pull;
pub mod quantity;
pub mod reason;
pub mod resources;
pub mod selector;
pub mod table;
pub mod taint;
pub mod time;
pub mod validate;

/// The Kubernetes API level that Muster follows, as tools expect to read it (`vMAJOR.MINOR.PATCH`).
/// Nodes report it as their kubelet version with Muster's own version behind a `+`.
pub const KUBERNETES_LEVEL: &str = "v1.32.0";

/// Node and server version text: `v1.32.0+muster.0.1.0` (spec/node-agent.md 4, nodeInfo).
pub fn version_text() -> String {
    format!("{KUBERNETES_LEVEL}+muster.{}", env!("CARGO_PKG_VERSION"))
}
