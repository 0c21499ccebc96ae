//! rollout: history, undo, restart, pause, resume, promote.

use super::{Lab, Ran, WEB};

/// A lab whose DaemonSet `web` has its first revision, and `log` beside it.
async fn lab() -> Lab {
    let lab = Lab::start().await;
    let web = lab.file("web.yaml", WEB);
    let log = lab.file("log.yaml", &WEB.replace("web", "log"));
    lab.ok(&format!("apply -f {web} -f {log}")).await;
    lab.ok("rollout status ds/web ds/log").await;
    lab
}

/// The name of the newest revision of `web`.
async fn newest(lab: &Lab) -> String {
    let names = lab.ok("rollout history ds/web -o name").await;
    let last = names.lines().last().unwrap();
    last.split_once('/').unwrap().1.to_owned()
}

fn refused(ran: &Ran) -> &str {
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
    ran.err.trim_end()
}

async fn at(lab: &Lab, what: &str, path: &str) -> String {
    lab.ok(&format!("get {what} -o jsonpath={{{path}}}")).await
}

const PAUSED: &str = ".metadata.annotations.muster\\.dev/paused";
const FAILED: &str = ".metadata.annotations.muster\\.dev/failed";

#[tokio::test(flavor = "multi_thread")]
async fn rollout_speaks_kubectls_words() {
    let lab = lab().await;
    let ran = lab.run("rollout history ds/web --revision=-1").await;
    assert_eq!(
        refused(&ran),
        "error: revision must be a positive integer: -1"
    );
    for number in [9, -1] {
        let line = format!("rollout undo ds/web --to-revision={number}");
        assert_eq!(
            refused(&lab.run(&line).await),
            format!("error: unable to find specified revision {number} in history")
        );
    }
    assert_eq!(
        refused(&lab.run("rollout undo ds/web").await),
        "error: no last revision to roll back to"
    );
    assert_eq!(
        refused(&lab.run("rollout status ds/web --revision=2").await),
        "error: desired revision (2) is different from the running revision (1)"
    );
    assert_eq!(
        refused(&lab.run("rollout status ds/web --revision=-1").await),
        "error: revision must be a positive integer: -1"
    );
    assert_eq!(
        lab.ok("rollout history ds/web").await,
        "daemonset.apps/web \nREVISION  CHANGE-CAUSE\n1         <none>\n\n"
    );
    assert_eq!(
        lab.ok("rollout restart ds/web").await,
        "daemonset.apps/web restarted\n"
    );
    lab.ok("delete ds web").await;
    assert_eq!(
        refused(&lab.run("rollout status ds/web").await),
        "Error from server (NotFound): daemonsets.apps \"web\" not found"
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rollouts_of_several_are_restarted_by_name_by_label_and_by_file() {
    let lab = lab().await;
    let file = lab.folder.path().join("web.yaml").display().to_string();
    let both = "daemonset.apps/log restarted\ndaemonset.apps/web restarted\n";
    assert_eq!(lab.ok("rollout restart ds/log ds/web").await, both);
    let ran = lab.run("rollout restart ds -l app=nobody").await;
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (0, "", "No resources found in default namespace.\n")
    );
    let ran = lab.run("rollout pause ds/web ds/nobody ds/log").await;
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (
            1,
            "daemonset.apps/web paused\ndaemonset.apps/log paused\n",
            "Error from server (NotFound): daemonsets.apps \"nobody\" not found\n"
        )
    );
    assert_eq!(
        lab.ok("rollout resume ds").await,
        "daemonset.apps/log resumed\ndaemonset.apps/web resumed\n"
    );
    assert_eq!(
        lab.ok("rollout pause ds -l app=log -o name").await,
        "daemonset.apps/log\n"
    );
    assert_eq!(
        lab.ok(&format!("rollout pause -f {file}")).await,
        "daemonset.apps/web paused\n"
    );
    for (line, text) in [
        (
            "rollout pause",
            "required resource not specified: write ds/NAME, or -f FILE",
        ),
        (
            "rollout pause ds/web -l app=web",
            "selectors and the all flag cannot be used when passing resource/name arguments",
        ),
        (
            &format!("rollout pause ds/web -f {file}"),
            "resource/name arguments cannot be provided when a path is specified",
        ),
        (
            "rollout pause ns/default",
            "only DaemonSets have rollouts, not namespaces",
        ),
    ] {
        assert_eq!(refused(&lab.run(line).await), format!("error: {text}"));
    }
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_rollout_is_resumed_and_nothing_but_an_annotation_changes() {
    let lab = lab().await;
    let spec = at(&lab, "ds/web", ".spec").await;
    assert_eq!(
        refused(&lab.run("rollout resume ds/web").await),
        "error: daemonsets.apps \"web\" is not paused"
    );
    assert_eq!(
        lab.ok("rollout pause ds/web").await,
        "daemonset.apps/web paused\n"
    );
    assert_eq!(at(&lab, "ds/web", PAUSED).await, "true");
    assert_eq!(
        refused(&lab.run("rollout pause ds/web").await),
        "error: daemonsets.apps \"web\" is already paused"
    );
    assert_eq!(
        lab.ok("rollout resume ds/web").await,
        "daemonset.apps/web resumed\n"
    );
    assert_eq!(at(&lab, "ds/web", PAUSED).await, "");
    assert_eq!(at(&lab, "ds/web", ".metadata.generation").await, "1");
    assert_eq!(at(&lab, "ds/web", ".spec").await, spec);
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_rollout_is_shown_in_the_history_and_tried_again_by_resume() {
    let lab = lab().await;
    let revision = format!("controllerrevision/{}", newest(&lab).await);
    let why = "muster.dev/failed=2 nodes: the image cannot be pulled";
    let ran = lab.run_words(&["annotate", &revision, why]).await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(
        lab.ok("rollout history ds/web").await,
        "daemonset.apps/web \nREVISION  CHANGE-CAUSE  OUTCOME\n\
         1         <none>        failed: 2 nodes: the image cannot be pulled\n\n"
    );
    assert_eq!(
        lab.ok("rollout resume ds/web").await,
        "daemonset.apps/web resumed\n"
    );
    assert_eq!(at(&lab, &revision, FAILED).await, "");
    assert_eq!(
        refused(&lab.run("rollout resume ds/web").await),
        "error: daemonsets.apps \"web\" is not paused"
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_is_shown_before_it_is_done() {
    let lab = lab().await;
    lab.ok("set image ds/web web=nginx:1.28").await;
    lab.ok("rollout status ds/web").await;
    let image = ".spec.template.spec.containers[0].image";
    assert_eq!(
        lab.ok("rollout undo ds/web --dry-run=client").await,
        "daemonset.apps/web will roll back to Pod Template:\n  Labels:\tapp=web\n  Containers:\n   web:\n    \
         Image:\tnginx:1.27\n    Port:\t<none>\n    Host Port:\t<none>\n    Environment:\t<none>\n    \
         Mounts:\t<none>\n  Volumes:\t<none>\n  Node-Selectors:\t<none>\n  Tolerations:\t<none>\n (dry run)\n"
    );
    let line = format!("rollout undo ds/web --dry-run=client -o jsonpath={{{image}}}");
    assert_eq!(lab.ok(&line).await, "nginx:1.27");
    assert_eq!(
        lab.ok("rollout undo ds/web --dry-run=server").await,
        "daemonset.apps/web rolled back (server dry run)\n"
    );
    assert_eq!(at(&lab, "ds/web", image).await, "nginx:1.28");
    let ran = lab.run("rollout undo ds/web").await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, "daemonset.apps/web rolled back\n")
    );
    assert!(
        ran.err
            .starts_with("Warning: daemonset.apps/web was made by `apply`")
    );
    assert_eq!(at(&lab, "ds/web", image).await, "nginx:1.27");
    lab.stop().await;
}

/// Gives `web` this image and returns the name of its new revision.
async fn rolled(lab: &Lab, image: &str) -> String {
    lab.ok(&format!("set image ds/web web={image}")).await;
    lab.ok("rollout status ds/web").await;
    format!("controllerrevision/{}", newest(lab).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_that_is_shown_goes_back_to_the_same_revision_as_one_that_is_done() {
    let lab = lab().await;
    let image = ".spec.template.spec.containers[0].image";
    let failed = rolled(&lab, "nginx:1.28").await;
    rolled(&lab, "nginx:1.29").await;
    lab.ok(&format!("annotate {failed} muster.dev/failed=crash"))
        .await;
    for who in ["client", "server"] {
        let line = format!("rollout undo ds/web --dry-run={who} -o jsonpath={{{image}}}");
        assert_eq!(lab.ok(&line).await, "nginx:1.27", "{who}");
    }
    let first = lab.ok("rollout history ds/web -o name").await;
    let first = first.lines().next().unwrap();
    lab.ok(&format!("annotate {first} muster.dev/failed=crash"))
        .await;
    for more in ["", " --dry-run=client", " --dry-run=server"] {
        assert_eq!(
            refused(&lab.run(&format!("rollout undo ds/web{more}")).await),
            "error: the last revision, 2, failed: name the one to roll back to with --to-revision"
        );
    }
    lab.ok("rollout undo ds/web --to-revision=2").await;
    assert_eq!(at(&lab, "ds/web", image).await, "nginx:1.28");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selector_beside_files_chooses_among_what_they_name() {
    let lab = lab().await;
    let text = format!("{WEB}---\n{}", WEB.replace("web", "log"));
    let both = lab.file("both.yaml", &text);
    let log = format!("-f {both} -l app=log");
    for (line, said) in [
        ("rollout restart", "daemonset.apps/log restarted\n"),
        (
            "rollout undo --to-revision=1",
            "daemonset.apps/log rolled back\n",
        ),
        ("rollout pause", "daemonset.apps/log paused\n"),
        ("rollout resume", "daemonset.apps/log resumed\n"),
        (
            "set image *=nginx:1.30",
            "daemonset.apps/log image updated\n",
        ),
        ("set env A=1", "daemonset.apps/log env updated\n"),
        ("get -o name", "daemonset.apps/log\n"),
        (
            "delete --dry-run=client",
            "daemonset.apps \"log\" deleted (dry run)\n",
        ),
    ] {
        assert_eq!(lab.ok(&format!("{line} {log}")).await, said, "{line}");
    }
    let plan = lab.ok(&format!("rollout plan {log}")).await;
    assert!(plan.starts_with("daemonset.apps/log: "), "{plan}");
    assert!(!plan.contains("/web"), "{plan}");
    let none = format!("-f {both} -l app=nobody");
    for line in [
        "rollout restart",
        "rollout status",
        "rollout plan",
        "set image *=nginx:2",
        "get",
    ] {
        let ran = lab.run(&format!("{line} {none}")).await;
        assert_eq!(
            (ran.code, ran.out.as_str(), ran.err.as_str()),
            (0, "", "No resources found in default namespace.\n"),
            "{line}"
        );
    }
    let ran = lab.run(&format!("delete {none}")).await;
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (0, "", "No resources found\n")
    );
    for (line, why) in [
        (
            "delete -l app==,=",
            "the provided selector \"app==,=\" is not valid: ",
        ),
        (
            "delete --field-selector=metadata.name=log",
            "--field-selector cannot be used with -f: ",
        ),
        (
            "get --field-selector=metadata.name=log",
            "--field-selector cannot be used with -f: ",
        ),
    ] {
        let ran = lab.run(&format!("{line} -f {both}")).await;
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{line}");
        assert!(ran.err.starts_with(&format!("error: {why}")), "{}", ran.err);
    }
    let left = "daemonset.apps/log\ndaemonset.apps/web\n";
    assert_eq!(lab.ok("get ds -o name").await, left);
    lab.ok(&format!("delete {log}")).await;
    assert_eq!(lab.ok("get ds -o name").await, "daemonset.apps/web\n");
    lab.stop().await;
}
