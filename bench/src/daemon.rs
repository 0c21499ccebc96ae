//! The DaemonSet and the names that `scale` works with.

use anyhow::Context;
use muster_client::{Connection, DeleteOptions, ListOptions, PatchType, WriteOptions};
use muster_model::kind::DAEMON_SET;
use muster_model::object::{NamespacedName, Object};
use serde_json::json;

use crate::roles::INDEX;

/// The images that hollow nodes have.
pub(crate) const IMAGES: [&str; 2] = ["local/idle:v1", "local/idle:v2"];
const NAMESPACE: &str = "default";

/// The name of a hollow node.
pub(crate) fn node_name(index: usize) -> String {
    format!("hollow-{index:04}")
}

/// A DaemonSet under measurement.
pub(crate) struct Daemon {
    name: &'static str,
    connection: Connection,
    image: usize,
}

impl Daemon {
    /// Of this name; not applied yet.
    pub(crate) fn new(name: &'static str, connection: &Connection) -> Self {
        Self {
            name,
            connection: connection.clone(),
            image: 0,
        }
    }

    /// Selects it and its pods.
    pub(crate) fn selection(&self) -> ListOptions {
        ListOptions {
            label_selector: format!("app={}", self.name),
            ..ListOptions::default()
        }
    }

    /// Creates it: on every node, or only on the one of this index.
    pub(crate) async fn create(&mut self, only: Option<usize>) -> anyhow::Result<()> {
        let labels = json!({"app": self.name});
        let selector = only.map(|index| json!({INDEX: index.to_string()}));
        self.image = 0;
        let tree = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": self.name, "namespace": NAMESPACE, "labels": labels},
            "spec": {
                "selector": {"matchLabels": labels},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "nodeSelector": selector.unwrap_or_else(|| json!({})),
                        "terminationGracePeriodSeconds": 5,
                        "containers": [{
                            "name": "main",
                            "image": IMAGES[0],
                            "imagePullPolicy": "IfNotPresent",
                            "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
                        }],
                    },
                },
            },
        });
        let object = Object::from_value(tree)?;
        self.connection
            .resources()
            .create(&DAEMON_SET, &object, &WriteOptions::default())
            .await
            .context("cannot create the DaemonSet")?;
        Ok(())
    }

    /// Changes its image; answers the new generation.
    pub(crate) async fn update(&mut self) -> anyhow::Result<i64> {
        self.image = (self.image + 1) % IMAGES.len();
        let image = IMAGES[self.image];
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}});
        let written = self
            .connection
            .resources()
            .patch(
                &DAEMON_SET,
                &self.key(),
                PatchType::Strategic,
                patch.to_string().as_bytes(),
                &WriteOptions::default(),
            )
            .await
            .context("cannot change the DaemonSet's image")?;
        Ok(written.object.generation())
    }

    /// Deletes it and its pods.
    pub(crate) async fn delete(&self) -> anyhow::Result<()> {
        let options = DeleteOptions {
            propagation_policy: "Background".to_owned(),
            ..DeleteOptions::default()
        };
        self.connection
            .resources()
            .delete(&DAEMON_SET, &self.key(), &options)
            .await
            .context("cannot delete the DaemonSet")?;
        Ok(())
    }

    fn key(&self) -> NamespacedName {
        NamespacedName::new(NAMESPACE, self.name)
    }
}
