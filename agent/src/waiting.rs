//! Why a container that is to run waits, beside its image (spec/node-agent.md 11.5).
//!
//! The reasons of kubelets say that what the pod asks for cannot be had. Where the way to the server or the engine is at
//! fault the reason is another one: nobody may take that for a fault of the pod's revision.

use crate::images;
use crate::runtime::RuntimeError;

/// What the container is to be made of is wrong.
pub const CREATE_CONTAINER_CONFIG_ERROR: &str = "CreateContainerConfigError";
/// The engine refuses to make it.
pub const CREATE_CONTAINER_ERROR: &str = "CreateContainerError";
/// The engine did not answer when it was to be started.
pub const RUN_CONTAINER_ERROR: &str = "RunContainerError";
/// A ConfigMap or Secret that it needs cannot be read now: nobody knows whether it is there.
pub const CONFIG_UNAVAILABLE: &str = "ConfigUnavailable";
/// The engine does not answer.
pub const CONTAINER_RUNTIME_UNAVAILABLE: &str = "ContainerRuntimeUnavailable";

/// The reason of what the engine did not do; `refused`: where it answered and said no.
pub(crate) fn reason(error: &RuntimeError, refused: &'static str) -> &'static str {
    match error.is_engine_trouble() {
        true => CONTAINER_RUNTIME_UNAVAILABLE,
        false => refused,
    }
}

/// Whether the reason tells of the machine or its links, not of what was asked for.
pub(crate) fn is_of_the_machine(reason: &str) -> bool {
    [
        CONFIG_UNAVAILABLE,
        CONTAINER_RUNTIME_UNAVAILABLE,
        images::IMAGE_INSPECT_ERROR,
    ]
    .contains(&reason)
}
