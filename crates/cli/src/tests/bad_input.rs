//! Bad input: one clear line each, exit code 1, nothing changed.

use muster_pki::kubeconfig::{Credential, Entry, write};
use muster_testkit::ports::DeafPort;
use secrecy::ExposeSecret;

use super::{Lab, WEB, run};

async fn refused(lab: &Lab, text: &str, parts: &[&str]) {
    let file = lab.file("bad.yaml", text);
    let ran = lab.run(&format!("apply -f {file}")).await;
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
    for part in parts {
        assert!(ran.err.contains(part), "{part:?} is not in {:?}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_manifests_change_nothing() {
    let lab = Lab::start().await;
    refused(
        &lab,
        &format!("{WEB}---\napiVersion: v1\nkind: ["),
        &["bad.yaml"],
    )
    .await;
    refused(
        &lab,
        &WEB.replace("  name: web\n  labels", "\tname: web\n  labels"),
        &["bad.yaml", "tab"],
    )
    .await;
    refused(
        &lab,
        &WEB.replace("selector", "selektor"),
        &["unknown field \"spec.selektor\""],
    )
    .await;
    refused(
        &lab,
        &WEB.replace("image:", "imagge:"),
        &["spec.template.spec.containers[0].imagge"],
    )
    .await;
    refused(
        &lab,
        &WEB.replace("{matchLabels: {app: web}}", "{matchLabels: {app: other}}"),
        &["The DaemonSet \"web\" is invalid", "selector"],
    )
    .await;
    refused(
        &lab,
        &WEB.replace("apps/v1", "apps/v1beta2"),
        &["Muster serves it as apps/v1"],
    )
    .await;
    let ran = lab.run("get ds").await;
    assert_eq!(ran.out, "");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_out_of_reach_is_named() {
    let lab = Lab::start().await;
    let kubeconfig = lab.kubeconfig().display().to_string();
    let nobody = DeafPort::new();
    let address = nobody.address().to_string();
    let ran = run(&[
        "muster",
        "--kubeconfig",
        &kubeconfig,
        "--server",
        &address,
        "get",
        "ds",
    ])
    .await;
    assert_eq!(ran.code, 1);
    assert!(
        ran.err
            .starts_with(&format!("error: connection to {address} was refused")),
        "{}",
        ran.err
    );
    let ran = run(&["muster", "--kubeconfig", "/does/not/exist", "get", "ds"]).await;
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains("cannot read /does/not/exist"),
        "{}",
        ran.err
    );
    let ran = run(&[
        "muster",
        "--kubeconfig",
        &kubeconfig,
        "--server",
        "http://x",
        "get",
        "ds",
    ])
    .await;
    assert!(
        ran.code == 1 && ran.err.contains("the server speaks TLS only"),
        "{}",
        ran.err
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_another_cluster_is_not_believed() {
    let (lab, other) = (Lab::start().await, Lab::start().await);
    let kubeconfig = lab.kubeconfig().display().to_string();
    let address = other.server.as_ref().unwrap().url.clone();
    let ran = run(&[
        "muster",
        "--kubeconfig",
        &kubeconfig,
        "--server",
        &address,
        "get",
        "ds",
    ])
    .await;
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains("has a certificate of another CA"),
        "{}",
        ran.err
    );
    lab.stop().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_no_login() {
    let lab = Lab::start().await;
    let server = lab.server.as_ref().unwrap().url.clone();
    let ca = std::fs::read_to_string(lab.folder.path().join("data/ca.crt")).unwrap();
    let entry = Entry {
        context: "lab".to_owned(),
        server,
        ca_pem: ca,
        tls_server_name: None,
        namespace: None,
        credential: Credential::Token("wrong".to_owned().into()),
    };
    let path = lab.file("token.kubeconfig", write(&entry).unwrap().expose_secret());
    let ran = run(&["muster", "--kubeconfig", &path, "get", "ds"]).await;
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.starts_with("Error from server (") || ran.err.contains("Unauthorized"),
        "{}",
        ran.err
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_line_without_sense_is_code_2() {
    for line in [
        "muster",
        "muster nosuch",
        "muster get ds -o",
        "muster rollout",
        "muster get ds -o xml",
        "muster apply --dry-run=maybe",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(run(&words).await.code, 2, "{line}");
    }
}

#[cfg(feature = "agent")]
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_a_wrong_token_is_told_at_once() {
    let (lab, other) = (Lab::start().await, Lab::start().await);
    let address = lab.server.as_ref().unwrap().url.clone();
    let state = lab.folder.path().join("node").display().to_string();
    let token = lab.ok("token create --print=token").await.trim().to_owned();
    let parts: Vec<&str> = token.split('.').collect();
    let wrong = format!("{}.{}.aaaaaaaaaaaaaaaa.{}", parts[0], parts[1], parts[3]);
    let foreign = other
        .ok("token create --print=token")
        .await
        .trim()
        .to_owned();
    for (token, name, part) in [
        (wrong.as_str(), "pi-1", "does not accept the join token"),
        (foreign.as_str(), "pi-1", "has a certificate of another CA"),
        ("muster1.abc", "pi-1", "cut short"),
        (token.as_str(), "Bad_Name", "is not valid"),
    ] {
        let words = [
            "muster",
            "agent",
            "--server",
            &address,
            "--runtime",
            "memory",
            "--state-dir",
            &state,
            "--node-name",
            name,
            "--token",
            token,
        ];
        let ran = run(&words).await;
        assert_eq!(ran.code, 1, "{part}");
        assert!(ran.err.contains(part), "{part:?} is not in {:?}", ran.err);
    }
    lab.stop().await;
    other.stop().await;
}
