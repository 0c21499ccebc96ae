//! What can be answered instead of an object, and the only place where that becomes a wire answer.
//!
//! An [`ApiError`] has a public half (what the caller reads, spec/kube-api.md 11) and a private half
//! (what the log says). Both doors, gRPC and REST, show the same Kubernetes `Status` object: over gRPC
//! it travels as the status' binary detail.

mod wire;

use std::fmt;

use muster_model::field_path::FieldError;
use muster_model::kind::Kind;

pub use wire::{Cause, Details, success_status_json};

/// Why a request was not carried out: the `reason` of a Kubernetes Status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(
    missing_docs,
    reason = "the names are Kubernetes' own words; the table below is their meaning"
)]
pub enum Reason {
    BadRequest,
    Invalid,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    Conflict,
    AlreadyExists,
    Expired,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    TooManyRequests,
    Timeout,
    ServiceUnavailable,
    InternalError,
}

impl Reason {
    /// The word on the wire, its HTTP code and its gRPC code.
    fn row(self) -> (&'static str, u16, tonic::Code) {
        use tonic::Code;
        match self {
            Self::BadRequest => ("BadRequest", 400, Code::InvalidArgument),
            Self::Invalid => ("Invalid", 422, Code::InvalidArgument),
            Self::Unauthorized => ("Unauthorized", 401, Code::Unauthenticated),
            Self::Forbidden => ("Forbidden", 403, Code::PermissionDenied),
            Self::NotFound => ("NotFound", 404, Code::NotFound),
            Self::MethodNotAllowed => ("MethodNotAllowed", 405, Code::Unimplemented),
            Self::NotAcceptable => ("NotAcceptable", 406, Code::InvalidArgument),
            Self::Conflict => ("Conflict", 409, Code::Aborted),
            Self::AlreadyExists => ("AlreadyExists", 409, Code::AlreadyExists),
            Self::Expired => ("Expired", 410, Code::OutOfRange),
            Self::RequestEntityTooLarge => ("RequestEntityTooLarge", 413, Code::InvalidArgument),
            Self::UnsupportedMediaType => ("UnsupportedMediaType", 415, Code::InvalidArgument),
            Self::TooManyRequests => ("TooManyRequests", 429, Code::ResourceExhausted),
            Self::Timeout => ("Timeout", 504, Code::DeadlineExceeded),
            Self::ServiceUnavailable => ("ServiceUnavailable", 503, Code::Unavailable),
            Self::InternalError => ("InternalError", 500, Code::Internal),
        }
    }

    /// The word on the wire, such as `AlreadyExists`.
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    /// The HTTP code.
    pub fn http_code(self) -> u16 {
        self.row().1
    }

    /// The gRPC code.
    pub fn grpc_code(self) -> tonic::Code {
        self.row().2
    }
}

/// A refused or failed request. Small (one pointer), so that results stay small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    reason: Reason,
    message: String,
    details: Option<Details>,
    private: String,
}

