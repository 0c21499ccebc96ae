//! What scripts rely on: documents that can be read, exit codes, quiet pipes.

use muster_model::codec::read_manifests;
use serde_json::{Value, json};

use super::stage::Stage;
use super::{Lab, WEB, run};
use crate::cmd::server::StoreEngine;

/// What a command that must succeed printed, as JSON.
async fn document(lab: &Lab, line: &str) -> Value {
    let text = lab.ok(line).await;
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}\n{text}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_shown_can_be_had_as_json() {
    let lab = Lab::start().await;
    let file = lab.file("web.yaml", WEB);
    lab.ok(&format!("apply -f {file}")).await;
    for line in ["coverage -o json", "explain ds/web -o json"] {
        assert_eq!(document(&lab, line).await, json!({"rows": []}), "{line}");
    }
    let state = document(&lab, "rollout status ds/web --watch=false -o json").await;
    assert_eq!(state["daemonset"], "web");
    assert_eq!(state["desired"], 0);
    assert_eq!(state["waiting"], json!([]));
    let history = document(&lab, "rollout history ds/web -o json").await;
    assert_eq!(history["kind"], "List");
    for revision in history["items"].as_array().unwrap() {
        assert_eq!(revision["kind"], "ControllerRevision");
    }
    assert_eq!(document(&lab, "events -o json").await["kind"], "List");
    let yaml = lab.ok("coverage -o yaml").await;
    assert_eq!(yaml, "rows: []\n");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn yaml_of_several_is_one_stream_of_documents() {
    let lab = Lab::start().await;
    let (web, log) = (
        lab.file("web.yaml", WEB),
        lab.file("log.yaml", &WEB.replace("web", "log")),
    );
    let files = format!("-f {web} -f {log}");
    lab.ok(&format!("apply {files}")).await;
    lab.ok("rollout status ds").await;
    let objects = async |line: &str| {
        let text = lab.ok(&format!("{line} -o yaml")).await;
        assert!(!text.starts_with("---"), "{line}: {text}");
        let documents = read_manifests("stdout", text.as_bytes());
        let documents = documents.unwrap_or_else(|error| panic!("{line}: {error}\n{text}"));
        documents.len()
    };
    for line in [
        "rollout restart ds",
        "rollout pause ds",
        "rollout resume ds",
        "rollout undo ds --to-revision=1 --dry-run=client",
        "rollout undo ds --to-revision=1",
        "set image ds --all *=nginx:2",
        "set env ds --all A=1",
    ] {
        assert_eq!(objects(line).await, 2, "{line}");
    }
    // A list of each one's revisions, and what is no object of the API.
    for line in [
        "rollout history ds",
        "rollout status ds --watch=false",
        &format!("rollout plan {files}"),
    ] {
        let text = lab.ok(&format!("{line} -o yaml")).await;
        let starts: Vec<&str> = text.lines().filter(|line| *line == "---").collect();
        assert_eq!(starts.len(), 1, "{line}: {text}");
        assert!(!text.starts_with("---"), "{line}: {text}");
    }
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_object_of_a_file_is_no_list() {
    let lab = Lab::start().await;
    let file = lab.file("web.yaml", WEB);
    lab.ok(&format!("apply -f {file}")).await;
    let kind = async |line: &str| document(&lab, line).await["kind"].clone();
    assert_eq!(kind(&format!("get -f {file} -o json")).await, "DaemonSet");
    let folder = file.strip_suffix("/web.yaml").unwrap();
    assert_eq!(kind(&format!("get -f {folder} -o json")).await, "List");
    let twice = format!("get -f {file} -f {file} -o json");
    assert_eq!(kind(&twice).await, "List");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_named_is_not_selected_as_well() {
    let lab = Lab::start().await;
    let file = lab.file("web.yaml", WEB);
    lab.ok(&format!("apply -f {file}")).await;
    let across = "error: a resource cannot be retrieved by name across all namespaces\n";
    let in_file = "error: resource/name arguments cannot be provided when a path is specified\n";
    let (plan, status) = (
        format!("rollout plan ds/web -f {file}"),
        format!("rollout status ds/web -f {file}"),
    );
    let selected = "error: selectors may not be specified when resources are selected by name\n";
    for (line, text) in [
        (plan.as_str(), in_file),
        (status.as_str(), in_file),
        ("delete ds/web -A", across),
        ("describe ds/web -A", across),
        ("get ds/web -A", across),
        ("describe ds/web -l app=other", selected),
        ("get ds web -l app=other", selected),
    ] {
        let ran = lab.run(line).await;
        assert_eq!(
            (ran.code, ran.out.as_str(), ran.err.as_str()),
            (1, "", text),
            "{line}"
        );
    }
    let ran = lab.run("describe nodes").await;
    assert_eq!((ran.code, ran.err.as_str()), (0, "No resources found\n"));
    assert_eq!(lab.ok("get ds -o name").await, "daemonset.apps/web\n");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_are_watched_come_as_documents_too() {
    let stage = Stage::with_nodes(1).await;
    let file = stage.lab.file("web.yaml", WEB);
    let line = "events -w -o jsonpath={.reason}/{.involvedObject.name}";
    let (watch, printed) = stage.start(line);
    let made = async {
        stage.lab.ok(&format!("apply -f {file}")).await;
        printed.is("SuccessfulCreate/web\n").await;
    };
    tokio::select! {
        ran = watch => panic!("it ended: {}{}", ran.out, ran.err),
        () = made => {}
    }
    stage.lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_tokens_tells_everything_but_the_secrets() {
    let lab = Lab::start().await;
    assert_eq!(
        document(&lab, "token list -o json").await,
        json!({"tokens": []})
    );
    let token = lab
        .ok("token create --ttl=0 --description=shed --print=token")
        .await;
    let parts: Vec<&str> = token.trim().split('.').collect();
    assert_eq!(
        document(&lab, "token list -o json").await,
        json!({"tokens": [{"id": parts[1], "description": "shed", "expires": null, "expired": false}]})
    );
    assert!(lab.ok("token list").await.ends_with("   never     shed\n"));
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_asks_the_server() {
    let lab = Lab::start().await;
    let server = format!("Server Version: {}\n", muster_model::version_text());
    let text = lab.ok("version").await;
    assert!(text.ends_with(&server), "{text}");
    let versions = document(&lab, "version -o json").await;
    assert_eq!(
        versions["serverVersion"]["gitVersion"],
        muster_model::version_text()
    );
    lab.stop().await;
    // Nobody answers: the client's own version is said all the same.
    let ran = run(&["muster", "--kubeconfig", "/does/not/exist", "version"]).await;
    assert_eq!(ran.code, 1);
    assert!(ran.out.starts_with("Client Version: v"), "{}", ran.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_servers_store_is_verified() {
    let mut lab = Lab::start_on(StoreEngine::Sled).await;
    lab.server.take().unwrap().running.stop().await;
    let data = lab.folder.path().join("data").display().to_string();
    let line = format!("store verify --data-dir {data}");
    assert!(lab.ok(&line).await.contains(": whole: "));
    let report = document(&lab, &format!("{line} -o json")).await;
    assert!(report["objects"].as_u64().unwrap() > 0, "{report}");
    assert!(report["revision"].is_u64(), "{report}");
    let ran = lab
        .run(&format!("store verify --data-dir {data}/nothing"))
        .await;
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(
        ran.err.starts_with("error: the store did not pass: "),
        "{}",
        ran.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_left_ends_the_command_quietly() {
    let lab = Lab::start().await;
    let file = lab.file("web.yaml", WEB);
    lab.ok(&format!("apply -f {file}")).await;
    for line in [
        "get ds",
        "get ds -o yaml",
        "get ds -w",
        "describe ds/web",
        "events -o json",
        "coverage -o json",
        "rollout status ds/web",
        "rollout history ds/web",
        "version",
        "completion bash",
    ] {
        let ran = lab.run_unread(line).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
    }
    lab.stop().await;
}
