//! The demo's nodes: what makes them differ.

use muster_agent::config::parse_taint;
use muster_model::k8s::api::core::v1::Taint;

/// A node of the demo.
pub(crate) struct DemoNode {
    pub(crate) name: &'static str,
    labels: &'static [(&'static str, &'static str)],
    taint: &'static str,
}

/// There from the start.
pub(crate) const FIRST: [DemoNode; 4] = [
    DemoNode {
        name: "control-plane",
        labels: &[],
        taint: "node-role.kubernetes.io/control-plane:NoSchedule",
    },
    DemoNode {
        name: "gpu-1",
        labels: &[("accelerator", "gpu")],
        taint: "gpu=only:NoSchedule",
    },
    DemoNode {
        name: "worker-1",
        labels: &[("disk", "ssd"), ("zone", "shed")],
        taint: "",
    },
    DemoNode {
        name: "worker-2",
        labels: &[("disk", "hdd"), ("zone", "attic")],
        taint: "",
    },
];

/// Joins later.
pub(crate) const LATE: DemoNode = DemoNode {
    name: "worker-3",
    labels: &[("disk", "ssd"), ("zone", "attic")],
    taint: "",
};

impl DemoNode {
    /// Labels that its command line would carry.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (String, String)> {
        self.labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
    }

    /// The taint that it registers with.
    pub(crate) fn taints(&self) -> Vec<Taint> {
        parse_taint(self.taint).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_taints_are_taints() {
        for node in FIRST.iter().filter(|node| !node.taint.is_empty()) {
            assert_eq!(node.taints().len(), 1, "{}", node.name);
        }
    }
}
