//! DaemonSets: the two generations (spec/daemonset.md 5), the annotations that control rollouts, and the admission
//! checks. The rules themselves are in the model and in the brain.

use muster_daemonset::control::Control;
use muster_model::defaults::daemonset;
use muster_model::kind::DAEMON_SET;
use muster_model::object::Object;
use muster_model::reason::annotation::TEMPLATE_GENERATION;

use super::strategy::Strategy;
use crate::cache::Cache;
use crate::checks::{self, Advice};
use crate::status::ApiError;

pub(super) struct DaemonSets;

impl Strategy for DaemonSets {
    fn finish_create(&self, new: &mut Object, _cache: &Cache) -> Result<(), ApiError> {
        daemonset::annotated_generation(new).map_err(ApiError::bad_request)?;
        daemonset::prepare_create(new);
        check_control(new)
    }

    fn prepare_update(&self, new: &mut Object, old: &Object) -> Result<(), ApiError> {
        daemonset::annotated_generation(new).map_err(ApiError::bad_request)?;
        daemonset::prepare_update(new, old);
        // What is stored already may be wrong: whoever changes something else is not kept from it.
        if new.annotations() == old.annotations() {
            return Ok(());
        }
        check_control(new)
    }

    fn is_judged_anew(&self, new: &Object, old: &Object) -> bool {
        checks::is_judged_anew(new, old)
    }

    fn judge(&self, new: &Object, cache: &Cache) -> Advice {
        checks::judge(new, cache)
    }

    fn prepare_status(&self, new: &mut Object, old: &Object) -> Result<(), ApiError> {
        daemonset::prepare_status_update(new, old);
        if let Some(stored) = old.annotation(TEMPLATE_GENERATION) {
            let stored = stored.to_owned();
            new.set_annotation(TEMPLATE_GENERATION, &stored);
        }
        Ok(())
    }
}

fn check_control(daemon: &Object) -> Result<(), ApiError> {
    let (control, mut faults) = Control::read(&daemon.annotations());
    let min_ready = daemon
        .at("/spec/minReadySeconds")
        .and_then(serde_json::Value::as_i64)
        .unwrap_or(0);
    faults.extend(control.check_beside(min_ready));
    if faults.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(&DAEMON_SET, daemon.name(), &faults))
    }
}
