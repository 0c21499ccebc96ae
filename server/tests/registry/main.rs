//! What the registry promises, through the gRPC door.

#![allow(
    clippy::unwrap_used,
    reason = "a test may stop at what it did not expect"
)]

mod daemonsets;
mod deleting;
mod first_start;
mod patching;
mod reading;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
mod writing;

use muster_model::object::Object;
use serde_json::Value;

fn set(object: &mut Object, pointer: &str, value: Value) {
    let mut tree = object.clone().into_tree();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    tree.pointer_mut(parent).unwrap()[field] = value;
    *object = Object::from_value(tree).unwrap();
}
