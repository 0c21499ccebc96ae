//! Images: looking at local ones and pulling others (spec/node-agent.md 16).

use std::collections::HashMap;
use std::time::Duration;

use bollard::models::ImageInspect;
use bollard::query_parameters::CreateImageOptions;
use futures::StreamExt;

use super::client::{DockerEngine, runtime_error};
use super::version::rewrite;
use crate::runtime::{ImageView, RuntimeError};

/// What an engine says when the registry, or the way to it, does not answer. It has no code for that, only words:
/// Go's and those of its HTTP client.
const REGISTRY_IS_AWAY: [&str; 20] = [
    "dial tcp",
    "dial udp",
    "no such host",
    "server misbehaving",
    "temporary failure in name resolution",
    "i/o timeout",
    "connection refused",
    "connection reset",
    "connection timed out",
    "network is unreachable",
    "no route to host",
    "tls handshake timeout",
    "context deadline exceeded",
    "client.timeout exceeded",
    "request canceled while waiting for connection",
    "proxyconnect tcp",
    "unexpected eof",
    "502 bad gateway",
    "503 service unavailable",
    "504 gateway time",
];

/// The local image of this reference with its labels; `None` when it is not here.
pub(super) async fn inspect(
    engine: &DockerEngine,
    reference: &str,
) -> Result<Option<(ImageView, HashMap<String, String>)>, RuntimeError> {
    let found = engine
        .call("inspect image", async |connection| {
            connection.docker.inspect_image(reference).await
        })
        .await;
    match found {
        Ok(image) => Ok(Some(view(image))),
        Err(RuntimeError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn view(image: ImageInspect) -> (ImageView, HashMap<String, String>) {
    let config = image.config.unwrap_or_default();
    let view = ImageView {
        id: image.id.unwrap_or_default(),
        tags: image.repo_tags.unwrap_or_default(),
        digests: image.repo_digests.unwrap_or_default(),
        size_bytes: image.size.unwrap_or_default(),
        user: config.user.unwrap_or_default(),
    };
    (view, config.labels.unwrap_or_default())
}

/// Pulls an image; gives up when nothing is heard for `patience`. Dropping the future cancels the pull.
pub(super) async fn pull(
    engine: &DockerEngine,
    reference: &str,
    auth: &str,
    patience: Duration,
) -> Result<ImageView, RuntimeError> {
    let reference = with_default_tag(reference);
    let connection = engine
        .call("version", async |connection| Ok(connection))
        .await?;
    let (api, auth) = (connection.abilities.api, auth.to_owned());
    let docker = connection.docker.with_request_modifier(move |request| {
        rewrite(
            request,
            Some(api),
            (!auth.is_empty()).then_some(auth.as_str()),
        )
    });
    let options = CreateImageOptions {
        from_image: Some(reference.clone()),
        ..CreateImageOptions::default()
    };
    let mut progress = docker.create_image(Some(options), None, None).boxed();
    loop {
        match tokio::time::timeout(patience, progress.next()).await {
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(error))) => {
                let error = pull_error(runtime_error(error));
                engine.forget_if_lost(&error);
                return Err(error);
            }
            Ok(None) => break,
            Err(_) => {
                let seconds = patience.as_secs();
                let message = format!(
                    "pulling image {reference:?} made no progress for {seconds} s and was cancelled"
                );
                return Err(RuntimeError::RegistryUnreachable(message));
            }
        }
    }
    let pulled = inspect(engine, &reference).await?;
    pulled
        .map(|(image, _)| image)
        .ok_or_else(|| RuntimeError::NotFound(format!("No such image: {reference}")))
}

/// Tells a registry that is away, where a local copy may serve, from one that said no.
fn pull_error(error: RuntimeError) -> RuntimeError {
    match error {
        RuntimeError::Refused { message, .. } | RuntimeError::NotFound(message)
            if registry_is_away(&message) =>
        {
            RuntimeError::RegistryUnreachable(message)
        }
        // A registry that lacks the image answers 404, as an engine does that lacks a container.
        RuntimeError::NotFound(message) => RuntimeError::Refused {
            status: 404,
            message,
        },
        other => other,
    }
}

fn registry_is_away(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    REGISTRY_IS_AWAY.iter().any(|words| message.contains(words))
}

/// Without a tag the engine would pull all there are.
fn with_default_tag(reference: &str) -> String {
    let last = reference.rsplit('/').next().unwrap_or(reference);
    if last.contains([':', '@']) {
        reference.to_owned()
    } else {
        format!("{reference}:latest")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn na_071_a_registry_that_is_away_is_told_from_one_that_says_no() {
        let refused = |message: &str| RuntimeError::Refused {
            status: 500,
            message: message.to_owned(),
        };
        for away in [
            "Get \"https://registry-1.docker.io/v2/\": dial tcp: lookup registry-1.docker.io on 10.0.0.1:53: no such host",
            "Get \"http://127.0.0.1:5999/v2/\": dial tcp 127.0.0.1:5999: connect: connection refused",
            "Get \"https://r.example/v2/\": net/http: request canceled while waiting for connection (Client.Timeout exceeded)",
            "Get \"https://r.example/v2/\": net/http: TLS handshake timeout",
            "received unexpected HTTP status: 503 Service Unavailable",
            "error pulling image configuration: download failed after attempts=6: read tcp: connection reset by peer",
        ] {
            assert!(
                matches!(pull_error(refused(away)), RuntimeError::RegistryUnreachable(text) if text == away),
                "{away}"
            );
        }
        for no in [
            "pull access denied for x, repository does not exist or may require 'docker login'",
            "manifest for x:9 not found: manifest unknown: manifest unknown",
            "unauthorized: authentication required",
            "no space left on device",
            "toomanyrequests: You have reached your pull rate limit",
        ] {
            assert_eq!(pull_error(refused(no)), refused(no));
            let not_found = pull_error(RuntimeError::NotFound(no.to_owned()));
            assert_eq!(
                not_found,
                RuntimeError::Refused {
                    status: 404,
                    message: no.to_owned()
                }
            );
        }
    }

    #[test]
    fn an_engine_that_is_down_stays_an_engine_that_is_down() {
        let down = RuntimeError::Unreachable("connection refused".to_owned());
        assert_eq!(pull_error(down.clone()), down);
    }

    #[test]
    fn a_reference_without_a_tag_means_latest() {
        for (reference, asked) in [
            ("busybox", "busybox:latest"),
            ("busybox:1", "busybox:1"),
            ("127.0.0.1:5000/x", "127.0.0.1:5000/x:latest"),
            ("x@sha256:00", "x@sha256:00"),
        ] {
            assert_eq!(with_default_tag(reference), asked);
        }
    }
}
