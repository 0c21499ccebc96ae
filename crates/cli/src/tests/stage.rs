//! A cluster whose nodes are played by the test: a pod turns Ready, or goes, when the test says so.

use std::future::Future;
use std::time::Duration;

use muster_client::{DeleteOptions, Resources, WriteOptions};
use muster_model::kind::{DAEMON_SET, NODE, POD};
use muster_model::object::{NamespacedName, Object};
use serde_json::{Value, json};

use super::{Lab, PATIENCE, Ran, run_on};
use crate::console::{Captured, Console};

/// The lab and the way to its objects.
pub(super) struct Stage {
    pub(super) lab: Lab,
    resources: Resources,
}

impl Stage {
    /// With the nodes `n0`, `n1`, ..., all Ready.
    pub(super) async fn with_nodes(count: usize) -> Self {
        let lab = Lab::start().await;
        let resources = lab.resources().await;
        for number in 0..count {
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{number}")},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            });
            let node = Object::from_value(node).unwrap();
            let options = WriteOptions::default();
            resources.create(&NODE, &node, &options).await.unwrap();
        }
        Self { lab, resources }
    }

    /// The DaemonSet `web`.
    pub(super) async fn web(&self) -> Object {
        let name = NamespacedName::new("default", "web");
        self.resources.get(&DAEMON_SET, &name).await.unwrap()
    }

    /// Every pod, by name.
    pub(super) async fn pods(&self) -> Vec<Object> {
        let options = muster_client::ListOptions::default();
        let list = self.resources.list(&POD, "default", &options);
        list.await.unwrap().items
    }

    /// Waits until the controller has done all it can: `live` pods live, `going` pods being deleted, the generation
    /// observed.
    pub(super) async fn until(&self, live: usize, going: usize) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let pods = self.pods().await;
            let terminating = pods.iter().filter(|pod| pod.is_terminating()).count();
            let web = self.web().await;
            let observed = web.at("/status/observedGeneration").and_then(Value::as_i64);
            let is_observed = observed == Some(web.generation());
            if is_observed && (pods.len() - terminating, terminating) == (live, going) {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{live} live and {going} going pods were expected: {pods:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Every live pod turns Ready.
    pub(super) async fn all_ready(&self) {
        for pod in self.pods().await {
            if !pod.is_terminating() {
                let ready = json!([{"type": "Ready", "status": "True"}]);
                self.says(pod, "conditions", ready).await;
            }
        }
    }

    /// Every live pod that has no word from its node yet crashes.
    pub(super) async fn others_crash(&self) {
        for pod in self.pods().await {
            if !pod.is_terminating() && pod.text_at("/status/phase") != "Running" {
                let crashed = json!([{
                    "name": "web", "image": "", "imageID": "", "ready": false, "restartCount": 3,
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                }]);
                self.says(pod, "containerStatuses", crashed).await;
            }
        }
    }

    /// A pod that runs, as its node tells of it.
    async fn says(&self, pod: Object, field: &str, value: Value) {
        let mut tree = pod.into_tree();
        tree["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("resourceVersion");
        tree["status"]["phase"] = "Running".into();
        tree["status"][field] = value;
        let pod = Object::from_value(tree).unwrap();
        let options = WriteOptions::default();
        let told = self.resources.update_status(&POD, &pod, &options);
        told.await.unwrap();
    }

    /// One of the pods that are being deleted is gone.
    pub(super) async fn one_gone(&self) {
        let pods = self.pods().await;
        let going = pods.iter().find(|pod| pod.is_terminating()).unwrap();
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            ..DeleteOptions::default()
        };
        let name = going.namespaced_name();
        self.resources.delete(&POD, &name, &options).await.unwrap();
    }

    /// A command to be run beside what the test does, and what it has printed so far.
    pub(super) fn start(&self, line: &str) -> (impl Future<Output = Ran> + use<>, Printed) {
        let kubeconfig = self.lab.kubeconfig().display().to_string();
        let mut words = vec!["muster".to_owned(), "--kubeconfig".to_owned(), kubeconfig];
        words.extend(line.split_whitespace().map(str::to_owned));
        let (console, out, err) = Console::captured();
        let printed = Printed(out.clone());
        let run = async move {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let ended = tokio::time::timeout(PATIENCE * 3, run_on(&words, console, &out, &err));
            ended.await.expect("it ends")
        };
        (run, printed)
    }
}

/// What a command that runs has printed.
pub(super) struct Printed(Captured);

impl Printed {
    /// Waits until the last it has printed is this.
    pub(super) async fn is(&self, text: &str) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !self.0.text().ends_with(text) {
            assert!(
                tokio::time::Instant::now() < deadline,
                "{text:?} was expected: {:?}",
                self.0.text()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
