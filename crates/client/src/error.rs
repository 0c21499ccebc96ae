//! What can go wrong with a call, with the server's own words kept whole.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use tonic::Code;

use crate::connect::ConnectError;

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The server answered with a Kubernetes Status.
    #[error("{0}")]
    Api(Box<ApiFailure>),
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No answer within the deadline; whether a write happened is not known.
    #[error("no answer from the server within {} s", .after.as_secs_f32())]
    TimedOut {
        /// The deadline.
        after: Duration,
    },
    /// The connection was lost during the call.
    #[error("lost the connection to the server: {0}")]
    Lost(String),
    /// The answer cannot be understood: the two sides are of different versions.
    #[error("the server's answer cannot be read ({0}): are client and server of the same version?")]
    Malformed(String),
}

/// A Kubernetes Status that says Failure (spec/kube-api.md 11).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApiFailure {
    /// HTTP code, such as 404.
    pub code: u16,
    /// One word, such as `NotFound`; empty when the server gave none.
    pub reason: String,
    /// The sentence for people.
    pub message: String,
    /// Name of the object in question; empty when there is none.
    pub name: String,
    /// Resource, or kind for `Invalid`; empty when there is none.
    pub kind: String,
    /// API group of that; empty for the core group.
    pub group: String,
    /// Faults of single fields.
    pub causes: Vec<Cause>,
    /// When to come back, for 429.
    pub retry_after: Option<Duration>,
}

/// One fault of one field.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// `FieldValueInvalid` and its kin.
    pub reason: String,
    /// What is wrong.
    pub message: String,
    /// Path of the field.
    pub field: String,
}

impl fmt::Display for ApiFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiFailure {}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WireStatus {
    code: u16,
    reason: String,
    message: String,
    details: WireDetails,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WireDetails {
    name: String,
    group: String,
    kind: String,
    causes: Vec<Cause>,
    retry_after_seconds: u64,
}

impl ApiFailure {
    /// Of a Status object's JSON.
    pub fn from_json(bytes: &[u8]) -> Option<Self> {
        let wire: WireStatus = serde_json::from_slice(bytes).ok()?;
        if wire.code == 0 && wire.message.is_empty() {
            return None;
        }
        Some(Self {
            code: wire.code,
            reason: wire.reason,
            message: wire.message,
            name: wire.details.name,
            kind: wire.details.kind,
            group: wire.details.group,
            causes: wire.details.causes,
            retry_after: (wire.details.retry_after_seconds > 0)
                .then(|| Duration::from_secs(wire.details.retry_after_seconds)),
        })
    }

    /// Of a gRPC status without details: the table of codes backwards.
    fn from_code(code: Code, message: &str) -> Option<Self> {
        let (http, reason) = match code {
            Code::InvalidArgument | Code::FailedPrecondition => (400, "BadRequest"),
            Code::Unauthenticated => (401, "Unauthorized"),
            Code::PermissionDenied => (403, "Forbidden"),
            Code::NotFound => (404, "NotFound"),
            Code::Unimplemented => (405, "MethodNotAllowed"),
            Code::Aborted => (409, "Conflict"),
            Code::AlreadyExists => (409, "AlreadyExists"),
            Code::OutOfRange => (410, "Expired"),
            Code::ResourceExhausted => (429, "TooManyRequests"),
            Code::Internal | Code::DataLoss => (500, "InternalError"),
            _ => return None,
        };
        Some(Self {
            code: http,
            reason: reason.to_owned(),
            message: message.to_owned(),
            ..Self::default()
        })
    }
}

impl ClientError {
    /// Of a failed gRPC call. `deadline` is the call's own, for the message.
    pub fn from_status(status: &tonic::Status, deadline: Duration) -> Self {
        if let Some(failure) = ApiFailure::from_json(status.details()) {
            return Self::Api(Box::new(failure));
        }
        // A source means that the error was made on this side.
        if let Some(source) = status.source() {
            if let Some(error) = ConnectError::beneath(source) {
                return Self::Connect(error);
            }
            if let Some(error) = ConnectError::alert_beneath(source) {
                return Self::Connect(error);
            }
            if status.code() == Code::Cancelled && status.message().contains("Timeout expired") {
                return Self::TimedOut { after: deadline };
            }
            return Self::Lost(innermost(source));
        }
        match status.code() {
            Code::DeadlineExceeded => Self::TimedOut { after: deadline },
            code => match ApiFailure::from_code(code, status.message()) {
                Some(failure) => Self::Api(Box::new(failure)),
                None => Self::Lost(status.message().to_owned()),
            },
        }
    }

    /// The server's Status, when it sent one.
    pub fn api(&self) -> Option<&ApiFailure> {
        match self {
            Self::Api(failure) => Some(failure),
            _ => None,
        }
    }

    /// Whether the server said this reason.
    pub fn has_reason(&self, reason: &str) -> bool {
        self.api().is_some_and(|failure| failure.reason == reason)
    }

    /// The object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.api().is_some_and(|failure| failure.code == 404)
    }

    /// Somebody else changed the object first.
    pub fn is_conflict(&self) -> bool {
        self.has_reason("Conflict")
    }

    /// The revision asked for is forgotten: list again.
    pub fn is_expired(&self) -> bool {
        self.api().is_some_and(|failure| failure.code == 410)
    }

    /// Whether the same call may succeed later without anybody doing anything. A write may have happened all
    /// the same when the answer was lost.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Api(failure) => matches!(failure.code, 429 | 500 | 503 | 504),
            Self::Connect(error) => error.is_retryable(),
            Self::TimedOut { .. } | Self::Lost(_) => true,
            Self::Malformed(_) => false,
        }
    }
}

pub(crate) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn the_servers_status_comes_through_whole() {
        let json =
            br#"{"kind":"Status","status":"Failure","code":422,"reason":"Invalid","message":"m",
            "details":{"name":"web","group":"apps","kind":"DaemonSet","causes":[
            {"reason":"FieldValueRequired","message":"Required value","field":"spec.selector"}]}}"#;
        let status =
            tonic::Status::with_details(Code::InvalidArgument, "m", Bytes::from_static(json));
        let error = ClientError::from_status(&status, Duration::ZERO);
        let failure = error.api().unwrap();
        assert_eq!(
            (failure.code, failure.reason.as_str(), failure.kind.as_str()),
            (422, "Invalid", "DaemonSet")
        );
        assert_eq!(failure.causes[0].field, "spec.selector");
        assert!(!error.is_retryable());
    }

    #[test]
    fn a_bare_code_gets_its_kubernetes_reason() {
        let error =
            ClientError::from_status(&tonic::Status::out_of_range("too old"), Duration::ZERO);
        assert!(error.is_expired());
        let error = ClientError::from_status(&tonic::Status::aborted("changed"), Duration::ZERO);
        assert!(error.is_conflict());
        let error = ClientError::from_status(
            &tonic::Status::deadline_exceeded(""),
            Duration::from_secs(3),
        );
        assert_eq!(error.to_string(), "no answer from the server within 3 s");
    }
}
