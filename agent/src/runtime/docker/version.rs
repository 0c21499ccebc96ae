//! Which version of the engine's API is spoken, and how requests say so (spec/node-agent.md 29.1).

use http::uri::PathAndQuery;
use http::{Request, Uri};

use crate::runtime::RuntimeError;

/// Oldest API version spoken (Engine 20.10).
pub const OLDEST_API: ApiVersion = ApiVersion {
    major: 1,
    minor: 41,
};
/// Newest API version spoken (Engine 29.0), even when the engine knows newer ones.
pub const NEWEST_API: ApiVersion = ApiVersion {
    major: 1,
    minor: 52,
};

/// A version of the engine's API, such as 1.41.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiVersion {
    /// Before the dot.
    pub major: u32,
    /// After the dot.
    pub minor: u32,
}

impl ApiVersion {
    /// Reads `1.41`; `None` when it is no such text.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }
}

impl std::fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Picks the version to speak: the newest that both sides know.
pub(super) fn negotiate(
    engine: &str,
    newest: &str,
    oldest: Option<&str>,
) -> Result<ApiVersion, RuntimeError> {
    let theirs = ApiVersion::parse(newest).ok_or_else(|| {
        RuntimeError::Unsupported(format!(
            "Docker Engine {engine} names an API version that cannot be read: {newest:?}"
        ))
    })?;
    if theirs < OLDEST_API {
        return Err(RuntimeError::Unsupported(format!(
            "Docker Engine {engine} speaks API {theirs}, but {OLDEST_API} (Engine 20.10) or newer is needed"
        )));
    }
    match oldest.and_then(ApiVersion::parse) {
        Some(oldest) if oldest > NEWEST_API => Err(RuntimeError::Unsupported(format!(
            "Docker Engine {engine} speaks API {oldest} and newer, but this agent knows {NEWEST_API} at most"
        ))),
        _ => Ok(theirs.min(NEWEST_API)),
    }
}

/// Sets the version prefix of a request's path, whatever it was, and the registry's auth header when there is one.
pub(super) fn rewrite<B>(
    mut request: Request<B>,
    api: Option<ApiVersion>,
    auth: Option<&str>,
) -> Request<B> {
    let old = request
        .uri()
        .path_and_query()
        .map_or("/", PathAndQuery::as_str);
    let path = without_version(old);
    let path = api.map_or_else(|| path.to_owned(), |api| format!("/v{api}{path}"));
    let mut parts = request.uri().clone().into_parts();
    // Both can only fail on characters a URI does not allow; the request then goes out as it was.
    if let Ok(path) = PathAndQuery::try_from(path) {
        parts.path_and_query = Some(path);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    if let Some(Ok(mut value)) = auth.map(http::HeaderValue::from_str) {
        value.set_sensitive(true);
        request.headers_mut().insert("X-Registry-Auth", value);
    }
    request
}

fn without_version(path: &str) -> &str {
    let rest = path
        .strip_prefix("/v")
        .and_then(|rest| rest.split_once('/'));
    match rest {
        Some((version, rest)) if ApiVersion::parse(version).is_some() => {
            &path[path.len() - rest.len() - 1..]
        }
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(text: &str) -> ApiVersion {
        ApiVersion::parse(text).unwrap()
    }

    #[test]
    fn na_103_the_newest_version_that_both_know_is_spoken() {
        for (engine, oldest, spoken) in [
            ("1.41", Some("1.12"), "1.41"),
            ("1.44", Some("1.24"), "1.44"),
            ("1.52", Some("1.44"), "1.52"),
            ("1.60", Some("1.44"), "1.52"),
            ("1.43", None, "1.43"),
        ] {
            assert_eq!(negotiate("x", engine, oldest), Ok(api(spoken)), "{engine}");
        }
    }

    #[test]
    fn na_103_an_engine_out_of_range_is_refused_with_both_versions_named() {
        for (engine, newest, oldest, text) in [
            (
                "19.03",
                "1.40",
                None,
                "Docker Engine 19.03 speaks API 1.40, but 1.41 (Engine 20.10) or newer is needed",
            ),
            (
                "40.0",
                "1.70",
                Some("1.60"),
                "Docker Engine 40.0 speaks API 1.60 and newer, but this agent knows 1.52 at most",
            ),
        ] {
            assert_eq!(
                negotiate(engine, newest, oldest),
                Err(RuntimeError::Unsupported(text.to_owned()))
            );
        }
        assert!(negotiate("x", "new", None).is_err());
    }

    #[test]
    fn the_version_prefix_replaces_any_other() {
        for (path, version, expected) in [
            (
                "/containers/json?all=true",
                Some("1.41"),
                "/v1.41/containers/json?all=true",
            ),
            (
                "/v1.53/containers/json",
                Some("1.41"),
                "/v1.41/containers/json",
            ),
            ("/v1.53/version", None, "/version"),
            ("/version", None, "/version"),
            ("/volumes/a", Some("1.44"), "/v1.44/volumes/a"),
        ] {
            let request = Request::builder()
                .uri(format!("unix://2f72756e{path}"))
                .body(())
                .unwrap();
            let rewritten = rewrite(request, version.map(api), Some("e30="));
            assert_eq!(rewritten.uri().path_and_query().unwrap().as_str(), expected);
            assert_eq!(rewritten.uri().host(), Some("2f72756e"));
            assert_eq!(rewritten.headers()["X-Registry-Auth"], "e30=");
        }
    }
}
