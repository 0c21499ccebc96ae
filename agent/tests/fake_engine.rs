//! The Docker runtime against an engine that is made up: versions, hangs and losses no real one can be asked for.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use muster_agent::runtime::docker::{
    CONTENT_LABEL, DockerConfig, DockerEngine, DockerRuntime, LocalImage,
};
use muster_agent::runtime::labels::{self, Owner};
use muster_agent::runtime::{
    ContainerId, ContainerSpec, ContainerState, ContainerView, ExecOutcome, Mount, Namespace,
    Runtime, RuntimeError, SandboxSpec,
};
use muster_model::time::SystemClock;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// What the engine answers to one request.
enum Answer {
    Json(u16, Value),
    /// Headers, then silence.
    Stalled,
    /// The connection is another protocol's from here on, and its end comes at once.
    Upgraded,
    /// Nothing at all.
    Silence,
}

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq)]
struct Request {
    method: String,
    /// With its version prefix, without its query.
    path: String,
    headers: BTreeMap<String, String>,
    body: Value,
}

type Script = Box<dyn Fn(&str, &str, usize) -> Answer + Send + Sync>;

/// An engine on a socket of its own; `script(method, path without version, how often before)` answers.
struct FakeEngine {
    directory: tempfile::TempDir,
    seen: Arc<Mutex<Vec<Request>>>,
    tasks: JoinSet<()>,
}

impl FakeEngine {
    fn socket(&self) -> PathBuf {
        self.directory.path().join("docker.sock")
    }

    fn new(script: Script) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut engine = Self {
            directory,
            seen: Arc::default(),
            tasks: JoinSet::new(),
        };
        engine.listen(script);
        engine
    }

    fn listen(&mut self, script: Script) {
        let (listener, seen) = (
            UnixListener::bind(self.socket()).unwrap(),
            self.seen.clone(),
        );
        let script = Arc::new(script);
        self.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, seen.clone(), script.clone()));
            }
        });
    }

    /// The engine is gone, its socket too, until it listens again.
    async fn vanish(&mut self) {
        self.tasks.shutdown().await;
        std::fs::remove_file(self.socket()).unwrap();
    }

    fn runtime(&self) -> DockerRuntime {
        DockerRuntime::new(DockerConfig {
            socket: self.socket(),
            call_deadline: Duration::from_secs(7),
            pull_patience: Duration::from_secs(7),
            ..DockerConfig::new(Owner::new("n1", "c1"), SystemClock::shared())
        })
    }

    fn paths(&self) -> Vec<String> {
        let seen = self.seen.lock();
        seen.iter()
            .map(|request| format!("{} {}", request.method, request.path))
            .collect()
    }

    async fn until_asked(&self, path_end: &str) {
        let asked = async {
            while !self.paths().iter().any(|path| path.ends_with(path_end)) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), asked)
            .await
            .unwrap();
    }

    fn bodies(&self, path_end: &str) -> Vec<Value> {
        let seen = self.seen.lock();
        let wanted = seen
            .iter()
            .filter(|request| request.path.ends_with(path_end));
        wanted.map(|request| request.body.clone()).collect()
    }
}

