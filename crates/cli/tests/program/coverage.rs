//! The coverage report and its exit codes.

use std::time::{Duration, Instant};

use muster_model::kind::POD;
use muster_model::object::Object;
use serde_json::Value;

use super::{WEB, file, muster::Said, muster::cluster, muster::muster};

/// Longer than a node takes to refuse an image.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_without_for_too_long_is_exit_code_2() {
    let cluster = cluster(&["n1"]).await;
    let web = file(&cluster, "web.yaml", WEB);
    muster(&cluster, &["apply", "-f", &web]).await;
    cluster.until_ready("web", 1).await;
    let said = muster(&cluster, &["coverage", "--max-age", "0"]).await;
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.len(), 2, "a summary and no gaps: {said:?}");

    let broken = file(&cluster, "broken.yaml", &WEB.replace("img:1", "nowhere:1"));
    muster(&cluster, &["apply", "-f", &broken]).await;
    let without_image = |pod: &Object| {
        let reason = pod.at("/status/containerStatuses/0/state/waiting/reason");
        let reason = reason.and_then(Value::as_str);
        !pod.is_terminating() && matches!(reason, Some("ErrImagePull" | "ImagePullBackOff"))
    };
    cluster
        .until(
            "the old pod is gone, the new one has no image",
            || matches!(&cluster.objects(&POD)[..], [pod] if without_image(pod)),
        )
        .await;
    let begun = Instant::now();
    let said: Said = loop {
        let said = muster(&cluster, &["coverage", "--max-age=0"]).await;
        if said.code != 0 {
            break said;
        }
        assert!(begun.elapsed() < PATIENCE, "there is no gap: {said:?}");
    };
    assert_eq!(said.code, 2, "{said:?}");
    assert!(
        said.err
            .starts_with("1 gap is older than 0s: default/web on n1 (")
            && said.err.lines().count() == 1,
        "{said:?}"
    );
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(
        lines[3].split_whitespace().collect::<Vec<_>>(),
        [
            "NAMESPACE",
            "DAEMONSET",
            "NODE",
            "POD",
            "STATE",
            "AGE",
            "WHY"
        ],
        "{said:?}"
    );
    assert!(
        lines[4].contains("n1") && lines[4].contains("not ready"),
        "{said:?}"
    );

    for words in [
        &["coverage"][..],
        &["coverage", "--max-age", "1h"],
        &["coverage", "--nodes"],
        &["explain", "ds/web"],
    ] {
        let said = muster(&cluster, words).await;
        assert_eq!(
            (said.code, said.err.as_str()),
            (0, ""),
            "{words:?}: {said:?}"
        );
        assert!(said.out.contains("AGE"), "{words:?}: {said:?}");
    }
    let wide = muster(&cluster, &["coverage", "-o", "wide"]).await;
    assert!(
        wide.out.contains("RULE") && wide.out.contains("NotReady"),
        "{wide:?}"
    );
    for (form, part) in [
        ("json", "\"uncoveredSince\": \"20"),
        ("yaml", "uncoveredSince: \"20"),
    ] {
        let said = muster(&cluster, &["coverage", "--max-age=0", "-o", form]).await;
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.out.contains(part), "{said:?}");
        assert!(said.err.starts_with("1 gap is older than 0s"), "{said:?}");
    }
    let said = muster(&cluster, &["coverage", "--max-age", "soon"]).await;
    assert!(
        said.code == 2 && said.err.contains("is not a duration"),
        "{said:?}"
    );
    cluster.stop().await;
}
