//! Objects of tests, with as few words as possible.

use muster_model::object::Object;
use serde_json::{Value, json};

/// A manifest in the making.
#[derive(Debug, Clone)]
pub struct Manifest(Value);

/// A DaemonSet in `default` that selects `app: NAME` and runs one container `main` of image `img:1`.
pub fn daemon_set(name: &str) -> Manifest {
    Manifest(json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 2,
                    "containers": [{"name": "main", "image": "img:1"}],
                },
            },
        },
    }))
}

/// A pod in `default` on this node; an empty node name leaves it unbound.
pub fn pod(name: &str, node: &str) -> Manifest {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 2, "containers": [{"name": "main", "image": "img:1"}]},
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = node.into();
    }
    Manifest(pod)
}

/// A Node object without an agent, Ready or not.
pub fn node(name: &str, ready: bool) -> Manifest {
    let status = if ready { "True" } else { "False" };
    Manifest(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "status": {
            "conditions": [{"type": "Ready", "status": status, "reason": "Testkit"}],
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        },
    }))
}

impl Manifest {
    /// From JSON at hand.
    pub fn of(tree: Value) -> Self {
        Self(tree)
    }

    /// The object.
    ///
    /// # Panics
    /// When the tree is no mapping.
    pub fn object(&self) -> Object {
        match Object::from_value(self.0.clone()) {
            Ok(object) => object,
            Err(error) => panic!("a manifest of a test is no object: {error}"),
        }
    }

    /// The tree.
    pub fn tree(&self) -> &Value {
        &self.0
    }

    /// Sets the value at a JSON pointer; mappings on the way are made.
    #[must_use]
    pub fn set(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        set(&mut self.0, pointer, value.into());
        self
    }

    /// In this namespace.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Self {
        self.set("/metadata/namespace", namespace)
    }

    /// With this label on the object itself.
    #[must_use]
    pub fn label(self, key: &str, value: &str) -> Self {
        self.set(&format!("/metadata/labels/{}", escaped(key)), value)
    }

    /// With this annotation on the object itself.
    #[must_use]
    pub fn annotation(self, key: &str, value: &str) -> Self {
        self.set(&format!("/metadata/annotations/{}", escaped(key)), value)
    }

    /// With this image in the first container.
    #[must_use]
    pub fn image(mut self, image: &str) -> Self {
        self.pod_spec()["containers"][0]["image"] = image.into();
        self
    }

    /// With this variable in the first container.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        let container = &mut self.pod_spec()["containers"][0];
        push(&mut container["env"], json!({"name": name, "value": value}));
        self
    }

    /// With this toleration.
    #[must_use]
    pub fn toleration(mut self, toleration: Value) -> Self {
        push(&mut self.pod_spec()["tolerations"], toleration);
        self
    }

    /// Tolerating every taint.
    #[must_use]
    pub fn tolerate_all(self) -> Self {
        self.toleration(json!({"operator": "Exists"}))
    }

    /// Only where this label is.
    #[must_use]
    pub fn node_selector(mut self, key: &str, value: &str) -> Self {
        self.pod_spec()["nodeSelector"][key] = value.into();
        self
    }

    /// With this `maxUnavailable`.
    #[must_use]
    pub fn max_unavailable(self, value: impl Into<Value>) -> Self {
        self.set("/spec/updateStrategy/type", "RollingUpdate")
            .set("/spec/updateStrategy/rollingUpdate/maxUnavailable", value)
    }

    /// With this `maxSurge`, and no node unavailable.
    #[must_use]
    pub fn max_surge(self, value: impl Into<Value>) -> Self {
        self.max_unavailable(0)
            .set("/spec/updateStrategy/rollingUpdate/maxSurge", value)
    }

    /// Updated only where somebody deletes the pod.
    #[must_use]
    pub fn on_delete(self) -> Self {
        self.set("/spec/updateStrategy", json!({"type": "OnDelete"}))
    }

    fn pod_spec(&mut self) -> &mut Value {
        if self.0["spec"]["template"].is_null() {
            &mut self.0["spec"]
        } else {
            &mut self.0["spec"]["template"]["spec"]
        }
    }
}

fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    }
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Sets the value at a JSON pointer of an object; mappings on the way are made.
pub fn set(tree: &mut Value, pointer: &str, value: Value) {
    let mut place = tree;
    for word in pointer.split('/').skip(1) {
        let word = word.replace("~1", "/").replace("~0", "~");
        place = match word.parse::<usize>() {
            Ok(index) if place.is_array() => &mut place[index],
            _ => &mut place[word.as_str()],
        };
    }
    *place = value;
}

/// An object with the value at a JSON pointer changed.
pub fn changed(object: &Object, pointer: &str, value: impl Into<Value>) -> Object {
    let mut tree = object.clone().into_tree();
    set(&mut tree, pointer, value.into());
    Manifest(tree).object()
}
