//! The part of the pure step that has images of the pod's next revision on the node before the pod is stopped for it: the
//! controller asks on the pod, and the pod's status answers ([`muster_model::pre_pull`]). The pod itself is not touched.
//!
//! **Invariants.** One image at a time; nothing for a pod that ends. An answer is of the revision that is asked for.
//! `Pulled` is said only when every image was found or pulled, and a failed one stays failed until a try succeeds. What
//! the engine or the way to the server keeps from being pulled is not called failed: the revision is not at fault.

use std::time::Duration;

use muster_model::k8s::api::core::v1::PodStatus;
use muster_model::pre_pull::{Answer, CONDITION, Request, State};
use muster_model::reason::annotation;

use super::actions::{Action, Done, EventNote, Work};
use super::memory::PullTrouble;
use super::step::{Draft, Stage, stage};
use crate::facts::Timing;
use crate::images;
use crate::moment::{Moment, Mono};
use crate::spec;
use crate::waiting;

/// How long an image that is there is taken to be still there: nobody runs it yet, so a clean-up may take it.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// Most characters of an engine's words that the condition repeats.
const MOST_WORDS: usize = 1024;

/// What is asked for on a pod, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrePull {
    /// The annotation's value: another one is another request.
    text: String,
    /// `None`: it could not be read.
    wanted: Option<Wanted>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    revision: String,
    /// In the order of the request, each reference once.
    images: Vec<Image>,
    /// An earlier agent said `Pulled` of this revision: that stands until it is known better.
    was_pulled: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Image {
    reference: String,
    policy: &'static str,
    found: Option<Mono>,
    trouble: Option<PullTrouble>,
}

impl Wanted {
    fn new(request: Request, was_pulled: bool) -> Self {
        let mut images: Vec<Image> = Vec::with_capacity(request.images.len());
        for (reference, policy) in request.images {
            let policy = images::policy_of(&policy, &reference);
            match images.iter_mut().find(|image| image.reference == reference) {
                // Containers of one pod share what the most demanding one fetched.
                Some(image) if rank(image.policy) < rank(policy) => image.policy = policy,
                Some(_) => {}
                None => images.push(Image {
                    reference,
                    policy,
                    found: None,
                    trouble: None,
                }),
            }
        }
        Self {
            revision: request.revision,
            images,
            was_pulled,
        }
    }

    fn has(&self, reference: &str, policy: &str) -> bool {
        let is = |image: &Image| image.reference == reference && image.policy == policy;
        self.images.iter().any(is)
    }

    fn state(&self) -> State {
        let mut failed = self
            .images
            .iter()
            .filter_map(|image| Some((image, image.trouble.as_ref()?)))
            .filter(|(_, trouble)| !waiting::is_of_the_machine(&trouble.reason));
        if let Some((image, trouble)) = failed.next() {
            let words: String = trouble.message.chars().take(MOST_WORDS).collect();
            let more = match failed.count() {
                0 => String::new(),
                count => format!(" (and {count} more)"),
            };
            return State::Failed(format!("{}: {words}{more}", image.reference));
        }
        match self.was_pulled || self.images.iter().all(|image| image.found.is_some()) {
            true => State::Pulled,
            false => State::Pulling,
        }
    }
}

fn rank(policy: &str) -> u8 {
    match policy {
        "Always" => 2,
        "IfNotPresent" => 1,
        _ => 0,
    }
}

impl Image {
    /// When to ask for it (again). A fleet that failed together does not come again together: each pod waits up to a quarter
    /// longer, always the same.
    fn due(&self, uid: &str, now: Mono) -> Mono {
        match (&self.trouble, self.found) {
            (Some(trouble), _) => {
                let seed = spec::fnv32(format!("{uid}/{}", self.reference).as_bytes());
                let jitter = trouble.delay.saturating_mul(seed % 256) / 1024;
                trouble.retry_at().plus(jitter)
            }
            (None, Some(found)) => found.plus(LOOK_AGAIN),
            (None, None) => now,
        }
    }

    fn action(&self, revision: &str) -> Action {
        Action::PrePull {
            reference: self.reference.clone(),
            // It was pulled for this request: what matters now is that it is still there.
            policy: match self.policy {
                "Always" if self.found.is_some() => "IfNotPresent",
                policy => policy,
            },
            revision: revision.to_owned(),
            told: self.found.is_none() && self.trouble.is_none(),
        }
    }
}

