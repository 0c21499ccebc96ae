//! What every runtime does alike: run over the double and over real Docker.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use muster_agent::runtime::labels::{self, Owner};
use muster_agent::runtime::{
    ContainerId, ContainerSpec, ContainerState, ContainerView, Labels, LogOptions, Namespace,
    Runtime, RuntimeError, SandboxSpec,
};

/// What a container of the suite is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Prints a line once it heeds SIGTERM, idles, and ends with 0 on that signal.
    Idle,
    /// Prints `one`, `two` and `three`, a line each, and ends with 3.
    PrintAndExit,
    /// Idles and ignores SIGTERM.
    Stubborn,
    /// Has no such command.
    CommandMissing,
}

/// Two nodes on one engine.
pub(crate) struct World {
    /// The nodes' views.
    pub(crate) nodes: [Arc<dyn Runtime>; 2],
    /// Whose they are.
    pub(crate) owners: [Owner; 2],
    /// Image and entry point of a role.
    pub(crate) program: fn(Role) -> (&'static str, Option<Vec<String>>),
}

impl World {
    fn first(&self) -> &dyn Runtime {
        self.nodes[0].as_ref()
    }
}

fn pod_labels(uid: &str, container: &str) -> Labels {
    [(labels::POD_UID, uid), (labels::CONTAINER_NAME, container)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// A sandbox of a pod of this node, named so that nothing else on the engine has that name.
pub(crate) fn sandbox_spec(owner: &Owner, pod: &str) -> SandboxSpec {
    let uid = uid_of(owner, pod);
    SandboxSpec {
        name: format!("k8s_POD_{pod}_default_{uid}_0"),
        labels: pod_labels(&uid, labels::SANDBOX_CONTAINER_NAME),
        hostname: pod.to_owned(),
        ipc: Namespace::Shareable,
        ..SandboxSpec::default()
    }
}

/// A container of that pod, in the sandbox when there is one and else in the host's network.
pub(crate) fn container_spec(
    world: &World,
    node: usize,
    pod: &str,
    sandbox: Option<&ContainerId>,
    role: Role,
) -> ContainerSpec {
    let uid = uid_of(&world.owners[node], pod);
    let (image, entrypoint) = (world.program)(role);
    let joined = sandbox.map_or(Namespace::Host, |id| Namespace::Container(id.clone()));
    ContainerSpec {
        name: format!("k8s_c_{pod}_default_{uid}_0"),
        labels: pod_labels(&uid, "c"),
        image: image.to_owned(),
        entrypoint,
        network: joined.clone(),
        ipc: joined,
        ..ContainerSpec::default()
    }
}

/// The UID of a pod of the suite.
pub(crate) fn uid_of(owner: &Owner, pod: &str) -> String {
    format!("{}-{pod}", owner.node)
}

/// The container as the node shows it.
pub(crate) async fn view(runtime: &dyn Runtime, id: &ContainerId) -> Option<ContainerView> {
    runtime
        .list()
        .await
        .unwrap()
        .into_iter()
        .find(|view| view.id == *id)
}

/// Waits until a container's state is as wanted.
pub(crate) async fn until(
    runtime: &dyn Runtime,
    id: &ContainerId,
    wanted: impl Fn(&ContainerState) -> bool,
) -> ContainerView {
    let looked = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            match view(runtime, id).await {
                Some(view) if wanted(&view.state) => return view,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    looked
        .await
        .unwrap_or_else(|_| panic!("{id:?} never came to the wanted state"))
}

/// Waits for the line of [`Role::Idle`]: until then process 1 of a container does not hear of SIGTERM.
async fn until_idle(runtime: &dyn Runtime, id: &ContainerId) {
    let follow = LogOptions {
        follow: true,
        ..LogOptions::default()
    };
    let mut log = runtime.logs(id, &follow).await.unwrap();
    let line = tokio::time::timeout(Duration::from_secs(60), log.next()).await;
    assert!(matches!(line, Ok(Some(Ok(_)))), "{id:?} printed nothing");
}

fn runs(state: &ContainerState) -> bool {
    matches!(state, ContainerState::Running { .. })
}

/// A pod's life from sandbox to removal; every step may be said twice.
pub(crate) async fn na_028_a_pods_life(world: &World) {
    let runtime = world.first();
    let spec = sandbox_spec(&world.owners[0], "life");
    let sandbox = runtime.run_sandbox(&spec).await.unwrap();
    let shown = view(runtime, &sandbox).await.unwrap();
    assert_eq!(shown.name, spec.name);
    for label in world.owners[0].stamp(&spec.labels) {
        assert_eq!(shown.labels.get(&label.0), Some(&label.1), "{shown:?}");
    }
    assert!(runs(&shown.state), "{shown:?}");
    assert!(
        shown
            .ip
            .is_some_and(|ip| ip.parse::<std::net::IpAddr>().is_ok())
    );

    let spec = container_spec(world, 0, "life", Some(&sandbox), Role::Idle);
    let id = runtime.create(&spec).await.unwrap();
    assert_eq!(
        view(runtime, &id).await.unwrap().state,
        ContainerState::Created
    );
    runtime.start(&id).await.unwrap();
    let started = until(runtime, &id, runs).await;
    until_idle(runtime, &id).await;
    assert_eq!(started.ip, None, "its network is the sandbox's");
    assert!(
        matches!(started.state, ContainerState::Running { pid, .. } if pid > 0),
        "{started:?}"
    );
    runtime.start(&id).await.unwrap();
    assert_eq!(
        view(runtime, &id).await.unwrap().state,
        started.state,
        "a second start changes nothing"
    );

    let uid = uid_of(&world.owners[0], "life");
    let pod: Vec<_> = runtime
        .list_pod(&uid)
        .await
        .unwrap()
        .into_iter()
        .map(|view| view.id)
        .collect();
    assert_eq!(pod, [sandbox.clone(), id.clone()], "oldest first");
    assert_eq!(runtime.list_pod("another").await.unwrap(), []);

    for _ in ["stops", "stands"] {
        runtime.stop(&id, Duration::from_secs(30)).await.unwrap();
    }
    let stopped = view(runtime, &id).await.unwrap();
    let ContainerState::Exited {
        exit_code,
        started_at,
        finished_at,
        ..
    } = stopped.state
    else {
        panic!("{stopped:?}")
    };
    assert_eq!(exit_code, 0);
    assert!(started_at <= finished_at);
    for id in [&id, &sandbox] {
        runtime.stop(id, Duration::from_secs(10)).await.unwrap();
        runtime.remove(id).await.unwrap();
        runtime.remove(id).await.unwrap();
        runtime.stop(id, Duration::from_secs(1)).await.unwrap();
        assert_eq!(view(runtime, id).await, None);
    }
    assert!(matches!(
        runtime.start(&id).await,
        Err(RuntimeError::NotFound(_))
    ));
}

/// The exit code is seen, and the log with its options.
pub(crate) async fn na_087_exit_codes_and_logs(world: &World) {
    let runtime = world.first();
    let id = runtime
        .create(&container_spec(world, 0, "logs", None, Role::PrintAndExit))
        .await
        .unwrap();
    runtime.start(&id).await.unwrap();
    let ended = until(runtime, &id, |state| {
        matches!(state, ContainerState::Exited { .. })
    })
    .await;
    assert!(
        matches!(
            ended.state,
            ContainerState::Exited {
                exit_code: 3,
                oom_killed: false,
                ..
            }
        ),
        "{ended:?}"
    );

    let read = async |options: LogOptions| {
        let chunks: Vec<_> = runtime.logs(&id, &options).await.unwrap().collect().await;
        let bytes: Vec<u8> = chunks
            .into_iter()
            .flat_map(|chunk| chunk.unwrap().to_vec())
            .collect();
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(read(LogOptions::default()).await, "one\ntwo\nthree\n");
    assert_eq!(
        read(LogOptions {
            follow: true,
            ..LogOptions::default()
        })
        .await,
        "one\ntwo\nthree\n"
    );
    assert_eq!(
        read(LogOptions {
            tail_lines: Some(2),
            ..LogOptions::default()
        })
        .await,
        "two\nthree\n"
    );
    assert_eq!(
        read(LogOptions {
            tail_lines: Some(0),
            ..LogOptions::default()
        })
        .await,
        ""
    );
    let stamped = read(LogOptions {
        timestamps: true,
        tail_lines: Some(1),
        ..LogOptions::default()
    })
    .await;
    let (stamp, line) = stamped.split_once(' ').unwrap();
    assert_eq!(
        (line, stamp.len()),
        ("three\n", "2026-01-31T10:00:00.123456789Z".len())
    );
    let stamp: jiff::Timestamp = stamp.parse().unwrap();
    let since = |since| LogOptions {
        since: Some(since),
        ..LogOptions::default()
    };
    assert!(read(since(stamp)).await.ends_with("three\n"));
    assert_eq!(read(since(stamp + Duration::from_nanos(1))).await, "");
    let missing = ContainerId("f".repeat(64));
    assert!(matches!(
        runtime.logs(&missing, &LogOptions::default()).await,
        Err(RuntimeError::NotFound(_))
    ));
}

/// A command that is missing fails the start, and the container tells.
pub(crate) async fn na_050_a_failed_start(world: &World) {
    let runtime = world.first();
    let id = runtime
        .create(&container_spec(
            world,
            0,
            "nosuch",
            None,
            Role::CommandMissing,
        ))
        .await
        .unwrap();
    let error = runtime.start(&id).await.unwrap_err();
    assert!(
        matches!(error, RuntimeError::Refused { status: 400, .. }),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .contains("executable file not found in $PATH"),
        "{error}"
    );
    let ContainerState::StartFailed { exit_code, message } =
        view(runtime, &id).await.unwrap().state
    else {
        panic!()
    };
    assert_eq!(exit_code, 127);
    assert!(
        message.contains("executable file not found in $PATH"),
        "{message}"
    );
}

/// What ignores SIGTERM is killed at the end of the grace.
pub(crate) async fn na_074_a_stubborn_container_is_killed(world: &World) {
    let runtime = world.first();
    let id = runtime
        .create(&container_spec(world, 0, "stubborn", None, Role::Stubborn))
        .await
        .unwrap();
    runtime.start(&id).await.unwrap();
    runtime.stop(&id, Duration::from_secs(1)).await.unwrap();
    let stopped = view(runtime, &id).await.unwrap();
    assert!(
        matches!(stopped.state, ContainerState::Exited { exit_code: 137, .. }),
        "{stopped:?}"
    );
}

/// A node sees, and hears of, its own containers alone.
pub(crate) async fn na_100_two_nodes_share_an_engine(world: &World) {
    let mut heard = [
        world.nodes[0].events().await.unwrap(),
        world.nodes[1].events().await.unwrap(),
    ];
    let mut ids = Vec::new();
    for node in [0, 1] {
        let spec = container_spec(world, node, "shared", None, Role::Idle);
        let id = world.nodes[node].create(&spec).await.unwrap();
        world.nodes[node].start(&id).await.unwrap();
        ids.push(id);
    }
    for node in [0, 1] {
        let shown: Vec<_> = world.nodes[node]
            .list()
            .await
            .unwrap()
            .into_iter()
            .map(|view| view.id)
            .collect();
        assert_eq!(shown, [ids[node].clone()]);
        let event = tokio::time::timeout(Duration::from_secs(30), heard[node].next())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(event.pod_uid, uid_of(&world.owners[node], "shared"));
    }
    world.nodes[0]
        .stop(&ids[0], Duration::from_secs(30))
        .await
        .unwrap();
    world.nodes[0].remove(&ids[0]).await.unwrap();
    assert!(runs(
        &view(world.nodes[1].as_ref(), &ids[1]).await.unwrap().state
    ));
}

/// Of what is not there.
pub(crate) async fn na_069_an_image_that_is_absent(world: &World) {
    let runtime = world.first();
    assert_eq!(runtime.image("no:1").await, Ok(None));
    let spec = ContainerSpec {
        image: "no:1".to_owned(),
        ..container_spec(world, 0, "absent", None, Role::Idle)
    };
    let error = runtime.create(&spec).await.unwrap_err();
    assert!(
        matches!(&error, RuntimeError::NotFound(text) if text.contains("No such image: no:1")),
        "{error:?}"
    );
    let (name, _) = (world.program)(Role::Idle);
    let image = runtime.image(name).await.unwrap().unwrap();
    assert!(
        image.id.starts_with("sha256:") && image.tags.contains(&name.to_owned()),
        "{image:?}"
    );
    assert_eq!(runtime.image(&image.id).await, Ok(Some(image)));
}

/// A name is freed of a dead container of the same pod, and left to anybody else.
pub(crate) async fn a_name_that_is_taken(world: &World) {
    let runtime = world.first();
    let spec = container_spec(world, 0, "taken", None, Role::Idle);
    let dead = runtime.create(&spec).await.unwrap();
    let second = runtime.create(&spec).await.unwrap();
    assert_eq!(view(runtime, &dead).await, None, "it made room");
    assert_eq!(view(runtime, &second).await.unwrap().name, spec.name);

    runtime.start(&second).await.unwrap();
    let third = runtime.create(&spec).await.unwrap();
    let name = view(runtime, &third).await.unwrap().name;
    let suffix = name
        .strip_prefix(&format!("{}_", spec.name))
        .unwrap_or_else(|| panic!("{name}"));
    assert!(
        suffix.len() == 8 && suffix.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{name}"
    );
    assert!(
        runs(&view(runtime, &second).await.unwrap().state),
        "a running one stays"
    );

    let other = world.nodes[1].create(&spec).await.unwrap();
    assert_ne!(
        view(world.nodes[1].as_ref(), &other).await.unwrap().name,
        spec.name
    );
    assert!(
        view(runtime, &second).await.is_some(),
        "another node's container stays"
    );
}

/// A dead sandbox cannot be joined.
pub(crate) async fn a_sandbox_that_is_dead(world: &World) {
    let runtime = world.first();
    let sandbox = runtime
        .run_sandbox(&sandbox_spec(&world.owners[0], "dead"))
        .await
        .unwrap();
    let id = runtime
        .create(&container_spec(
            world,
            0,
            "dead",
            Some(&sandbox),
            Role::Idle,
        ))
        .await
        .unwrap();
    runtime
        .stop(&sandbox, Duration::from_secs(10))
        .await
        .unwrap();
    let stopped = view(runtime, &sandbox).await.unwrap();
    assert!(
        matches!(stopped.state, ContainerState::Exited { exit_code: 0, .. }),
        "{stopped:?}"
    );
    assert_eq!(stopped.ip, None);
    let error = runtime.start(&id).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("cannot join network of a non running container"),
        "{error:?}"
    );
    assert!(!error.is_engine_trouble());
}
