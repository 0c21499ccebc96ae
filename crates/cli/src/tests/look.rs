//! get, describe, events, explain, version.

use std::time::Duration;

use super::{Lab, WEB};

#[tokio::test(flavor = "multi_thread")]
async fn get_shows_tables_lists_and_names() {
    let lab = Lab::start().await;
    let ran = lab.run("get ds").await;
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (0, "No resources found in default namespace.\n")
    );
    let ran = lab.run("get ds -A").await;
    assert_eq!((ran.code, ran.err.as_str()), (0, "No resources found\n"));
    let file = lab.file("web.yaml", WEB);
    lab.ok(&format!("apply -f {file}")).await;
    let table = lab.ok("get ds").await;
    assert!(
        table.starts_with("NAME   DESIRED   CURRENT   READY   UP-TO-DATE   AVAILABLE   NODE SELECTOR   AGE\nweb    0         0         0       0            0           <none>          "),
        "{table}"
    );
    assert!(
        lab.ok("get ds -A")
            .await
            .starts_with("NAMESPACE   NAME   DESIRED")
    );
    assert!(
        lab.ok("get ds -o wide")
            .await
            .contains("nginx:1.27   app=web")
    );
    assert_eq!(lab.ok("get ds -o name").await, "daemonset.apps/web\n");
    assert!(lab.ok("get ds --no-headers").await.starts_with("web "));
    assert!(lab.ok("get ds --show-labels").await.contains("app=web"));
    assert!(
        lab.ok("get ns,ds")
            .await
            .contains("\n\nNAME                 DESIRED")
    );
    assert_eq!(lab.ok("get ds -l app=other -o name").await, "");
    let yaml = lab.ok("get ds web -o yaml").await;
    assert!(
        yaml.starts_with("apiVersion: apps/v1\nkind: DaemonSet\nmetadata:\n"),
        "{yaml}"
    );
    assert!(
        lab.ok("get ds -o json")
            .await
            .contains("\"kind\": \"List\"")
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_missing_object_does_not_hide_the_others() {
    let lab = Lab::start().await;
    let ran = lab.run("get ns default nothing").await;
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("default   Active"), "{}", ran.out);
    assert_eq!(
        ran.err,
        "Error from server (NotFound): namespaces \"nothing\" not found\n"
    );
    let ran = lab.run("get nosuch").await;
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (
            1,
            "error: the server doesn't have a resource type \"nosuch\"\n"
        )
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_shows_changes_as_they_come() {
    let lab = Lab::start().await;
    let file = lab.file("web.yaml", WEB);
    lab.ok(&format!("apply -f {file}")).await;
    let kubeconfig = lab.kubeconfig().display().to_string();
    let (console, out, _) = crate::console::Console::captured();
    let cli = <crate::args::Cli as clap::Parser>::try_parse_from([
        "muster",
        "--kubeconfig",
        &kubeconfig,
        "get",
        "ds",
        "-w",
        "--show-labels",
    ])
    .unwrap();
    let mut session = crate::session::Session {
        console,
        flags: cli.global,
        environment: muster_client::Environment::default(),
        clock: muster_model::time::SystemClock::shared(),
    };
    let watching = Box::pin(crate::run(cli.command, &mut session));
    let changing = Box::pin(async {
        while !out.text().contains("app=web") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        lab.ok("label ds web seen=yes").await;
        while !out.text().contains("seen=yes") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    tokio::select! {
        outcome = watching => panic!("the watch ended: {outcome:?}"),
        done = tokio::time::timeout(Duration::from_secs(60), changing) => done.expect("the change was shown"),
    }
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn describe_explain_and_events_work_without_nodes() {
    let lab = Lab::start().await;
    let file = lab.file("web.yaml", WEB);
    lab.ok(&format!("apply -f {file}")).await;
    let text = lab.ok("describe ds/web").await;
    assert!(
        text.starts_with("Name:           web\nNamespace:      default\nSelector:       app=web\n"),
        "{text}"
    );
    assert!(text.contains("    Image:         nginx:1.27\n"), "{text}");
    assert!(
        lab.ok("describe ns default")
            .await
            .contains("Kind:         Namespace")
    );
    let ran = lab.run("explain ds/web").await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("There are no nodes yet"), "{}", ran.err);
    let ran = lab.run("explain ds/nothing").await;
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (
            1,
            "Error from server (NotFound): daemonsets.apps \"nothing\" not found\n"
        )
    );
    let ran = lab.run("events").await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = lab.run("logs ds/web").await;
    assert_eq!(ran.code, 1);
    assert!(
        ran.err
            .contains("has no pods: `muster explain ds/web` says why"),
        "{}",
        ran.err
    );
    lab.stop().await;
}
