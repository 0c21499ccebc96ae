//! Agents that are lost and found again, as the server has it.

use muster_model::time::to_seconds_text;
use serde_json::json;

use crate::world::World;

impl World {
    /// The agent is out of reach from now on: the server taints the node, and its pods are not Ready any more.
    pub(crate) fn lose(&mut self, name: &str) {
        let since = to_seconds_text(self.now());
        self.edit_node(name)["status"] = json!({
            "conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": since}]
        });
        self.taint(name, &["node.kubernetes.io/unreachable:NoSchedule"]);
        self.set_ready_on(name, false);
    }

    /// The template tolerates every taint: nodes out of reach are still desired.
    pub(crate) fn tolerate_everything(&mut self) {
        self.edit_template(|template| {
            template["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        });
        self.settle_down();
    }

    /// The agent is back; what it should have stopped is stopped.
    pub(crate) fn regain(&mut self, name: &str) {
        self.edit_node(name)["status"] = json!({});
        self.taint(name, &[]);
        self.set_ready_on(name, true);
    }

    /// The agent is back; its pods are as they were, and not Ready yet.
    pub(crate) fn find_again(&mut self, name: &str) {
        self.taint(name, &[]);
        let since = to_seconds_text(self.now());
        self.edit_node(name)["status"] = json!({
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
        });
    }
}
