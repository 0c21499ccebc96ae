//! What a first start makes.

use muster_model::kind::{NAMESPACE, PRIORITY_CLASS, SERVICE_ACCOUNT};
use serde_json::json;

use crate::support::{Cluster, message};

#[tokio::test]
async fn a_first_start_makes_the_namespaces_and_their_service_accounts() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = admin.get(&NAMESPACE, "", name).await.unwrap();
        assert_eq!(namespace.text_at("/status/phase"), "Active");
        assert_eq!(
            namespace.at("/spec/finalizers"),
            Some(&json!(["kubernetes"]))
        );
        assert_eq!(namespace.label("kubernetes.io/metadata.name"), Some(name));
        let account = admin.get(&SERVICE_ACCOUNT, name, "default").await.unwrap();
        assert!(!account.uid().is_empty());
    }
}

#[tokio::test]
async fn a_first_start_makes_the_systems_priority_classes_which_stay() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    for (name, value) in [
        ("system-node-critical", 2_000_001_000),
        ("system-cluster-critical", 2_000_000_000),
    ] {
        let class = admin.get(&PRIORITY_CLASS, "", name).await.unwrap();
        assert_eq!(class.at("/value"), Some(&json!(value)));
        let refused = admin.delete(&PRIORITY_CLASS, "", name).await.unwrap_err();
        assert_eq!(
            message(&refused),
            format!(
                "priorityclasses.scheduling.k8s.io \"{name}\" is forbidden: this is a system priority class and cannot be deleted"
            )
        );
    }
}
