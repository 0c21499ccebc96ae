//! apply, diff, delete.

use super::{Lab, WEB};

#[tokio::test(flavor = "multi_thread")]
async fn apply_says_created_then_unchanged_then_configured() {
    let lab = Lab::start().await;
    let file = lab.file("web.yaml", WEB);
    assert_eq!(
        lab.ok(&format!("apply -f {file}")).await,
        "daemonset.apps/web created\n"
    );
    assert_eq!(
        lab.ok(&format!("apply -f {file}")).await,
        "daemonset.apps/web unchanged\n"
    );
    lab.file("web.yaml", &WEB.replace("1.27", "1.28"));
    assert_eq!(
        lab.ok(&format!("apply -f {file} --dry-run=server")).await,
        "daemonset.apps/web configured (server dry run)\n"
    );
    assert_eq!(
        lab.ok(&format!("apply -f {file} --dry-run=client")).await,
        "daemonset.apps/web configured (dry run)\n"
    );
    assert_eq!(
        lab.ok("get ds web -o jsonpath={.spec.template.spec.containers[0].image}")
            .await,
        "nginx:1.27"
    );
    assert_eq!(
        lab.ok(&format!("apply -f {file}")).await,
        "daemonset.apps/web configured\n"
    );
    assert_eq!(
        lab.ok("get ds web -o jsonpath={.spec.template.spec.containers[0].image}")
            .await,
        "nginx:1.28"
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_manifest_drops_goes_and_what_others_set_stays() {
    let lab = Lab::start().await;
    let with = WEB.replace(
        "image: nginx:1.27\n",
        "image: nginx:1.27\n        env: [{name: A, value: b}]\n",
    );
    let file = lab.file("web.yaml", &with);
    lab.ok(&format!("apply -f {file}")).await;
    lab.ok("label ds web other=kept").await;
    lab.file("web.yaml", WEB);
    assert_eq!(
        lab.ok(&format!("apply -f {file}")).await,
        "daemonset.apps/web configured\n"
    );
    assert_eq!(
        lab.ok("get ds web -o jsonpath={.spec.template.spec.containers[0].env}")
            .await,
        ""
    );
    assert_eq!(
        lab.ok("get ds web -o jsonpath={.metadata.labels.other}")
            .await,
        "kept"
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn diff_shows_what_would_change_and_says_so_by_its_exit_code() {
    let lab = Lab::start().await;
    let file = lab.file("web.yaml", WEB);
    let ran = lab.run(&format!("diff -f {file}")).await;
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(
        ran.out
            .contains("+++ applied/apps.v1.DaemonSet.default.web"),
        "{}",
        ran.out
    );
    lab.ok(&format!("apply -f {file}")).await;
    let ran = lab.run(&format!("diff -f {file}")).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{}", ran.err);
    lab.file("web.yaml", &WEB.replace("1.27", "1.28"));
    let ran = lab.run(&format!("diff -f {file}")).await;
    assert_eq!(ran.code, 1);
    assert!(
        ran.out
            .contains("-      - image: nginx:1.27\n+      - image: nginx:1.28\n"),
        "{}",
        ran.out
    );
    let ran = lab.run("diff -f /does/not/exist").await;
    assert_eq!(ran.code, 2);
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_namespace_is_an_error_with_a_way_out() {
    let lab = Lab::start().await;
    let file = lab.file("web.yaml", WEB);
    let ran = lab.run(&format!("apply -f {file} -n edge")).await;
    assert_eq!(ran.code, 1);
    assert!(
        ran.err
            .contains("namespaces \"edge\" not found (--create-namespace makes it)"),
        "{}",
        ran.err
    );
    // `rollout plan` makes nothing, and has no such flag.
    let ran = lab.run(&format!("rollout plan -f {file} -n edge")).await;
    let planning = format!("error when planning {file:?}: ");
    assert!(ran.err.contains(&planning), "{}", ran.err);
    assert!(!ran.err.contains("--create-namespace"), "{}", ran.err);
    assert_eq!(
        lab.ok(&format!("apply -f {file} -n edge --create-namespace"))
            .await,
        "namespace/edge created\ndaemonset.apps/web created\n"
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_object_does_not_stop_the_others() {
    let lab = Lab::start().await;
    let bad = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Bad_Name}\n---\n";
    let file = lab.file("two.yaml", &format!("{bad}{WEB}"));
    let ran = lab.run(&format!("apply -f {file}")).await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (1, "daemonset.apps/web created\n"),
        "{}",
        ran.err
    );
    assert!(
        ran.err
            .starts_with("The ConfigMap \"Bad_Name\" is invalid: metadata.name: Invalid value"),
        "{}",
        ran.err
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_waits_and_prints_as_kubectl_does() {
    let lab = Lab::start().await;
    let file = lab.file("web.yaml", WEB);
    lab.ok(&format!("apply -f {file}")).await;
    assert_eq!(
        lab.ok("delete ds web --dry-run=server").await,
        "daemonset.apps \"web\" deleted (server dry run)\n"
    );
    assert_eq!(
        lab.ok("delete ds/web").await,
        "daemonset.apps \"web\" deleted\n"
    );
    let ran = lab.run("delete ds web").await;
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (
            1,
            "Error from server (NotFound): daemonsets.apps \"web\" not found\n"
        )
    );
    assert_eq!(lab.ok("delete ds web --ignore-not-found").await, "");
    lab.ok(&format!("apply -f {file}")).await;
    assert_eq!(
        lab.ok(&format!("delete -f {file}")).await,
        "daemonset.apps \"web\" deleted\n"
    );
    lab.ok(&format!("apply -f {file}")).await;
    assert_eq!(
        lab.ok("delete ds -l app=web").await,
        "daemonset.apps \"web\" deleted\n"
    );
    let ran = lab.run("delete ds --all").await;
    assert_eq!((ran.code, ran.err.as_str()), (0, "No resources found\n"));
    lab.stop().await;
}
