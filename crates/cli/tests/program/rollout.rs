//! Scenarios of spec/daemonset.md 18 about rollouts, with nodes that really run the pods.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::Duration;

use muster_agent::runtime::memory::Behaviour;
use muster_model::kind::{CONTROLLER_REVISION, DAEMON_SET};
use muster_model::object::Object;
use muster_testkit::Cluster;
use muster_testkit::check::{Watchful, Witness};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::muster::{Said, cluster, command, muster};
use crate::{WEB, file};

const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// A cluster of these nodes that run `web`.
async fn running(nodes: &[&str]) -> Cluster {
    let cluster = cluster(nodes).await;
    let web = file(&cluster, "web.yaml", WEB);
    said(&cluster, "apply -f", &[&web]).await;
    cluster
        .until_ready("web", i64::try_from(nodes.len()).unwrap())
        .await;
    said(&cluster, "rollout status ds/web", &[]).await;
    cluster
}

/// What a command that succeeds prints.
async fn said(cluster: &Cluster, line: &str, more: &[&str]) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    words.extend(more);
    let said: Said = muster(cluster, &words).await;
    assert_eq!(said.code, 0, "{words:?}: {said:?}");
    said.out
}

fn web(cluster: &Cluster) -> Object {
    cluster.object(&DAEMON_SET, "web").unwrap()
}