impl PrePull {
    /// What to tell; `None`: nothing was asked that could be understood.
    pub fn answer(&self) -> Option<Answer> {
        let wanted = self.wanted.as_ref()?;
        Some(Answer {
            revision: wanted.revision.clone(),
            state: wanted.state(),
        })
    }

    /// Pull secrets that could not be read may have come.
    pub(super) fn hurry(&mut self) {
        let images = self.wanted.iter_mut().flat_map(|wanted| &mut wanted.images);
        images
            .filter_map(|image| image.trouble.as_mut())
            .for_each(PullTrouble::hurry);
    }

    /// Takes in how a pull ended.
    pub(super) fn note(&mut self, reference: &str, done: Done, timing: &Timing, now: Moment) {
        let images = self.wanted.iter_mut().flat_map(|wanted| &mut wanted.images);
        let Some(image) = images
            .into_iter()
            .find(|image| image.reference == reference)
        else {
            return;
        };
        match done {
            Done::Failed { reason, message } => {
                let before = image.trouble.as_ref();
                image.trouble = Some(PullTrouble::new(before, (reason, message), timing, now));
                image.found = None;
            }
            _ => {
                image.trouble = None;
                image.found = Some(now.mono);
            }
        }
    }
}

/// Takes up what is asked for, and asks for the next image.
pub(super) fn plan(draft: &mut Draft<'_>) {
    if stage(draft) == Stage::Ending {
        return;
    }
    let text = draft.pod.annotation(annotation::PRE_PULL);
    if draft
        .memory
        .pre_pull
        .as_ref()
        .map(|known| known.text.as_str())
        != text
    {
        take_up(draft, text);
    }
    let busy = |work: &Work| matches!(work, Work::PrePull(_));
    if draft.memory.rejection.is_some() || draft.memory.in_flight.iter().any(busy) {
        return;
    }
    let Some(wanted) = draft
        .memory
        .pre_pull
        .as_ref()
        .and_then(|known| known.wanted.as_ref())
    else {
        return;
    };
    let (now, uid) = (draft.now.mono, &draft.pod.uid);
    let dues = wanted
        .images
        .iter()
        .map(|image| (image.due(uid, now), image));
    let mut later = None;
    for (due, image) in dues {
        if due <= now {
            let action = image.action(&wanted.revision);
            return draft.act(action);
        }
        later = Some(later.map_or(due, |earlier: Mono| earlier.min(due)));
    }
    if let Some(due) = later {
        draft.wake(due);
    }
}

/// Another request replaces the former one: what only that wanted is broken off.
fn take_up(draft: &mut Draft<'_>, text: Option<&str>) {
    let former = draft.memory.pre_pull.take();
    draft.memory.pre_pull = text.map(|text| {
        let wanted = match Request::read(text) {
            Ok(request) => {
                let was_pulled = former.is_none() && said_pulled(&draft.memory.last, &request);
                Some(Wanted::new(request, was_pulled))
            }
            Err(error) => {
                let message = format!(
                    "the annotation {} is ignored: {error}",
                    annotation::PRE_PULL
                );
                draft.event(EventNote::warning(None, "InvalidPrePull", message));
                None
            }
        };
        PrePull {
            text: text.to_owned(),
            wanted,
        }
    });
    let now_wanted = draft.memory.pre_pull.clone().and_then(|known| known.wanted);
    let wanted_then = former.and_then(|known| known.wanted);
    let policy_then = |reference: &String| {
        let images = wanted_then.as_ref()?.images.iter();
        let found = images
            .into_iter()
            .find(|image| image.reference == *reference);
        found.map(|image| image.policy)
    };
    draft.cancel(|work| match work {
        Work::PrePull(reference) => !policy_then(reference).is_some_and(|policy| {
            now_wanted
                .as_ref()
                .is_some_and(|wanted| wanted.has(reference, policy))
        }),
        _ => false,
    });
}

fn said_pulled(last: &PodStatus, request: &Request) -> bool {
    let conditions = last.conditions.iter().flatten();
    let answers = conditions
        .filter(|condition| condition.type_ == CONDITION)
        .filter_map(|condition| {
            Answer::read(condition.reason.as_deref()?, condition.message.as_deref()?)
        });
    answers
        .into_iter()
        .any(|answer| answer.revision == request.revision && answer.state == State::Pulled)
}

#[cfg(test)]
#[path = "pre_pull_tests.rs"]
mod tests;
