//! An HTTP request: a new connection each time, redirects followed on the same host only.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT,
};
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use muster_model::k8s::api::core::v1::HTTPGetAction;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::{MAX_OUTPUT, Reply, Target, dial, host_of, join, port_number, tls};
use crate::runtime::Runtime;

/// Redirects followed before the probe gives up.
const MAX_REDIRECTS: usize = 10;

/// What may not stand in a query as it is. What is escaped already (`%20`) stays so.
const NOT_IN_QUERY: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>');
/// What may not stand in a path.
const NOT_IN_PATH: &AsciiSet = &NOT_IN_QUERY
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}')
    .add(b'\\')
    .add(b'^');

/// What a server said.
struct Answer {
    status: u16,
    location: Option<String>,
    body: String,
}

/// Where a request goes.
#[derive(Clone)]
struct Place {
    secure: bool,
    host: String,
    port: u16,
    /// Path and query, beginning with `/`.
    path: String,
}

impl Place {
    fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    fn authority(&self) -> String {
        join(&self.host, self.port)
    }

    fn url(&self) -> String {
        format!("{}://{}{}", self.scheme(), self.authority(), self.path)
    }

    /// Where a `Location` leads: a whole URL, one without a scheme, a path, or one relative to the former path.
    fn follow(&self, location: &str) -> Option<Self> {
        let location = to_send(location);
        let is_whole = location.split_once("://").is_some_and(|(scheme, _)| {
            !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
        });
        let whole = if location.starts_with("//") {
            format!("{}:{location}", self.scheme())
        } else if is_whole {
            location
        } else {
            let bare = self.path.split('?').next().unwrap_or("/");
            let directory = bare.rsplit_once('/').map_or("", |(head, _)| head);
            let path = match location.as_bytes().first() {
                Some(b'/') => location,
                Some(b'?') => format!("{bare}{location}"),
                _ => format!("{directory}/{location}"),
            };
            return Some(Self {
                path,
                ..self.clone()
            });
        };
        let uri: Uri = whole.parse().ok()?;
        let secure = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        Some(Self {
            secure,
            host: uri.host()?.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            path: uri
                .path_and_query()
                .map_or_else(|| "/".to_owned(), ToString::to_string),
        })
    }
}

/// A path with its query, or a whole URL, as it goes to a server: without the fragment, and with everything escaped that a
/// request may not carry. People write `?query=up{job="x"}` and mean it.
fn to_send(text: &str) -> String {
    let text = text.split('#').next().unwrap_or_default();
    match text.split_once('?') {
        None => utf8_percent_encode(text, NOT_IN_PATH).to_string(),
        Some((path, query)) => {
            let path = utf8_percent_encode(path, NOT_IN_PATH);
            format!("{path}?{}", utf8_percent_encode(query, NOT_IN_QUERY))
        }
    }
}

/// The error is of a probe that cannot be carried out.
pub(super) async fn probe(
    runtime: &dyn Runtime,
    target: Target<'_>,
    action: &HTTPGetAction,
    limit: Duration,
) -> Result<Reply, String> {
    let path = action.path.as_deref().unwrap_or_default();
    let path = to_send(path.strip_prefix('/').unwrap_or(path));
    let mut place = Place {
        secure: action.scheme.as_deref() == Some("HTTPS"),
        host: host_of(action.host.as_deref(), target)?.to_owned(),
        port: port_number(target.container, &action.port)?,
        path: format!("/{path}"),
    };
    let headers = headers(action)?;
    let first = place.url();
    let asked = tokio::time::timeout(limit, async {
        for _ in 0..MAX_REDIRECTS {
            let answer = ask(runtime, &place, &headers).await?;
            let redirect = matches!(answer.status, 301 | 302 | 303 | 307 | 308);
            let next = answer.location.as_deref().filter(|_| redirect);
            match next.and_then(|location| place.follow(location)) {
                Some(next) if next.host.eq_ignore_ascii_case(&place.host) => place = next,
                _ => return Ok(judge(&answer)),
            }
        }
        let text = format!("stopped after {MAX_REDIRECTS} redirects");
        Err(format!("Get \"{}\": {text}", place.url()))
    });
    Ok(match asked.await {
        Ok(Ok(reply)) => reply,
        Ok(Err(text)) => Reply::Failure(text),
        Err(_) => Reply::Failure(format!("Get \"{first}\": context deadline exceeded")),
    })
}

fn judge(answer: &Answer) -> Reply {
    match answer.status {
        200..300 => Reply::Success,
        300..400 => Reply::Warning(format!(
            "Probe terminated redirects, Response body: {}",
            answer.body
        )),
        status => Reply::Failure(format!("HTTP probe failed with statuscode: {status}")),
    }
}

/// The headers to send: the probe's own; where they are silent, the prober's name and what it takes. An own one that is
/// empty takes the prober's away.
fn headers(action: &HTTPGetAction) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for header in action.http_headers.iter().flatten() {
        let name: HeaderName = header
            .name
            .parse()
            .map_err(|_| format!("invalid header name: {:?}", header.name))?;
        let value = HeaderValue::from_str(&header.value)
            .map_err(|_| format!("invalid value of header {:?}", header.name))?;
        headers.append(name, value);
    }
    for (name, value) in [(USER_AGENT, super::USER_AGENT), (ACCEPT, "*/*")] {
        match headers.get(&name) {
            None => {
                headers.insert(name, HeaderValue::from_static(value));
            }
            Some(own) if own.is_empty() => {
                headers.remove(name);
            }
            Some(_) => {}
        }
    }
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(headers)
}

async fn ask(runtime: &dyn Runtime, place: &Place, headers: &HeaderMap) -> Result<Answer, String> {
    let url = place.url();
    let told = |error: &dyn std::fmt::Display| format!("Get \"{url}\": {error}");
    let mut io = dial(runtime, &place.host, place.port)
        .await
        .map_err(|error| told(&error))?;
    if place.secure {
        io = tls::wrap(io, &place.host)
            .await
            .map_err(|error| told(&error))?;
    }
    let mut request = Request::get(&place.path)
        .body(Empty::<Bytes>::new())
        .map_err(|error| told(&error))?;
    *request.headers_mut() = headers.clone();
    if !headers.contains_key(HOST) {
        let host = HeaderValue::from_str(&place.authority()).map_err(|error| told(&error))?;
        request.headers_mut().insert(HOST, host);
    }
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io))
        .await
        .map_err(|error| told(&error))?;
    let mut exchange = pin!(async {
        let response = sender.send_request(request).await?;
        let (parts, mut body) = response.into_parts();
        let mut text = Vec::new();
        while text.len() < MAX_OUTPUT
            && let Some(frame) = body.frame().await
        {
            if let Ok(data) = frame?.into_data() {
                text.extend_from_slice(&data);
            }
        }
        text.truncate(MAX_OUTPUT);
        let location = parts.headers.get(LOCATION);
        Ok::<_, hyper::Error>(Answer {
            status: parts.status.as_u16(),
            location: location
                .and_then(|value| str::from_utf8(value.as_bytes()).ok())
                .map(str::to_owned),
            body: String::from_utf8_lossy(&text).into_owned(),
        })
    });
    // The connection is driven here rather than by a task of its own; it may end before the answer is read to its end.
    let answered = tokio::select! {
        biased;
        answered = &mut exchange => answered,
        _ = connection => exchange.await,
    };
    answered.map_err(|error| told(&error))
}
