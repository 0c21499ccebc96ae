//! A rollout that a person holds, lets go on, and promotes: what status says of it, and what the pods do.

use serde_json::{Value, json};

use super::WEB;
use super::stage::Stage;

const PROMOTED: &str =
    "get controllerrevision -o jsonpath={.items[*].metadata.annotations.muster\\.dev/promoted}";

fn updated(number: usize) -> String {
    format!(
        "Waiting for daemon set \"web\" rollout to finish: {number} out of 3 new pods have been updated...\n"
    )
}

/// Three nodes run `web`, with this annotation.
async fn running(annotation: &str) -> Stage {
    let stage = Stage::with_nodes(3).await;
    let annotated = format!("  annotations: {{{annotation}}}\nspec:");
    let file = stage
        .lab
        .file("web.yaml", &WEB.replacen("spec:", &annotated, 1));
    stage.lab.ok(&format!("apply -f {file}")).await;
    stage.until(3, 0).await;
    stage.all_ready().await;
    stage.lab.ok("rollout status ds/web").await;
    stage
}

async fn refusal(stage: &Stage, line: &str) -> String {
    let ran = stage.lab.run(line).await;
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{line}: {}", ran.err);
    ran.err
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_waits_until_it_is_promoted() {
    let stage = running("muster.dev/canary: '1'").await;
    let promote = "rollout promote ds/web";
    assert_eq!(
        refusal(&stage, promote).await,
        "error: daemonsets.apps \"web\" has nothing to promote: its rollout is complete\n"
    );
    stage.lab.ok("set image ds/web web=nginx:1.28").await;
    stage.until(2, 1).await;
    stage.one_gone().await;
    stage.until(3, 0).await;
    let hold =
        "wave 1 of 1 (1) is through; somebody has to let it go on (`muster rollout promote`)\n";
    let available =
        "Waiting for daemon set \"web\" rollout to finish: 2 of 3 updated pods are available...\n";
    let (status, printed) = stage.start("rollout status ds/web");
    let roll = async {
        printed.is(&updated(1)).await;
        stage.all_ready().await;
        printed.is(hold).await;
        let now = stage
            .lab
            .ok("rollout status ds/web --watch=false -o json")
            .await;
        let now: Value = serde_json::from_str(&now).unwrap();
        assert_eq!(
            (&now["wave"], &now["waves"], &now["hold"]),
            (&json!(1), &json!(1), &json!(hold.trim_end()))
        );
        let promoted = stage.lab.ok(promote).await;
        assert_eq!(promoted, "daemonset.apps/web promoted\n");
        assert_eq!(stage.lab.ok(PROMOTED).await, "1");
        for waits in [updated(2).as_str(), available] {
            stage.until(2, 1).await;
            assert_eq!(
                refusal(&stage, promote).await,
                "error: daemonsets.apps \"web\" has nothing to promote: its rollout has passed every wave\n"
            );
            stage.one_gone().await;
            printed.is(waits).await;
            stage.until(3, 0).await;
            stage.all_ready().await;
        }
    };
    let (ran, ()) = tokio::join!(status, roll);
    let lines = [
        updated(1),
        hold.to_owned(),
        updated(2),
        available.to_owned(),
        "daemon set \"web\" successfully rolled out\n".to_owned(),
    ];
    assert_eq!(
        (ran.code, ran.out, ran.err.as_str()),
        (0, lines.concat(), "")
    );
    stage.lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_promotion_passes_waves_that_are_still_to_come() {
    let stage = running("muster.dev/canary: '1', muster.dev/waves: '2'").await;
    stage.lab.ok("set image ds/web web=nginx:1.28").await;
    stage.until(2, 1).await;
    let promote = "rollout promote ds/web --full";
    assert_eq!(stage.lab.ok(promote).await, "daemonset.apps/web promoted\n");
    assert_eq!(stage.lab.ok(PROMOTED).await, "all");
    for _ in 0..2 {
        stage.one_gone().await;
        stage.until(3, 0).await;
        stage.all_ready().await;
        stage.until(2, 1).await;
    }
    stage.one_gone().await;
    stage.until(3, 0).await;
    stage.all_ready().await;
    stage.lab.ok("rollout status ds/web").await;
    stage.lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_rollout_replaces_nothing_and_says_so() {
    let stage = running("note: none").await;
    stage.lab.ok("rollout pause ds/web").await;
    stage.lab.ok("set image ds/web web=nginx:1.28").await;
    stage.until(3, 0).await;
    assert_eq!(
        stage.lab.ok("rollout status ds/web --watch=false").await,
        updated(0) + "the rollout is paused (`muster rollout resume`)\n"
    );
    stage.lab.ok("rollout resume ds/web").await;
    stage.until(2, 1).await;
    stage.lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_promoted_where_there_are_no_waves() {
    let stage = running("note: none").await;
    stage.lab.ok("set image ds/web web=nginx:1.28").await;
    stage.until(2, 1).await;
    for line in ["rollout promote ds/web", "rollout promote ds/web --full"] {
        assert_eq!(
            refusal(&stage, line).await,
            "error: daemonsets.apps \"web\" has nothing to promote: it has no canary and no waves \
             (annotations muster.dev/canary and muster.dev/waves)\n"
        );
    }
    assert_eq!(stage.lab.ok(PROMOTED).await, "");
    stage.lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_fails_on_its_last_node_ends_the_status_with_1() {
    let stage = running("muster.dev/on-failure: halt").await;
    stage.lab.ok("set image ds/web web=nginx:1.28").await;
    for _ in 0..2 {
        stage.until(2, 1).await;
        stage.one_gone().await;
        stage.until(3, 0).await;
        stage.all_ready().await;
    }
    stage.until(2, 1).await;
    stage.one_gone().await;
    stage.until(3, 0).await;
    let (status, printed) = stage.start("rollout status ds/web");
    let crash = async {
        printed.is("2 of 3 updated pods are available...\n").await;
        let look = stage.lab.run("rollout status ds/web --watch=false").await;
        assert_eq!(
            look.code, 0,
            "it has not failed yet: {}{}",
            look.out, look.err
        );
        stage.others_crash().await;
    };
    let (ran, ()) = tokio::join!(status, crash);
    let failed =
        "error: daemon set \"web\" rollout failed: revision 2: it failed on 1 of 3 nodes (n";
    assert!(ran.code == 1 && ran.err.starts_with(failed), "{}", ran.err);
    assert!(
        ran.out.contains("\nthe rollout was stopped: "),
        "{}",
        ran.out
    );
    for line in ["--watch=false", "--watch=false -o json"] {
        let look = stage
            .lab
            .run(&format!("rollout status ds/web {line}"))
            .await;
        assert!(
            look.code == 1 && look.err.starts_with(failed),
            "{}",
            look.err
        );
    }
    // Neither does a pause beside it make anybody wait.
    stage.lab.ok("rollout pause ds/web").await;
    let ran = stage.lab.run("rollout status ds/web").await;
    assert!(ran.code == 1 && ran.err.starts_with(failed), "{}", ran.err);
    stage.lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_revision_that_fails_with_nothing_to_go_back_to_ends_the_status_with_1() {
    let stage = Stage::with_nodes(1).await;
    let annotated = "  annotations: {muster.dev/on-failure: rollback}\nspec:";
    let text = WEB.replacen("spec:", annotated, 1);
    let file = stage.lab.file("web.yaml", &text);
    stage.lab.ok(&format!("apply -f {file}")).await;
    stage.until(1, 0).await;
    stage.others_crash().await;
    let ran = stage.lab.run("rollout status ds/web").await;
    let failed =
        "error: daemon set \"web\" rollout failed: revision 1: it failed on 1 of 1 nodes (n0: ";
    assert!(ran.code == 1 && ran.err.starts_with(failed), "{}", ran.err);
    stage.lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn coverage_is_of_the_namespace_that_is_named_or_of_all() {
    let stage = Stage::with_nodes(1).await;
    for namespace in ["default", "edge"] {
        let text = WEB.replacen(
            "  name: web",
            &format!("  name: web\n  namespace: {namespace}"),
            1,
        );
        let file = stage.lab.file("web.yaml", &text);
        let line = format!("apply --create-namespace -f {file}");
        stage.lab.ok(&line).await;
    }
    let rows = async |line: &str| {
        let text = stage.lab.ok(&format!("{line} -o json")).await;
        let rows: Value = serde_json::from_str(&text).unwrap();
        let rows = rows["rows"].as_array().unwrap().clone();
        let named = rows.iter().map(|row| row["namespace"].as_str().unwrap());
        named.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(rows("coverage").await, "default edge");
    assert_eq!(rows("coverage -n edge").await, "edge");
    assert_eq!(rows("coverage -n default").await, "default");
    let ran = stage.lab.run("coverage -n nowhere --max-age=0").await;
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (0, "", "No DaemonSets in nowhere namespace, or no nodes\n")
    );
    stage.lab.stop().await;
}

/// `web` with this image on one node, to be taken back when it fails.
fn guarded(stage: &Stage, image: &str) -> String {
    let annotated = "  annotations: {muster.dev/on-failure: rollback}\nspec:";
    let text = WEB.replacen("spec:", annotated, 1);
    stage
        .lab
        .file("web.yaml", &text.replace("nginx:1.27", image))
}

/// Applies an image that crashes, and plays the node until the earlier one runs again.
async fn fails_and_is_taken_back(stage: &Stage) {
    let file = guarded(stage, "nginx:1.28");
    stage.lab.ok(&format!("apply -f {file}")).await;
    for step in ["the new pod crashes", "the old one is back"] {
        stage.until(0, 1).await;
        stage.one_gone().await;
        stage.until(1, 0).await;
        match step {
            "the new pod crashes" => stage.others_crash().await,
            _ => stage.all_ready().await,
        }
    }
    let ran = stage.lab.run("rollout status ds/web").await;
    assert!(
        ran.code == 1 && ran.err.contains(" took its place"),
        "{}{}",
        ran.out,
        ran.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_way_back_is_told_until_somebody_says_that_he_knows() {
    let stage = Stage::with_nodes(1).await;
    let file = guarded(&stage, "nginx:1.27");
    stage.lab.ok(&format!("apply -f {file}")).await;
    stage.until(1, 0).await;
    stage.all_ready().await;
    stage.lab.ok("rollout status ds/web").await;
    fails_and_is_taken_back(&stage).await;
    // The pipeline of the revert: its manifest says what runs already.
    let file = guarded(&stage, "nginx:1.27");
    stage.lab.ok(&format!("apply -f {file}")).await;
    stage.lab.ok("rollout status ds/web").await;
    fails_and_is_taken_back(&stage).await;
    // `rollout status || rollout undo`: it is undone already, and no revision before that is meant.
    assert_eq!(
        stage.lab.ok("rollout undo ds/web").await,
        "daemonset.apps/web skipped rollback (current template already matches revision 5)\n"
    );
    stage.lab.ok("rollout status ds/web").await;
    stage.lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_puts_back_is_no_failure() {
    let stage = running("muster.dev/on-failure: halt").await;
    stage.lab.ok("set image ds/web web=nginx:1.28").await;
    stage.until(2, 1).await;
    stage.one_gone().await;
    stage.until(3, 0).await;
    stage.others_crash().await;
    assert_eq!(stage.lab.run("rollout status ds/web").await.code, 1);
    stage.lab.ok("rollout undo ds/web").await;
    stage.until(2, 1).await;
    stage.one_gone().await;
    stage.until(3, 0).await;
    stage.all_ready().await;
    stage.lab.ok("rollout status ds/web").await;
    stage.lab.stop().await;
}
