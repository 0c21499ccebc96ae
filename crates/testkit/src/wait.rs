//! Waiting for a cluster to get somewhere, and saying where it is when it never does.

use std::fmt::Write;
use std::time::Duration;

use muster_client::ListOptions;
use muster_model::kind::{DAEMON_SET, EVENT, NODE, POD};
use muster_model::object::Object;
use muster_proto::v1::{CoverageRequest, CoverageRow, DaemonSetRef};
use serde_json::Value;
use tokio::time::Instant;

use crate::cluster::Cluster;

/// How long things may take on a busy machine before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(15);

impl Cluster {
    /// Looks again and again until `look` answers something.
    ///
    /// # Panics
    /// When it has not after `within`: with what was waited for and what the cluster looks like.
    pub async fn eventually<T, F, Fut>(&self, what: &str, within: Duration, mut look: F) -> T
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Option<T>>,
    {
        let give_up = Instant::now() + within;
        loop {
            if let Some(found) = look().await {
                return found;
            }
            if Instant::now() >= give_up {
                let report = self.report().await;
                panic!("waited {within:?} in vain: {what}\n{report}");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// As [`Cluster::eventually`], for a condition that needs no waiting of its own.
    ///
    /// # Panics
    /// When it does not hold within [`PATIENCE`].
    pub async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        self.eventually(what, PATIENCE, || {
            let held = holds().then_some(());
            async move { held }
        })
        .await;
    }

    /// The objects of a kind as the server has them. Empty while it is stopped.
    pub fn objects(&self, kind: &'static muster_model::kind::Kind) -> Vec<Object> {
        if !self.has_server() {
            return Vec::new();
        }
        let listed = self.registry().cache().list(kind).items;
        listed
            .iter()
            .map(|stored| (**stored.object()).clone())
            .collect()
    }

    /// One object as the server has it; namespace `default` unless `NAMESPACE/NAME`.
    pub fn object(&self, kind: &'static muster_model::kind::Kind, name: &str) -> Option<Object> {
        let (namespace, name) = match name.split_once('/') {
            Some(pair) => pair,
            None if kind.namespaced => ("default", name),
            None => ("", name),
        };
        let key = muster_model::object::NamespacedName::new(namespace, name);
        let stored = self.registry().cache().get(kind, &key)?;
        Some((**stored.object()).clone())
    }

    /// The pods of a DaemonSet (namespace `default` unless `NAMESPACE/NAME`), also those that go.
    pub fn pods_of(&self, daemon_set: &str) -> Vec<Object> {
        let Some(owner) = self.object(&DAEMON_SET, daemon_set) else {
            return Vec::new();
        };
        let mut pods = self.objects(&POD);
        pods.retain(|pod| {
            pod.controller()
                .is_some_and(|controller| controller.uid == owner.uid())
        });
        pods
    }

    /// The nodes on which a DaemonSet has a pod that is Ready and does not go, in order.
    pub fn ready_on(&self, daemon_set: &str) -> Vec<String> {
        let mut nodes: Vec<String> = self
            .pods_of(daemon_set)
            .iter()
            .filter(|pod| is_ready(pod) && !pod.is_terminating())
            .map(|pod| pod.text_at("/spec/nodeName").to_owned())
            .collect();
        nodes.sort();
        nodes
    }

    /// Waits until a DaemonSet is complete with so many nodes: all of its pods there, current, ready and reported.
    pub async fn until_ready(&self, daemon_set: &str, nodes: i64) {
        let what = format!("DaemonSet {daemon_set} is complete on {nodes} nodes");
        self.until(&what, || self.is_complete(daemon_set, nodes))
            .await;
    }

    /// Whether a DaemonSet is complete with so many nodes.
    pub fn is_complete(&self, daemon_set: &str, nodes: i64) -> bool {
        let Some(object) = self.object(&DAEMON_SET, daemon_set) else {
            return false;
        };
        let number = |field: &str| {
            let status = object.at("/status").and_then(|status| status.get(field));
            status.and_then(Value::as_i64).unwrap_or(0)
        };
        let all = [
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "updatedNumberScheduled",
            "numberReady",
            "numberAvailable",
        ];
        number("observedGeneration") == object.generation()
            && all.iter().all(|field| number(field) == nodes)
            && number("numberMisscheduled") == 0
            && self.pods_of(daemon_set).len() == usize::try_from(nodes).unwrap_or(usize::MAX)
    }

    /// Waits until every added node is registered and Ready.
    pub async fn until_nodes_ready(&self) {
        let names = self.node_names();
        self.until("every node is Ready", || {
            names
                .iter()
                .all(|name| self.object(&NODE, name).is_some_and(|node| is_ready(&node)))
        })
        .await;
    }

    /// The verdicts of a DaemonSet, over the wire; `NAMESPACE/NAME`, or a name in `default`.
    pub async fn coverage(&self, daemon_set: &str) -> anyhow::Result<Vec<CoverageRow>> {
        let (namespace, name) = daemon_set
            .split_once('/')
            .unwrap_or(("default", daemon_set));
        self.verdicts(Some(DaemonSetRef {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }))
        .await
    }

    async fn verdicts(&self, daemonset: Option<DaemonSetRef>) -> anyhow::Result<Vec<CoverageRow>> {
        let request = self.admin().request(CoverageRequest {
            daemonset,
            ..CoverageRequest::default()
        });
        let reply = self.admin().daemonsets().coverage(request).await;
        Ok(reply
            .map_err(|status| self.admin().fault(&status))?
            .into_inner()
            .rows)
    }

    /// What the cluster looks like: nodes, DaemonSets, pods, verdicts, containers, the last events.
    pub async fn report(&self) -> String {
        let mut text = String::new();
        let mut line = |line: String| {
            let _ = writeln!(text, "{line}");
        };
        for container in self.engine().all_containers() {
            line(format!(
                "  container {} {:?}",
                container.name, container.state
            ));
        }
        if !self.has_server() {
            line("  (the server is stopped)".to_owned());
            return text;
        }
        for node in self.objects(&NODE) {
            line(format!(
                "  node {} ready={} unschedulable={} taints={}",
                node.name(),
                is_ready(&node),
                node.at("/spec/unschedulable").unwrap_or(&Value::Null),
                node.at("/spec/taints").unwrap_or(&Value::Null),
            ));
        }
        for set in self.objects(&DAEMON_SET) {
            line(format!(
                "  daemonset {}/{} generation={} status={}",
                set.namespace(),
                set.name(),
                set.generation(),
                set.at("/status").unwrap_or(&Value::Null)
            ));
        }
        for pod in self.objects(&POD) {
            line(format!(
                "  pod {}/{} on {} phase={} ready={} going={} {}",
                pod.namespace(),
                pod.name(),
                pod.text_at("/spec/nodeName"),
                pod.text_at("/status/phase"),
                is_ready(&pod),
                pod.deletion_timestamp().unwrap_or("no"),
                pod.at("/status/containerStatuses/0/state")
                    .unwrap_or(&Value::Null),
            ));
        }
        let asked = tokio::time::timeout(Duration::from_secs(5), self.verdicts(None)).await;
        match asked {
            Ok(Ok(rows)) => rows.iter().for_each(|row| {
                line(format!(
                    "  verdict {} on {}: {} ({})",
                    row.daemonset.as_ref().map_or("?", |set| set.name.as_str()),
                    row.node,
                    row.rule,
                    row.why
                ));
            }),
            Ok(Err(error)) => line(format!("  verdicts: {error}")),
            Err(_) => line("  verdicts: no answer within 5 s".to_owned()),
        }
        let events = self.objects(&EVENT);
        for event in events.iter().rev().take(30) {
            line(format!(
                "  event {} {} {}: {}",
                event.text_at("/type"),
                event.text_at("/reason"),
                event.text_at("/involvedObject/name"),
                event.text_at("/message"),
            ));
        }
        text
    }

    /// Every object of a kind, over the wire.
    pub async fn list(
        &self,
        kind: &'static muster_model::kind::Kind,
    ) -> anyhow::Result<Vec<Object>> {
        let listed = self
            .resources()
            .list(kind, "", &ListOptions::default())
            .await?;
        Ok(listed.items)
    }
}

/// Whether a pod's or node's Ready condition is True.
pub fn is_ready(object: &Object) -> bool {
    condition(object, "Ready") == "True"
}

/// The status of a condition; empty when there is none.
pub fn condition<'a>(object: &'a Object, type_: &str) -> &'a str {
    let found = object
        .at("/status/conditions")
        .and_then(Value::as_array)
        .and_then(|all| all.iter().find(|condition| condition["type"] == type_));
    found
        .and_then(|condition| condition["status"].as_str())
        .unwrap_or_default()
}
