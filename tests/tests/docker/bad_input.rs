//! Nonsense changes nothing and is told in a clear line.

use std::fs;

use muster_testkit::Fleet;
use muster_testkit::ports::DeafPort;
use muster_testkit::processes::{MusterProcess, Ran};

const WEB: &str = "\
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: web
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: t:1
";

/// A command that failed as it should: code 1, one clear line that has all these parts, no panic.
fn assert_refused(what: &str, ran: &Ran, parts: &[&str]) {
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{what}: {}", ran.err);
    for part in parts {
        assert!(
            ran.err.contains(part),
            "{what}: {part:?} is not in {:?}",
            ran.err
        );
    }
    assert!(!ran.err.contains("panicked"), "{what}: {}", ran.err);
    assert!(ran.err.lines().count() <= 3, "{what}: {}", ran.err);
}

fn bomb() -> String {
    let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..10 {
        let inner = vec![format!("*a{}", level - 1); 9].join(",");
        text.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_nonsense_are_refused_and_change_nothing() {
    let fleet = Fleet::start(&[]).await.unwrap();
    let deep =
        |open: &str, close: &str| format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
    let binary: Vec<u8> = (0..5000_u32).map(|n| (n * 7 % 256) as u8).collect();
    let cases: [(&str, Vec<u8>, &[&str]); 14] = [
        (
            "cut.yaml",
            WEB[..WEB.len() - 30].into(),
            &["spec.template.spec.containers"],
        ),
        (
            "cut.json",
            br#"{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "w"#.into(),
            &["cut.json", "line 1"],
        ),
        (
            "tab.yaml",
            WEB.replace("  name: web\nspec", "\tname: web\nspec").into(),
            &["line 4", "tab"],
        ),
        (
            "double.yaml",
            WEB.replace("  name: web\nspec", "  name: web\n  name: other\nspec")
                .into(),
            &["duplicate field \"metadata.name\""],
        ),
        (
            "large.yaml",
            format!("{WEB}x: \"{}\"\n", "a".repeat(50_000_000)).into(),
            &["bytes long; at most"],
        ),
        ("deep.yaml", deep("[", "]").into(), &["nested deeper than"]),
        (
            "deep.json",
            deep("{\"a\":", "}").into(),
            &["nested deeper than"],
        ),
        ("bomb.yaml", bomb().into(), &["expand to more than"]),
        (
            "type.yaml",
            WEB.replace("image: t:1", "image: [1]").into(),
            &["spec.template.spec.containers[0].image"],
        ),
        (
            "number.yaml",
            WEB.replace("{matchLabels: {app: web}}", "5").into(),
            &["spec.selector: 5 is a number"],
        ),
        ("binary.yaml", binary, &["binary.yaml"]),
        ("empty.yaml", Vec::new(), &["no objects passed"]),
        ("list.yaml", "- a\n".into(), &["expected an object"]),
        (
            "second.yaml",
            format!("{WEB}---\nkind: [").into(),
            &["second.yaml"],
        ),
    ];
    for (name, content, parts) in cases {
        let path = fleet.directory().join(name);
        fs::write(&path, content).unwrap();
        let path = path.display().to_string();
        let ran = fleet.cli(&["apply", "-f", &path]).await;
        assert_refused(name, &ran, parts);
    }
    assert_eq!(fleet.ok(&["get", "ds", "-A"]).await, "");
    let log = fleet.server_log();
    assert!(!log.contains("panicked"), "{log}");
}

/// A kubeconfig with a bearer token instead of the certificate.
fn with_token(fleet: &Fleet, token: &str) -> String {
    let admin = fs::read_to_string(fleet.kubeconfig()).unwrap();
    let mut lines: Vec<String> = admin
        .lines()
        .filter(|line| !line.trim_start().starts_with("client-"))
        .map(str::to_owned)
        .collect();
    lines.push(format!("    token: {token}\n"));
    let path = fleet.directory().join("token.kubeconfig");
    fs::write(&path, lines.join("\n")).unwrap();
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_and_identities_that_do_not_fit_are_named() {
    let (fleet, other) = (
        Fleet::start(&[]).await.unwrap(),
        Fleet::start(&[]).await.unwrap(),
    );
    let deaf = DeafPort::new();
    let nobody = deaf.address().to_string();
    let ran = fleet.cli(&["get", "ds", "--server", &nobody]).await;
    assert_refused("no server", &ran, &[&nobody, "refused"]);
    let ran = fleet.cli(&["get", "ds", "--server", other.address()]).await;
    assert_refused("another CA", &ran, &["certificate of another CA"]);
    let path = with_token(&fleet, "wrong");
    let ran = MusterProcess::cli(&["--kubeconfig", &path, "get", "ds"])
        .await
        .unwrap();
    assert_refused("wrong token", &ran, &["Unauthorized"]);
    fs::write(&path, "apiVersion: v1\nclusters: [").unwrap();
    let ran = MusterProcess::cli(&["--kubeconfig", &path, "get", "ds"])
        .await
        .unwrap();
    assert_refused("half a kubeconfig", &ran, &[&path]);
}

#[tokio::test(flavor = "multi_thread")]
async fn join_tokens_that_are_good_for_nothing_are_told() {
    let fleet = Fleet::start(&[]).await.unwrap();
    let other = Fleet::start(&[]).await.unwrap();
    let state = fleet.directory().join("nobody").display().to_string();
    let agent = |token: &str| {
        let words = ["agent", "--server", fleet.address(), "--token", token];
        let more = [
            "--state-dir",
            &state,
            "--node-name",
            "nobody",
            "--runtime",
            "memory",
        ];
        words
            .iter()
            .chain(&more)
            .map(|&word| word.to_owned())
            .collect::<Vec<_>>()
    };
    let token = fleet.ok(&["token", "create", "--print=token"]).await;
    let gone = token.trim().to_owned();
    let id = gone.split('.').nth(1).unwrap();
    fleet.ok(&["token", "delete", id]).await;
    let foreign = other.ok(&["token", "create", "--print=token"]).await;
    let short = fleet
        .ok(&["token", "create", "--ttl=1ms", "--print=token"])
        .await;
    for (token, words) in [
        ("muster1.x7k2pa", "token"),
        (gone.as_str(), "does not accept the join token"),
        (short.trim(), "expired at"),
        (foreign.trim(), "certificate of another CA"),
    ] {
        let ran = MusterProcess::cli(&agent(token)).await.unwrap();
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
        assert!(
            ran.err.contains(words) && !ran.err.contains("panicked"),
            "{words:?} is not in {:?}",
            ran.err
        );
    }
    assert_eq!(fleet.ok(&["get", "nodes"]).await, "");
}
