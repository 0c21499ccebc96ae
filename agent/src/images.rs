//! Pull policy and what is said about images (spec/node-agent.md 16). The work itself is in
//! [`crate::image_puller`].

use std::time::Duration;

use muster_model::k8s::api::core::v1::Container;

/// A pull failed.
pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
/// A pull failed a while ago and is not tried now.
pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
/// Not here, and the policy forbids to pull.
pub const ERR_IMAGE_NEVER_PULL: &str = "ErrImageNeverPull";
/// The reference cannot be read.
pub const INVALID_IMAGE_NAME: &str = "InvalidImageName";
/// The engine could not say.
pub const IMAGE_INSPECT_ERROR: &str = "ImageInspectError";

/// How long a failed pull is shown as such before it is shown as back-off.
pub const ERROR_SHOWN: Duration = Duration::from_secs(2);

/// The container's pull policy: its own, else by its reference.
pub fn policy(container: &Container) -> &'static str {
    policy_of(
        container.image_pull_policy.as_deref().unwrap_or_default(),
        container.image.as_deref().unwrap_or_default(),
    )
}

/// The policy of this name; any other name: by the reference.
pub fn policy_of(name: &str, reference: &str) -> &'static str {
    match name {
        "Always" => "Always",
        "Never" => "Never",
        "IfNotPresent" => "IfNotPresent",
        _ => default_policy(reference),
    }
}

/// `Always` for the tag `latest` or none, else `IfNotPresent`; a digest never changes.
pub fn default_policy(reference: &str) -> &'static str {
    if reference.contains('@') {
        return "IfNotPresent";
    }
    match tag_of(reference) {
        None | Some("latest") => "Always",
        Some(_) => "IfNotPresent",
    }
}

fn tag_of(reference: &str) -> Option<&str> {
    let last = reference.rsplit('/').next().unwrap_or(reference);
    last.split_once(':').map(|(_, tag)| tag)
}

/// The reference with `:latest` where it has neither tag nor digest.
///
/// # Errors
/// The message of `InspectFailed`, when it is no reference.
pub fn with_default_tag(reference: &str) -> Result<String, String> {
    if !is_reference(reference) {
        return Err(format!(
            "Failed to apply default image tag \"{reference}\": couldn't parse image reference \"{reference}\": invalid reference format{}",
            if reference.chars().any(|c| c.is_ascii_uppercase()) {
                ": repository name must be lowercase"
            } else {
                ""
            }
        ));
    }
    if reference.contains('@') || tag_of(reference).is_some() {
        return Ok(reference.to_owned());
    }
    Ok(format!("{reference}:latest"))
}

fn is_reference(text: &str) -> bool {
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (text, None),
    };
    let digest_fits = digest.is_none_or(|d| {
        d.split_once(':').is_some_and(|(algorithm, hex)| {
            !algorithm.is_empty() && hex.len() >= 32 && hex.bytes().all(|b| b.is_ascii_hexdigit())
        })
    });
    let tag = tag_of(rest);
    let tag_fits = tag.is_none_or(|t| {
        !t.is_empty()
            && t.len() <= 128
            && !t.starts_with(['.', '-'])
            && t.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
    });
    let name = match tag {
        Some(tag) => &rest[..rest.len() - tag.len() - 1],
        None => rest,
    };
    let mut parts: Vec<&str> = name.split('/').collect();
    let is_host = |part: &str| part.contains(['.', ':']) || part == "localhost";
    if parts.len() > 1 && is_host(parts[0]) {
        let host = parts.remove(0);
        let host_fits = host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b".-:[]".contains(&b));
        if !host_fits {
            return false;
        }
    }
    let part_fits = |part: &&str| {
        let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        edge(part.as_bytes().first())
            && edge(part.as_bytes().last())
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
    };
    digest_fits && tag_fits && parts.iter().all(part_fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_policy_follows_the_tag() {
        for (reference, policy) in [
            ("web", "Always"),
            ("web:latest", "Always"),
            ("web:1", "IfNotPresent"),
            ("registry.example:5000/web", "Always"),
            ("registry.example:5000/web:1", "IfNotPresent"),
            (
                "web@sha256:0123456789abcdef0123456789abcdef",
                "IfNotPresent",
            ),
        ] {
            assert_eq!(default_policy(reference), policy, "{reference}");
        }
    }

    #[test]
    fn na_072_a_reference_must_be_one() {
        for bad in [
            "UPPER:1",
            "",
            "a b",
            "web:",
            "/web",
            "web//x",
            "web@sha256:xyz",
            "-web",
        ] {
            assert!(with_default_tag(bad).is_err(), "{bad}");
        }
        for (given, full) in [
            ("web", "web:latest"),
            ("127.0.0.1:5999/x:1", "127.0.0.1:5999/x:1"),
            ("LOCAL.example/web", "LOCAL.example/web:latest"),
            ("a/b_c/d-e.f:V1.2", "a/b_c/d-e.f:V1.2"),
        ] {
            assert_eq!(with_default_tag(given).as_deref(), Ok(full));
        }
    }
}
