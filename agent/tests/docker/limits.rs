//! What a container may use, and what becomes of one that wants more.

use std::time::Duration;

use futures::StreamExt;
use muster_agent::runtime::{ContainerSpec, ContainerState, ContainerView, Resources, Security};

use super::Docker;
use super::contract::{uid_of, until};

#[tokio::test]
async fn na_037_042_043_limits_and_privileges_arrive_in_the_container() {
    let docker = Docker::new().await;
    let script = "grep -E '^(CapEff|NoNewPrivs|Groups):' /proc/1/status; id -u; id -g; touch /x 2>/dev/null && echo written";
    let security = Security {
        groups: vec!["2000".to_owned()],
        cap_add: vec!["NET_BIND_SERVICE".to_owned()],
        cap_drop: vec!["ALL".to_owned()],
        read_only_root: true,
        options: vec!["no-new-privileges".to_owned()],
        ..Security::default()
    };
    let resources = Resources {
        cpu_shares: 102,
        cpu_period: 100_000,
        cpu_quota: 25_000,
        memory: 67_108_864,
        memory_swap: 67_108_864,
        oom_score_adj: 1000,
    };
    let spec = ContainerSpec {
        security,
        resources,
        ..docker.script("limits", script)
    };
    let output = docker.output(&spec).await;
    assert!(output.contains("CapEff:\t0000000000000400\n"), "{output}");
    assert!(output.contains("NoNewPrivs:\t1\n"), "{output}");
    assert!(
        output.contains("2000") && output.contains("\n0\n0\n") && !output.contains("written"),
        "{output}"
    );

    let security = Security {
        user: "1000:3000".to_owned(),
        ..Security::default()
    };
    let spec = ContainerSpec {
        security,
        ..docker.script("user", "id -u; id -g")
    };
    assert_eq!(docker.output(&spec).await, "1000\n3000\n");
}

/// Runs a container over its memory limit to its end, and answers how a pod's worker is shown it.
async fn starved(docker: &Docker) -> ContainerView {
    let resources = Resources {
        memory: 16 << 20,
        memory_swap: 16 << 20,
        ..Resources::default()
    };
    let spec = ContainerSpec {
        resources,
        ..docker.script("oom", "exec dd if=/dev/zero of=/dev/null bs=200M count=1")
    };
    let id = docker.runtime().create(&spec).await.unwrap();
    docker.runtime().start(&id).await.unwrap();
    until(docker.runtime(), &id, |state| {
        matches!(state, ContainerState::Exited { .. })
    })
    .await;
    let uid = uid_of(&docker.world.owners[0], "oom");
    let mut shown = docker.runtime().list_pod(&uid).await.unwrap();
    docker.runtime().remove(&id).await.unwrap();
    shown.pop().unwrap()
}

#[tokio::test]
async fn na_068_a_container_over_its_memory_limit_is_told_as_such() {
    let docker = Docker::new().await;
    // The engine tells of it only by an event when it heard of the end first.
    let mut heard = docker.runtime().events().await.unwrap();
    // On a busy machine the engine itself misses one in ten altogether: then nobody can tell.
    let told = async {
        loop {
            let ended = starved(&docker).await;
            match ended.state {
                ContainerState::Exited {
                    exit_code: 137,
                    oom_killed: true,
                    ..
                } => return,
                ContainerState::Exited { exit_code: 137, .. } => {}
                _ => panic!("{ended:?}"),
            }
        }
    };
    tokio::select! {
        told = tokio::time::timeout(Duration::from_secs(60), told) => told.expect("it is never told"),
        () = async { while heard.next().await.is_some() {} } => panic!("the events ended"),
    }
}
