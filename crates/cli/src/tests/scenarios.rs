//! Scenarios of spec/daemonset.md 18 that are about the words of `rollout`.

use super::stage::Stage;
use super::{Lab, WEB};

const IMAGE: &str = "get ds/web -o jsonpath={.spec.template.spec.containers[0].image}";

/// A lab without nodes, where each of these images was rolled out in turn.
async fn rolled(images: &[&str]) -> Lab {
    let lab = Lab::start().await;
    let (first, others) = images.split_first().unwrap();
    let file = lab.file("web.yaml", &WEB.replace("nginx:1.27", first));
    lab.ok(&format!("apply -f {file}")).await;
    lab.ok("rollout status ds/web").await;
    for image in others {
        lab.ok(&format!("set image ds/web web={image}")).await;
        lab.ok("rollout status ds/web").await;
    }
    lab
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_115_status_prints_each_kind_of_waiting_with_rising_numbers() {
    let stage = Stage::with_nodes(5).await;
    let two_at_a_time = WEB.replace(
        "  template:\n",
        "  updateStrategy: {rollingUpdate: {maxUnavailable: 2}}\n  template:\n",
    );
    let file = stage.lab.file("web.yaml", &two_at_a_time);
    stage.lab.ok(&format!("apply -f {file}")).await;
    stage.until(5, 0).await;
    stage.all_ready().await;
    stage.lab.ok("rollout status ds/web").await;

    stage.lab.ok("set image ds/web web=nginx:1.28").await;
    stage.until(3, 2).await;
    let updated = |number: usize| {
        format!(
            "Waiting for daemon set \"web\" rollout to finish: {number} out of 5 new pods have been updated...\n"
        )
    };
    let available =
        "Waiting for daemon set \"web\" rollout to finish: 4 of 5 updated pods are available...\n";
    let (status, printed) = stage.start("rollout status ds/web");
    let roll = async {
        printed.is(&updated(0)).await;
        for number in [1, 2] {
            stage.one_gone().await;
            printed.is(&updated(number)).await;
        }
        stage.until(5, 0).await;
        stage.all_ready().await;
        stage.until(3, 2).await;
        for number in [3, 4] {
            stage.one_gone().await;
            printed.is(&updated(number)).await;
        }
        stage.until(5, 0).await;
        stage.all_ready().await;
        stage.until(4, 1).await;
        stage.one_gone().await;
        printed.is(available).await;
        stage.until(5, 0).await;
        stage.all_ready().await;
    };
    let (ran, ()) = tokio::join!(status, roll);
    let mut lines: String = (0..5).map(updated).collect();
    lines.push_str(available);
    lines.push_str("daemon set \"web\" successfully rolled out\n");
    assert_eq!((ran.code, ran.out, ran.err.as_str()), (0, lines, ""));
    stage.lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_115_on_delete_has_no_status() {
    let lab = Lab::start().await;
    let on_delete = WEB.replace(
        "  template:\n",
        "  updateStrategy: {type: OnDelete}\n  template:\n",
    );
    let file = lab.file("web.yaml", &on_delete);
    lab.ok(&format!("apply -f {file}")).await;
    let ran = lab.run("rollout status ds/web").await;
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (
            1,
            "",
            "error: rollout status is only available for RollingUpdate strategy type\n"
        )
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_116_history_after_an_undo_lists_what_is_left() {
    let lab = rolled(&["img:1", "img:2", "img:3"]).await;
    lab.ok("rollout undo ds/web --to-revision=1").await;
    lab.ok("rollout status ds/web").await;
    assert_eq!(
        lab.ok("rollout history ds/web").await,
        "daemonset.apps/web \nREVISION  CHANGE-CAUSE\n2         <none>\n3         <none>\n4         <none>\n\n"
    );
    assert_eq!(
        lab.ok("rollout history ds/web --revision=4").await,
        "daemonset.apps/web with revision #4\nPod Template:\n  Labels:\tapp=web\n  Containers:\n   web:\n    \
         Image:\timg:1\n    Port:\t<none>\n    Host Port:\t<none>\n    Environment:\t<none>\n    \
         Mounts:\t<none>\n  Volumes:\t<none>\n  Node-Selectors:\t<none>\n  Tolerations:\t<none>\n\n"
    );
    let gone = lab.run("rollout history ds/web --revision=1").await;
    assert_eq!(
        (gone.code, gone.err.as_str()),
        (1, "error: unable to find the specified revision\n")
    );
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_117_undo_twice_toggles_and_to_the_current_one_changes_nothing() {
    let lab = rolled(&["img:1", "img:2"]).await;
    for image in ["img:1", "img:2", "img:1"] {
        assert_eq!(
            lab.ok("rollout undo ds/web").await,
            "daemonset.apps/web rolled back\n"
        );
        lab.ok("rollout status ds/web").await;
        assert_eq!(lab.ok(IMAGE).await, image);
    }
    let version = "get ds/web -o jsonpath={.metadata.generation}/{.metadata.resourceVersion}";
    let before = lab.ok(version).await;
    assert!(before.starts_with("5/"), "{before}");
    assert_eq!(
        lab.ok("rollout undo ds/web --to-revision=5").await,
        "daemonset.apps/web skipped rollback (current template already matches revision 5)\n"
    );
    assert_eq!(lab.ok(version).await, before);
    assert_eq!(
        lab.ok("rollout history ds/web").await,
        "daemonset.apps/web \nREVISION  CHANGE-CAUSE\n4         <none>\n5         <none>\n\n"
    );
    lab.stop().await;
}
