//! label, annotate, taint, cordon, token.

use super::{Lab, WEB};

const NODE: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: pi-1}\n";

#[tokio::test(flavor = "multi_thread")]
async fn labels_and_annotations_are_told_in_kubectls_words() {
    let lab = Lab::start().await;
    let file = lab.file("web.yaml", WEB);
    lab.ok(&format!("apply -f {file}")).await;
    assert_eq!(
        lab.ok("label ds web tier=front").await,
        "daemonset.apps/web labeled\n"
    );
    assert_eq!(
        lab.ok("label ds web tier=front").await,
        "daemonset.apps/web not labeled\n"
    );
    let ran = lab.run("label ds web tier=back").await;
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (
            1,
            "error: 'tier' already has a value (front), and --overwrite is false\n"
        )
    );
    assert_eq!(
        lab.ok("label ds web tier=back --overwrite").await,
        "daemonset.apps/web labeled\n"
    );
    assert_eq!(
        lab.ok("label ds web tier-").await,
        "daemonset.apps/web unlabeled\n"
    );
    assert_eq!(
        lab.ok("annotate ds/web kubernetes.io/change-cause=test")
            .await,
        "daemonset.apps/web annotated\n"
    );
    let misspelt = lab.run("annotate ds/web muster.dev/partitoin=1").await;
    assert_eq!(misspelt.code, 0);
    assert!(
        misspelt.err.contains("write muster.dev/partition"),
        "{}",
        misspelt.err
    );
    assert_eq!(lab.ok("label ds web --list").await, "app=web\n");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_tainted_and_cordoned() {
    let lab = Lab::start().await;
    let file = lab.file("node.yaml", NODE);
    lab.ok(&format!("apply -f {file}")).await;
    assert_eq!(
        lab.ok("taint node pi-1 gpu=only:NoSchedule").await,
        "node/pi-1 tainted\n"
    );
    let ran = lab.run("taint node pi-1 gpu=other:NoSchedule").await;
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (
            1,
            "error: node pi-1 already has gpu taint(s) with same effect(s) and --overwrite is false\n"
        )
    );
    assert_eq!(
        lab.ok("taint node pi-1 gpu-").await,
        "node/pi-1 untainted\n"
    );
    assert_eq!(lab.ok("cordon pi-1").await, "node/pi-1 cordoned\n");
    assert_eq!(lab.ok("cordon pi-1").await, "node/pi-1 already cordoned\n");
    assert!(lab.ok("get nodes").await.contains(",SchedulingDisabled"));
    assert_eq!(lab.ok("uncordon pi-1").await, "node/pi-1 uncordoned\n");
    let text = lab.ok("describe node pi-1").await;
    assert!(text.contains("Unschedulable:      false"), "{text}");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_joins_a_node_until_it_is_deleted() {
    let lab = Lab::start().await;
    let ran = lab.run("token list").await;
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{}", ran.err);
    let text = lab.ok("token create").await;
    assert!(
        text.contains("  muster agent --server 127.0.0.1:") && text.contains(" --token muster1."),
        "{text}"
    );
    let token = lab.ok("token create --print=token").await;
    let id = token.trim().split('.').nth(1).unwrap().to_owned();
    assert!(lab.ok("token list").await.contains(&id));
    let address = lab.server.as_ref().unwrap().url.parse().unwrap();
    let options =
        muster_client::JoinOptions::new(address, token.trim(), "pi-1", "machine-1").unwrap();
    let credentials = muster_client::join(&options).await.unwrap();
    assert_eq!(
        muster_pki::identity::identity_of_pem(&credentials.cert_pem)
            .unwrap()
            .user,
        "system:node:pi-1"
    );
    assert_eq!(
        lab.ok(&format!("token delete {id}")).await,
        format!("token {id:?} deleted\n")
    );
    let error = muster_client::join(&options).await.unwrap_err();
    assert!(error.to_string().contains("muster token create"), "{error}");
    let ran = lab.run(&format!("token delete {id}")).await;
    assert!(
        ran.code == 1 && ran.err.contains("there is no token with the id"),
        "{}",
        ran.err
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_of_several_are_listed_by_name_and_a_missing_one_stops_no_other() {
    let lab = Lab::start().await;
    let (web, log) = (
        lab.file("web.yaml", WEB),
        lab.file("log.yaml", &WEB.replace("web", "log")),
    );
    lab.ok(&format!("apply -f {web} -f {log}")).await;
    let ran = lab.run("label ds nobody web tier=edge").await;
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (
            1,
            "daemonset.apps/web labeled\n",
            "Error from server (NotFound): daemonsets.apps \"nobody\" not found\n"
        )
    );
    assert_eq!(
        lab.ok("label ds --all --list").await,
        "Listing labels for DaemonSet.apps/log:\n app=log\n\
         Listing labels for DaemonSet.apps/web:\n app=web\n tier=edge\n"
    );
    for line in [
        "label ds --all -l app=web a=b",
        "taint node --all -l app=web a:NoSchedule",
    ] {
        let ran = lab.run(line).await;
        assert_eq!(
            (ran.code, ran.err.as_str()),
            (
                1,
                "error: cannot set --all and --selector at the same time\n"
            )
        );
    }
    lab.stop().await;
}