async fn serve(stream: UnixStream, seen: Arc<Mutex<Vec<Request>>>, script: Arc<Script>) {
    let mut stream = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
            // A look at who is there, without a request.
            return;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let words: Vec<_> = lines[0].split(' ').collect();
    let headers: BTreeMap<_, _> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let method = words[0].to_owned();
    let path = words[1].split('?').next().unwrap().to_owned();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let bare = match path
        .strip_prefix("/v1.")
        .and_then(|rest| rest.split_once('/'))
    {
        Some((_, rest)) => format!("/{rest}"),
        None => path.clone(),
    };
    let before = {
        let mut seen = seen.lock();
        let before = seen
            .iter()
            .filter(|one| one.method == method && one.path == path)
            .count();
        seen.push(Request {
            method: method.clone(),
            path,
            headers,
            body,
        });
        before
    };
    let (head, body) = match script(&method, &bare, before) {
        Answer::Json(status, body) => {
            let body = body.to_string();
            (
                format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", body.len()),
                body,
            )
        }
        Answer::Stalled => (
            "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n".to_owned(),
            String::new(),
        ),
        Answer::Upgraded => (
            "HTTP/1.1 101 X\r\nUpgrade: tcp\r\nConnection: Upgrade\r\n".to_owned(),
            String::new(),
        ),
        Answer::Silence => return std::future::pending().await,
    };
    let text = format!("{head}Content-Type: application/json\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await.unwrap();
    if head.contains("chunked") {
        std::future::pending::<()>().await;
    }
}

fn version(newest: &str, oldest: &str) -> Answer {
    Answer::Json(
        200,
        json!({"Version": "x.y", "ApiVersion": newest, "MinAPIVersion": oldest}),
    )
}

fn inspected(state: &str) -> Answer {
    Answer::Json(
        200,
        json!({
            "Id": "c1",
            "Created": "2026-01-31T10:00:00Z",
            "State": {"Status": state, "Running": state == "running", "StartedAt": "2026-01-31T10:00:01Z"},
            "NetworkSettings": {"Networks": {"bridge": {"IPAddress": "172.17.0.2"}}},
        }),
    )
}

fn listed(ids: &[&str]) -> Answer {
    let one = |id: &&str| {
        let labels = json!({labels::NODE: "n1", labels::POD_UID: "u1"});
        json!({"Id": id, "Names": [format!("/{id}")], "State": "running", "Status": "Up 5 minutes", "Labels": labels})
    };
    Answer::Json(200, ids.iter().map(one).collect())
}

fn not_found() -> Answer {
    Answer::Json(404, json!({"message": "No such image: sha256:0"}))
}

fn spec() -> ContainerSpec {
    let source = PathBuf::from("/srv");
    let mount = Mount {
        source,
        target: "/srv".to_owned(),
        read_only: true,
        propagation: "rprivate",
    };
    ContainerSpec {
        name: "k8s_c".to_owned(),
        image: "sha256:1".to_owned(),
        network: Namespace::Host,
        mounts: vec![mount],
        ..ContainerSpec::default()
    }
}

#[tokio::test]
async fn na_103_each_engine_is_spoken_to_in_its_own_version() {
    for (newest, oldest, spoken, options) in [
        ("1.41", "1.12", "1.41", json!({})),
        (
            "1.52",
            "1.44",
            "1.52",
            json!({"ReadOnlyNonRecursive": true}),
        ),
        (
            "1.60",
            "1.44",
            "1.52",
            json!({"ReadOnlyNonRecursive": true}),
        ),
    ] {
        let engine = FakeEngine::new(Box::new(move |_, path, _| match path {
            "/version" => version(newest, oldest),
            _ => Answer::Json(201, json!({"Id": "c1", "Warnings": []})),
        }));
        let runtime = engine.runtime();
        assert_eq!(runtime.create(&spec()).await.unwrap().0, "c1");
        assert_eq!(
            engine.paths(),
            [
                "GET /version".to_owned(),
                format!("POST /v{spoken}/containers/create")
            ]
        );
        let body = &engine.bodies("/create")[0];
        assert_eq!(body["HostConfig"]["Mounts"][0]["BindOptions"], options);
        assert_eq!(
            body["Labels"],
            json!({"muster.dev/node": "n1", "muster.dev/cluster": "c1", "muster.dev/format": "1"})
        );
        assert_eq!(runtime.version().await.unwrap().api_version, spoken);
    }
}

#[tokio::test]
async fn na_103_an_engine_too_old_is_asked_nothing_but_its_version() {
    let engine = FakeEngine::new(Box::new(|_, _, _| version("1.40", "1.12")));
    let error = engine.runtime().list().await.unwrap_err();
    assert!(
        matches!(&error, RuntimeError::Unsupported(text) if text.contains("1.40") && text.contains("1.41"))
    );
    assert_eq!(engine.paths(), ["GET /version"]);
}

#[tokio::test]
async fn an_engine_that_comes_back_as_another_version_is_negotiated_with_anew() {
    let script = |newest: &'static str| -> Script {
        Box::new(move |_, path, _| {
            if path == "/version" {
                version(newest, "1.24")
            } else {
                listed(&[])
            }
        })
    };
    let mut engine = FakeEngine::new(script("1.41"));
    let runtime = engine.runtime();
    runtime.list().await.unwrap();
    engine.vanish().await;
    assert!(matches!(
        runtime.list().await,
        Err(RuntimeError::Unreachable(_))
    ));
    engine.listen(script("1.44"));
    runtime.list().await.unwrap();
    let lists: Vec<_> = engine
        .paths()
        .into_iter()
        .filter(|path| path.ends_with("/json"))
        .collect();
    assert_eq!(
        lists,
        ["GET /v1.41/containers/json", "GET /v1.44/containers/json"]
    );
}

