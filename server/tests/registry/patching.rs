//! The three forms of a patch (spec/kube-api.md 9).

use muster_model::kind::DAEMON_SET;
use muster_model::object::Object;
use muster_proto::v1::PatchType;
use serde_json::{Value, json};

use crate::support::{Api, Cluster, daemon, failure, reference};

/// A DaemonSet `web` with a variable, a toleration, a node selector and a second container.
async fn rich(admin: &Api) -> Object {
    let mut web = daemon("web");
    let spec = &mut web["spec"]["template"]["spec"];
    spec["nodeSelector"] = json!({"disk": "ssd"});
    spec["tolerations"] =
        json!([{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]);
    spec["containers"][0]["env"] = json!([{"name": "A", "value": "1"}]);
    let side = json!({"name": "side", "image": "side:1"});
    spec["containers"].as_array_mut().unwrap().push(side);
    admin.create(&DAEMON_SET, &web).await.unwrap()
}

async fn patch(admin: &Api, form: PatchType, patch: Value) -> Result<Object, tonic::Status> {
    let web = reference(&DAEMON_SET, "default", "web");
    admin.patch(web, form, &patch).await
}

/// The containers, each as `NAME IMAGE` and the names of its variables.
fn containers(web: &Object) -> Vec<String> {
    let list = web.at("/spec/template/spec/containers").unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let describe = |container: &Value| {
        let mut words = vec![text(&container["name"]), text(&container["image"])];
        let variables = container["env"].as_array().into_iter().flatten();
        words.extend(variables.map(|variable| text(&variable["name"])));
        words.join(" ")
    };
    list.as_array().unwrap().iter().map(describe).collect()
}

fn toleration_keys(web: &Object) -> Vec<&str> {
    let list = web.at("/spec/template/spec/tolerations");
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.map(|toleration| toleration["key"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn ds_113_a_json_patch_changes_what_its_paths_name() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    rich(&admin).await;
    let image = "/spec/template/spec/containers/0/image";
    let operations = json!([
        {"op": "test", "path": image, "value": "img:1"},
        {"op": "replace", "path": image, "value": "img:2"},
        {"op": "add", "path": "/spec/template/spec/tolerations/-", "value": {"key": "c", "operator": "Exists"}},
        {"op": "remove", "path": "/spec/template/spec/nodeSelector"},
    ]);
    let web = patch(&admin, PatchType::Json, operations.clone())
        .await
        .unwrap();
    assert_eq!(containers(&web), ["web img:2 A", "side side:1"]);
    assert_eq!(toleration_keys(&web), ["a", "b", "c"]);
    assert_eq!(web.at("/spec/template/spec/nodeSelector"), None);
    assert_eq!(web.generation(), 2);
    // The test does not hold any more: nothing of the patch is done.
    let refused = patch(&admin, PatchType::Json, operations)
        .await
        .unwrap_err();
    assert_eq!(failure(&refused)["code"], 422);
    let same = admin.get(&DAEMON_SET, "default", "web").await.unwrap();
    assert_eq!(same.resource_version(), web.resource_version());
}

#[tokio::test]
async fn ds_113_a_merge_patch_replaces_lists_and_removes_nulls() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    rich(&admin).await;
    let spec = json!({"containers": [{"name": "web", "image": "img:3"}], "nodeSelector": null});
    let change =
        json!({"spec": {"template": {"spec": spec}}, "metadata": {"labels": {"tier": "edge"}}});
    let web = patch(&admin, PatchType::Merge, change).await.unwrap();
    assert_eq!(containers(&web), ["web img:3"]);
    assert_eq!(web.at("/spec/template/spec/nodeSelector"), None);
    assert_eq!(toleration_keys(&web), ["a", "b"]);
    assert_eq!(
        (web.label("app"), web.label("tier")),
        (Some("web"), Some("edge"))
    );
    assert_eq!(web.generation(), 2);
}

#[tokio::test]
async fn ds_113_a_strategic_merge_patch_merges_containers_by_name_and_replaces_tolerations() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    rich(&admin).await;
    let spec = json!({
        "containers": [
            {"name": "web", "image": "img:2", "env": [{"name": "B", "value": "2"}]},
            {"name": "side", "$patch": "delete"},
            {"name": "new", "image": "new:1"},
        ],
        "tolerations": [{"key": "c", "operator": "Exists"}],
    });
    let change = json!({"spec": {"template": {"spec": spec}}});
    let web = patch(&admin, PatchType::Strategic, change).await.unwrap();
    let mut found = containers(&web);
    found.sort();
    assert_eq!(found, ["new new:1", "web img:2 B A"]);
    assert_eq!(toleration_keys(&web), ["c"]);
    assert_eq!(
        web.at("/spec/template/spec/nodeSelector"),
        Some(&json!({"disk": "ssd"}))
    );
    assert_eq!(web.generation(), 2);
}

/// The form in which revisions are kept and undone: the whole template goes, and this comes.
#[tokio::test]
async fn ds_113_patch_replace_puts_a_whole_template_in_place_of_another() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    rich(&admin).await;
    let template = json!({
        "$patch": "replace",
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "other", "image": "img:9"}]},
    });
    let change = json!({"spec": {"template": template}});
    let web = patch(&admin, PatchType::Strategic, change.clone())
        .await
        .unwrap();
    assert_eq!(containers(&web), ["other img:9"]);
    assert_eq!(toleration_keys(&web), Vec::<&str>::new());
    assert_eq!(web.at("/spec/template/spec/nodeSelector"), None);
    assert_eq!(web.at("/spec/template/$patch"), None);
    assert_eq!(web.generation(), 2);
    let again = patch(&admin, PatchType::Strategic, change).await.unwrap();
    assert_eq!(again.resource_version(), web.resource_version());
}
