//! Which columns each kind has.

use super::Column;
use crate::kind::Kind;

const NAME: Column = Column {
    name: "Name",
    column_type: "string",
    format: "name",
    priority: 0,
    description: "Name of the object, unique within its namespace.",
};
const AGE: Column = text("Age", "Time since the object was created.");

const fn text(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        column_type: "string",
        format: "",
        priority: 0,
        description,
    }
}

const fn integer(name: &'static str, description: &'static str) -> Column {
    Column {
        column_type: "integer",
        ..text(name, description)
    }
}

const fn boolean(name: &'static str, description: &'static str) -> Column {
    Column {
        column_type: "boolean",
        ..text(name, description)
    }
}

const fn wide(column: Column) -> Column {
    Column {
        priority: 1,
        ..column
    }
}

static DAEMON_SET: &[Column] = &[
    NAME,
    integer("Desired", "Nodes that should run a pod."),
    integer("Current", "Nodes that should run a pod and have one."),
    integer("Ready", "Nodes whose pod is ready."),
    integer("Up-to-date", "Nodes whose pod is of the current template."),
    integer(
        "Available",
        "Nodes whose pod has been ready for long enough.",
    ),
    text("Node Selector", "Labels that a node must have."),
    AGE,
    wide(text("Containers", "Names of the containers.")),
    wide(text("Images", "Images of the containers.")),
    wide(text("Selector", "Labels that claim the pods.")),
];

static POD: &[Column] = &[
    NAME,
    text("Ready", "Ready containers of all."),
    text("Status", "Phase, or the reason it is stuck."),
    text(
        "Restarts",
        "Restarts of its containers, and when the last one ended.",
    ),
    AGE,
    wide(text("IP", "Address of the pod.")),
    wide(text("Node", "Node the pod is bound to.")),
    wide(text("Nominated Node", "Node the pod is waiting to fit on.")),
    wide(text(
        "Readiness Gates",
        "Conditions that hold, of those asked for.",
    )),
];

static NODE: &[Column] = &[
    NAME,
    text("Status", "Whether pods can start there."),
    text("Roles", "Roles from the node's labels."),
    AGE,
    text("Version", "Version of the node agent."),
    wide(text("Internal-IP", "First internal address.")),
    wide(text("External-IP", "First external address.")),
    wide(text("OS-Image", "Operating system.")),
    wide(text("Kernel-Version", "Kernel.")),
    wide(text(
        "Container-Runtime",
        "Container engine and its version.",
    )),
];

static EVENT: &[Column] = &[
    text("Last Seen", "Time since it happened last."),
    text("Type", "Normal or Warning."),
    text("Reason", "One word for scripts."),
    text("Object", "What it is about."),
    wide(text("Subobject", "Part of the object.")),
    wide(text("Source", "Who reported it.")),
    text("Message", "What happened."),
    wide(text("First Seen", "Time since it happened first.")),
    wide(integer("Count", "How often it happened.")),
    wide(NAME),
];

static NAMESPACE: &[Column] = &[NAME, text("Status", "Active, or Terminating."), AGE];

static CONTROLLER_REVISION: &[Column] = &[
    NAME,
    text("Controller", "Whose revision it is."),
    integer("Revision", "Its number."),
    AGE,
];

static CONFIG_MAP: &[Column] = &[NAME, integer("Data", "How many keys."), AGE];

static SECRET: &[Column] = &[
    NAME,
    text("Type", "What the data means."),
    integer("Data", "How many keys."),
    AGE,
];

static SERVICE_ACCOUNT: &[Column] = &[NAME, integer("Secrets", "How many Secrets it names."), AGE];

static LEASE: &[Column] = &[NAME, text("Holder", "Who holds it."), AGE];

static PRIORITY_CLASS: &[Column] = &[
    NAME,
    integer("Value", "The priority itself."),
    boolean(
        "Global-Default",
        "Whether pods without a class get this one.",
    ),
    AGE,
    text("PreemptionPolicy", "Whether such pods displace others."),
];

static DAEMON_SET_POLICY: &[Column] = &[
    NAME,
    text("Namespaces", "Whose DaemonSets it is about."),
    text("Refuses", "Checks whose findings are refused."),
    text("Ignores", "Checks that are switched off."),
    AGE,
    wide(text("Warns", "Checks whose findings are told.")),
];

static OTHER: &[Column] = &[NAME, AGE];

/// The columns of a kind, in the order of [`super::row`]'s cells.
pub fn columns(kind: &Kind) -> &'static [Column] {
    match kind.kind {
        "DaemonSet" => DAEMON_SET,
        "Pod" => POD,
        "Node" => NODE,
        "Event" => EVENT,
        "Namespace" => NAMESPACE,
        "ControllerRevision" => CONTROLLER_REVISION,
        "ConfigMap" => CONFIG_MAP,
        "Secret" => SECRET,
        "ServiceAccount" => SERVICE_ACCOUNT,
        "Lease" => LEASE,
        "PriorityClass" => PRIORITY_CLASS,
        "DaemonSetPolicy" => DAEMON_SET_POLICY,
        _ => OTHER,
    }
}