/// An engine with one container that SIGKILL just ended, whose memory has a limit, and one event: it was out of memory.
fn engine_after_a_kill() -> FakeEngine {
    // Never long ago, however slow the test is.
    let finished_at = SystemClock::shared().now() + Duration::from_secs(3600);
    FakeEngine::new(Box::new(move |_, path, _| match path {
        "/version" => version("1.41", "1.12"),
        "/events" => Answer::Json(
            200,
            json!({"Type": "container", "Action": "oom", "Actor": {"ID": "c1", "Attributes": {labels::POD_UID: "u1"}}}),
        ),
        "/containers/json" => Answer::Json(
            200,
            json!([{"Id": "c1", "State": "exited", "Status": "Exited (137) 1 second ago"}]),
        ),
        _ => Answer::Json(
            200,
            json!({
                "Id": "c1",
                "Created": "2026-01-31T10:00:00Z",
                "HostConfig": {"Memory": 16 << 20},
                "State": {
                    "Status": "exited", "ExitCode": 137, "OOMKilled": false,
                    "StartedAt": "2026-01-31T10:00:01Z", "FinishedAt": finished_at,
                },
            }),
        ),
    }))
}

fn is_out_of_memory(views: &[ContainerView]) -> bool {
    let [view] = views else {
        panic!("one container: {views:?}");
    };
    matches!(
        view.state,
        ContainerState::Exited {
            exit_code: 137,
            oom_killed: true,
            ..
        }
    )
}

