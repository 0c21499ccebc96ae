//! How images of a new revision come to a node before its old pod is stopped: the controller asks on the old pod, in
//! an annotation; the node's agent answers in that pod's status, in a condition. Both survive restarts of either.
//!
//! ```
//! use muster_model::pre_pull::{Answer, Request, State};
//!
//! let request = Request { revision: "7d9f".into(), images: vec![("img:2".into(), "IfNotPresent".into())] };
//! assert_eq!(Request::parse(&request.text()), Some(request.clone()));
//! let answer = Answer { revision: request.revision, state: State::Failed("img:2: not found".into()) };
//! let (status, reason, message) = answer.condition();
//! assert_eq!((status, reason), ("False", "PullFailed"));
//! assert_eq!(Answer::read(reason, &message), Some(answer));
//! ```

use serde::{Deserialize, Serialize};

/// The condition's type in the pod's status.
pub const CONDITION: &str = "muster.dev/ImagesPulled";

/// Most images that one request may name: the most containers that one would expect of a pod, and a bound.
pub const MOST_IMAGES: usize = 64;

/// A revision, by its hash, in one of its tries: each is asked for, and answered, by itself.
pub fn tried(hash: &str, attempt: impl std::fmt::Display) -> String {
    format!("{hash}/{attempt}")
}

/// The hash of a revision that is [`tried`].
pub fn hash_of(tried: &str) -> &str {
    tried.split_once('/').map_or(tried, |(hash, _)| hash)
}

/// What the controller asks of a node, as the value of the annotation `muster.dev/pre-pull` on the pod that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Whose images they are, and in which try of that revision: [`tried`].
    pub revision: String,
    /// Each image with its `imagePullPolicy`.
    pub images: Vec<(String, String)>,
}

impl Request {
    /// The annotation's value.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the annotation's value; `None`: it is none, or names too many images.
    pub fn parse(text: &str) -> Option<Self> {
        Self::read(text).ok()
    }

    /// As [`Request::parse`], and says what is wrong.
    ///
    /// # Errors
    /// When the text is no request, or names more than [`MOST_IMAGES`] images.
    pub fn read(text: &str) -> Result<Self, RequestError> {
        let request: Self = serde_json::from_str(text).map_err(RequestError::Unreadable)?;
        match request.images.len() {
            0..=MOST_IMAGES => Ok(request),
            count => Err(RequestError::TooMany(count)),
        }
    }
}

/// Why an annotation is no request.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It is no JSON of the right form.
    #[error("it is no request to pull images: {0}")]
    Unreadable(#[source] serde_json::Error),
    /// It names more images than any pod has.
    #[error("it names {0} images, at most {MOST_IMAGES} may be asked for")]
    TooMany(usize),
}

/// How far a node is with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Still at it.
    Pulling,
    /// Every image is there.
    Pulled,
    /// An image could not be pulled: what and why. It is tried again.
    Failed(String),
}

/// What a node answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Hash of the revision whose images they are.
    pub revision: String,
    /// How far it is.
    pub state: State,
}

/// Between the revision and the words in the condition's message.
const SEPARATOR: &str = ": ";

impl Answer {
    /// The condition's status, reason and message.
    pub fn condition(&self) -> (&'static str, &'static str, String) {
        let (status, reason, words) = match &self.state {
            State::Pulling => ("False", "Pulling", "images are being pulled"),
            State::Pulled => ("True", "Pulled", "all images are there"),
            State::Failed(why) => ("False", "PullFailed", why.as_str()),
        };
        let message = format!("{}{SEPARATOR}{words}", self.revision);
        (status, reason, message)
    }

    /// Reads a condition's reason and message; `None`: they are no answer.
    pub fn read(reason: &str, message: &str) -> Option<Self> {
        let (revision, words) = message.split_once(SEPARATOR)?;
        let state = match reason {
            "Pulling" => State::Pulling,
            "Pulled" => State::Pulled,
            "PullFailed" => State::Failed(words.to_owned()),
            _ => return None,
        };
        Some(Self {
            revision: revision.to_owned(),
            state,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_read_back_from_its_condition() {
        for state in [
            State::Pulling,
            State::Pulled,
            State::Failed("img:2: refused: later".into()),
        ] {
            let answer = Answer {
                revision: "7d9f".into(),
                state,
            };
            let (_, reason, message) = answer.condition();
            assert_eq!(Answer::read(reason, &message), Some(answer));
        }
        assert_eq!(Answer::read("Pulled", "no revision"), None);
        assert_eq!(Answer::read("Other", "7d9f: x"), None);
    }

    #[test]
    fn a_request_is_bounded_and_garbage_is_none() {
        let image = || ("img:1".to_owned(), "Always".to_owned());
        let request = |count| Request {
            revision: "7d9f".into(),
            images: (0..count).map(|_| image()).collect(),
        };
        assert_eq!(Request::parse(&request(64).text()), Some(request(64)));
        assert_eq!(Request::parse(&request(65).text()), None);
        assert_eq!(Request::parse("{"), None);
        assert_eq!(Request::parse("true"), None);
    }
}
