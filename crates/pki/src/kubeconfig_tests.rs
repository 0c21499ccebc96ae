use super::*;
use std::process::Command;

fn entry(context: &str) -> Entry {
    Entry {
        context: context.to_owned(),
        server: "https://192.0.2.7:6443".to_owned(),
        ca_pem: "-----BEGIN CERTIFICATE-----\nQ0E=\n-----END CERTIFICATE-----\n".to_owned(),
        tls_server_name: Some("muster-server".to_owned()),
        namespace: None,
        credential: Credential::Certificate {
            cert_pem: "cert text\n".repeat(90),
            key_pem: "key text".into(),
        },
    }
}

fn inline(material: &Option<Material>) -> &str {
    match material {
        Some(Material::Inline(text)) => text.expose_secret(),
        other => panic!("not inline: {other:?}"),
    }
}

#[test]
fn what_is_written_is_read_back() {
    let text = write(&entry("lab")).unwrap();
    let read = Kubeconfig::parse(text.expose_secret()).unwrap();
    assert_eq!(
        (read.context.as_str(), read.user.as_str()),
        ("lab", "lab-user")
    );
    assert_eq!(read.server, "https://192.0.2.7:6443");
    assert_eq!(inline(&read.ca), entry("lab").ca_pem);
    assert_eq!(inline(&read.client_cert), "cert text\n".repeat(90));
    assert_eq!(inline(&read.client_key), "key text");
    assert_eq!(read.tls_server_name.as_deref(), Some("muster-server"));
    assert!(read.token.is_none() && !read.insecure_skip_tls_verify && read.namespace.is_none());
}

#[test]
fn merging_keeps_what_is_there_and_replaces_its_own() {
    let existing = r#"
apiVersion: v1
kind: Config
preferences: {colors: true}
current-context: work
clusters:
- name: work
  cluster: {server: "https://work:6443", proxy-url: "http://proxy"}
contexts:
- name: work
  context: {cluster: work, user: me, namespace: "on"}
users:
- name: me
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: login, args: ["yes", "0777", "12:30:45"]}
"#;
    let once = merge_context(existing, &entry("lab"), false).unwrap();
    let mut other = entry("lab");
    other.server = "https://192.0.2.8:6443".to_owned();
    other.credential = Credential::Token("s3cret".into());
    let twice = merge_context(once.expose_secret(), &other, true).unwrap();

    let tree: Value = serde_saphyr::from_str(twice.expose_secret()).unwrap();
    assert_eq!(tree["clusters"].as_array().unwrap().len(), 2);
    assert_eq!(tree["clusters"][0]["cluster"]["proxy-url"], "http://proxy");
    assert_eq!(
        tree["users"][0]["user"]["exec"]["args"],
        json!(["yes", "0777", "12:30:45"])
    );
    assert_eq!(tree["preferences"]["colors"], true);
    assert_eq!(tree["current-context"], "lab");
    let read = Kubeconfig::parse(twice.expose_secret()).unwrap();
    assert_eq!(read.server, "https://192.0.2.8:6443");
    assert_eq!(inline(&read.token), "s3cret");

    let first: Value = serde_saphyr::from_str(once.expose_secret()).unwrap();
    assert_eq!(
        first["current-context"], "work",
        "not switched unless asked"
    );
    let error = Kubeconfig::parse(once.expose_secret()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "user \"me\" of the kubeconfig logs in by exec, which is not supported: use a client certificate or a token"
    );
}

