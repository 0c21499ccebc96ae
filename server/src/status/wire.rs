//! How an answer looks on the wire: the Kubernetes `Status` object, and what carries it through each door.

use bytes::Bytes;
use muster_model::kind::Kind;
use serde::Serialize;

use super::ApiError;

/// One fault inside an answer: `details.causes[]` of a Status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Such as `FieldValueInvalid` or `NamespaceTerminating`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Path of the field, such as `spec.selector`; empty when no field is meant.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// What the answer is about: `details` of a Status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// The object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group; empty for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural resource name; for [`Reason::Invalid`] the Kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The object's uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The single faults.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// How long to wait before trying again; 0: not said.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if passes a reference"
)]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// The `Status` object as it is written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusObject<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: serde_json::Map<String, serde_json::Value>,
    status: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Details>,
    code: u16,
}

impl ApiError {
    /// The Kubernetes `Status` object as compact JSON.
    pub fn to_status_json(&self) -> Bytes {
        let status = StatusObject {
            kind: "Status",
            api_version: "v1",
            metadata: serde_json::Map::new(),
            status: "Failure",
            message: &self.0.message,
            reason: self.0.reason.as_str(),
            details: self.0.details.as_ref(),
            code: self.0.reason.http_code(),
        };
        Bytes::from(serde_json::to_vec(&status).expect("a Status holds texts and numbers only"))
    }
}

/// The `Status` of a deletion after which the object is gone (spec/kube-api.md 9, delete).
pub fn success_status_json(kind: &Kind, name: &str, uid: &str) -> Bytes {
    let details = Details {
        name: name.to_owned(),
        group: kind.group.to_owned(),
        kind: kind.plural.to_owned(),
        uid: uid.to_owned(),
        ..Details::default()
    };
    let status = StatusObject {
        kind: "Status",
        api_version: "v1",
        metadata: serde_json::Map::new(),
        status: "Success",
        message: "",
        reason: "",
        details: Some(&details),
        code: 200,
    };
    Bytes::from(serde_json::to_vec(&status).expect("a Status holds texts and numbers only"))
}

/// Bytes of trailers that an answer may need: HTTP/2 clients accept 16 KiB of headers unless told otherwise, and
/// an answer beyond that would reach them as a broken stream instead of as a refusal.
const MOST_TRAILER_BYTES: usize = 12 * 1024;
/// Characters of a message that had to be cut.
const CUT_MESSAGE: usize = 1_000;

/// What the trailers of this answer cost: the message is percent-encoded, the details base64.
fn trailer_bytes(error: &ApiError, json: &[u8]) -> usize {
    let encoded = |byte: u8| if byte.is_ascii_alphanumeric() { 1 } else { 3 };
    error.0.message.bytes().map(encoded).sum::<usize>() + json.len() * 4 / 3
}

impl From<ApiError> for tonic::Status {
    fn from(mut error: ApiError) -> Self {
        let mut json = error.to_status_json();
        if trailer_bytes(&error, &json) > MOST_TRAILER_BYTES {
            if let Some((end, _)) = error.0.message.char_indices().nth(CUT_MESSAGE) {
                error.0.message.truncate(end);
                error.0.message.push_str(" ... (more was cut)");
            }
            if let Some(details) = &mut error.0.details
                && let Some((end, _)) = details.name.char_indices().nth(CUT_MESSAGE)
            {
                details.name.truncate(end);
            }
            json = error.to_status_json();
        }
        // The first faults are the most telling: the others are left out, a quarter at a time.
        while trailer_bytes(&error, &json) > MOST_TRAILER_BYTES {
            let causes = error.0.details.as_mut().map(|details| &mut details.causes);
            let Some(causes) = causes.filter(|causes| !causes.is_empty()) else {
                break;
            };
            causes.truncate(causes.len() * 3 / 4);
            json = error.to_status_json();
        }
        Self::with_details(error.0.reason.grpc_code(), error.0.message.clone(), json)
    }
}

impl axum::response::IntoResponse for ApiError {
    fn into_response(self) -> axum::response::Response {
        let mut response =
            axum::response::Response::new(axum::body::Body::from(self.to_status_json()));
        *response.status_mut() = http::StatusCode::from_u16(self.0.reason.http_code())
            .expect("the table above holds codes between 400 and 504");
        let headers = response.headers_mut();
        headers.insert(
            http::header::CONTENT_TYPE,
            http::HeaderValue::from_static("application/json"),
        );
        if let Some(seconds) = self
            .0
            .details
            .as_ref()
            .map(|details| details.retry_after_seconds)
            .filter(|s| *s > 0)
        {
            headers.insert(http::header::RETRY_AFTER, http::HeaderValue::from(seconds));
        }
        response
    }
}
