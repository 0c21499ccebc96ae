//! Lists, pages and watches.

use muster_model::kind::{DAEMON_SET, POD};
use muster_model::object::Object;
use muster_proto::v1;
use muster_proto::v1::watch_event::Type;

use crate::support::{Cluster, daemon, failure, message, reference};

#[tokio::test]
async fn ds_109_lists_select_by_label_and_pages_show_one_revision() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    for name in ["a", "b", "c", "d", "e"] {
        admin.create(&DAEMON_SET, &daemon(name)).await.unwrap();
    }
    assert_eq!(
        admin
            .list(&DAEMON_SET, "", "app in (a,c)", "")
            .await
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        admin
            .list(&DAEMON_SET, "default", "", "metadata.name=b")
            .await
            .unwrap()[0]
            .name(),
        "b"
    );
    let page = |token: &str| v1::ListRequest {
        resource: reference(&DAEMON_SET, "default", ""),
        limit: 2,
        continue_token: token.to_owned(),
        ..v1::ListRequest::default()
    };
    let first = admin
        .resources
        .clone()
        .list(page(""))
        .await
        .unwrap()
        .into_inner();
    admin.delete(&DAEMON_SET, "default", "d").await.unwrap();
    admin.create(&DAEMON_SET, &daemon("bb")).await.unwrap();
    let second = admin
        .resources
        .clone()
        .list(page(&first.continue_token))
        .await
        .unwrap()
        .into_inner();
    let third = admin
        .resources
        .clone()
        .list(page(&second.continue_token))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(first.resource_version, third.resource_version);
    assert_eq!(third.continue_token, "");
    let names: Vec<String> = [&first, &second, &third]
        .iter()
        .flat_map(|page| &page.items)
        .map(|item| Object::from_bytes(item).unwrap().name().to_owned())
        .collect();
    assert_eq!(names, ["a", "b", "c", "d", "e"], "later writes do not show");
    let garbage = admin
        .resources
        .clone()
        .list(page("garbage"))
        .await
        .unwrap_err();
    assert_eq!(failure(&garbage)["code"], 400);
}

#[tokio::test]
async fn a_watch_shows_what_enters_and_leaves_its_selection() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    admin.create(&DAEMON_SET, &daemon("other")).await.unwrap();
    admin.create(&DAEMON_SET, &daemon("web")).await.unwrap();
    let mut watch = admin.watch(&DAEMON_SET, "app=web", "").await;
    let mut seen = Vec::new();
    let event = watch.message().await.unwrap().unwrap();
    let mut web = Object::from_bytes(&event.object).unwrap();
    seen.push((event.r#type(), web.name().to_owned()));
    web.set_label("app", "gone");
    let mut web = admin.update(&DAEMON_SET, &web).await.unwrap();
    let event = watch.message().await.unwrap().unwrap();
    assert_eq!(event.resource_version, web.resource_version());
    assert_eq!(
        Object::from_bytes(&event.object).unwrap().label("app"),
        Some("gone")
    );
    seen.push((event.r#type(), "web".into()));
    web.set_label("app", "web");
    admin.update(&DAEMON_SET, &web).await.unwrap();
    seen.push((
        watch.message().await.unwrap().unwrap().r#type(),
        "web".into(),
    ));
    admin.delete(&DAEMON_SET, "default", "web").await.unwrap();
    let event = watch.message().await.unwrap().unwrap();
    let last = Object::from_bytes(&event.object).unwrap();
    assert_eq!(last.resource_version(), event.resource_version);
    seen.push((event.r#type(), last.name().to_owned()));
    let web = || "web".to_owned();
    assert_eq!(
        seen,
        [
            (Type::Added, web()),
            (Type::Deleted, web()),
            (Type::Added, web()),
            (Type::Deleted, web())
        ]
    );
}

#[tokio::test]
async fn a_watch_from_the_past_is_too_old_and_one_from_the_future_times_out() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    let request = |revision: &str| v1::WatchRequest {
        resource: reference(&POD, "", ""),
        resource_version: revision.to_owned(),
        ..v1::WatchRequest::default()
    };
    let future = admin
        .resources
        .clone()
        .watch(request("999999999"))
        .await
        .unwrap_err();
    assert_eq!(failure(&future)["code"], 504);
    assert!(message(&future).starts_with("Too large resource version: 999999999, current: "));
    let bad = admin
        .resources
        .clone()
        .watch(request("x"))
        .await
        .unwrap_err();
    assert_eq!(failure(&bad)["code"], 400);
}
