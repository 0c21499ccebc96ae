//! set image, set env.

use super::{Lab, WEB};

const TWO: &str = "\
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: two
  labels: {app: two}
spec:
  selector: {matchLabels: {app: two}}
  template:
    metadata: {labels: {app: two}}
    spec:
      containers:
      - name: main
        image: nginx:1.27
        readinessProbe: {tcpSocket: {port: 80}}
        resources: {requests: {cpu: 1m, memory: 1Mi}}
        env:
        - {name: A, value: '1'}
        - {name: P, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
      - name: log
        image: log:1
        readinessProbe: {exec: {command: [check]}}
        resources: {requests: {cpu: 1m, memory: 1Mi}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {log.level: debug, COLOR: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: db}
stringData: {password: hidden}
";

const UPDATED: &str = "daemonset.apps/two env updated\n";

async fn lab() -> Lab {
    let lab = Lab::start().await;
    let (web, two) = (lab.file("web.yaml", WEB), lab.file("two.yaml", TWO));
    lab.ok(&format!("apply -f {web} -f {two}")).await;
    lab
}

/// The images of the containers of `two`.
async fn images(lab: &Lab) -> String {
    lab.ok("get ds/two -o jsonpath={.spec.template.spec.containers[*].image}")
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_set_by_container_in_kubectls_words() {
    let lab = lab().await;
    assert_eq!(
        lab.ok("set image ds/web web=nginx:1.28").await,
        "daemonset.apps/web image updated\n"
    );
    assert_eq!(lab.ok("set image ds/web web=nginx:1.28").await, "");
    assert_eq!(
        lab.ok(
            "get ds/web -o jsonpath={.spec.template.spec.containers[0].image}{.metadata.generation}"
        )
        .await,
        "nginx:1.282"
    );
    let ran = lab.run("set image ds/two main=nginx:2 x=y").await;
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (
            1,
            "daemonset.apps/two image updated\n",
            "error: unable to find container named \"x\"\n"
        )
    );
    assert_eq!(images(&lab).await, "nginx:2 log:1");
    assert_eq!(
        lab.ok("set image ds two *=all:1 --dry-run=server").await,
        "daemonset.apps/two image updated (server dry run)\n"
    );
    assert_eq!(
        lab.ok("set image ds two *=all:1 --dry-run=client -o jsonpath={.spec.template.spec.containers[1].image}")
            .await,
        "all:1"
    );
    assert_eq!(images(&lab).await, "nginx:2 log:1");
    assert_eq!(
        lab.ok("set image ds --all *=all:1").await,
        "daemonset.apps/two image updated\ndaemonset.apps/web image updated\n"
    );
    assert_eq!(images(&lab).await, "all:1 all:1");
    assert_eq!(
        lab.ok("set image ds -l app=web web=img:3 -o name").await,
        "daemonset.apps/web\n"
    );
    let file = lab.folder.path().join("web.yaml").display().to_string();
    assert_eq!(
        lab.ok(&format!("set image -f {file} web=img:4")).await,
        "daemonset.apps/web image updated\n"
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_be_set_says_why() {
    let lab = lab().await;
    for (line, text) in [
        (
            "set image ds/web",
            "error: at least one image update is required\n",
        ),
        (
            "set image ds/web x=img:2",
            "error: unable to find container named \"x\"\n",
        ),
        (
            "set image ds/web web=a *=b",
            "error: all containers are already specified by *, but saw more than one \
             container_name=container_image pairs\n",
        ),
        (
            "set image ds/web web=a ds/two",
            "error: all resources must be specified before image changes: ds/two\n",
        ),
        (
            "set image ds web=a",
            "error: resource(s) were provided, but no name was specified\n",
        ),
        (
            "set image ds --all -l app=web web=a",
            "error: cannot set --all and --selector at the same time\n",
        ),
        (
            "set image cm/settings web=a",
            "error: configmaps/settings the object is not a pod or does not have a pod template: *v1.ConfigMap\n",
        ),
        (
            "set image ds/nobody web=a",
            "Error from server (NotFound): daemonsets.apps \"nobody\" not found\n",
        ),
        (
            "set image ds/web web=",
            "The DaemonSet \"web\" is invalid: spec.template.spec.containers[0].image: Required value\n",
        ),
    ] {
        let ran = lab.run(line).await;
        assert_eq!((ran.code, ran.err.as_str()), (1, text), "{line}");
    }
    assert_eq!(
        lab.ok("get ds/web -o jsonpath={.metadata.generation}")
            .await,
        "1"
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_are_set_removed_and_listed() {
    let lab = lab().await;
    assert_eq!(lab.ok("set env ds/two -c m* B=2 A- P=3").await, UPDATED);
    assert_eq!(
        lab.ok("set env ds/two --list").await,
        "# DaemonSet two, container main\nP=3\nB=2\n# DaemonSet two, container log\n"
    );
    assert_eq!(lab.ok("set env ds/two B=2 -c main").await, "");
    assert_eq!(lab.ok("set env ds/two Z-").await, "");
    assert_eq!(
        lab.ok("set env ds/two C=x=y --overwrite=false").await,
        UPDATED
    );
    assert_eq!(
        lab.ok("set env ds/two D=4 --list -c log,main").await,
        "# DaemonSet two, container main\nP=3\nB=2\nC=x=y\nD=4\n# DaemonSet two, container log\nC=x=y\nD=4\n"
    );
    assert_eq!(
        lab.ok("get ds/two -o jsonpath={.metadata.generation}")
            .await,
        "3"
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_come_from_config_maps_and_secrets() {
    let lab = lab().await;
    let ran = lab
        .run("set env ds/two -c log --from=configmap/settings")
        .await;
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (
            0,
            UPDATED,
            "Warning: key log.level transferred to LOG_LEVEL\n"
        )
    );
    let line = "set env ds/two -c log --from=secret/db --keys=password --prefix=DB_";
    assert_eq!(lab.ok(line).await, UPDATED);
    assert_eq!(
        lab.ok("set env ds/two -c log --list").await,
        "# DaemonSet two, container log\n# COLOR from configmap settings, key COLOR\n\
         # LOG_LEVEL from configmap settings, key log.level\n# DB_PASSWORD from secret db, key password\n"
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_that_cannot_be_set_say_why() {
    let lab = lab().await;
    for (line, text) in [
        (
            "set env ds/two",
            "at least one environment variable must be provided: KEY=VALUE, KEY- or --from",
        ),
        (
            "set env ds/two B=1 B-",
            "can not both modify and remove the same environment variable in the same command",
        ),
        (
            "set env ds/two A=9 --overwrite=false",
            "daemonsets/two 'A' already has a value (1), and --overwrite is false",
        ),
        (
            "set env ds/two --list -o yaml",
            "--list and --output may not be specified together",
        ),
        (
            "set env ds/two --keys=a",
            "when specifying --keys, a configmap or secret must be provided with --from",
        ),
        (
            "set env ds/two --from=cm/settings --keys=nothing",
            "configmap/settings has no key \"nothing\"",
        ),
        (
            "set env ds/two B=1 ds/web",
            "all resources must be specified before environment changes: ds/web",
        ),
    ] {
        let ran = lab.run(line).await;
        assert_eq!(
            (ran.code, ran.err.as_str()),
            (1, format!("error: {text}\n").as_str()),
            "{line}"
        );
    }
    let ran = lab.run("set env ds/two --from=pod/x").await;
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("unsupported resource specified in --from"));
    let ran = lab.run("set env ds/two -c nobody B=1").await;
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (
            0,
            "",
            "Warning: DaemonSet/two does not have any containers matching \"nobody\"\n"
        )
    );
    lab.stop().await;
}