#[test]
fn file_references_are_paths_beside_the_kubeconfig() {
    let text = "
current-context: a
clusters: [{name: c, cluster: {server: 'https://h', certificate-authority: ca.crt}}]
contexts: [{name: a, context: {cluster: c, user: u, namespace: web}}]
users: [{name: u, user: {client-certificate: /abs/me.crt, client-key: me.key, tokenFile: tok}}]
";
    let read = Kubeconfig::parse(text)
        .unwrap()
        .relative_to(Path::new("/home/ana/.kube"));
    let path = |material: &Option<Material>| match material {
        Some(Material::File(path)) => path.display().to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(path(&read.ca), "/home/ana/.kube/ca.crt");
    assert_eq!(path(&read.client_cert), "/abs/me.crt");
    assert_eq!(path(&read.client_key), "/home/ana/.kube/me.key");
    assert_eq!(path(&read.token), "/home/ana/.kube/tok");
    assert_eq!(read.namespace.as_deref(), Some("web"));
}

#[test]
fn errors_say_what_is_missing_and_what_there_is() {
    let base = "clusters: [{name: c, cluster: {server: 'https://h'}}]\ncontexts: [{name: a, context: {cluster: c}}, {name: b, context: {cluster: x}}]\n";
    let cases = [
        (base.to_owned(), "the kubeconfig has no current-context; choose one of its contexts: a, b"),
        (format!("{base}current-context: z\n"), "the kubeconfig has no context \"z\"; it has: a, b"),
        (format!("{base}current-context: b\n"), "the kubeconfig has no cluster \"x\"; it has: c"),
        ("clusters: null\nusers: null\n".to_owned(), "the kubeconfig has no current-context; choose one of its contexts: none"),
        (
            "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c, cluster: {}}]".to_owned(),
            "cluster \"c\" of the kubeconfig has no server",
        ),
        (
            "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: s, certificate-authority-data: '!'}}]"
                .to_owned(),
            "certificate-authority-data of \"c\" in the kubeconfig is not base64 of PEM text",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(Kubeconfig::parse(&text).unwrap_err().to_string(), message);
    }
    assert_eq!(
        Kubeconfig::parse_context(base, Some("a")).unwrap().server,
        "https://h"
    );
}

#[test]
fn broken_text_is_an_error_without_its_contents() {
    for text in [
        "a: [",
        "- hunter2",
        "users: hunter2",
        "current-context: {hunter2: 1}",
    ] {
        let error = Kubeconfig::parse(text).unwrap_err();
        assert!(matches!(error, KubeconfigError::Malformed(_)), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

proptest::proptest! {
    #[test]
    fn noise_never_panics_the_reader(text in ".*", at: proptest::sample::Index, put in "[-: {}\\[\\]\"'&*!|>\n]{0,3}") {
        let _ = Kubeconfig::parse(&text);
        let whole = write(&entry("lab")).unwrap().expose_secret().to_owned();
        let at = at.index(whole.len());
        let _ = Kubeconfig::parse(&whole[..at]);
        let damaged = format!("{}{put}{}", &whole[..at], &whole[at..]);
        let _ = Kubeconfig::parse(&damaged);
        let _ = merge_context(&damaged, &entry("other"), true);
    }
}

/// What kubectl itself makes of our text. Left out, loudly, where there is no kubectl.
#[test]
fn kubectl_reads_what_we_write() {
    if Command::new("kubectl")
        .arg("version")
        .arg("--client")
        .output()
        .is_err()
    {
        eprintln!("LEFT OUT: kubectl is not installed");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    // A name that YAML 1.1, which kubectl reads, would take for a boolean.
    let mut odd = entry("on");
    odd.namespace = Some("1e3".to_owned());
    let text = merge_context(write(&entry("lab")).unwrap().expose_secret(), &odd, true).unwrap();
    std::fs::write(&path, text.expose_secret()).unwrap();
    let kubectl = |arguments: &[&str]| {
        let output = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(&path)
            .args(arguments)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let view: Value =
        serde_json::from_str(&kubectl(&["config", "view", "--raw", "-o", "json"])).unwrap();
    assert_eq!(view["current-context"], "on");
    assert_eq!(view["contexts"].as_array().unwrap().len(), 2);
    let context = view["contexts"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["name"] == "on")
        .unwrap();
    assert_eq!(
        context["context"],
        json!({"cluster": "on", "user": "on-user", "namespace": "1e3"})
    );
    let user = view["users"]
        .as_array()
        .unwrap()
        .iter()
        .find(|u| u["name"] == "on-user")
        .unwrap();
    assert_eq!(user["user"]["client-key-data"], BASE64.encode("key text"));
    assert_eq!(
        user["user"]["client-certificate-data"],
        BASE64.encode("cert text\n".repeat(90))
    );

    // And the other way: what kubectl writes, we read.
    kubectl(&["config", "use-context", "lab"]);
    let read = Kubeconfig::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(read.context, "lab");
    assert_eq!(inline(&read.client_key), "key text");
}
