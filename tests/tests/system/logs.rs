//! Logs through the tunnel.

use std::time::Duration;

use futures::StreamExt;
use muster_agent::runtime::ContainerId;
use muster_agent::runtime::memory::{Behaviour, Exit};
use muster_client::ClientError;
use muster_model::kind::POD;
use muster_proto::v1::LogsQuery;
use muster_testkit::check;
use muster_testkit::{Cluster, build, is_ready};
use serde_json::json;

use crate::support::cluster;

fn query(pod: &str) -> LogsQuery {
    LogsQuery {
        namespace: "default".to_owned(),
        pod: pod.to_owned(),
        ..LogsQuery::default()
    }
}

async fn read(cluster: &Cluster, query: LogsQuery) -> Result<String, ClientError> {
    let admin = cluster.admin();
    let fault = |status: tonic::Status| admin.fault(&status);
    let mut stream = admin.pods().logs(query).await.map_err(fault)?.into_inner();
    let mut text = String::new();
    while let Some(chunk) = stream.next().await {
        text.push_str(&String::from_utf8_lossy(&chunk.map_err(fault)?.data));
    }
    Ok(text)
}

fn main_container(cluster: &Cluster) -> ContainerId {
    let all = check::containers_of(cluster.engine(), "n1");
    let newest = all
        .into_iter()
        .rfind(|container| container.name.starts_with("k8s_main_"));
    newest.unwrap().id
}

async fn talker(cluster: &Cluster, behaviour: Behaviour) {
    cluster.engine().add_image("talk:1");
    cluster.engine().set_behaviour("talk:1", behaviour);
    let pod = build::pod("talker", "n1").image("talk:1").object();
    cluster.create(&pod).await.unwrap();
    cluster
        .until("it talks", || {
            cluster
                .object(&POD, "talker")
                .is_some_and(|pod| is_ready(&pod))
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn na_087_the_last_lines_with_stamps_and_the_run_before_a_crash() {
    let cluster = cluster(&["n1"]).await;
    let behaviour = Behaviour {
        log_lines: ["one", "two", "three"].map(str::to_owned).to_vec(),
        exits: vec![Exit::new(Duration::from_secs(60), 1)],
        ..Behaviour::default()
    };
    talker(&cluster, behaviour).await;
    assert_eq!(
        read(&cluster, query("talker")).await.unwrap(),
        "one\ntwo\nthree\n"
    );
    let stamped = LogsQuery {
        tail_lines: Some(2),
        timestamps: true,
        ..query("talker")
    };
    let text = read(&cluster, stamped).await.unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2);
    for (line, word) in lines.iter().zip(["two", "three"]) {
        let (stamp, rest) = line.split_once(' ').unwrap();
        assert_eq!(rest, word);
        assert!(stamp.ends_with('Z') && stamp.len() == 30, "{stamp}");
    }
    let previous = LogsQuery {
        previous: true,
        ..query("talker")
    };
    let error = read(&cluster, previous.clone()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "previous terminated container \"main\" in pod \"talker\" not found"
    );
    let former = main_container(&cluster);
    cluster.engine().write_log(&former, "last words");
    cluster
        .eventually("it was restarted", Duration::from_secs(600), async || {
            let pod = cluster.object(&POD, "talker").unwrap();
            let restarted = pod.at("/status/containerStatuses/0/restartCount") == Some(&json!(1));
            (restarted && is_ready(&pod)).then_some(())
        })
        .await;
    assert_eq!(
        read(&cluster, previous).await.unwrap(),
        "one\ntwo\nthree\nlast words\n"
    );
    assert_eq!(
        read(&cluster, query("talker")).await.unwrap(),
        "one\ntwo\nthree\n"
    );
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn na_088_following_shows_new_lines_and_ends_with_the_container() {
    let cluster = cluster(&["n1"]).await;
    let behaviour = Behaviour {
        log_lines: vec!["hello".to_owned()],
        ..Behaviour::default()
    };
    talker(&cluster, behaviour).await;
    let id = main_container(&cluster);
    let admin = cluster.admin();
    let follow = LogsQuery {
        follow: true,
        ..query("talker")
    };
    let mut stream = admin.pods().logs(follow).await.unwrap().into_inner();
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!(&first.data[..], b"hello\n");
    let long = "x".repeat(40 * 1024);
    assert!(cluster.engine().write_log(&id, &long));
    let mut text = String::new();
    while !text.ends_with('\n') {
        let chunk = stream.next().await.unwrap().unwrap();
        text.push_str(&String::from_utf8_lossy(&chunk.data));
    }
    assert_eq!(text.trim_end(), long);
    assert!(cluster.engine().end(&id, 0));
    assert!(stream.next().await.is_none());

    let limited = LogsQuery {
        limit_bytes: Some(3),
        ..query("talker")
    };
    let text = read(&cluster, limited).await.unwrap();
    assert_eq!(text.len(), 3);
    let error = read(&cluster, query("nobody")).await.unwrap_err();
    assert!(error.is_not_found(), "{error:?}");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn logs_of_a_node_that_is_cut_off_are_refused_in_words() {
    let cluster = cluster(&["n1"]).await;
    talker(&cluster, Behaviour::default()).await;
    cluster.gate("n1").unwrap().close();
    let error = read(&cluster, query("talker")).await.unwrap_err();
    assert!(error.to_string().contains("n1"), "{error}");
    cluster.gate("n1").unwrap().open();
    cluster
        .eventually("logs flow again", Duration::from_secs(300), async || {
            read(&cluster, query("talker")).await.ok()
        })
        .await;
    cluster.stop().await;
}
