//! The client's reflector against a real server.

use std::time::Duration;

use muster_client::context::resolve;
use muster_client::{ContextFlags, Environment, ListOptions, Reflector};
use muster_model::kind::DAEMON_SET;
use muster_model::object::NamespacedName;
use tokio_util::sync::CancellationToken;

use super::{Lab, WEB};

#[tokio::test(flavor = "multi_thread")]
async fn a_reflector_lists_then_follows_every_change() {
    let lab = Lab::start().await;
    let file = lab.file("web.yaml", WEB);
    lab.ok(&format!("apply -f {file}")).await;
    let flags = ContextFlags {
        kubeconfig: Some(lab.kubeconfig()),
        ..ContextFlags::default()
    };
    let connection = resolve(&flags, &Environment::default())
        .unwrap()
        .connect()
        .await
        .unwrap();
    let (reflector, cache) = Reflector::new(
        connection.resources(),
        &DAEMON_SET,
        "",
        ListOptions::default(),
        1,
    );
    let stop = CancellationToken::new();
    let running = reflector.run(stop.clone());
    let name = NamespacedName::new("default", "web");
    let watching = async {
        assert!(cache.wait_synced().await);
        assert_eq!(cache.get(&name).unwrap().name(), "web");
        lab.ok("label ds web seen=yes").await;
        assert!(
            cache
                .wait_until(|all| all
                    .get(&name)
                    .is_some_and(|web| web.label("seen") == Some("yes")))
                .await
        );
        lab.ok("delete ds web").await;
        assert!(cache.wait_until(std::collections::BTreeMap::is_empty).await);
        stop.cancel();
    };
    tokio::time::timeout(Duration::from_secs(30), async {
        tokio::join!(running, watching)
    })
    .await
    .unwrap();
    assert!(
        !cache.wait_until(|all| !all.is_empty()).await,
        "a reflector that has ended says so"
    );
    lab.stop().await;
}