#[tokio::test]
async fn case_b83_the_end_of_a_pods_container_waits_for_late_word_of_its_memory() {
    let engine = engine_after_a_kill();
    let runtime = engine.runtime();
    let mut events = runtime.events().await.unwrap();
    let views = runtime.list_pod("u1");
    let event = async {
        engine.until_asked("/containers/c1/json").await;
        events.next().await
    };
    let (views, event) = tokio::join!(views, event);
    assert_eq!(event.unwrap().pod_uid, "u1");
    assert!(is_out_of_memory(&views.unwrap()));
    assert!(is_out_of_memory(&runtime.list().await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_is_given_up_at_its_deadline() {
    let engine = FakeEngine::new(Box::new(|_, path, _| match path {
        "/version" => version("1.41", "1.12"),
        _ => Answer::Silence,
    }));
    let error = engine.runtime().list().await.unwrap_err();
    assert_eq!(
        error,
        RuntimeError::TimedOut {
            what: "list containers",
            limit_seconds: 7
        }
    );
    assert!(error.is_engine_trouble());
}

#[tokio::test(start_paused = true)]
async fn one_container_whose_inspect_hangs_does_not_hide_the_others() {
    let engine = FakeEngine::new(Box::new(|_, path, _| match path {
        "/version" => version("1.41", "1.12"),
        "/containers/json" => listed(&["c1", "stuck"]),
        "/containers/stuck/json" => Answer::Silence,
        _ => inspected("running"),
    }));
    let runtime = engine.runtime();
    let shown = runtime.list().await.unwrap();
    assert_eq!(shown.len(), 2);
    assert!(
        shown
            .iter()
            .all(|view| matches!(view.state, ContainerState::Running { .. })),
        "{shown:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn na_083_a_command_whose_container_hangs_runs_into_its_limit_wherever_that_is() {
    for hanging in [
        "/containers/c1/exec",
        "/exec/e1/start",
        "/exec/e1/json",
        "nowhere",
    ] {
        let engine = FakeEngine::new(Box::new(move |_, path, _| match path {
            "/version" => version("1.41", "1.12"),
            _ if path == hanging => Answer::Silence,
            "/containers/c1/exec" => Answer::Json(201, json!({"Id": "e1"})),
            "/exec/e1/start" => Answer::Upgraded,
            // The exit code is never known.
            _ => Answer::Json(200, json!({"ID": "e1", "Running": true})),
        }));
        let (runtime, id) = (engine.runtime(), ContainerId("c1".to_owned()));
        let begun = tokio::time::Instant::now();
        let outcome = runtime
            .exec(&id, &["true".to_owned()], Duration::from_secs(2))
            .await;
        assert_eq!(outcome, Ok(ExecOutcome::default()), "{hanging}");
        let took = begun.elapsed().as_secs();
        assert_eq!(took, 2, "{hanging}");
    }
}

#[tokio::test(start_paused = true)]
async fn na_083_a_command_that_a_busy_engine_starts_after_its_limit_is_ended_all_the_same() {
    let mut late = tokio::process::Command::new("sleep")
        .arg("3600")
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let pid = late.id().unwrap();
    let engine = FakeEngine::new(Box::new(move |_, path, before| match path {
        "/version" => version("1.41", "1.12"),
        "/containers/:/exec" => Answer::Json(201, json!({"Id": "e1"})),
        "/exec/e1/start" => Answer::Silence,
        _ if before < 3 => Answer::Json(200, json!({"ID": "e1", "Running": false, "Pid": 0})),
        _ if before < 5 => Answer::Json(200, json!({"ID": "e1", "Running": true, "Pid": 0})),
        _ => Answer::Json(200, json!({"ID": "e1", "Running": true, "Pid": pid})),
    }));
    // What the process is looked for by: each of its groups has this in its line.
    let (runtime, id) = (engine.runtime(), ContainerId(":".to_owned()));
    let outcome = runtime
        .exec(&id, &["true".to_owned()], Duration::from_secs(2))
        .await;
    assert_eq!(outcome, Ok(ExecOutcome::default()));
    let ended = late.wait().await.unwrap();
    assert_eq!(ended.signal(), Some(9));
}

#[tokio::test(start_paused = true)]
async fn agents_of_one_engine_make_images_one_after_the_other() {
    let image = LocalImage::new("local/x:v1").file("a", 0o644, b"1".as_slice());
    let digest = image.digest();
    let engine = FakeEngine::new(Box::new(move |_, path, _| match path {
        "/version" => version("1.41", "1.12"),
        _ => Answer::Json(
            200,
            json!({"Id": "sha256:1", "Config": {"Labels": {CONTENT_LABEL: digest}}}),
        ),
    }));
    let docker = DockerEngine::new(engine.socket());
    // As the agent of another process has it.
    let turn = std::fs::File::open(engine.directory.path()).unwrap();
    turn.lock().unwrap();
    let mut ensured = std::pin::pin!(image.ensure(&docker));
    let early = tokio::time::timeout(Duration::from_secs(30), &mut ensured).await;
    assert!(early.is_err() && engine.paths().is_empty(), "{early:?}");
    drop(turn);
    assert_eq!(ensured.await.unwrap().id, "sha256:1");
}

#[tokio::test]
async fn an_unchanged_container_is_inspected_once() {
    let engine = FakeEngine::new(Box::new(|_, path, _| match path {
        "/version" => version("1.41", "1.12"),
        "/containers/json" => listed(&["c1"]),
        _ => inspected("running"),
    }));
    let runtime = engine.runtime();
    let first = runtime.list().await.unwrap();
    assert_eq!(runtime.list().await.unwrap(), first);
    assert_eq!(runtime.list_pod("u1").await.unwrap(), first);
    let inspects = engine
        .paths()
        .iter()
        .filter(|path| path.ends_with("/containers/c1/json"))
        .count();
    assert_eq!(inspects, 1);
}

#[tokio::test]
async fn na_102_a_sandbox_image_that_was_lost_is_imported_again() {
    let engine = FakeEngine::new(Box::new(|method, path, before| match (method, path) {
        (_, "/version") => version("1.41", "1.12"),
        // Missing, made, then as it was made; after the loss missing again.
        (_, "/images/muster.dev/pause:1/json") if before % 2 == 0 => not_found(),
        (_, "/images/muster.dev/pause:1/json") => {
            Answer::Json(200, json!({"Id": format!("sha256:{before}")}))
        }
        (_, "/images/create") => Answer::Json(200, json!({"status": "sha256:0"})),
        (_, "/containers/create") if before == 0 => not_found(),
        (_, "/containers/create") => Answer::Json(201, json!({"Id": "c1", "Warnings": []})),
        ("POST", "/containers/c1/start") => Answer::Json(204, Value::Null),
        _ => inspected("running"),
    }));
    let spec = SandboxSpec {
        name: "k8s_POD".to_owned(),
        ..SandboxSpec::default()
    };
    assert_eq!(engine.runtime().run_sandbox(&spec).await.unwrap().0, "c1");
    let images: Vec<_> = engine
        .bodies("/containers/create")
        .iter()
        .map(|body| body["Image"].clone())
        .collect();
    assert_eq!(images, [json!("sha256:1"), json!("sha256:3")]);
    let imports = engine
        .paths()
        .iter()
        .filter(|path| path.ends_with("/images/create"))
        .count();
    assert_eq!(imports, 2);
}

#[tokio::test(start_paused = true)]
async fn a_pull_without_progress_is_cancelled_and_counts_as_a_registry_that_is_away() {
    let engine = FakeEngine::new(Box::new(|_, path, _| match path {
        "/version" => version("1.41", "1.12"),
        "/images/create" => Answer::Stalled,
        _ => not_found(),
    }));
    let error = engine
        .runtime()
        .pull("far:1", "eyJ1c2VybmFtZSI6InUifQ==")
        .await
        .unwrap_err();
    let expected = "pulling image \"far:1\" made no progress for 7 s and was cancelled";
    assert_eq!(
        error,
        RuntimeError::RegistryUnreachable(expected.to_owned())
    );
    let seen = engine.seen.lock();
    let pull = seen
        .iter()
        .find(|request| request.path.ends_with("/images/create"))
        .unwrap();
    assert_eq!(pull.headers["x-registry-auth"], "eyJ1c2VybmFtZSI6InUifQ==");
}

#[tokio::test]
async fn a_stop_of_what_is_gone_and_a_removal_under_way_are_fine() {
    let engine = FakeEngine::new(Box::new(|method, path, _| match (method, path) {
        (_, "/version") => version("1.41", "1.12"),
        ("DELETE", _) => Answer::Json(
            409,
            json!({"message": "removal of container c1 is already in progress"}),
        ),
        _ => Answer::Json(404, json!({"message": "No such container: c1"})),
    }));
    let runtime = engine.runtime();
    let id = muster_agent::runtime::ContainerId("c1".to_owned());
    runtime.stop(&id, Duration::from_secs(1)).await.unwrap();
    runtime.remove(&id).await.unwrap();
    assert!(matches!(
        runtime.start(&id).await,
        Err(RuntimeError::NotFound(_))
    ));
}
