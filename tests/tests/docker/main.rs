//! The whole system as it is used: processes of the `muster` binary, containers of the real Docker engine.
//!
//! These tests fail where no engine answers: they are left out only by not running them. Each has nodes of its own name
//! and removes all their containers when it ends, however it ends.
//!
//! | module | about |
//! |---|---|
//! | `examples` | the manifests of `examples/` run as they are |
//! | `kills` | server and agents are killed with SIGKILL, and what happens while they are gone |
//! | `engine` | the engine itself is restarted (a private one) |
//! | `pods` | what pods ask for arrives in their containers |
//! | `rollouts` | what controls a rollout beyond its budget, on four nodes |
//! | `troubles` | images, ports, memory, paths: what goes wrong is told, and ends by itself |
//! | `bad_input` | nonsense changes nothing and is told in a clear line |
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod acknowledged;
mod bad_input;
mod engine;
mod examples;
mod kills;
mod pods;
mod rollouts;
mod troubles;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use muster_client::{ListOptions, WatchEvent};
use muster_model::kind::POD;
use muster_model::object::Object;
use muster_testkit::Fleet;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// The image of nearly all tests: tools, and `idle`.
const IMAGE: &str = "t:1";

fn shell(script: &str) -> Value {
    json!(["sh", "-c", script])
}

/// A pod on this node with one container `main`.
fn pod(name: &str, node: &str, container: &Value) -> Value {
    let mut main = json!({"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent"});
    merge(&mut main, container);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [main]},
    })
}

/// A DaemonSet that selects `app: NAME`, with one container `main`.
fn daemon_set(name: &str, container: &Value) -> Value {
    let mut template = pod(name, "", container);
    template["metadata"] = json!({"labels": {"app": name}});
    template["spec"].as_object_mut().unwrap().remove("nodeName");
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": template["metadata"], "spec": template["spec"]},
        },
    })
}

fn merge(into: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        into[key] = value.clone();
    }
}

/// The status of a pod's only container.
fn status<'a>(pod: &'a Object, pointer: &str) -> &'a Value {
    pod.at(&format!("/status/containerStatuses/0{pointer}"))
        .unwrap_or(&Value::Null)
}

fn restarts(pod: &Object) -> i64 {
    status(pod, "/restartCount").as_i64().unwrap_or(-1)
}

fn container_id(pod: &Object) -> &str {
    status(pod, "/containerID").as_str().unwrap_or_default()
}

/// An example of the repository.
fn example(name: &str) -> String {
    format!("{}/../examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Waits until what a command prints is as wanted, and returns it.
async fn wait_for_text(fleet: &Fleet, command: &[&str], wanted: impl Fn(&str) -> bool) -> String {
    fleet
        .eventually(&format!("{command:?} prints what is wanted"), || async {
            let ran = fleet.cli(command).await;
            wanted(&ran.out).then_some(ran.out)
        })
        .await
}

/// The log of a pod as soon as it has this line.
async fn log_with(fleet: &Fleet, pod: &str, last: &str) -> String {
    let command = ["logs", pod, "--tail=-1"];
    wait_for_text(fleet, &command, |text| {
        text.lines().any(|line| line == last)
    })
    .await
}

/// What a server on the host answers.
async fn http_get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Every version of every pod from now on, as a watch tells it.
struct History {
    seen: Arc<Mutex<Vec<Object>>>,
    task: JoinHandle<()>,
}

impl History {
    async fn of_pods(fleet: &Fleet) -> Self {
        let options = ListOptions::default();
        let mut watch = fleet
            .resources()
            .watch(&POD, "", &options, "")
            .await
            .unwrap();
        let seen = Arc::<Mutex<Vec<Object>>>::default();
        let noted = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            while let Some(Ok(event)) = watch.next().await {
                if let WatchEvent::Object { object, .. } = event {
                    noted.lock().unwrap().push(object);
                }
            }
        });
        Self { seen, task }
    }

    /// The versions of one pod so far.
    fn of(&self, pod: &str) -> Vec<Object> {
        let seen = self.seen.lock().unwrap();
        seen.iter()
            .filter(|version| version.name() == pod)
            .cloned()
            .collect()
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.task.abort();
    }
}
