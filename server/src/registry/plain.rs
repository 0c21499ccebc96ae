//! Kinds that are only stored: ConfigMap, Secret, ServiceAccount, Event, ControllerRevision.
//! Their fields' rules are in `muster_model::validate`.

use super::strategy::Strategy;

pub(super) struct Plain;

impl Strategy for Plain {}
