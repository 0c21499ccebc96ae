//! How a command ends when it does not end well: one line for people, one code for scripts.

use std::io;

use muster_client::{ApiFailure, ClientError, ConnectError, ContextError};

/// Why a command ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What to print on standard error; empty: everything is said already.
    pub(crate) text: String,
    /// The process's exit code.
    pub(crate) code: u8,
}

/// The result of a command.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// `error: TEXT`, code 1.
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self {
            text: format!("error: {}", text.as_ref()),
            code: 1,
        }
    }

    /// The text as it is, code 1: for texts that bring their own prefix.
    pub(crate) fn bare(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            code: 1,
        }
    }

    /// Nothing to say, only a code.
    pub(crate) fn silent(code: u8) -> Self {
        Self {
            text: String::new(),
            code,
        }
    }

    /// A failed call, with what was being done: `error when creating "f.yaml"`.
    pub(crate) fn doing(error: &ClientError, doing: &str) -> Self {
        Self::bare(match error {
            ClientError::Api(failure) => api_text(failure, doing),
            other => format!("error: {other}"),
        })
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::doing(&error, "")
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<ContextError> for Failure {
    fn from(error: ContextError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        // Whoever read our output has seen enough (`muster get pods | head -1`).
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::silent(0)
        } else {
            Self::new(error.to_string())
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(format!("{error:#}"))
    }
}

/// The server's refusal in kubectl's words (spec/kube-api.md 11).
fn api_text(failure: &ApiFailure, doing: &str) -> String {
    if failure.reason == "Invalid" && !failure.causes.is_empty() {
        let mut text = format!("The {} {:?} is invalid: ", failure.kind, failure.name);
        let mut faults: Vec<String> = failure
            .causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        faults.dedup();
        if let [only] = faults.as_slice() {
            text.push_str(only);
        } else {
            for fault in &faults {
                text.push_str("\n* ");
                text.push_str(fault);
            }
        }
        return text;
    }
    if failure.reason == "Unauthorized"
        && (failure.message.is_empty() || failure.message == "Unauthorized")
    {
        return "error: You must be logged in to the server (Unauthorized)".to_owned();
    }
    let doing = if doing.is_empty() {
        String::new()
    } else {
        format!("{doing}: ")
    };
    let reason = if failure.reason.is_empty() {
        String::new()
    } else {
        format!(" ({})", failure.reason)
    };
    format!("Error from server{reason}: {doing}{}", failure.message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_client::Cause;

    fn invalid(causes: &[(&str, &str)]) -> Failure {
        let causes = causes
            .iter()
            .map(|(field, message)| Cause {
                reason: "FieldValueInvalid".into(),
                message: (*message).into(),
                field: (*field).into(),
            })
            .collect();
        let failure = ApiFailure {
            code: 422,
            reason: "Invalid".into(),
            message: "m".into(),
            name: "web".into(),
            kind: "DaemonSet".into(),
            causes,
            ..ApiFailure::default()
        };
        ClientError::Api(Box::new(failure)).into()
    }

    #[test]
    fn an_invalid_object_lists_its_faults_as_kubectl_does() {
        assert_eq!(
            invalid(&[("spec.selector", "Required value")]).text,
            "The DaemonSet \"web\" is invalid: spec.selector: Required value"
        );
        assert_eq!(
            invalid(&[("spec.a", "Required value"), ("spec.b", "Forbidden: no")]).text,
            "The DaemonSet \"web\" is invalid: \n* spec.a: Required value\n* spec.b: Forbidden: no"
        );
    }

    #[test]
    fn a_refusal_carries_its_reason_and_what_was_done() {
        let failure = ApiFailure {
            code: 404,
            reason: "NotFound".into(),
            message: "namespaces \"x\" not found".into(),
            ..ApiFailure::default()
        };
        let error = ClientError::Api(Box::new(failure));
        assert_eq!(
            Failure::doing(&error, "error when creating \"f.yaml\"").text,
            "Error from server (NotFound): error when creating \"f.yaml\": namespaces \"x\" not found"
        );
        assert_eq!(
            Failure::from(error).text,
            "Error from server (NotFound): namespaces \"x\" not found"
        );
    }

    #[test]
    fn a_reader_that_left_is_no_failure() {
        let failure: Failure = io::Error::from(io::ErrorKind::BrokenPipe).into();
        assert_eq!(failure, Failure::silent(0));
    }
}
