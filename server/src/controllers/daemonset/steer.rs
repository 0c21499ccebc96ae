//! What a plan notes on revisions and pods to steer the rollout: proven, failed, back to an earlier template, images to
//! be pulled.

use std::sync::Arc;

use muster_daemonset::course::TakenBack;
use muster_daemonset::event::{self, Note};
use muster_daemonset::plan::PrePull;
use muster_daemonset::pod::pull_request;
use muster_model::kind::{DAEMON_SET, POD};
use muster_model::object::{NamespacedName, Object};
use muster_model::reason::annotation;
use muster_model::time::to_seconds_text;
use serde_json::Value;

use super::Inner;
use super::sync::{SyncError, Work, edit_revision};
use crate::registry::{Precondition, Write};
use crate::status::ApiError;

/// Most characters of a failure's words that are kept on a revision.
const LONGEST_WHY: usize = 1_024;

impl Inner {
    /// Carries out what the plan says about the rollout's course, in one commit.
    pub(super) async fn steer(&self, work: &Work) -> Result<(), SyncError> {
        let (plan, facts) = (&work.plan, &work.facts);
        // Each write, and what is told when it was made.
        let mut writes: Vec<(Write, Option<Note>)> = Vec::new();
        if plan.proven {
            let now = to_seconds_text(self.registry.now());
            writes.push((note(work, annotation::AVAILABLE_EVERYWHERE, now), None));
        }
        if let Some(why) = &plan.halt {
            let told = event::halted(facts.course.number, why);
            let why: String = why.chars().take(LONGEST_WHY).collect();
            writes.push((note(work, annotation::FAILED, why), Some(told)));
        }
        if let (Some(write), Some(stable)) = (back(work), &plan.roll_back) {
            let why = facts.course.failed.as_deref().unwrap_or_default();
            let told = event::rolled_back(stable.number, facts.course.number, why);
            let taken_back = TakenBack::now(facts, stable).to_string();
            writes.push((note(work, annotation::TAKEN_BACK, taken_back), None));
            writes.push((write, Some(told)));
        }
        let request = pull_request(facts).text();
        writes.extend(
            plan.pre_pulls
                .iter()
                .map(|pull| (ask(work, pull, &request), None)),
        );
        if writes.is_empty() {
            return Ok(());
        }
        let (writes, notes): (Vec<Write>, Vec<Option<Note>>) = writes.into_iter().unzip();
        let answers = self.registry.commit(&self.caller, writes).await;
        let mut refused = None;
        for (answer, told) in answers.into_iter().zip(notes) {
            match answer {
                Ok(_) => {
                    if let Some(told) = told {
                        self.tell(work.stored.object(), &told);
                    }
                }
                // The pod or the revision is gone, or the template is another one by now: the next look decides anew.
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => {
                    self.note_timeout(facts, &error);
                    refused.get_or_insert(SyncError::write("steering the rollout", error));
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }
}

/// Asks for the new images beside an old pod.
fn ask(work: &Work, pull: &PrePull, request: &str) -> Write {
    let key = NamespacedName::new(work.facts.id.namespace.clone(), &*pull.pod.name);
    let request = request.to_owned();
    let same = Precondition::uid(pull.pod.uid.as_str());
    Write::edit(&POD, key, same, move |pod| {
        pod.set_annotation(annotation::PRE_PULL, &request);
        Ok(())
    })
}

/// Notes something on the current revision.
fn note(work: &Work, annotation: &'static str, text: String) -> Write {
    let facts = &work.facts;
    let name = &facts.rules.target.revision_name;
    let key = NamespacedName::new(facts.id.namespace.clone(), name);
    edit_revision(key, move |revision| {
        revision.set_annotation(annotation, &text)
    })
}

/// Puts an earlier template back, unless somebody has changed the present one meanwhile.
fn back(work: &Work) -> Option<Write> {
    let stable = Arc::clone(work.plan.roll_back.as_ref()?);
    let failed = work.facts.template.clone();
    let same = Precondition::uid(work.facts.uid.clone());
    Some(Write::edit(
        &DAEMON_SET,
        work.facts.id.clone(),
        same,
        move |daemon| put_back(daemon, &failed, &stable.template),
    ))
}

fn put_back(daemon: &mut Object, failed: &Value, earlier: &Value) -> Result<(), ApiError> {
    let name = daemon.name().to_owned();
    let changed = || ApiError::conflict(&DAEMON_SET, &name, "its template was changed meanwhile");
    let template = daemon
        .tree_mut()
        .get_mut("spec")
        .and_then(|spec| spec.get_mut("template"))
        .filter(|template| *template == failed)
        .ok_or_else(changed)?;
    *template = earlier.clone();
    Ok(())
}
