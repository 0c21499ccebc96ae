//! What pods ask for arrives in their containers.

use muster_model::object::Object;
use muster_testkit::{Fleet, is_ready};
use serde_json::{Value, json};

use super::{IMAGE, log_with, pod, shell, status, wait_for_text};

/// A pod whose container runs a script, says `done` and stays.
fn script(name: &str, node: &str, script: &str, container: Value) -> Value {
    let mut main = container;
    main["command"] = shell(&format!("{script}; echo done; exec sleep 3600"));
    pod(name, node, &main)
}

#[tokio::test(flavor = "multi_thread")]
async fn na_039_040_041_requests_and_users() {
    let mut fleet = Fleet::start(&[IMAGE]).await.unwrap();
    fleet
        .add_agent("n1", &["--capacity", "memory=4Gi"])
        .await
        .unwrap();
    fleet.until_nodes_ready().await;
    let node = fleet.node("n1");

    let score = "cat /proc/self/oom_score_adj";
    let limits = json!({"cpu": "100m", "memory": "64Mi"});
    let resources = json!({"resources": {"requests": limits, "limits": limits}});
    fleet
        .apply(&script("guaranteed", &node, score, resources))
        .await;
    let resources = json!({"resources": {"requests": {"memory": "1Gi"}}});
    fleet
        .apply(&script("burstable", &node, score, resources))
        .await;
    let look = "id; stat -c '%g %a' /data; touch /data/new; stat -c %g /data/new";
    let mount = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let mut user = script("user", &node, look, mount);
    user["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    user["spec"]["securityContext"] =
        json!({"runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000});
    fleet.apply(&user).await;
    let mut root = script("root", &node, "id", json!({}));
    root["spec"]["securityContext"] = json!({"runAsNonRoot": true});
    fleet.apply(&root).await;

    let text = log_with(&fleet, "guaranteed", "done").await;
    // An engine without CAP_SYS_RESOURCE, such as one in a container, cannot go below its own score.
    let lowest = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    assert!(
        text == "-997\ndone\n" || text == format!("{}\ndone\n", lowest.trim()),
        "{text}"
    );
    let guaranteed = fleet.until_pod("guaranteed", is_ready).await;
    assert_eq!(guaranteed.text_at("/status/qosClass"), "Guaranteed");
    assert_eq!(log_with(&fleet, "burstable", "done").await, "750\ndone\n");
    let text = log_with(&fleet, "user", "done").await;
    let lines: Vec<_> = text.lines().collect();
    assert!(
        lines[0].starts_with("uid=1000 gid=3000") && lines[0].contains("2000"),
        "{text}"
    );
    assert!(lines[1].starts_with("2000 2"), "setgid: {text}");
    assert_eq!(lines[2], "2000", "{text}");
    let refused =
        |pod: &Object| status(pod, "/state/waiting/reason") == "CreateContainerConfigError";
    let root = fleet.until_pod("root", refused).await;
    assert_eq!(
        *status(&root, "/state/waiting/message"),
        format!(
            "container has runAsNonRoot and image will run as root (pod: \"root_default({})\", container: main)",
            root.uid()
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn na_047_048_names_of_hosts_and_servers() {
    let fleet = Fleet::with_nodes(&[IMAGE], &["n1"]).await.unwrap();
    let node = fleet.node("n1");
    let mut names = script("names", &node, "cat /etc/hosts", json!({}));
    names["spec"]["hostAliases"] = json!([{"ip": "10.1.1.1", "hostnames": ["a", "b"]}]);
    fleet.apply(&names).await;
    let mut dns = script("dns", &node, "cat /etc/resolv.conf", json!({}));
    dns["spec"]["dnsPolicy"] = "None".into();
    dns["spec"]["dnsConfig"] = json!({
        "nameservers": ["9.9.9.9"], "searches": ["x.y"], "options": [{"name": "ndots", "value": "2"}],
    });
    fleet.apply(&dns).await;
    let hosts = log_with(&fleet, "names", "done").await;
    assert!(hosts.contains("\n10.1.1.1\ta\tb\n"), "{hosts}");
    assert!(hosts.contains("HostAliases"), "{hosts}");
    assert_eq!(
        log_with(&fleet, "dns", "done").await,
        "nameserver 9.9.9.9\nsearch x.y\noptions ndots:2\ndone\n"
    );
}

fn config_map(a: &str, b: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": format!("{a}\n"), "b": format!("{b}\n")},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn na_057_058_a_config_map_arrives_and_changes_at_once() {
    let fleet = Fleet::with_nodes(&[IMAGE], &["n1"]).await.unwrap();
    let node = fleet.node("n1");
    fleet.apply(&config_map("1", "1")).await;
    // What one generation of the directory holds, whenever that is another than before.
    let script = "readlink /m/a; stat -L -c %a /m/a; while :; do now=$(readlink /m/..data); \
                  [ \"$now\" = \"$last\" ] || echo pair $(cat /m/$now/a /m/$now/b) $(cat /sub); last=$now; \
                  usleep 50000; done";
    let mounts = json!([
        {"name": "m", "mountPath": "/m"}, {"name": "m", "mountPath": "/sub", "subPath": "a"},
    ]);
    let reader = json!({"command": shell(script), "volumeMounts": mounts});
    let mut reader = pod("reader", &node, &reader);
    reader["spec"]["volumes"] = json!([{"name": "m", "configMap": {"name": "m"}}]);
    fleet.apply(&reader).await;
    for (name, optional) in [("strict", false), ("lenient", true)] {
        let mounts = json!({"volumeMounts": [{"name": "m", "mountPath": "/m"}]});
        let mut pod = pod(name, &node, &mounts);
        let items = json!([{"key": "nope", "path": "nope"}]);
        pod["spec"]["volumes"] = json!([
            {"name": "m", "configMap": {"name": "m", "items": items, "optional": optional}},
        ]);
        fleet.apply(&pod).await;
    }
    let text = log_with(&fleet, "reader", "pair 1 1 1").await;
    assert!(text.starts_with("..data/a\n644\n"), "{text}");
    fleet.apply(&config_map("2", "2")).await;
    let text = log_with(&fleet, "reader", "pair 2 2 1").await;
    assert!(
        !text.contains("pair 1 2") && !text.contains("pair 2 1"),
        "{text}"
    );
    fleet.until_pod("lenient", is_ready).await;
    fleet
        .eventually("the missing key is told", || async {
            let told = fleet.events("strict", "FailedMount").await;
            let part = "references non-existent config key: nope";
            told.iter().any(|text| text.contains(part)).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn na_059_secrets_keep_their_modes() {
    let fleet = Fleet::with_nodes(&[IMAGE], &["n1"]).await.unwrap();
    let node = fleet.node("n1");
    let data = json!({"key": "hush"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": data});
    fleet.apply(&secret).await;
    for (name, secret, group) in [
        ("plain", "s", None),
        ("grouped", "s", Some(2000)),
        ("missing", "x", None),
    ] {
        let mount = json!({"volumeMounts": [{"name": "s", "mountPath": "/s", "readOnly": true}]});
        let look = "stat -L -c %a /s/key; cat /s/key; echo";
        let mut pod = script(name, &node, look, mount);
        pod["spec"]["volumes"] =
            json!([{"name": "s", "secret": {"secretName": secret, "defaultMode": 0o400}}]);
        if let Some(group) = group {
            pod["spec"]["securityContext"] = json!({"fsGroup": group});
        }
        fleet.apply(&pod).await;
    }
    assert_eq!(log_with(&fleet, "plain", "done").await, "400\nhush\ndone\n");
    assert_eq!(
        log_with(&fleet, "grouped", "done").await,
        "440\nhush\ndone\n"
    );
    fleet
        .eventually("the missing secret is told", || async {
            let told = fleet.events("missing", "FailedMount").await;
            let words = "MountVolume.SetUp failed for volume \"s\" : secret \"x\" not found";
            told.iter().any(|text| text == words).then_some(())
        })
        .await;
    // Nowhere but in the container, and on disk only where the checkpoint keeps it.
    let secrets_shown = wait_for_text(&fleet, &["describe", "pod", "plain"], |text| {
        text.contains("plain")
    })
    .await;
    assert!(!secrets_shown.contains("hush"), "{secrets_shown}");
    assert!(!fleet.agent_log("n1").contains("hush"));
}
