//! Admission checks and policies, as a person meets them.

use super::{WEB, file, muster::cluster, muster::muster};

const POLICY: &str = "
apiVersion: muster.dev/v1
kind: DaemonSetPolicy
metadata:
  name: versions
spec:
  namespaces:
    names: [default]
  checks:
    LatestTag: Refuse
    NoReadinessProbe: Refuse
    NoResourceRequests: Ignore
";

#[tokio::test(flavor = "multi_thread")]
async fn a_warning_becomes_a_refusal_and_is_told_in_lines() {
    let cluster = cluster(&["n1"]).await;
    let run = async |words: &[&str]| muster(&cluster, words).await;
    let web = file(&cluster, "web.yaml", WEB);
    let said = run(&["apply", "-f", &web]).await;
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "daemonset.apps/web created\n")
    );
    let lines: Vec<&str> = said.err.lines().collect();
    assert_eq!(lines.len(), 2, "{said:?}");
    assert!(
        lines[0].starts_with(
            "Warning: spec.template.spec.containers[0].readinessProbe: container main has no"
        ) && lines[0].ends_with("[NoReadinessProbe]"),
        "{said:?}"
    );
    assert!(lines[1].ends_with("[NoResourceRequests]"), "{said:?}");
    let said = run(&["label", "ds", "web", "team=a"]).await;
    assert_eq!(
        (said.code, said.err.as_str()),
        (0, ""),
        "nothing is told again"
    );

    let strict = file(&cluster, "policy.yaml", POLICY);
    let said = run(&["apply", "-f", &strict]).await;
    assert_eq!(
        (said.code, said.out.as_str(), said.err.as_str()),
        (0, "daemonsetpolicy.muster.dev/versions created\n", "")
    );
    let row = run(&["get", "dsp", "-o", "wide"]).await;
    let words: Vec<&str> = row.out.split_whitespace().collect();
    assert_eq!(
        words[..6],
        ["NAME", "NAMESPACES", "REFUSES", "IGNORES", "AGE", "WARNS"],
        "{row:?}"
    );
    assert_eq!(
        words[6..10],
        [
            "versions",
            "default",
            "LatestTag,NoReadinessProbe",
            "NoResourceRequests"
        ],
        "{row:?}"
    );
    let told = run(&["describe", "daemonsetpolicy", "versions"]).await;
    assert!(told.out.contains("LatestTag: Refuse"), "{told:?}");

    let latest = file(&cluster, "latest.yaml", &WEB.replace("img:1", "img"));
    for words in [
        &["apply", "-f", &latest][..],
        &["apply", "--dry-run=server", "-f", &latest],
    ] {
        let said = run(words).await;
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
        let lines: Vec<&str> = said.err.lines().collect();
        assert_eq!(
            lines[0].trim_end(),
            "The DaemonSet \"web\" is invalid:",
            "{said:?}"
        );
        assert!(
            lines[1].starts_with("* spec.template.spec.containers[0].readinessProbe: Forbidden: container main has no")
                && lines[1].ends_with("[NoReadinessProbe, refused by DaemonSetPolicy versions]"),
            "{said:?}"
        );
        assert!(
            lines[2].starts_with("* spec.template.spec.containers[0].image: Forbidden: the image of container main (img)")
                && lines[2].ends_with("[LatestTag, refused by DaemonSetPolicy versions]"),
            "{said:?}"
        );
        assert_eq!(lines.len(), 3, "{said:?}");
    }

    let odd = POLICY
        .replace("LatestTag", "LatestTags")
        .replace("names: [default]", "name: default");
    let odd = file(&cluster, "odd.yaml", &odd);
    let said = run(&["apply", "-f", &odd]).await;
    assert!(
        said.code == 1 && said.err.contains("unknown field \"spec.namespaces.name\""),
        "{said:?}"
    );
    let odd = file(
        &cluster,
        "odd.yaml",
        &POLICY.replace("LatestTag", "LatestTags"),
    );
    let said = run(&["apply", "-f", &odd]).await;
    assert!(
        said.code == 1
            && said
                .err
                .contains("spec.checks[LatestTags]: Unsupported value: \"LatestTags\"")
            && said.err.contains("\"LatestTag\""),
        "{said:?}"
    );

    let said = run(&["delete", "dsp", "versions"]).await;
    assert_eq!(
        said.out, "daemonsetpolicy.muster.dev \"versions\" deleted\n",
        "{said:?}"
    );
    let said = run(&["apply", "-f", &latest]).await;
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "daemonset.apps/web configured\n")
    );
    cluster.stop().await;
}

/// The manifests that come with the project, on a cluster that has none of what they ask for.
#[tokio::test(flavor = "multi_thread")]
async fn every_example_applies() {
    let cluster = cluster(&["n1"]).await;
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let said = muster(&cluster, &["apply", "--create-namespace", "-f", examples]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let policy = muster(&cluster, &["get", "dsp", "-o", "name"]).await;
    assert_eq!(policy.out, "daemonsetpolicy.muster.dev/production\n");
    cluster.stop().await;
}
