//! What a rollout would do, for those who ask before they apply.

mod start;

use std::collections::BTreeMap;

use jiff::SignedDuration;
use muster_daemonset::preview::{Pace, Preview, Scene, What, preview};
use muster_daemonset::{DaemonFacts, NodeFacts};
use muster_model::k8s::api::core::v1::{Node, Pod};
use muster_model::kind::{DAEMON_SET, NODE, POD};
use muster_model::object::{NamespacedName, Object};
use muster_proto::v1;

use crate::admit::{self, FieldValidation};
use crate::auth::{Ask, Caller, Verb, authorize};
use crate::cache::Cache;
use crate::controllers::Troubles;
use crate::daemons::{DaemonView, unreadable};
use crate::registry::Registry;
use crate::status::ApiError;

/// How long a pod takes to be ready when none was seen to be.
const GUESSED_START: SignedDuration = SignedDuration::from_secs(10);
/// A pod's grace when its template says none.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// Plays the rollout of the DaemonSet in the request ahead.
pub(super) fn preview_one(
    registry: &Registry,
    troubles: &Troubles,
    caller: &Caller,
    request: &v1::PreviewRolloutRequest,
) -> Result<v1::PreviewRolloutReply, ApiError> {
    let reference = request
        .daemonset
        .as_ref()
        .ok_or_else(|| ApiError::bad_request("the request names no DaemonSet"))?;
    let cache = registry.cache();
    let ask = Ask::object(
        Verb::Get,
        &DAEMON_SET,
        &reference.namespace,
        &reference.name,
    );
    authorize(caller, &ask, cache)?;
    let key = NamespacedName::new(reference.namespace.clone(), reference.name.clone());
    let now = registry.moment();
    let view = match cache.get(&DAEMON_SET, &key) {
        Some(stored) => Some(DaemonView::of(cache, troubles, &stored, now)?),
        None if request.object.is_empty() => {
            return Err(ApiError::not_found(&DAEMON_SET, &key.name));
        }
        None => None,
    };
    let (start, start_is_known) = slowest_start(cache, view.as_ref());
    let wanted = wanted(request, view.as_ref())?;
    let template = view
        .as_ref()
        .map_or(&wanted.template, |view| &view.facts.template);
    let stop = template
        .pointer("/spec/terminationGracePeriodSeconds")
        .and_then(serde_json::Value::as_i64)
        .unwrap_or(DEFAULT_GRACE_SECONDS);
    let pace = Pace {
        stop: SignedDuration::from_secs(stop),
        start,
    };
    let nodes = cache.list(&NODE).items.into_iter().filter_map(|stored| {
        let facts = NodeFacts::from_typed(&*stored.typed::<Node>().ok()?);
        Some((facts.name.clone(), facts))
    });
    let (history, pods) = view.map(DaemonView::into_parts).unwrap_or_default();
    let scene = Scene {
        daemon: wanted,
        history,
        nodes: nodes.collect(),
        pods,
        pace,
    };
    Ok(reply(preview(scene, now.wall), pace, start_is_known))
}

/// The DaemonSet as it would be stored.
fn wanted(
    request: &v1::PreviewRolloutRequest,
    view: Option<&DaemonView>,
) -> Result<DaemonFacts, ApiError> {
    let Some(view) = view.filter(|_| request.object.is_empty()) else {
        let (mut object, _) = admit::decode(&DAEMON_SET, &request.object, FieldValidation::Ignore)?;
        admit::default(&DAEMON_SET, &mut object);
        check_identity(&object, request)?;
        let mut facts = DaemonFacts::from_object(&object).map_err(unreadable)?;
        if let Some(view) = view {
            // Pods and revisions are found by it.
            facts.uid.clone_from(&view.facts.uid);
            facts.status = view.facts.status;
            facts.collision_count = view.facts.collision_count;
            facts.keep_history_of(&view.facts);
        }
        return Ok(facts);
    };
    Ok(view.facts.clone())
}

fn check_identity(object: &Object, request: &v1::PreviewRolloutRequest) -> Result<(), ApiError> {
    let named = request.daemonset.as_ref().is_some_and(|reference| {
        reference.name == object.name() && reference.namespace == object.namespace()
    });
    if named {
        Ok(())
    } else {
        Err(ApiError::bad_request(
            "the object is not the DaemonSet that the request names",
        ))
    }
}

/// How long a pod of this DaemonSet takes to be ready, and whether that was seen.
fn slowest_start(cache: &Cache, view: Option<&DaemonView>) -> (SignedDuration, bool) {
    let pods = view.into_iter().flat_map(|view| {
        let namespace = &view.facts.id.namespace;
        let key = move |name: &str| NamespacedName::new(namespace.clone(), name);
        view.pods()
            .filter_map(move |pod| cache.get(&POD, &key(&pod.name))?.typed::<Pod>().ok())
    });
    match start::slowest(pods) {
        Some(took) => (took, true),
        None => (GUESSED_START, false),
    }
}

fn reply(preview: Preview, pace: Pace, start_is_known: bool) -> v1::PreviewRolloutReply {
    let steps = preview.steps.into_iter().map(|step| {
        let (what, why) = match step.what {
            What::Create => ("create", String::new()),
            What::Replace => ("replace", String::new()),
            What::Surge => ("surge", String::new()),
            What::Remove => ("remove", String::new()),
            What::Wait(why) => ("wait", why),
        };
        v1::PreviewStep {
            after_seconds: step.after.as_secs(),
            what: what.to_owned(),
            why,
            nodes: step.nodes.iter().map(ToString::to_string).collect(),
        }
    });
    let (longest_out_node, longest_out_seconds) = preview
        .longest_out
        .map(|(node, out)| (node.to_string(), out.as_secs()))
        .unwrap_or_default();
    let left: BTreeMap<_, _> = preview.left.into_iter().collect();
    v1::PreviewRolloutReply {
        revision: preview.revision,
        is_new: preview.is_new,
        steps: steps.collect(),
        takes_seconds: preview.takes.as_secs(),
        longest_out_node,
        longest_out_seconds,
        most_out: i32::try_from(preview.most_out).unwrap_or(i32::MAX),
        left: left
            .into_iter()
            .map(|(node, why)| v1::PreviewLeft {
                node: node.to_string(),
                why,
            })
            .collect(),
        cut_off: preview.cut_off,
        stop_seconds: pace.stop.as_secs(),
        start_seconds: pace.start.as_secs(),
        start_is_known,
    }
}