impl ApiError {
    /// An error of this reason and public message.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            reason,
            message: message.into(),
            details: None,
            private: String::new(),
        }))
    }

    /// 400: the request itself cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    /// 401, always with the one word that tells nothing about why.
    pub fn unauthorized() -> Self {
        Self::new(Reason::Unauthorized, "Unauthorized")
    }

    /// 401 with a clear text: for join tokens, whose holder must learn what to do.
    pub fn unauthorized_because(message: impl Into<String>) -> Self {
        Self::new(Reason::Unauthorized, message)
    }

    /// 403: `pods "x" is forbidden: WHY`.
    pub fn forbidden(kind: &Kind, name: &str, why: impl fmt::Display) -> Self {
        let resource = kind.qualified_resource();
        let message = if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} \"{name}\" is forbidden: {why}")
        };
        Self::new(Reason::Forbidden, message).about(kind, name)
    }

    /// 404: `daemonsets.apps "x" not found`.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(
            Reason::NotFound,
            format!("{} \"{name}\" not found", kind.qualified_resource()),
        )
        .about(kind, name)
    }

    /// 404 for a group, version or resource that is not served.
    pub fn unknown_resource() -> Self {
        Self::new(
            Reason::NotFound,
            "the server could not find the requested resource",
        )
    }

    /// 405: the kind has no such verb or subresource.
    pub fn method_not_allowed() -> Self {
        Self::new(
            Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        )
    }

    /// 409: `configmaps "x" already exists`.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        Self::new(
            Reason::AlreadyExists,
            format!("{} \"{name}\" already exists", kind.qualified_resource()),
        )
        .about(kind, name)
    }

    /// 409 because of a stale resourceVersion.
    pub fn modified(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409: `Operation cannot be fulfilled on daemonsets.apps "x": WHY`.
    pub fn conflict(kind: &Kind, name: &str, why: impl fmt::Display) -> Self {
        Self::new(
            Reason::Conflict,
            format!(
                "Operation cannot be fulfilled on {} \"{name}\": {why}",
                kind.qualified_resource()
            ),
        )
        .about(kind, name)
    }

    /// 422: `DaemonSet.apps "x" is invalid: FAULTS`, one cause a fault (spec/daemonset.md 4.1).
    pub fn invalid(kind: &Kind, name: &str, faults: &[FieldError]) -> Self {
        let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes = faults
            .iter()
            .map(|fault| Cause {
                reason: fault.kind.reason().to_owned(),
                message: fault.body.clone(),
                field: fault.field.to_string(),
            })
            .collect();
        let mut error = Self::new(
            Reason::Invalid,
            format!("{} \"{name}\" is invalid: {list}", kind.qualified_kind()),
        );
        error.0.details = Some(Details {
            name: name.to_owned(),
            group: kind.group.to_owned(),
            kind: kind.kind.to_owned(),
            causes,
            ..Details::default()
        });
        error
    }

    /// 410: a watch from a revision that is no longer remembered.
    pub fn too_old(asked: u64, oldest: u64) -> Self {
        Self::new(
            Reason::Expired,
            format!("too old resource version: {asked} ({oldest})"),
        )
    }

    /// 410: a list's continue token of a state that is no longer remembered.
    pub fn continue_too_old() -> Self {
        Self::new(
            Reason::Expired,
            "The provided continue parameter is too old to display a consistent list result. \
             You can start a new list without the continue parameter.",
        )
    }

    /// 504 with the cause clients know: a version from the future did not come in time.
    pub fn too_large_version(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let cause = Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: message.clone(),
            field: String::new(),
        };
        Self::new(Reason::Timeout, message)
            .with_cause(cause)
            .retry_after(1)
    }

    /// 413: the request body is larger than allowed.
    pub fn too_large(limit_bytes: usize) -> Self {
        Self::new(
            Reason::RequestEntityTooLarge,
            format!("Request entity too large: limit is {limit_bytes} bytes"),
        )
    }

    /// 429: trying again after a while can help.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(Reason::TooManyRequests, message).retry_after(retry_after_seconds)
    }

    /// 503.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Reason::ServiceUnavailable, message)
    }

    /// 504.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(Reason::Timeout, message)
    }

    /// 500: the caller reads a fixed sentence, the log reads `private`.
    pub fn internal(private: impl Into<String>) -> Self {
        let mut error = Self::new(
            Reason::InternalError,
            "Internal error occurred: see the server's log",
        );
        error.0.private = private.into();
        error
    }

    /// Says which object is meant.
    #[must_use]
    pub fn about(mut self, kind: &Kind, name: &str) -> Self {
        let details = self.0.details.get_or_insert_with(Details::default);
        details.name = name.to_owned();
        details.group = kind.group.to_owned();
        details.kind = kind.plural.to_owned();
        self
    }

    /// Adds a cause.
    #[must_use]
    pub fn with_cause(mut self, cause: Cause) -> Self {
        self.0
            .details
            .get_or_insert_with(Details::default)
            .causes
            .push(cause);
        self
    }

    /// Says when a retry can help.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.0
            .details
            .get_or_insert_with(Details::default)
            .retry_after_seconds = seconds;
        self
    }

    /// Adds what only the log may say.
    #[must_use]
    pub fn with_private(mut self, private: impl Into<String>) -> Self {
        self.0.private = private.into();
        self
    }

    /// The reason.
    pub fn reason(&self) -> Reason {
        self.0.reason
    }

    /// The public sentence.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What it is about.
    pub fn details(&self) -> Option<&Details> {
        self.0.details.as_ref()
    }

    /// What only the log may say; often empty.
    pub fn private(&self) -> &str {
        &self.0.private
    }

    /// 404.
    pub fn is_not_found(&self) -> bool {
        self.0.reason == Reason::NotFound
    }

    /// 409 because somebody else was faster.
    pub fn is_conflict(&self) -> bool {
        self.0.reason == Reason::Conflict
    }

    /// 409 because the name is taken.
    pub fn is_already_exists(&self) -> bool {
        self.0.reason == Reason::AlreadyExists
    }

    /// Whether a create was refused because its namespace is going away: to controllers, no error.
    pub fn is_namespace_terminating(&self) -> bool {
        self.0.details.as_ref().is_some_and(|details| {
            details
                .causes
                .iter()
                .any(|cause| cause.reason == NAMESPACE_TERMINATING)
        })
    }

    /// Whether the same request may succeed later without a change.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.0.reason,
            Reason::Conflict
                | Reason::TooManyRequests
                | Reason::Timeout
                | Reason::ServiceUnavailable
                | Reason::InternalError
        )
    }
}

