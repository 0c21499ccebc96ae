//! What an image reference says of itself.

/// Whether the reference follows a tag that moves: `latest`, or neither tag nor digest. Kubernetes' pull policy asks
/// the same (spec/daemonset.md 3), and looks at the tag even where a digest follows it.
pub fn is_latest(image: &str) -> bool {
    let (name, digest) = image
        .split_once('@')
        .map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => digest.is_none() && !last.is_empty(),
    }
}

/// Whether the reference names its content by a digest, so that it can never mean something else.
pub fn is_pinned(image: &str) -> bool {
    image.contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moving_tag_is_told_from_a_version() {
        for image in [
            "nginx",
            "nginx:latest",
            "registry:5000/team/nginx",
            "n:latest@sha256:1",
        ] {
            assert!(is_latest(image), "{image}");
        }
        for image in ["nginx:1.27", "registry:5000/nginx:v2", "nginx@sha256:1", ""] {
            assert!(!is_latest(image), "{image}");
        }
        assert!(is_pinned("n:latest@sha256:1") && !is_pinned("n:latest"));
    }
}