fn names(pods: &[Object]) -> BTreeSet<String> {
    pods.iter().map(|pod| pod.name().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_118_restart_replaces_every_pod_within_the_limit() {
    let cluster = running(&["n1", "n2", "n3"]).await;
    let (before, old) = (web(&cluster), names(&cluster.pods_of("web")));
    let budget = Watchful {
        pods_per_node: 1,
        budgets: BTreeMap::from([("web".to_owned(), 1)]),
    };
    let witness = Witness::start(cluster.registry().cache(), budget);
    assert_eq!(
        said(&cluster, "rollout restart ds/web", &[]).await,
        "daemonset.apps/web restarted\n"
    );
    said(&cluster, "rollout status ds/web", &[]).await;
    assert_eq!(witness.finish().await, Vec::<String>::new());

    let after = web(&cluster);
    assert_eq!(after.generation(), before.generation() + 1);
    let annotations = after.at("/spec/template/metadata/annotations").unwrap();
    let at = annotations[RESTARTED_AT].as_str().unwrap();
    let pods = cluster.pods_of("web");
    assert_eq!(pods.len(), 3);
    assert_eq!(names(&pods).intersection(&old).count(), 0);
    for pod in &pods {
        assert_eq!(pod.annotation(RESTARTED_AT), Some(at));
    }
    let numbers: BTreeSet<i64> = cluster
        .objects(&CONTROLLER_REVISION)
        .iter()
        .filter_map(|revision| revision.at("/revision").and_then(Value::as_i64))
        .collect();
    assert_eq!(numbers, BTreeSet::from([1, 2]));
    cluster.stop().await;
}

/// kubectl refuses both by itself, without a request. In Muster they work, and the DaemonSet is unchanged all the same:
/// spec, generation and template stay as they are, and so do the pods.
#[tokio::test(flavor = "multi_thread")]
async fn ds_119_pause_and_resume_leave_spec_generation_and_template_as_they_are() {
    let cluster = running(&["n1", "n2"]).await;
    let (before, pods) = (web(&cluster), names(&cluster.pods_of("web")));
    let same = |paused: Option<&str>| {
        let now = web(&cluster);
        assert_eq!(now.at("/spec"), before.at("/spec"));
        assert_eq!(now.generation(), before.generation());
        assert_eq!(now.annotation("muster.dev/paused"), paused);
        let template = "deprecated.daemonset.template.generation";
        assert_eq!(now.annotation(template), before.annotation(template));
        assert_eq!(names(&cluster.pods_of("web")), pods);
        assert_eq!(cluster.objects(&CONTROLLER_REVISION).len(), 1);
    };
    assert_eq!(
        said(&cluster, "rollout pause ds/web", &[]).await,
        "daemonset.apps/web paused\n"
    );
    same(Some("true"));
    let again = muster(&cluster, &["rollout", "pause", "ds/web"]).await;
    assert_eq!(
        (again.code, again.err.as_str()),
        (1, "error: daemonsets.apps \"web\" is already paused\n")
    );
    same(Some("true"));
    assert_eq!(
        said(&cluster, "rollout resume ds/web", &[]).await,
        "daemonset.apps/web resumed\n"
    );
    same(None);
    let again = muster(&cluster, &["rollout", "resume", "ds/web"]).await;
    assert_eq!(
        (again.code, again.err.as_str()),
        (1, "error: daemonsets.apps \"web\" is not paused\n")
    );
    same(None);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_rollout_goes_on_after_resume_once_its_cause_is_mended() {
    let cluster = running(&["n1", "n2"]).await;
    said(&cluster, "annotate ds/web muster.dev/on-failure=halt", &[]).await;
    let engine = cluster.engine();
    engine.add_image("web:2");
    engine.set_behaviour("web:2", Behaviour::command_missing("web"));
    said(&cluster, "set image ds/web *=web:2", &[]).await;
    let status = muster(&cluster, &["rollout", "status", "ds/web"]).await;
    assert_eq!(status.code, 1, "{status:?}");
    engine.set_behaviour("web:2", Behaviour::default());
    assert_eq!(
        said(&cluster, "rollout resume ds/web", &[]).await,
        "daemonset.apps/web resumed\n"
    );
    said(&cluster, "rollout status ds/web", &[]).await;
    cluster.stop().await;
}

/// An event of the controller's about `web` that needs a store that fails.
async fn tell(cluster: &Cluster, reason: &str, message: &str) {
    let web = web(cluster);
    let now = muster_model::time::to_seconds_text(cluster.clock().now());
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("web.{}", reason.to_lowercase()), "namespace": "default"},
        "involvedObject": {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web", "namespace": "default", "uid": web.uid()},
        "type": "Warning", "reason": reason, "message": message, "count": 1,
        "source": {"component": "daemonset-controller"}, "firstTimestamp": now, "lastTimestamp": now,
    });
    let event = Object::from_value(event).unwrap();
    cluster.create(&event).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_120_describe_shows_the_layout_and_the_four_reasons() {
    let cluster = running(&["n1", "n2"]).await;
    let old = names(&cluster.pods_of("web"));
    said(&cluster, "set image ds/web main=img:2", &[]).await;
    said(&cluster, "rollout status ds/web", &[]).await;
    let new = names(&cluster.pods_of("web"));
    tell(&cluster, "FailedCreate", "Error creating: no space left").await;
    tell(&cluster, "FailedDelete", "Error deleting: no space left").await;
    // Events are written a little after what they tell of.
    let mut created = Vec::from_iter(old.union(&new).cloned());
    created.sort();
    let described = cluster
        .eventually(
            "every event is written",
            std::time::Duration::from_secs(30),
            async || {
                let text = said(&cluster, "describe ds web", &[]).await;
                let all = text.matches("Created pod: ").count() == created.len()
                    && text.matches("Deleted pod: ").count() == old.len();
                all.then_some(text)
            },
        )
        .await;
    let (object, events) = described.split_once("Events:\n").unwrap();
    assert_eq!(
        object,
        "\
Name:           web
Namespace:      default
Selector:       app=web
Node-Selector:  <none>
Labels:         <none>
Annotations:    deprecated.daemonset.template.generation: 2
Desired Number of Nodes Scheduled: 2
Current Number of Nodes Scheduled: 2
Number of Nodes Scheduled with Up-to-date Pods: 2
Number of Nodes Scheduled with Available Pods: 2
Number of Nodes Misscheduled: 0
Pods Status:  2 Running / 0 Waiting / 0 Succeeded / 0 Failed
Pod Template:
  Labels:  app=web
  Containers:
   main:
    Image:         img:2
    Port:          <none>
    Host Port:     <none>
    Environment:   <none>
    Mounts:        <none>
  Volumes:         <none>
  Node-Selectors:  <none>
  Tolerations:     <none>
"
    );
    let mut lines = events.lines();
    let title: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(title, ["Type", "Reason", "Age", "From", "Message"]);
    let rule: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(rule, ["----", "------", "----", "----", "-------"]);
    let mut told: Vec<[String; 4]> = lines
        .map(|line| {
            let cells: Vec<&str> = line.split("  ").filter(|cell| !cell.is_empty()).collect();
            let [type_, reason, _age, from, message] = cells[..] else {
                panic!("{line:?}")
            };
            [type_, reason, from, message].map(|cell| cell.trim().to_owned())
        })
        .collect();
    told.sort();
    let told_of = |type_: &str, reason: &str, message: String| {
        let from = "daemonset-controller".to_owned();
        [type_.to_owned(), reason.to_owned(), from, message]
    };
    let mut expected = vec![
        told_of(
            "Warning",
            "FailedCreate",
            "Error creating: no space left".to_owned(),
        ),
        told_of(
            "Warning",
            "FailedDelete",
            "Error deleting: no space left".to_owned(),
        ),
    ];
    for pod in &created {
        expected.push(told_of(
            "Normal",
            "SuccessfulCreate",
            format!("Created pod: {pod}"),
        ));
    }
    for pod in &old {
        expected.push(told_of(
            "Normal",
            "SuccessfulDelete",
            format!("Deleted pod: {pod}"),
        ));
    }
    expected.sort();
    assert_eq!(told, expected);
    cluster.stop().await;
}

/// Reads lines until one holds this text, which must come.
async fn line_with(lines: &mut (impl AsyncBufReadExt + Unpin), text: &str) {
    let mut seen = String::new();
    let found = async {
        loop {
            let before = seen.len();
            let read = lines.read_line(&mut seen).await.unwrap();
            assert!(read > 0, "{text:?} was expected: {seen}");
            if seen[before..].contains(text) {
                return;
            }
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(60), found).await;
    assert!(found.is_ok(), "{text:?} was expected in time");
}

fn lines<R: AsyncRead + Unpin>(stream: Option<R>) -> BufReader<R> {
    BufReader::new(stream.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_waits_outlives_a_server_that_is_away() {
    let mut cluster = running(&["n1"]).await;
    said(&cluster, "rollout pause ds/web", &[]).await;
    said(&cluster, "set image ds/web main=img:2", &[]).await;
    let mut status = command(
        &cluster,
        &["rollout", "status", "ds/web", "--revision=2", "-v"],
    )
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let (mut out, mut err) = (lines(status.stdout.take()), lines(status.stderr.take()));
    line_with(&mut out, "the rollout is paused").await;
    cluster.stop_server().await;
    line_with(&mut err, "was refused").await;
    cluster.start_server().await.unwrap();
    said(&cluster, "rollout resume ds/web", &[]).await;
    line_with(&mut out, "successfully rolled out").await;
    assert_eq!(status.wait().await.unwrap().code(), Some(0));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_without_a_terminal_says_what_holds_the_nodes_that_are_left() {
    let cluster = running(&["n1", "n2"]).await;
    said(&cluster, "annotate ds/web muster.dev/partition=1", &[]).await;
    said(&cluster, "set image ds/web main=img:2", &[]).await;
    let mut status = command(&cluster, &["rollout", "status", "ds/web"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = lines(status.stdout.take());
    line_with(
        &mut out,
        "the partition keeps 1 node on the older revision\n",
    )
    .await;
    said(&cluster, "annotate ds/web muster.dev/partition-", &[]).await;
    line_with(&mut out, "successfully rolled out").await;
    assert_eq!(status.wait().await.unwrap().code(), Some(0));
    cluster.stop().await;
}
