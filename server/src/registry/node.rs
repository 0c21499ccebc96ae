//! Nodes. A node is created with the status its agent reports.

use super::strategy::Strategy;

pub(super) struct Nodes;

impl Strategy for Nodes {}