/// The cause of a create refused because its namespace is going away.
pub const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if !self.0.private.is_empty() {
            write!(f, " ({})", self.0.private)?;
        }
        Ok(())
    }
}

impl std::error::Error for ApiError {}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::field_path::FieldPath;
    use muster_model::kind::{DAEMON_SET, POD};
    use serde_json::{Value, json};

    fn status(error: &ApiError) -> Value {
        serde_json::from_slice(&error.to_status_json()).unwrap()
    }

    #[test]
    fn one_fault_stands_alone_and_several_are_listed() {
        let min = FieldError::invalid(
            FieldPath::of("spec.minReadySeconds"),
            &json!(-1),
            "must be greater than or equal to 0",
        );
        let image =
            FieldError::required(FieldPath::of("spec.template.spec.containers[0].image"), "");
        let one = ApiError::invalid(&DAEMON_SET, "web", std::slice::from_ref(&min));
        assert_eq!(
            one.message(),
            "DaemonSet.apps \"web\" is invalid: spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0"
        );
        let two = ApiError::invalid(&DAEMON_SET, "web", &[min, image]);
        assert_eq!(
            status(&two),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "DaemonSet.apps \"web\" is invalid: [spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0, spec.template.spec.containers[0].image: Required value]",
                "reason": "Invalid", "code": 422,
                "details": {"name": "web", "group": "apps", "kind": "DaemonSet", "causes": [
                    {"reason": "FieldValueInvalid", "message": "Invalid value: -1: must be greater than or equal to 0", "field": "spec.minReadySeconds"},
                    {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.template.spec.containers[0].image"},
                ]},
            })
        );
    }

    #[test]
    fn both_doors_say_the_same_words() {
        let error = ApiError::not_found(&DAEMON_SET, "web");
        assert_eq!(error.message(), "daemonsets.apps \"web\" not found");
        let grpc = tonic::Status::from(error.clone());
        assert_eq!(grpc.code(), tonic::Code::NotFound);
        assert_eq!(grpc.message(), error.message());
        assert_eq!(grpc.details(), error.to_status_json());
        assert_eq!(
            ApiError::already_exists(&POD, "x").message(),
            "pods \"x\" already exists"
        );
        assert_eq!(
            ApiError::modified(&DAEMON_SET, "demo").message(),
            "Operation cannot be fulfilled on daemonsets.apps \"demo\": the object has been modified; please apply your changes to the latest version and try again"
        );
    }

    #[test]
    fn the_private_half_stays_in_the_log() {
        let error = ApiError::internal("disk said no");
        assert!(error.to_string().contains("disk said no"));
        assert!(
            !String::from_utf8(error.to_status_json().to_vec())
                .unwrap()
                .contains("disk")
        );
    }
}
